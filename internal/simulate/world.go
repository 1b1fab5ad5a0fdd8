// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// epoch is the time at which every world begins, UTC µs: 2026-01-01T00:00:00Z.
const epoch = 1_767_225_600_000_000

// An Observer sees every turn of every run, before and after. It must neither change
// nor keep what it is given.
type Observer interface {
	Before(key store.Key, run *machine.Run, in *machine.Input)
	After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn)
}

// Options are the options of a Player.
type Options struct {
	Source  Source   // required
	Observe Observer // may be nil
	// Durable is called for every event that has become durable, with the run after
	// that event; may be nil.
	Durable func(key store.Key, run *machine.Run, ev *journal.Event)
	// Cells counts how often each cell of journal's transition table occurred; may be
	// nil. Each Player needs its own.
	Cells *journal.Hits
	// Trace is called with a line for everything that happens; nil = no trace.
	Trace func(line string)

	spoil    func(*World) // tests: break something before phase 2, in which nothing fails and all runs must end
	noFaults bool         // tests: no fault occurs
	tune     func(*World) // tests: adjust the world
}

// A World is one running schedule.
type World struct {
	opt           *Options
	seed          uint64
	dice          *rand.Rand
	c             *Case
	faults        faultProfile
	plans         *program.Cache
	mem           *memory.Store
	blobs         memoryFiles
	files         []journal.File
	checker       checker
	bank          *bank // nil = no account pays
	service       service
	deeds         deeds
	remote        *remoteWorkers // nil = there are no remote workers
	registry      registry
	schedules     *schedules // nil = there are none
	moderators    moderators
	cachedResults cachedResults
	pauseDice     *rand.Rand
	unpaused      int64            // when all runs were last told to go on
	prices        int              // those of Case.Prices that apply now, counted from 1; 0 = those of Case.Actions
	limit         int              // of live runs of an account; 0 = none
	keyLimit      int              // see keyLimits
	roomSince     map[string]int64 // by account: since when a run could be admitted
	stats         Stats
	turn          turnBefore

	mono   int64 // monotonic time, µs
	skew   int64 // offset of the wall clock
	frozen int64 // the time at which the wall clock stands; 0 = it runs

	procs    []*process
	owner    *process  // of the store: the last process that took ownership
	inside   *process  // the process whose code runs now
	readers  []*reader // disconnected
	zombies  []*task   // tasks that no process waits for
	repeats  []*engine.StartRequest
	keyed    map[store.Key]*engine.StartRequest
	started  int
	cleaned  bool
	noFaults bool // phase 2: no more faults occur

	poison   poison
	poisoned store.Key
	deaths   int // of processes, because of the poisoned run

	trace  func(string)
	logger *slog.Logger
}

// A poison is a defect of a run.
type poison uint8

const (
	noPoison    poison = iota
	killsLoader        // every process that decides for it dies
	killsWorker        // every process that carries out one of its steps dies
)

// newWorld makes the world of a seed.
func newWorld(seed uint64, c *Case, progs programs, plans *program.Cache, opt *Options) *World {
	w := &World{
		opt: opt, seed: seed, c: c, plans: plans, trace: opt.Trace,
		dice:      rand.New(rand.NewPCG(seed, 0x726f7578)),
		keyed:     map[store.Key]*engine.StartRequest{},
		roomSince: map[string]int64{},
		pauseDice: rand.New(rand.NewPCG(seed, 0x7061757365)),
	}
	w.faults = draw(w.dice)
	w.faults.rate[ActionHangs] = hangRate(seed)
	if handsBackOften(seed) {
		w.faults.rate[HandedBack], w.faults.rate[Killed], w.faults.rate[TakenOver] = 900, 600, 0
		w.faults.rate[ActionHangs] = 7_000
	}
	if retriesInside(seed) {
		w.faults.user, w.faults.rate[TakenOver] = 12, 0
	}
	w.faults.config.MaxTurn = maxTurn(seed)
	w.faults.config.LargeBatch = largeBatch(seed)
	if w.limit = liveLimit(seed); w.limit > 0 {
		w.faults.runs += 10
		w.faults.start += 6
	}
	if w.dice.IntN(12) == 0 {
		w.poison = pick(w.dice, killsLoader, killsWorker)
	}
	if opt.noFaults {
		w.faults.rate, w.poison = [numFaults]int{}, noPoison
	}
	if c.Pays {
		w.bank = paying(seed)
	}
	w.registry = newRegistry(w)
	w.schedules = newSchedules(w)
	if opt.tune != nil {
		opt.tune(w)
	}
	w.checker = checker{w: w, prog: progs[c.Plan.Key()], progs: progs, named: programs{}, runs: map[store.Key]*runRecord{}, books: map[string]*book{}, followers: map[string]*follower{}}
	w.faults.config.Accounts = w.rules
	w.service = newService(seed)
	w.deeds = newDeeds(seed)
	w.moderators = newModerators(seed)
	w.faults.config.Moderators = func([]string) (action.ModerationGateway, error) { return nil, nil } // see moderate
	w.cachedResults = newCachedResults(seed)
	w.remote = newRemoteWorkers(w)
	w.faults.config.JobSlots = map[string]bool{provider: true, jobs.Workers: w.remote != nil}
	w.faults.config.Limits, w.keyLimit = keyLimits(seed)
	w.blobs = memoryFiles{w: w, files: map[string]*File{}}
	for i := range c.Files {
		f := &c.Files[i]
		w.blobs.files[f.Hash] = f
		w.files = append(w.files, journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: int64(len(f.Data))})
	}
	w.mem = memory.New(memory.Options{OnCommit: w.onCommit})
	if w.trace != nil {
		w.logger = slog.New(slog.NewTextHandler(traceWriter{w}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}))
	}
	return w
}

// noTime removes the real time from log lines, so that two traces of a seed are equal.
func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "stack" {
		return slog.Attr{}
	}
	return a
}

type traceWriter struct{ w *World }

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.tracef("  log %s", b[:max(len(b)-1, 0)])
	return len(b), nil
}

// tracef writes a line to the trace.
func (w *World) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf(format, args...))
	}
}

// happens draws whether a fault occurs now.
func (w *World) happens(f Fault) bool {
	r := w.faults.rate[f]
	if r == 0 || w.noFaults || w.dice.IntN(10_000) >= r {
		return false
	}
	w.countFault(f)
	return true
}

// countFault counts a fault.
func (w *World) countFault(f Fault) {
	w.stats.Faults[f]++
	if w.trace != nil {
		w.tracef("fault: %s", f)
	}
}

// onCommit draws the outcome of a commit.
func (w *World) onCommit(int, []store.Transition) memory.Outcome {
	switch {
	case w.noFaults:
	case w.happens(CommitRefused):
		return memory.Refused
	case w.happens(ReplyLost):
		return memory.ReplyLost
	case w.happens(SyncFailed):
		return memory.SyncFailed
	}
	return memory.OK
}

// wall is the wall clock.
func (w *World) wall() int64 {
	if w.frozen != 0 {
		return w.frozen
	}
	return epoch + w.mono + w.skew
}

// mayPanic may make the code of a run panic, or its process die.
func (w *World) mayPanic(key store.Key, run *machine.Run, in *machine.Input) {
	w.stats.Inputs[in.Kind]++
	if w.noFaults || w.inside == nil || w.inside.dying {
		return
	}
	if w.poison == killsLoader && key == w.poisoned && w.checker.last(key) > 0 {
		w.countFault(ProcessPoisoned)
		w.deaths++
		w.inside.dying = true
		return
	}
	if w.happens(ProcessPoisoned) {
		w.inside.dying = true
		return
	}
	if w.happens(Panicked) {
		w.checker.takenBack(key, run)
		panic(onPurpose)
	}
}

// onPurpose is the panic value of a run that is made to panic.
const onPurpose = "a run that panics on purpose"

// mayQuarantine reports whether a run may be quarantined for this reason: it was made
// to panic, or enough processes died or seemed to die (a process that takes over from a
// live one counts that one as dead), or the run above it is quarantined. Any other reason is
// a bug of the machine or of the engine, which phase 2 would hide because it releases the run.
func (w *World) mayQuarantine(h *store.Head) bool {
	reason := h.Quarantine
	if strings.HasPrefix(reason, store.CutOffReason) {
		parent := w.checker.runs[store.Key{Account: h.Account, Run: h.Parent}]
		return parent != nil && parent.place.disturbed
	}
	return strings.HasSuffix(reason, onPurpose) || w.stats.Crashes+w.stats.Faults[TakenOver] >= 3 && strings.HasPrefix(reason, "the process died ")
}

// step is one step of phase 1.
func (w *World) step() {
	w.mono += w.dice.Int64N(2_000)
	w.injectFaults()
	w.registry.step()
	if len(w.procs) == 0 && w.boot() == nil {
		w.mono += w.dice.Int64N(1_000_000)
		return
	}
	p := w.procs[w.dice.IntN(len(w.procs))]
	fp := &w.faults
	switch n := w.dice.IntN(fp.work + fp.start + fp.user + fp.pass + fp.read + fp.clean); {
	case n < fp.work:
		for range 1 + w.dice.IntN(fp.batch) {
			if p.work(); p.dead {
				return
			}
		}
	case n < fp.work+fp.start:
		if w.started < fp.runs {
			p.start(w.newStart())
		}
	case n < fp.work+fp.start+fp.user:
		p.userAction()
	case n < fp.work+fp.start+fp.user+fp.pass:
		w.passTime(p)
	case n < fp.work+fp.start+fp.user+fp.pass+fp.read:
		if w.dice.IntN(3) == 0 {
			p.subscribe()
		}
		if !p.dead {
			p.read()
		}
	default:
		p.clean()
	}
	p.bankAction()
	p.pauseAction()
	p.serve()
	p.stepRemoteWorkers()
	p.stepSchedules()
	if p.dead {
		return
	}
	if w.dice.IntN(4) == 0 {
		p.deliverDelayed(false)
	}
	if w.dice.IntN(8) == 0 || w.sameNumbered() >= 0 {
		p.lateReport()
	}
	if !p.deliver(fp.batch) {
		p.handle()
	}
	p.pump()
	w.checkBetweenSteps()
}

// passTime advances the time: to the time of the next timer, or by a random amount.
func (w *World) passTime(p *process) {
	if at := p.stage.Wakeup(); at != 0 && w.dice.IntN(2) == 0 {
		if d := at - p.now(); d > 0 && d <= w.faults.longest {
			w.mono += d
			return
		}
	}
	w.mono += w.dice.Int64N(w.faults.longest)
}

// clean removes what is no longer kept.
func (p *process) clean() {
	p.call(func() {
		removed, err := p.stage.Clean(p.w.ctx(), p.now())
		p.w.cleaned = true
		p.w.stats.Removed += int64(removed.Runs)
		if err != nil {
			p.w.tracef("clean: %v", err)
		}
	})
}

// checkBetweenSteps asserts what holds between two steps.
func (w *World) checkBetweenSteps() {
	if w.service.chance(25) || w.remote != nil && w.remote.dice.IntN(8) == 0 {
		w.checkJobs()
	}
	for _, p := range w.procs {
		if p.disk.open != 0 {
			w.fail("F48: %d calls to the store are open while no reader reads", p.disk.open)
		}
	}
}
