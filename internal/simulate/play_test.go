// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// playOn plays n seeds from first on and fails at the first broken invariant.
func playOn(t *testing.T, opt Options, first, n uint64) (all Stats, hash uint64) {
	t.Helper()
	pl := NewPlayer(opt)
	for seed := first; seed < first+n; seed++ {
		res, err := pl.Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		if res.Err != nil {
			t.Fatalf("seed %d: %v\nreplay: go run ./sim -seed %d -schedules 1 -v", seed, res.Err, seed)
		}
		all.Add(&res.Stats)
		hash = mix(hash, res.Hash)
	}
	return all, hash
}

// TestSchedules plays some hundred worlds and checks I1-I10, I14-I17, I21 and I22.
// Every fault must have occurred. The hourly gate plays the same worlds (`go run ./sim
// -cells`) and also requires every cell of the transition table. F01, F02, F03, F05,
// F07, F16, F17, F35, F43 in simulation.
func TestSchedules(t *testing.T) {
	n := uint64(640)
	if testing.Short() {
		n = 64
	}
	all, _ := playOn(t, Options{Source: Drawn{}}, 0, n)
	t.Logf("%d schedules: %d transitions, %d events, %d runs, %d faults", n, all.Transitions, all.Events, all.Runs, all.FaultCount())
	if n < 640 {
		return
	}
	all.EachFault(func(name string, n int64) {
		if n == 0 {
			t.Errorf("%s never struck", name)
		}
	})
	if min(all.TasksGranted, all.TaskAnswersLost, all.TasksLost, all.TasksInterrupted, all.TasksAdopted, all.LateResults, all.TasksHandedOn, all.TasksUnstored) == 0 {
		t.Errorf("remote workers did too little: %+v", all)
	}
	if all.Scheduled.Least() == 0 {
		t.Errorf("schedules did too little: %+v", all.Scheduled)
	}
	if all.Suspended == 0 || all.Quarantined == 0 || all.Removed == 0 || all.Reads == 0 {
		t.Errorf("%d runs were suspended, %d quarantined, %d removed, %d events read: the worlds cover too little",
			all.Suspended, all.Quarantined, all.Removed, all.Reads)
	}
}

// TestOneSeedOneHistory: the same seeds give the same bytes, whatever the number of
// processors (I2).
func TestOneSeedOneHistory(t *testing.T) {
	n := uint64(96)
	if testing.Short() {
		n = 16
	}
	_, once := playOn(t, Options{Source: Drawn{}}, 4096, n)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, again := playOn(t, Options{Source: Drawn{}}, 4096, n)
	if once != again {
		t.Errorf("the same seeds gave %016x and then %016x", once, again)
	}
	_, other := playOn(t, Options{Source: Drawn{}}, 8192, n)
	if other == once {
		t.Error("other seeds give the same history: the hash sees nothing")
	}
}

// TestSeedsAreIndependent: a schedule does not depend on those that the same player has
// played before. The recipe is one whose estimate depends on prices that change.
func TestSeedsAreIndependent(t *testing.T) {
	const first = 56119044 * SeedsPerCase
	pl := NewPlayer(Options{Source: Drawn{}})
	for seed := uint64(first); seed < first+SeedsPerCase; seed++ {
		after, err := pl.Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		alone, err := NewPlayer(Options{Source: Drawn{}}).Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		if after.Hash != alone.Hash {
			t.Errorf("seed %d gives %016x after others and %016x alone", seed, after.Hash, alone.Hash)
		}
	}
}

// TestKeptSeeds plays the seeds that once found a bug. Each is a file of
// testdata/seeds named by the seed; its text is what it found.
func TestKeptSeeds(t *testing.T) {
	files, err := filepath.Glob("testdata/seeds/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no seeds are kept: %v", err)
	}
	for _, file := range files {
		seed, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(file), ".txt"), 10, 64)
		if err != nil {
			t.Errorf("%s is not named by a seed: %v", file, err)
			continue
		}
		if why, err := firstLine(file); err != nil || why == "" {
			t.Errorf("%s does not say what the seed found (%v)", file, err)
		}
		playOn(t, Options{Source: Drawn{}}, seed, 1)
	}
}

func firstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Scan()
	return s.Text(), s.Err()
}

// spoilt plays worlds without faults that are broken on purpose before phase 2, until
// one is reported with the wanted words. In some worlds the same break shows in another
// way first. It returns that report, else the last one.
func spoilt(t *testing.T, want string, spoil func(*World)) (last error) {
	t.Helper()
	pl := NewPlayer(Options{Source: Drawn{}, noFaults: true, spoil: spoil})
	for seed := range uint64(64) {
		res, err := pl.Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		if res.Err != nil {
			if last = res.Err; strings.Contains(last.Error(), want) {
				break
			}
		}
	}
	return last
}

// TestBrokenWorldsAreNoticed: each way of breaking an invariant is reported as that
// invariant. A checker that never fails proves nothing.
func TestBrokenWorldsAreNoticed(t *testing.T) {
	if err := spoilt(t, "", func(*World) {}); err != nil {
		t.Fatalf("a world in which nothing was broken: %v", err)
	}
	some := func(w *World) *runRecord {
		for _, tr := range w.checker.all {
			if !tr.deleted && tr.journal.Last() > 0 {
				return tr
			}
		}
		return nil
	}
	for want, spoil := range map[string]func(*World){
		"I1: run": func(w *World) { // another disk: what was synced is lost
			for len(w.procs) > 0 {
				w.procs[0].die()
			}
			w.mem = memory.New(memory.Options{})
			w.checker.checkSurvived()
		},
		"I14: a reader": func(w *World) { // the reader gets another event than was written
			if tr := some(w); tr != nil {
				tr.hashes[0]++
			}
		},
		"I14: account": func(w *World) { // a change comes twice
			for _, f := range w.checker.followers {
				f.last--
			}
		},
		"and the feed has": func(w *World) { // the feed was not told of a run
			for _, f := range w.checker.followers {
				clear(f.runs)
			}
		},
		"I2: run": func(w *World) { // the events give another state
			if tr := some(w); tr != nil {
				w.noFaults, tr.replica = true, machine.NewRun(w.checker.prog)
				w.checker.checkStored(tr.key)
			}
		},
		"in memory is not what": func(w *World) { // a process dies whose memory was corrupted
			for _, tr := range w.checker.all {
				tr.replica = machine.NewRun(w.checker.prog)
			}
			w.procs[0].die()
		},
		"I9: a timer is due": func(w *World) { // an engine that looks for due timers once a year
			for _, p := range w.procs {
				w.checkWakeup(p, p.now()+8_760*3_600_000_000)
			}
		},
		"I15: ": func(w *World) { // more at a time than the configuration allows
			w.faults.config.Concurrency = 0
			for _, p := range w.procs {
				for _, k := range p.tasks {
					p.checkBounds(k)
				}
			}
		},
		"I17: a stranger's cancel": func(w *World) { // a stranger learns more than that there is no such run
			if tr := some(w); tr != nil {
				w.checkRefusal(&request{kind: requestCancel, key: store.Key{Account: stranger, Run: tr.key.Run}}, fault.New(fault.TooLate, "it has ended"))
			}
		},
		"I8: run": func(w *World) { // a cancel was acknowledged that is in no journal
			if tr := some(w); tr != nil {
				w.checkAnswer(&request{kind: requestCancel, key: tr.key}, engine.Answer{Run: tr.key.Run})
			}
		},
		"dispatched twice": func(w *World) {
			for _, p := range w.procs {
				for _, k := range p.tasks {
					p.dispatch(k.run, &k.ef)
				}
			}
		},
		"which is not durable": func(w *World) {
			for _, p := range w.procs {
				for _, k := range p.tasks {
					k.ef.Fence.Attempt += 7
					p.dispatch(k.run, &k.ef)
				}
			}
		},
		"which had ended before": func(w *World) {
			for _, tr := range w.checker.all {
				for i := range tr.events {
					if ev := &tr.events[i]; ev.Kind == journal.EvNodeCompleted && ev.Attempt > 0 && !tr.deleted {
						w.procs[0].dispatch(tr, &engine.Effect{
							Key: tr.key, Ref: ev.Ref(), Task: new(machine.Task),
							Fence: journal.Fence{Gen: 1, Attempt: ev.Attempt},
						})
					}
				}
			}
		},
		"what no worker reported": func(w *World) { // a result that no worker reported
			for _, p := range w.procs {
				for _, k := range p.tasks {
					p.inbox = append(p.inbox, p.stage.Report(&k.ef, machine.Input{Kind: machine.InResult, Outcome: machine.Success, Output: []byte("1")}, false))
				}
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			err := spoilt(t, want, spoil)
			if err == nil {
				t.Fatal("no violation was reported")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("it is reported as %v", err)
			}
		})
	}
}

// mistaken panics once in a run's own code, as a bug of the machine would.
type mistaken struct{ made bool }

func (m *mistaken) Before(_ store.Key, _ *machine.Run, in *machine.Input) {
	if !m.made && in.Kind == machine.InResult {
		m.made = true
		panic("index out of range")
	}
}

func (*mistaken) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

// TestMistakesAreNoticed: a run that is quarantined because the machine panicked is
// released in phase 2 and may end. It is a violation nevertheless.
func TestMistakesAreNoticed(t *testing.T) {
	m := new(mistaken)
	pl := NewPlayer(Options{Source: Drawn{}, noFaults: true, Observe: m})
	for seed := uint64(0); !m.made && seed < 64; seed++ {
		res, err := pl.Play(seed)
		if err != nil {
			t.Fatal(err)
		}
		if m.made && (res.Err == nil || !strings.Contains(res.Err.Error(), "I16: run")) {
			t.Errorf("it is reported as %v", res.Err)
		}
	}
	if !m.made {
		t.Error("no mistake was made")
	}
}

// TestTraceIsTheHistory: the trace of a seed is the same each time, and tracing
// changes nothing.
func TestTraceIsTheHistory(t *testing.T) {
	trace := func() (lines []string, res Result) {
		pl := NewPlayer(Options{Source: Drawn{}, Trace: func(line string) { lines = append(lines, line) }})
		res, err := pl.Play(77)
		if err != nil || res.Err != nil {
			t.Fatal(err, res.Err)
		}
		return lines, res
	}
	a, res := trace()
	b, _ := trace()
	if fmt.Sprint(a) != fmt.Sprint(b) || len(a) < 10 {
		t.Errorf("two traces of one seed differ (%d and %d lines)", len(a), len(b))
	}
	silent, err := NewPlayer(Options{Source: Drawn{}}).Play(77)
	if err != nil || silent.Hash != res.Hash {
		t.Errorf("with a trace the history is %016x, without %016x (%v)", res.Hash, silent.Hash, err)
	}
}
