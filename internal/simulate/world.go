// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// epoch is when every world begins, UTC µs: 2026-01-01T00:00:00Z.
const epoch = 1_767_225_600_000_000

// An Observer sees every turn of every run, before and after. It must neither
// change what it is given nor keep it.
type Observer interface {
	Before(key store.Key, run *machine.Run, in *machine.Input)
	After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn)
}

// Options are what a Player plays with.
type Options struct {
	Source  Source   // required
	Observe Observer // may be nil
	// Durable sees every event when it has become durable, and the run that it
	// was folded into; may be nil.
	Durable func(key store.Key, run *machine.Run, ev *journal.Event)
	// Cells counts the cells of the machine's table of changes; may be nil. It
	// belongs to one Player.
	Cells *journal.Hits
	// Trace gets what happens, line by line; nil = nobody reads it.
	Trace func(line string)

	spoil func(*World) // tests: break something on purpose before phase 2
	tame  bool         // tests: nothing goes wrong
	tune  func(*World) // tests: but this
}

// A World is one schedule under way.
type World struct {
	opt     *Options
	seed    uint64
	dice    *rand.Rand
	c       *Case
	faults  faultProfile
	plans   *engine.Plans
	mem     *memory.Store
	cabinet memoryFiles
	files   []journal.File
	judge   checker
	stats   Stats
	turn    turnBefore

	mono   int64 // µs, goes on evenly
	skew   int64 // of the wall clock
	frozen int64 // what the wall clock shows for ever; 0 = it goes

	procs   []*process
	owner   *process  // of the store: the last one that asked to be
	inside  *process  // the one whose code runs
	readers []*reader // cut off
	zombies []*task   // whose processes are gone
	repeats []*engine.StartRequest
	keyed   map[store.Key]*engine.StartRequest
	started int
	swept   bool
	calm    bool // phase 2: nothing goes wrong any more

	poison   poison
	poisoned store.Key
	deaths   int // by poison

	trace  func(string)
	logger *slog.Logger
}

// A poison is what is wrong with a run.
type poison uint8

const (
	wholesome   poison = iota
	killsLoader        // whatever decides for it dies
	killsWorker        // whatever carries out its steps dies
)

// newWorld makes the world of a seed.
func newWorld(seed uint64, c *Case, prog *machine.Program, plans *engine.Plans, opt *Options) *World {
	w := &World{
		opt: opt, seed: seed, c: c, plans: plans, trace: opt.Trace,
		dice:  rand.New(rand.NewPCG(seed, 0x726f7578)),
		keyed: map[store.Key]*engine.StartRequest{},
	}
	w.faults = draw(w.dice)
	w.faults.rate[ActionHangs] = hangs(seed)
	if restless(seed) {
		w.faults.rate[HandedBack], w.faults.rate[Killed], w.faults.rate[TakenOver] = 900, 600, 0
		w.faults.rate[ActionHangs] = 7_000
	}
	if delving(seed) {
		w.faults.user, w.faults.rate[TakenOver] = 12, 0
	}
	w.faults.config.MaxTurn = turns(seed)
	w.faults.config.MinAhead = ahead(seed)
	if w.dice.IntN(12) == 0 {
		w.poison = pick(w.dice, killsLoader, killsWorker)
	}
	if opt.tame {
		w.faults.rate, w.poison = [numFaults]int{}, wholesome
	}
	if opt.tune != nil {
		opt.tune(w)
	}
	w.judge = checker{w: w, prog: prog, runs: map[store.Key]*runRecord{}}
	w.cabinet = memoryFiles{w: w, files: map[string]*File{}}
	for i := range c.Files {
		f := &c.Files[i]
		w.cabinet.files[f.Hash] = f
		w.files = append(w.files, journal.File{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: int64(len(f.Data))})
	}
	w.mem = memory.New(memory.Options{OnCommit: w.onCommit})
	if w.trace != nil {
		w.logger = slog.New(slog.NewTextHandler(traceWriter{w}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: noTime}))
	}
	return w
}

// noTime drops the real time from log lines: two traces of a seed are equal.
func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "stack" {
		return slog.Attr{}
	}
	return a
}

type traceWriter struct{ w *World }

func (t traceWriter) Write(b []byte) (int, error) {
	t.w.say("  log %s", b[:max(len(b)-1, 0)])
	return len(b), nil
}

// say tells whoever reads the trace.
func (w *World) say(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf(format, args...))
	}
}

// happens says whether a fault strikes now.
func (w *World) happens(f Fault) bool {
	r := w.faults.rate[f]
	if r == 0 || w.calm || w.dice.IntN(10_000) >= r {
		return false
	}
	w.hit(f)
	return true
}

// hit counts a fault.
func (w *World) hit(f Fault) {
	w.stats.Faults[f]++
	if w.trace != nil {
		w.say("fault: %s", f)
	}
}

// onCommit decides what befalls a commit.
func (w *World) onCommit(int, []store.Transition) memory.Outcome {
	switch {
	case w.calm:
	case w.happens(CommitRefused):
		return memory.Refused
	case w.happens(ReplyLost):
		return memory.ReplyLost
	case w.happens(SyncFailed):
		return memory.SyncFailed
	}
	return memory.OK
}

// wall is what the wall clock shows.
func (w *World) wall() int64 {
	if w.frozen != 0 {
		return w.frozen
	}
	return epoch + w.mono + w.skew
}

// mayPanic lets the code of a run panic, or its process die of it.
func (w *World) mayPanic(key store.Key, in *machine.Input) {
	w.stats.Inputs[in.Kind]++
	if w.calm || w.inside == nil || w.inside.doomed {
		return
	}
	if w.poison == killsLoader && key == w.poisoned && w.judge.last(key) > 0 {
		w.hit(ProcessPoisoned)
		w.deaths++
		w.inside.doomed = true
		return
	}
	if w.happens(ProcessPoisoned) {
		w.inside.doomed = true
		return
	}
	if w.happens(Panicked) {
		w.inside.forgot = true
		panic(onPurpose)
	}
}

// onPurpose is what a run panics with that is made to.
const onPurpose = "a run that panics on purpose"

// harmed says whether a run may be set apart for this reason: it was made to
// panic, or processes died of it, as far as their successors can tell: who takes
// over from one that goes on thinks it dead. Any other would be a mistake of the
// machine or of the engine, and phase 2 would hide it: it lets such runs go on.
func (w *World) harmed(reason string) bool {
	return strings.HasSuffix(reason, onPurpose) || w.stats.Crashes+w.stats.Faults[TakenOver] >= 3 && strings.HasPrefix(reason, "the process died ")
}

// step is one step of phase 1.
func (w *World) step() {
	w.mono += w.dice.Int64N(2_000)
	w.disturb()
	if len(w.procs) == 0 && w.boot() == nil {
		w.mono += w.dice.Int64N(1_000_000)
		return
	}
	p := w.procs[w.dice.IntN(len(w.procs))]
	wt := &w.faults
	switch n := w.dice.IntN(wt.work + wt.start + wt.user + wt.pass + wt.read + wt.sweep); {
	case n < wt.work:
		for range 1 + w.dice.IntN(wt.batch) {
			if p.work(); p.dead {
				return
			}
		}
	case n < wt.work+wt.start:
		if w.started < wt.runs {
			p.start(w.newStart())
		}
	case n < wt.work+wt.start+wt.user:
		p.bother()
	case n < wt.work+wt.start+wt.user+wt.pass:
		w.pass(p)
	case n < wt.work+wt.start+wt.user+wt.pass+wt.read:
		if w.dice.IntN(3) == 0 {
			p.subscribe()
		}
		if !p.dead {
			p.read()
		}
	default:
		p.sweep()
	}
	if p.dead {
		return
	}
	if w.dice.IntN(4) == 0 {
		p.release(false)
	}
	if w.dice.IntN(8) == 0 || w.mistakable() >= 0 {
		p.haunt()
	}
	if !p.deliver(wt.batch) {
		p.handle()
	}
	p.pump()
	w.atRest()
}

// pass lets time go by: to the next moment something is due, or any other.
func (w *World) pass(p *process) {
	if at := p.stage.Wakeup(); at != 0 && w.dice.IntN(2) == 0 {
		if d := at - p.now(); d > 0 && d <= w.faults.longest {
			w.mono += d
			return
		}
	}
	w.mono += w.dice.Int64N(w.faults.longest)
}

// sweep removes runs whose time is over.
func (p *process) sweep() {
	p.guard(func() {
		swept, err := p.stage.Clean(p.w.ctx(), p.now())
		p.w.swept = true
		p.w.stats.Swept += int64(swept.Runs)
		if err != nil {
			p.w.say("sweep: %v", err)
		}
	})
}

// atRest asserts what holds between two steps.
func (w *World) atRest() {
	for _, p := range w.procs {
		if p.disk.open != 0 {
			w.broken("F48: %d calls to the store are open while nobody reads", p.disk.open)
		}
	}
}
