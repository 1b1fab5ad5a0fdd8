// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A checker checks the invariants of a world. It only knows the bytes that were synced
// and what left the engine. It reads the engine's memory only to compare it with what
// those bytes fold to.
type checker struct {
	w       *World
	prog    *machine.Program // of roots
	progs   programs
	named   programs     // of recipes that expressions have named or given
	changed []*runRecord // by this commit
	runs    map[store.Key]*runRecord
	all     []*runRecord // in the order of their starts
	// unsynced are runs of batches that may be on the disk although their sync failed.
	unsynced []store.Key
	books    map[string]*book // by account
	// followers read the changes of each account.
	followers map[string]*follower
	orderly   bool // the last process was stopped in order
}

// A runRecord is what the checker knows about one run.
type runRecord struct {
	key        store.Key
	journal    *journal.Checker
	prog       *machine.Program
	replica    *machine.Run // the run rebuilt from everything that was synced
	events     []journal.Event
	hashes     []uint64 // of the events
	sum        uint64   // hash of all events
	comparedAt uint64   // the stored form was compared at this event

	reported    map[report]uint64   // hashes of successful outputs that workers reported
	remote      map[report][]uint64 // the same of remote workers that had the task
	dispatched  map[report]struct{} // attempts that were dispatched
	cancels     int64               // cancels in the journal
	acked       acks                // requests that were acknowledged to users
	bootEvent   uint64              // the last event when the newest process started
	stopEvent   uint64              // the last event when the process that wrote it stopped in order
	tree        treeRecord
	effects     effects
	unknownLoss bool // after stopEvent a process died, and the next one stopped without having loaded the run
	deleted     bool
	place       place // in the queue of its account
}

// acks counts the requests of each kind that were acknowledged.
type acks struct {
	cancels, retries, signals int64
}

// A report identifies an attempt.
type report struct {
	ref   journal.Ref
	fence journal.Fence
}

// violation is the panic value of a broken invariant.
type violation struct{ err error }

// fail ends the schedule with a broken invariant.
func (w *World) fail(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

// record returns the record of a run.
func (c *checker) record(key store.Key) *runRecord {
	t := c.runs[key]
	if t == nil {
		prog := c.programOf(key)
		t = &runRecord{
			key: key, journal: journal.NewChecker(prog.Plan()), prog: prog, replica: machine.NewRun(prog),
			reported: map[report]uint64{}, remote: map[report][]uint64{}, dispatched: map[report]struct{}{},
		}
		t.journal.CountHits(c.w.opt.Cells)
		c.runs[key] = t
		c.all = append(c.all, t)
	}
	return t
}

// programOf returns the program of a run that is stored.
func (c *checker) programOf(key store.Key) *machine.Program {
	head, err := c.w.mem.Head(c.w.ctx(), key)
	switch {
	case err != nil:
		return c.prog
	case c.progs[head.PlanHash] != nil:
		return c.progs[head.PlanHash]
	case c.named[head.PlanHash] == nil: // an expression has named it
		p, err := store.LoadPlan(c.w.ctx(), c.w.mem, head)
		if err != nil {
			return c.prog
		}
		c.named[head.PlanHash] = machine.Prepare(p)
	}
	return c.named[head.PlanHash]
}

// last is the run's last synced event.
func (c *checker) last(key store.Key) uint64 {
	if t := c.runs[key]; t != nil {
		return t.journal.Last()
	}
	return 0
}

// committed observes a batch that was given to the store.
func (c *checker) committed(batch []store.Transition, verdicts []store.Verdict, err error) {
	var keys []store.Key
	for i := range batch {
		t := &batch[i]
		if err != nil || verdicts[i].Err != nil {
			c.book(t.Account).unordered = true
		}
		if t.Run == "" {
			continue
		}
		keys = append(keys, t.Key)
		switch {
		case err != nil:
			c.catchUp(t.Key)
			c.uncertain(t) // it may reappear after a crash
			continue
		case verdicts[i].Err != nil:
			if t.First != 1 {
				c.record(t.Key).place.disturbed = true
			}
			continue
		}
		if t.Last != 0 {
			c.synced(t.Key, bytes.Clone(t.Frames))
		}
		if t.Head != nil {
			c.checkHead(t)
		}
		if t.Compaction != nil || t.Suspension != nil {
			c.record(t.Key).comparedAt = 0 // the stored form has changed, perhaps without new events
			c.checkStored(t.Key)
		}
	}
	c.checkTrees()
	c.audit(keys...)
	c.checkQueues()
	c.followFeeds()
	for i := range batch {
		if t := &batch[i]; err == nil && verdicts[i].Err == nil && t.Head != nil {
			c.checkTold(t.Key)
		}
	}
}

// uncertain notes a transition of which nobody knows whether it is on the disk.
func (c *checker) uncertain(tr *store.Transition) {
	c.unsynced = append(c.unsynced, tr.Key)
	if tr.Head != nil && tr.Head.Quarantine != "" {
		c.record(tr.Key).place.disturbed = true
	}
}

// synced checks events that have become durable.
func (c *checker) synced(key store.Key, frames []byte) {
	t := c.record(key)
	if t.deleted {
		c.w.fail("F43: run %s was removed and has new events", key.Run)
	}
	err := journal.EachEvent(frames, func(ev *journal.Event) error {
		if ev.Seq <= t.journal.Last() {
			return nil
		}
		return c.checkEvent(t, ev)
	})
	if err != nil {
		c.w.fail("run %s: %v", key.Run, err)
	}
}

// checkEvent checks one of them.
func (c *checker) checkEvent(t *runRecord, ev *journal.Event) error {
	w := c.w
	w.stats.Events++
	w.stats.Kinds[ev.Kind]++
	if ev.Kind == journal.EvNodeCompleted || ev.Kind == journal.EvNodeFailed {
		w.stats.Steps[t.prog.Plan().Steps[ev.Step].Kind]++
	}
	if w.trace != nil {
		w.tracef("  synced %s %d %s %s %s", t.key.Run, ev.Seq, ev.Name(), journal.StepPath(t.prog.Plan(), ev.Ref()), ev.Code)
	}
	gen, status := t.journal.Generation(), t.journal.Status()
	if err := t.journal.Check(ev); err != nil {
		return err
	}
	if showsFlagged(ev) {
		return fmt.Errorf("A30: event %d, %s of step %s, has what no moderator has passed", ev.Seq, ev.Name(), journal.StepPath(t.prog.Plan(), ev.Ref()))
	}
	t.place.observe(status, ev)
	if ev.Kind == journal.EvRunEnding && ev.Verdict() == journal.RunCancelled {
		t.cancels++
	}
	if ev.Kind == journal.EvNodeCompleted && ev.Attempt > 0 && t.prog.Plan().Steps[ev.Step].Kind != plan.Recipe {
		at, got := report{ev.Ref(), journal.Fence{Gen: gen, Attempt: ev.Attempt}}, hashBytes(1, ev.Data)
		if want, ok := t.reported[at]; (!ok || want != got) && !slices.Contains(t.remote[at], got) {
			return fmt.Errorf("I3: event %d: step %s completed by attempt %d with what no worker reported of it",
				ev.Seq, journal.StepPath(t.prog.Plan(), ev.Ref()), ev.Attempt)
		}
	}
	if err := t.replica.Apply(ev); err != nil {
		return fmt.Errorf("I2: event %d cannot be folded: %w", ev.Seq, err)
	}
	key := ""
	if ev.Kind == journal.EvNodeStarted {
		key = t.replica.EffectKey(ev.Ref())
	}
	if ev.Kind == journal.EvRunStarted {
		w.runScheduled(t, ev)
	}
	if err := t.journal.CheckEffectKey(ev, t.journal.Generation(), key); err != nil {
		return fmt.Errorf("event %d: %w", ev.Seq, err)
	}
	if err := t.effects.observe(ev, key); err != nil {
		return err
	}
	w.deeds.told(t.key.Run, ev)
	if err := checkFresh(t, ev); err != nil {
		return err
	}
	if w.opt.Durable != nil {
		w.opt.Durable(t.key, t.replica, ev)
	}
	c.recordTree(t, ev)
	h := hashEvent(ev)
	t.events = append(t.events, *ev)
	t.hashes = append(t.hashes, h)
	t.sum = mix(t.sum, h)
	return nil
}

// effects are the effect keys of a run: of the last attempt of each step, and those that
// were charged.
type effects struct {
	keys    map[journal.Ref]string
	charged map[string]bool
}

// observe asserts that an effect is charged once, however many attempts, in however many
// generations, had its key (I12). key is that of an attempt that begins with the event.
func (e *effects) observe(ev *journal.Event, key string) error {
	if e.keys == nil {
		e.keys, e.charged = map[journal.Ref]string{}, map[string]bool{}
	}
	switch {
	case ev.Kind == journal.EvNodeStarted:
		e.keys[ev.Ref()] = key
	case ev.Kind == journal.EvNodeCharged && ev.Charged():
		key := e.keys[ev.Ref()]
		if e.charged[key] {
			return fmt.Errorf("I12: event %d charges effect %s again", ev.Seq, key)
		}
		e.charged[key] = true
	}
	return nil
}

// checkFresh asserts that a run which wants no earlier results has none.
func checkFresh(t *runRecord, ev *journal.Event) error {
	if ev.Kind == journal.EvNodeCached && t.replica.Start().NoCache {
		return fmt.Errorf("event %d has an earlier result, and the run wants none", ev.Seq)
	}
	return nil
}

// observe follows the run through the queue.
func (p *place) observe(before journal.RunStatus, ev *journal.Event) {
	switch {
	case ev.Kind == journal.EvRunStarted, ev.Kind == journal.EvRunRetried:
		p.at, p.admitted, p.direct, p.undoing = ev.At, true, true, false
	case ev.Kind == journal.EvRunStatus && ev.Status() == journal.RunQueued:
		p.admitted, p.direct = false, false
	case before != journal.RunQueued:
	case ev.Kind == journal.EvRunStatus:
		p.admitted = true
	case ev.Kind == journal.EvRunEnding:
		p.undoing = true
	}
}

// checkHead compares a head row with the events.
func (c *checker) checkHead(tr *store.Transition) {
	t, h := c.record(tr.Key), tr.Head
	if h.Quarantine != "" {
		t.place.disturbed = true
		if !c.w.mayQuarantine(h) {
			c.w.fail("I16: run %s is quarantined, and nothing had made it fail: %s", tr.Run, h.Quarantine)
		}
		return
	}
	if status := t.journal.Status(); h.Status != status.String() || (h.Ended != 0) != status.Terminal() {
		c.w.fail("run %s is %s and its row has %s, ended %d", tr.Run, status, h.Status, h.Ended)
	}
	if h.Ended > t.journal.At() {
		c.w.fail("run %s ended at %d and its row has %d", tr.Run, t.journal.At(), h.Ended)
	}
}

// catchUp reads events that became durable although their commit failed.
func (c *checker) catchUp(key store.Key) {
	for {
		last := c.last(key)
		page, err := c.w.mem.Events(context.Background(), key, last, 1<<20)
		if err != nil || page.Next <= last {
			return
		}
		c.synced(key, page.Frames)
	}
}

// checkStored compares the stored form of a run (snapshot and tail) with a replay of
// its whole journal, and the owner's memory with both (I2).
func (c *checker) checkStored(key store.Key) {
	t := c.record(key)
	if t.deleted || t.comparedAt == t.journal.Last() && !c.w.noFaults {
		return
	}
	t.comparedAt = t.journal.Last()
	want := t.replica.Snapshot(nil)
	// Only the owner's memory counts: a process that was replaced may be out of date.
	for _, p := range c.w.procs {
		if p != c.w.owner {
			continue
		}
		l, ok := p.stage.Find(key)
		if !ok || l.Run.Last() != t.journal.Last() {
			continue
		}
		c.checkMemory(t, l.Run, want)
	}
	saved, err := c.w.mem.Load(context.Background(), key)
	if err != nil {
		c.w.fail("I1: run %s was synced, and the store returns: %v", key.Run, err)
	}
	if saved.Last < t.journal.Last() {
		c.w.fail("I1: run %s was synced to event %d, and the store has %d", key.Run, t.journal.Last(), saved.Last)
	}
	back, err := c.restore(t, saved)
	if err != nil {
		c.w.fail("I2: run %s: %v", key.Run, err)
	}
	if got := back.Snapshot(nil); !bytes.Equal(got, want) {
		c.w.fail("I2: run %s as stored is not what its %d events fold to", key.Run, t.journal.Last())
	}
}

// checkMemory compares the run in memory with a replay of its events.
func (c *checker) checkMemory(t *runRecord, run *machine.Run, want []byte) {
	if got := run.Snapshot(nil); !bytes.Equal(got, want) {
		c.w.fail("I2: run %s in memory is not what its %d events fold to", t.key.Run, t.journal.Last())
	}
	if err := run.CheckValues(t.journal.InputBytes()); err != nil {
		c.w.fail("run %s: %v", t.key.Run, err)
	}
}

// died compares the memory of a dead process with what was synced (I2).
func (c *checker) died(p *process) {
	if p != c.w.owner || p.stage == nil {
		return
	}
	p.stage.Live(func(l engine.LiveRun) {
		if t := c.runs[l.Key]; t != nil && l.Run.Last() == t.journal.Last() && t.journal.Last() > 0 {
			c.checkMemory(t, l.Run, t.replica.Snapshot(nil))
		}
	})
}

// restore makes a run from its stored form.
func (c *checker) restore(t *runRecord, saved *store.Saved) (*machine.Run, error) {
	run := machine.NewRun(t.prog)
	if saved.State != nil {
		var err error
		if run, err = machine.Restore(t.prog, saved.State); err != nil {
			return nil, err
		}
	}
	if err := journal.EachEvent(saved.Tail, func(ev *journal.Event) error {
		if ev.Seq <= run.Last() {
			return nil
		}
		return run.Apply(ev)
	}); err != nil {
		return nil, err
	}
	for _, n := range run.Missing() {
		if n > uint64(len(t.events)) {
			return nil, fmt.Errorf("event %d holds a value of its state and was never synced", n)
		}
		if err := run.Supply(&t.events[n-1]); err != nil {
			return nil, err
		}
	}
	return run, nil
}

// checkSurvived asserts after a crash that everything synced is still there and gives
// the same state (I1, I2).
func (c *checker) checkSurvived() {
	for _, key := range c.unsynced {
		c.catchUp(key)
		if t := c.runs[key]; t != nil {
			t.comparedAt = 0
		}
	}
	c.unsynced = c.unsynced[:0]
	c.audit() // there may be entries and no run
	for _, t := range c.all {
		if t.deleted {
			continue
		}
		c.catchUp(t.key)
		if t.journal.Last() > 0 {
			c.checkStored(t.key)
		}
		c.audit(t.key)
	}
	c.checkTrees()
	c.checkQueues()
	c.followFeeds()
}

// deleted records that a run was removed, and its child runs with it.
func (c *checker) deleted(root store.Key, p *process) {
	for _, t := range c.all {
		if t.key == root || t.tree.self != nil && t.tree.self.Root == root.Run && t.key.Account == root.Account {
			c.removed(t, p)
		}
	}
}

func (c *checker) removed(t *runRecord, p *process) {
	t.deleted = true
	if !t.journal.Status().Terminal() {
		c.w.fail("run %s was removed while it was %s", t.key.Run, t.journal.Status())
	}
	if keep := p.w.faults.config.Retention.Runs.Microseconds(); t.journal.At()+keep > p.stage.Now() {
		c.w.fail("run %s was removed %d µs too early", t.key.Run, t.journal.At()+keep-p.stage.Now())
	}
}

// Before observes the engine: it is called before every turn of every run in memory.
func (w *World) Before(key store.Key, run *machine.Run, in *machine.Input) {
	w.mayPanic(key, run, in)
	w.turn = turnBefore{terminal: run.Status().Terminal(), admits: run.Admits(in), last: run.Last()}
	if w.opt.Observe != nil {
		w.opt.Observe.Before(key, run, in)
	}
}

// turnBefore is the state of a run before a turn, as far as the checks need it.
type turnBefore struct {
	terminal, admits bool
	last             uint64
}

// After observes the engine: it asserts the invariants after every turn.
func (w *World) After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn) {
	if w.opt.Observe != nil {
		w.opt.Observe.After(key, run, in, t)
	}
	if w.trace != nil {
		w.tracef("  %s: input %d %s gives %d events %v", key.Run, in.Kind, journal.StepPath(run.Plan(), in.Ref), len(t.Events), t.Err)
	}
	if t.Short && w.inside != nil && w.inside.cutOff(key, run) {
		w.checker.takenBack(key, run)
	}
	if len(t.Events) == 0 {
		if run.Last() != w.turn.last {
			w.fail("run %s: an input without events moved it from event %d to %d", key.Run, w.turn.last, run.Last())
		}
		return
	}
	w.stats.Transitions++
	w.checkHandedBack(key, in)
	if t.Err != nil {
		w.fail("I1: run %s: input %d was refused and gave %s", key.Run, in.Kind, t.Events[0].Name())
	}
	if w.turn.terminal && in.Kind != machine.InRetry && in.Kind != machine.InEdit && in.Kind != machine.InResume {
		w.fail("I7: run %s had ended, and input %d gave %s", key.Run, in.Kind, t.Events[0].Name())
	}
	if !w.turn.admits {
		for i := range t.Events {
			if t.Events[i].Kind != journal.EvNodeIgnored {
				w.fail("I3: run %s: a report of an attempt that is over gave %s", key.Run, t.Events[i].Name())
			}
		}
	}
	for i := range t.Events {
		if ev := &t.Events[i]; ev.At < in.At {
			w.fail("I10: run %s: event %d is older than what caused it", key.Run, ev.Seq)
		}
	}
	if err := run.Check(); err != nil {
		w.fail("run %s after event %d: %v", key.Run, run.Last(), err)
	}
}

// began records the start of a process.
func (c *checker) began(p *process) {
	p.orderly, c.orderly = c.orderly, false
	for _, t := range c.all {
		t.bootEvent = t.journal.Last()
	}
}

// stopped records that a process has stopped in order. If it could write its note, its
// attempts are handed back. Attempts that it found and did not load are not its own.
func (c *checker) stopped(p *process) {
	raw, err := c.w.mem.Note(context.Background(), "engine.history")
	var note struct {
		Running bool  `json:"running"`
		Stopped int64 `json:"stopped"`
	}
	if err != nil || json.Unmarshal(raw, &note) != nil || note.Running {
		return
	}
	c.orderly = note.Stopped > 0 // otherwise it left runs unread after a crash, and all their attempts count as lost
	for _, t := range c.all {
		switch last := t.journal.Last(); {
		case last != t.bootEvent:
			t.stopEvent, t.unknownLoss = last, !c.orderly
		case t.stopEvent == last && (!p.orderly || !c.orderly):
			t.unknownLoss = true
		}
	}
}

// checkHandedBack asserts that a run is told correctly how its attempts were lost:
// handed back if the process that wrote its last event was stopped in order, otherwise
// lost to a crash (F45). A process that was replaced by another may not know.
func (w *World) checkHandedBack(key store.Key, in *machine.Input) {
	t := w.checker.runs[key]
	if t == nil && len(w.checker.progs) == 1 {
		t = w.checker.record(key) // a run that is not stored yet; of a tree its plan is not known
	}
	if in.Kind != machine.InWorkerLost || !in.All || t == nil || t.unknownLoss || w.stats.Faults[TakenOver] > 0 {
		return
	}
	head, err := w.mem.Head(w.ctx(), key)
	quarantined := err == nil && head.Quarantine != "" // it is being released; its attempts were told to stop when it was quarantined
	if back := w.turn.last == t.stopEvent && !quarantined; back != (in.Text != "") {
		w.fail("F45: run %s: its attempts after event %d are handed back: %v, and the run is told %q", key.Run, w.turn.last, back, in.Text)
	}
}

// mix and the hashes below only tell histories apart; they are not secure.
func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func hashBytes(h uint64, b []byte) uint64 {
	h = mix(h, uint64(len(b)))
	for len(b) >= 8 {
		h = mix(h, uint64(b[0])|uint64(b[1])<<8|uint64(b[2])<<16|uint64(b[3])<<24|uint64(b[4])<<32|uint64(b[5])<<40|uint64(b[6])<<48|uint64(b[7])<<56)
		b = b[8:]
	}
	for _, c := range b {
		h = mix(h, uint64(c))
	}
	return h
}

func hashEvent(ev *journal.Event) uint64 {
	h := mix(ev.Seq, uint64(ev.At))
	h = mix(h, uint64(ev.Kind)|uint64(ev.Flag)<<8|uint64(uint32(ev.Step))<<16)
	h = mix(h, uint64(ev.Attempt))
	h = mix(mix(h, uint64(ev.N)), uint64(ev.M))
	h = hashBytes(h, []byte(ev.Path))
	h = hashBytes(h, []byte(ev.Code))
	h = hashBytes(h, []byte(ev.Text))
	h = hashBytes(h, ev.Data)
	return hashBytes(h, ev.Hash)
}
