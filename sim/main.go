// SPDX-License-Identifier: Apache-2.0

// Command sim simulates faults: it plays schedules of internal/simulate, each decided
// by a seed, and exits 1 when an invariant was broken. It decides which seeds are
// played and how they are reported; the simulator decides what happens in them.
//
//	go run ./sim -schedules 100000 -seed 1
//	go run ./sim -duration 5m -workers 2
//	go run ./sim -seed 4711 -schedules 1 -v    what happened, line by line
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/simulate"
)

// twice: every n-th schedule is played again by a new player and must give the same
// history.
const twice = 1_000

// The minimum for a long session to prove something (-at-least): transitions and
// faults of the median schedule, and seeds per recipe. Steps of every kind must have
// settled.
const (
	wantTransitions = 40
	wantFaults      = 3
	wantSeeds       = 20
)

type options struct {
	schedules uint64
	seed      uint64
	duration  time.Duration
	workers   int
	atLeast   int64
	cells     bool
	verbose   bool
	profile   string
}

func (o *options) declare(set *flag.FlagSet) {
	set.Uint64Var(&o.schedules, "schedules", 0, "how many schedules to play; 0 = until -duration is over")
	set.Uint64Var(&o.seed, "seed", 1, "the first seed; schedule i has seed+i")
	set.DurationVar(&o.duration, "duration", 0, "stop after this time; 0 = when all schedules were played")
	set.IntVar(&o.workers, "workers", 1, "schedules played at the same time")
	set.Int64Var(&o.atLeast, "at-least", 0, "fail when fewer transitions were made, or schedules were too short or too calm, recipes played by too few seeds, or a kind of step never met")
	set.BoolVar(&o.cells, "cells", false, "fail when a change of the machine's table of changes (event × status), or a kind of child run, was never met")
	set.BoolVar(&o.verbose, "v", false, "show what happens, line by line (one schedule)")
	set.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
}

func main() {
	var o options
	o.declare(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 || o.workers < 1 {
		flag.Usage()
		os.Exit(2)
	}
	node.SetGC(os.Getenv("GOGC"))
	if o.schedules == 0 && o.duration == 0 {
		o.schedules = 10_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Stdout, o))
}

// run plays and reports, and returns the exit code.
func run(ctx context.Context, out io.Writer, o options) int {
	if o.profile != "" {
		stop, err := startProfile(o.profile)
		if err != nil {
			fmt.Fprintln(out, err)
			return 2
		}
		defer stop()
	}
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.duration)
		defer cancel()
	}
	s := &session{o: o, out: out, began: time.Now()}
	if o.verbose {
		return s.replay()
	}
	if o.cells {
		s.playRare()
	}
	var workers sync.WaitGroup
	for range o.workers {
		workers.Go(func() { s.work(ctx) })
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.progress()
			continue
		case <-done:
		}
		break
	}
	s.summary()
	if s.bad != nil {
		s.violation(s.bad)
		return 1
	}
	if s.err != nil {
		fmt.Fprintln(out, "sim:", s.err)
		return 2
	}
	if lacking := s.lacking(); o.atLeast > 0 && lacking != "" {
		fmt.Fprintln(out, "sim:", lacking)
		return 1
	}
	if missing := s.cells.Missing(); o.cells && len(missing) > 0 {
		fmt.Fprintf(out, "sim: %d changes of the table never occurred: %v\n", len(missing), missing)
		return 1
	}
	if missing := s.all.Trees.Missing(); o.cells && len(missing) > 0 {
		fmt.Fprintf(out, "sim: these never occurred: %s\n", strings.Join(missing, ", "))
		return 1
	}
	return 0
}

// A session is the state that the workers share.
type session struct {
	o     options
	out   io.Writer
	began time.Time
	next  atomic.Uint64 // the next block of seeds

	mu          sync.Mutex
	played      uint64
	cases       map[uint64]struct{} // numbers of recipes
	all         simulate.Stats
	cells       journal.Hits
	transitions histogram // per schedule
	faults      histogram
	hash        uint64
	bad         *simulate.Result
	err         error
}

// A histogram counts schedules by a small number, such as their faults.
type histogram struct {
	counts [4096]uint64
	n      uint64
}

func (h *histogram) add(v int64) {
	h.counts[min(v, int64(len(h.counts)-1))]++
	h.n++
}

func (h *histogram) median() int {
	seen := uint64(0)
	for v, c := range h.counts {
		if seen += c; 2*seen >= h.n && h.n > 0 {
			return v
		}
	}
	return 0
}

// rare are seeds in whose worlds the rarest changes of the table occur or, in the last line, the rarest pairs of
// dialects, so that whether -cells meets all of them does not depend on luck.
var rare = [...]uint64{64, 105, 128, 130, 160, 187, 217, 218, 220, 235, 236, 240, 247, 308, 312, 340, 626, 639, 769, 1102, 1433, 1641, 1964, 656, 3076, 20105,
	815, 2600, 4833, 6184, 6625, 8865, 14703, 15585, 864}

// playRare plays the seeds that are rare.
func (s *session) playRare() {
	cells := new(journal.Hits)
	defer s.met(cells)
	pl := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}, Cells: cells})
	for _, seed := range rare {
		if res, err := pl.Play(seed); !s.took(&res, err) {
			return
		}
	}
}

// work plays blocks of seeds, each with its own recipe, until none are left.
func (s *session) work(ctx context.Context) {
	cells := new(journal.Hits)
	defer s.met(cells)
	pl := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}, Cells: cells})
	limit := uint64(math.MaxUint64)
	if s.o.schedules > 0 {
		limit = s.o.seed + s.o.schedules
	}
	first := s.o.seed / simulate.SeedsPerCase
	for {
		block := first + s.next.Add(1) - 1
		from := max(block*simulate.SeedsPerCase, s.o.seed)
		to := min((block+1)*simulate.SeedsPerCase, limit)
		if from >= to {
			return
		}
		for seed := from; seed < to; seed++ {
			if ctx.Err() != nil {
				return
			}
			res, err := pl.Play(seed)
			if err == nil && res.Err == nil && seed%twice == 0 {
				res.Err = again(&res)
			}
			if !s.took(&res, err) {
				return
			}
		}
	}
}

// again plays a schedule again with a new player.
func again(res *simulate.Result) error {
	other, err := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}}).Play(res.Seed)
	if err == nil && other.Hash != res.Hash {
		err = fmt.Errorf("I2: the seed gave the history %016x, and then %016x", res.Hash, other.Hash)
	}
	return err
}

// met adds the cells of the transition table (event × status) that a worker saw.
func (s *session) met(cells *journal.Hits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cells.Add(cells)
}

// took adds a result, and reports whether to continue.
func (s *session) took(res *simulate.Result, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err = err
	} else {
		s.played++
		if s.cases == nil {
			s.cases = map[uint64]struct{}{}
		}
		s.cases[res.Seed/simulate.SeedsPerCase] = struct{}{}
		s.all.Add(&res.Stats)
		s.transitions.add(res.Stats.Transitions)
		s.faults.add(res.Stats.FaultCount())
		s.hash += res.Hash // independent of the order of the workers
		if res.Err != nil && (s.bad == nil || res.Seed < s.bad.Seed) {
			s.bad = res
		}
	}
	if s.bad != nil || s.err != nil {
		s.next.Store(math.MaxUint64 / 2 / simulate.SeedsPerCase) // stop after the current blocks
		return false
	}
	return true
}

// lacking is why the session proves too little; "" = it proves enough.
func (s *session) lacking() string {
	var kinds []string
	s.all.EachStep(func(k plan.Kind, n int64) {
		if n == 0 {
			kinds = append(kinds, k.String())
		}
	})
	seeds := float64(s.played) / float64(max(len(s.cases), 1))
	switch {
	case s.all.Transitions < s.o.atLeast:
		return fmt.Sprintf("%d transitions were made, want at least %d", s.all.Transitions, s.o.atLeast)
	case s.transitions.median() < wantTransitions:
		return fmt.Sprintf("the median schedule had %d transitions, want %d", s.transitions.median(), wantTransitions)
	case s.faults.median() < wantFaults:
		return fmt.Sprintf("the median schedule had %d faults, want %d", s.faults.median(), wantFaults)
	case seeds < wantSeeds:
		return fmt.Sprintf("a recipe was played by %.1f seeds, want %d", seeds, wantSeeds)
	case min(s.all.TasksGranted, s.all.TaskAnswersLost, s.all.TasksLost, s.all.TasksInterrupted, s.all.TasksAdopted, s.all.LateResults, s.all.TasksHandedOn) == 0:
		return "remote workers did too little: " + remoteWorkers(&s.all)
	case s.all.Scheduled.Least() == 0:
		return "schedules did too little: " + scheduled(&s.all)
	case s.all.EarlyWebhooks == 0:
		return "no webhook of a service came before its job was known"
	case len(kinds) > 0:
		return "steps that never settled: " + strings.Join(kinds, ", ")
	}
	return ""
}

func (s *session) rate() (seconds, perSecond float64) {
	seconds = time.Since(s.began).Seconds()
	return seconds, float64(s.all.Transitions) / seconds
}

func (s *session) progress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds, perSecond := s.rate()
	fmt.Fprintf(s.out, "%6.0f s  %d schedules  %d transitions  %.0f transitions/s\n", seconds, s.played, s.all.Transitions, perSecond)
}

func (s *session) summary() {
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds, perSecond := s.rate()
	a := &s.all
	fmt.Fprintf(s.out, "schedules %d (%d recipes), transitions %d, events %d, commits %d, runs %d\n",
		s.played, len(s.cases), a.Transitions, a.Events, a.Commits, a.Runs)
	fmt.Fprintf(s.out, "a schedule: median %d transitions, median %d faults\n", s.transitions.median(), s.faults.median())
	fmt.Fprintf(s.out, "crashes %d, suspended %d, quarantined %d, removed %d, effects %d, requests %d, events read %d\n",
		a.Crashes, a.Suspended, a.Quarantined, a.Removed, a.Effects, a.Requests, a.Reads)
	var faults []string
	a.EachFault(func(name string, n int64) { faults = append(faults, fmt.Sprintf("%s %d", name, n)) })
	fmt.Fprintf(s.out, "remote workers: %s\n", remoteWorkers(a))
	fmt.Fprintf(s.out, "schedules of recipes: %s\n", scheduled(a))
	fmt.Fprintf(s.out, "trees of runs: %s\n", a.Trees.String())
	fmt.Fprintf(s.out, "webhooks that the keeper of jobs acted upon %d, that came before their job was known %d\n", a.Webhooks, a.EarlyWebhooks)
	fmt.Fprintf(s.out, "faults %d: %s\n", a.FaultCount(), strings.Join(faults, ", "))
	var kinds []string
	a.EachKind(func(k journal.EventKind, n int64) {
		ev := journal.Event{Kind: k}
		kinds = append(kinds, fmt.Sprintf("%s (%d) %d", ev.Name(), k, n))
	})
	fmt.Fprintf(s.out, "events of %d kinds: %s\n", len(kinds), strings.Join(kinds, ", "))
	var steps []string
	a.EachStep(func(k plan.Kind, n int64) { steps = append(steps, fmt.Sprintf("%s %d", k, n)) })
	fmt.Fprintf(s.out, "steps that settled: %s\n", strings.Join(steps, ", "))
	met, all := s.cells.Met()
	fmt.Fprintf(s.out, "changes of the table (event × status): %d of %d met, the rarest %s\n", met, all, s.cells.Rarest())
	fmt.Fprintf(s.out, "final hash %016x, %.1f s, %.0f transitions/s\n", s.hash, seconds, perSecond)
}

// scheduled says what schedules and starts with a key did.
func scheduled(a *simulate.Stats) string {
	c := &a.Scheduled
	return fmt.Sprintf("runs started %d, times missed %d, caught up on %d, skipped because a run was active %d, that no clock showed %d, requests with a key %d, runs and requests that gave way %d",
		c.Started, c.Missed, c.CaughtUp, c.Overlapped, c.Gaps, c.Requests, c.Replaced)
}

// remoteWorkers says what happened to the tasks of remote workers.
func remoteWorkers(a *simulate.Stats) string {
	return fmt.Sprintf("leases %d, answers with a task lost %d, tasks lost %d, interrupted %d, found by a start %d, results that did not count %d, ended with a job %d",
		a.TasksGranted, a.TaskAnswersLost, a.TasksLost, a.TasksInterrupted, a.TasksAdopted, a.LateResults, a.TasksHandedOn)
}

// replay plays one schedule and prints its whole trace.
func (s *session) replay() int {
	pl := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}, Trace: func(line string) { fmt.Fprintln(s.out, line) }})
	res, err := pl.Play(s.o.seed)
	if err != nil {
		fmt.Fprintln(s.out, "sim:", err)
		return 2
	}
	fmt.Fprintf(s.out, "recipe %s\n", res.Case.Name)
	if len(res.Case.Recipe) < 4000 {
		fmt.Fprintf(s.out, "%s\n", res.Case.Recipe)
	}
	fmt.Fprintf(s.out, "%d transitions, %d faults, hash %016x\n", res.Stats.Transitions, res.Stats.FaultCount(), res.Hash)
	if res.Err != nil {
		fmt.Fprintf(s.out, "VIOLATION: %v\n", res.Err)
		return 1
	}
	return 0
}

// violation prints the end of a schedule that broke an invariant, and the command that
// shows all of it. It plays the schedule again, which gives the same one.
func (s *session) violation(res *simulate.Result) {
	fmt.Fprintf(s.out, "\nVIOLATION in seed %d: %v\n", res.Seed, res.Err)
	lines, again, err := simulate.ReplayTail(simulate.Options{Source: simulate.Drawn{}}, res.Seed)
	if err != nil || again.Hash != res.Hash {
		fmt.Fprintf(s.out, "played again it has hash %016x, not %016x (%v): the schedule depends on more than the seed\n", again.Hash, res.Hash, err)
	}
	fmt.Fprintf(s.out, "the last %d things that happened:\n", len(lines))
	for _, line := range lines {
		fmt.Fprintln(s.out, line)
	}
	fmt.Fprintf(s.out, "commit %s\nreplay: go run ./sim -seed %d -schedules 1 -v\n", commit(), res.Seed)
}

// commit is the commit that the binary was built from.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		rev, dirty := "", ""
		for _, set := range info.Settings {
			switch {
			case set.Key == "vcs.revision":
				rev = set.Value
			case set.Key == "vcs.modified" && set.Value == "true":
				dirty = " and changes"
			}
		}
		if rev != "" {
			return rev + dirty
		}
	}
	if rev, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		return strings.TrimSpace(string(rev))
	}
	return "unknown"
}
