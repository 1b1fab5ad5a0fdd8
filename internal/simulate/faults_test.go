// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/program"
)

// TestNamedFaults plays worlds in which the faults of one row of reliability.md are
// frequent and no others occur. All invariants hold, and the faults did occur.
func TestNamedFaults(t *testing.T) {
	for _, row := range []struct {
		name   string
		rates  map[Fault]int // in 10,000
		tune   func(*World)
		struck []Fault
	}{
		{name: "F01 kill at any moment", rates: map[Fault]int{Killed: 900, KilledInCall: 400, PowerCut: 300},
			struck: []Fault{Killed, KilledInCall, PowerCut}},
		{name: "F05 F07 late, doubled and reordered reports", rates: map[Fault]int{
			ReportDelayed: 5000, ReportDoubled: 5000, ReportLate: 5000, Reordered: 5000, AttemptLost: 1500, ActionHolds: 1500},
			struck: []Fault{ReportDelayed, ReportDoubled, ReportLate, Reordered, AttemptLost, ActionHolds}},
		// An engine that will not receive an action's end must stop the action, also
		// when its run was quarantined or its batch was lost; otherwise an attempt is
		// left at the end (I22).
		{name: "F07 actions that hang", rates: map[Fault]int{ActionHangs: 2000, Panicked: 60, ReplyLost: 500, CommitRefused: 500, SlowSync: 2000},
			tune: func(w *World) { w.faults.user = 20 }, struck: []Fault{ActionHangs, Panicked, ReplyLost, CommitRefused}},
		// Timers fire once and never early (I9), and time never goes backwards (I10),
		// whatever the wall clock does while processes start and die.
		{name: "F12 wall clocks that jump, leap and stand still", rates: map[Fault]int{
			ClockForward: 600, ClockBack: 600, ClockFrozen: 600, ClockLeap: 600, Killed: 300, HandedBack: 200},
			tune:   func(w *World) { w.faults.pass = 20 },
			struck: []Fault{ClockForward, ClockBack, ClockFrozen, ClockLeap}},
		{name: "F16 lost replies of the store", rates: map[Fault]int{ReplyLost: 2500, SlowSync: 2000}, struck: []Fault{ReplyLost}},
		{name: "F17 F18 cancels and retries at any moment", rates: map[Fault]int{SlowSync: 4000, AttemptFailed: 3000, Killed: 100},
			tune: func(w *World) { w.faults.user, w.faults.delayCommit = 40, 5000 }, struck: []Fault{SlowSync, AttemptFailed}},
		{name: "F31 F32 full and failing disks", rates: map[Fault]int{CommitRefused: 1500, SyncFailed: 500, ReadFailed: 500},
			struck: []Fault{CommitRefused, SyncFailed, ReadFailed}},
		{name: "F35 owners that were replaced go on", rates: map[Fault]int{TakenOver: 1500, CommitRefused: 500, Killed: 100},
			struck: []Fault{TakenOver}},
		{name: "F45 orderly stops", rates: map[Fault]int{HandedBack: 1500}, struck: []Fault{HandedBack}},
		// A reader that is away for ten minutes has no call to the store open
		// (checkBetweenSteps), and still sees every event (I14).
		{name: "F48 subscribers and exports that stop reading", rates: map[Fault]int{ReaderStalled: 3000, ReaderCut: 500},
			tune: func(w *World) {
				w.faults.read, w.faults.clean, w.faults.longest = 30, 3, tenMinutes
				w.faults.config.CompactBytes, w.faults.config.CompactCheck = 1, 1 // the journal is compacted all the time
			}, struck: []Fault{ReaderStalled, ReaderCut}},
	} {
		t.Run(row.name, func(t *testing.T) {
			n := uint64(48)
			if testing.Short() {
				n = 12
			}
			all, _ := playOn(t, Options{Source: Drawn{}, noFaults: true, tune: func(w *World) {
				for f, rate := range row.rates {
					w.faults.rate[f] = rate
				}
				if row.tune != nil {
					row.tune(w)
				}
			}}, 16_000, n)
			if n < 48 {
				return // too few schedules for every fault to occur
			}
			for _, f := range row.struck {
				if all.Faults[f] == 0 {
					t.Errorf("%s never struck", f)
				}
			}
			if all.Transitions < 48*20 {
				t.Errorf("%d transitions in 48 schedules: too little happened", all.Transitions)
			}
		})
	}
}

// fixed is a Source of one recipe.
type fixed struct{ c *Case }

func (f fixed) Case(uint64) (*Case, error) { return f.c, nil }

func fixedCase(t *testing.T, src string) fixed {
	t.Helper()
	acts := catalogue.New(&action.Action{Name: "work", Version: "1.0.0", Input: []byte(`{"type":"object"}`)})
	p, _, _, diags := compile.Source("recipe.yaml", []byte(src), compile.Options{Actions: acts})
	if p == nil {
		t.Fatal(diags)
	}
	return fixed{&Case{Name: "fixed", Recipe: []byte(src), Plan: p, Actions: acts}}
}

// TestF19_JobThatKillsItsProcess: a hundred times, a process that runs a step of
// certain runs dies. Each of these runs is given up after its fourth lost attempt. The
// other runs all complete meanwhile, and none waits longer than a second for a step
// (I16).
func TestF19_JobThatKillsItsProcess(t *testing.T) {
	src := fixedCase(t, "name: p\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n")
	opt := &Options{Source: src, noFaults: true, tune: func(w *World) { w.bank = nil }}
	w := newWorld(1, src.c, prepare(src.c), program.NewCache(1), opt)
	deadly := map[string]bool{}
	begin := func(p *process, kills bool) {
		req := w.newStart()
		req.IdempotencyKey = ""
		p.start(req)
		deadly[p.requests[len(p.requests)-1].key.Run] = kills
	}
	p := w.boot()
	deaths := 0
	for round := 0; deaths < 100; round++ {
		if round > 2_000 {
			t.Fatalf("after %d rounds %d deaths", round, deaths)
		}
		if round%4 == 0 {
			begin(p, true)
		}
		begin(p, false)
		for p.deliver(10); p.pump(); {
		}
		died := false
		for _, k := range p.tasks {
			died = died || deadly[k.ef.Key.Run]
		}
		for i := 0; i < len(p.tasks); { // the healthy runs complete in time
			if k := p.tasks[i]; !deadly[k.ef.Key.Run] {
				p.tasks = append(p.tasks[:i], p.tasks[i+1:]...)
				p.finish(k)
				for p.deliver(10); p.pump(); {
				}
				i = 0
				continue
			}
			i++
		}
		w.mono += 100_000
		p.handle()
		p.pump()
		if died {
			deaths++
			p.die()
			w.checker.checkSurvived()
			w.mono += 31_000_000 // otherwise all runs are suspects and are loaded one by one
			p = w.boot()
		}
	}
	for _, tr := range w.checker.all {
		if st := tr.journal.Status(); !deadly[tr.key.Run] && st != journal.RunCompleted {
			t.Errorf("a healthy run is %s", st)
		}
		first, last := tr.events[0].At, tr.journal.At()
		if !deadly[tr.key.Run] && last-first > 1_000_000 {
			t.Errorf("a healthy run took %d ms beside one that kills", (last-first)/1000)
		}
	}
	deadlyFailed := 0
	for _, tr := range w.checker.all {
		if code, _ := tr.replica.Failure(); deadly[tr.key.Run] && code == "INTERRUPTED" {
			deadlyFailed++
		}
	}
	if deadlyFailed < 20 {
		t.Errorf("%d deadly runs were given up, want 25 or so", deadlyFailed)
	}
	clear(deadly)
	w.finish()
	w.checkEnd()
}

// TestF19_RunThatKillsItsLoader: a run whose every decision kills the process is
// quarantined after a bounded number of deaths, as are its child runs; the others end (I16).
func TestF19_RunThatKillsItsLoader(t *testing.T) {
	apart, seeds := 0, uint64(40)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		pl := NewPlayer(Options{Source: Drawn{}, noFaults: true, tune: func(w *World) {
			w.poison, w.faults.longest, w.faults.steps, w.faults.user = killsLoader, 100_000, 400, 0
			w.faults.config.MaxTurn = 0 // a run that gets further each time kills more processes
		}, spoil: func(w *World) {
			// Two crashes make suspects. Then three with each run that needs the poisoned one:
			// child runs are loaded with the runs above them.
			runs := 1
			for _, tr := range w.checker.all {
				if head, err := w.mem.Head(w.ctx(), tr.key); err == nil && head.Root == w.poisoned.Run && tr.key != w.poisoned {
					runs++
				}
			}
			if most := 2 + 3*runs; w.deaths > max(12, most) {
				w.fail("I16: the poisoned run of a tree of %d killed %d processes", runs, w.deaths)
			}
			if head, err := w.mem.Head(w.ctx(), w.poisoned); err == nil && head.Quarantine != "" {
				apart++
			}
		}})
		res, err := pl.Play(seed * SeedsPerCase)
		if err != nil || res.Err != nil {
			t.Fatal(fmt.Sprint("seed ", seed*SeedsPerCase), err, res.Err)
		}
	}
	if apart == 0 && !testing.Short() {
		t.Error("no poisoned run was quarantined")
	}
}
