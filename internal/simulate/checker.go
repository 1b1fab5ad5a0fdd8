// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// A checker holds a world to the invariants. What it knows it has from the bytes
// that were synced and from what left the engine; of the engine's memory it only
// asks whether it is what those bytes fold to.
type checker struct {
	w    *World
	prog *machine.Program
	runs map[store.Key]*runRecord
	all  []*runRecord // in the order of their starts
	// unheard are runs of batches that may be on the disk without having been synced.
	unheard []store.Key
	orderly bool // the last process was stopped in order
}

// A runRecord is what is known of one run.
type runRecord struct {
	key    store.Key
	seen   *journal.Checker
	shadow *machine.Run // the fold of all that was synced
	events []journal.Event
	hashes []uint64 // of the events
	sum    uint64   // of all of them
	judged uint64   // the stored form was compared at this event

	said    map[report]uint64   // hashes of successful outputs that workers reported
	handed  map[report]struct{} // attempts that were let out
	cancels int64               // durable, and
	asked   acks                // what users were promised
	inborn  uint64              // the last event when the newest process began
	givenUp uint64              // the last event when the process that wrote it stopped in order
	unclear bool                // … and another one died, and then one stopped, that did not know the run
	deleted bool
}

// acks counts what users were told had happened.
type acks struct {
	cancels, retries, signals int64
}

// A report names an attempt.
type report struct {
	ref   journal.Ref
	fence journal.Fence
}

// violation is what a broken invariant panics with.
type violation struct{ err error }

// broken ends the schedule.
func (w *World) broken(format string, args ...any) {
	panic(violation{fmt.Errorf(format, args...)})
}

// record returns what is known of a run.
func (j *checker) record(key store.Key) *runRecord {
	t := j.runs[key]
	if t == nil {
		t = &runRecord{
			key: key, seen: journal.NewChecker(j.prog.Plan()), shadow: machine.NewRun(j.prog),
			said: map[report]uint64{}, handed: map[report]struct{}{},
		}
		t.seen.CountHits(j.w.opt.Cells)
		j.runs[key] = t
		j.all = append(j.all, t)
	}
	return t
}

// last is the run's last synced event.
func (j *checker) last(key store.Key) uint64 {
	if t := j.runs[key]; t != nil {
		return t.seen.Last()
	}
	return 0
}

// committed hears of a batch that was given to the store.
func (j *checker) committed(batch []store.Transition, verdicts []store.Verdict, err error) {
	for i := range batch {
		t := &batch[i]
		switch {
		case err != nil:
			j.catchUp(t.Key)
			j.unheard = append(j.unheard, t.Key) // a crash may bring it to light
			continue
		case verdicts[i].Err != nil:
			continue
		}
		if t.Last != 0 {
			j.sync(t.Key, bytes.Clone(t.Frames))
		}
		if t.Head != nil {
			j.head(t)
		}
		if t.Compaction != nil || t.Suspension != nil {
			j.record(t.Key).judged = 0 // another stored form, perhaps of the same events
			j.kept(t.Key)
		}
	}
}

// sync takes events that have become durable.
func (j *checker) sync(key store.Key, frames []byte) {
	t := j.record(key)
	if t.deleted {
		j.w.broken("F43: run %s was removed and has new events", key.Run)
	}
	err := journal.EachEvent(frames, func(ev *journal.Event) error {
		if ev.Seq <= t.seen.Last() {
			return nil
		}
		return j.event(t, ev)
	})
	if err != nil {
		j.w.broken("run %s: %v", key.Run, err)
	}
}

// event takes one of them.
func (j *checker) event(t *runRecord, ev *journal.Event) error {
	w := j.w
	w.stats.Events++
	w.stats.Kinds[ev.Kind]++
	if ev.Kind == journal.EvNodeCompleted || ev.Kind == journal.EvNodeFailed {
		w.stats.Steps[j.prog.Plan().Steps[ev.Step].Kind]++
	}
	if w.trace != nil {
		w.say("  synced %s %d %s %s %s", t.key.Run, ev.Seq, ev.Name(), journal.StepPath(j.prog.Plan(), ev.Ref()), ev.Code)
	}
	gen := t.seen.Generation()
	if err := t.seen.Check(ev); err != nil {
		return err
	}
	if ev.Kind == journal.EvRunEnding && ev.Verdict() == journal.RunCancelled {
		t.cancels++
	}
	if ev.Kind == journal.EvNodeCompleted && ev.Attempt > 0 {
		want, ok := t.said[report{ev.Ref(), journal.Fence{Gen: gen, Attempt: ev.Attempt}}]
		if !ok || want != hashBytes(1, ev.Data) {
			return fmt.Errorf("I3: event %d: step %s completed by attempt %d with what no worker reported of it",
				ev.Seq, journal.StepPath(j.prog.Plan(), ev.Ref()), ev.Attempt)
		}
	}
	if err := t.shadow.Apply(ev); err != nil {
		return fmt.Errorf("I2: event %d cannot be folded: %w", ev.Seq, err)
	}
	key := ""
	if ev.Kind == journal.EvNodeStarted {
		key = t.shadow.EffectKey(ev.Ref())
	}
	if err := t.seen.CheckEffectKey(ev, t.seen.Generation(), key); err != nil {
		return fmt.Errorf("event %d: %w", ev.Seq, err)
	}
	if w.opt.Durable != nil {
		w.opt.Durable(t.key, t.shadow, ev)
	}
	h := hashEvent(ev)
	t.events = append(t.events, *ev)
	t.hashes = append(t.hashes, h)
	t.sum = mix(t.sum, h)
	return nil
}

// head compares a head row with what the events say.
func (j *checker) head(tr *store.Transition) {
	t, h := j.record(tr.Key), tr.Head
	if h.Quarantine != "" {
		if !j.w.harmed(h.Quarantine) {
			j.w.broken("I16: run %s is set apart, and nothing had harmed it: %s", tr.Run, h.Quarantine)
		}
		return
	}
	if status := t.seen.Status(); h.Status != status.String() || (h.Ended != 0) != status.Terminal() {
		j.w.broken("run %s is %s and its row says %s, ended %d", tr.Run, status, h.Status, h.Ended)
	}
	if h.Ended > t.seen.At() {
		j.w.broken("run %s ended at %d and its row says %d", tr.Run, t.seen.At(), h.Ended)
	}
}

// catchUp reads what became durable without a word.
func (j *checker) catchUp(key store.Key) {
	for {
		last := j.last(key)
		page, err := j.w.mem.Events(context.Background(), key, last, 1<<20)
		if err != nil || page.Next <= last {
			return
		}
		j.sync(key, page.Frames)
	}
}

// kept compares the stored form of a run, snapshot and tail, with the fold of
// its whole journal, and memory with both (I2).
func (j *checker) kept(key store.Key) {
	t := j.record(key)
	if t.deleted || t.judged == t.seen.Last() && !j.w.calm {
		return
	}
	t.judged = t.seen.Last()
	want := t.shadow.Snapshot(nil)
	// Only the owner's memory counts: one that has been replaced may dream on.
	for _, p := range j.w.procs {
		if p != j.w.owner {
			continue
		}
		l, ok := p.stage.Find(key)
		if !ok || l.Run.Last() != t.seen.Last() {
			continue
		}
		j.same(t, l.Run, want)
	}
	saved, err := j.w.mem.Load(context.Background(), key)
	if err != nil {
		j.w.broken("I1: run %s was synced, and the store says: %v", key.Run, err)
	}
	if saved.Last < t.seen.Last() {
		j.w.broken("I1: run %s was synced to event %d, and the store has %d", key.Run, t.seen.Last(), saved.Last)
	}
	back, err := j.restore(t, saved)
	if err != nil {
		j.w.broken("I2: run %s: %v", key.Run, err)
	}
	if got := back.Snapshot(nil); !bytes.Equal(got, want) {
		j.w.broken("I2: run %s as stored is not what its %d events fold to", key.Run, t.seen.Last())
	}
}

// same compares what is in memory with what the events fold to.
func (j *checker) same(t *runRecord, run *machine.Run, want []byte) {
	if got := run.Snapshot(nil); !bytes.Equal(got, want) {
		j.w.broken("I2: run %s in memory is not what its %d events fold to", t.key.Run, t.seen.Last())
	}
	if err := run.CheckValues(t.seen.InputBytes()); err != nil {
		j.w.broken("run %s: %v", t.key.Run, err)
	}
}

// died compares the memory of a process that is gone with what was synced (I2).
func (j *checker) died(p *process) {
	if p != j.w.owner || p.stage == nil {
		return
	}
	p.stage.Live(func(l engine.LiveRun) {
		if t := j.runs[l.Key]; t != nil && l.Run.Last() == t.seen.Last() && t.seen.Last() > 0 {
			j.same(t, l.Run, t.shadow.Snapshot(nil))
		}
	})
}

// restore makes the run that its stored form describes.
func (j *checker) restore(t *runRecord, saved *store.Saved) (*machine.Run, error) {
	run := machine.NewRun(j.prog)
	if saved.State != nil {
		var err error
		if run, err = machine.Restore(j.prog, saved.State); err != nil {
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

// survived asserts after a crash that nothing synced is gone, and that what is
// there folds to what it was (I1, I2).
func (j *checker) survived() {
	for _, key := range j.unheard {
		j.catchUp(key)
		if t := j.runs[key]; t != nil {
			t.judged = 0
		}
	}
	j.unheard = j.unheard[:0]
	for _, t := range j.all {
		if t.deleted {
			continue
		}
		j.catchUp(t.key)
		if t.seen.Last() > 0 {
			j.kept(t.key)
		}
	}
}

// deleted hears that a run was removed.
func (j *checker) deleted(key store.Key, p *process) {
	t := j.record(key)
	t.deleted = true
	if !t.seen.Status().Terminal() {
		j.w.broken("run %s was removed while it was %s", key.Run, t.seen.Status())
	}
	if keep := p.w.faults.config.Retention.Runs.Microseconds(); t.seen.At()+keep > p.stage.Now() {
		j.w.broken("run %s was removed %d µs too early", key.Run, t.seen.At()+keep-p.stage.Now())
	}
}

// Before implements engine's watch: every turn of every run in memory.
func (w *World) Before(key store.Key, run *machine.Run, in *machine.Input) {
	w.mayPanic(key, in)
	w.turn = turnBefore{terminal: run.Status().Terminal(), admits: run.Admits(in), last: run.Last()}
	if w.opt.Observe != nil {
		w.opt.Observe.Before(key, run, in)
	}
}

// turnBefore is what must be known of a run before a turn.
type turnBefore struct {
	terminal, admits bool
	last             uint64
}

// After implements engine's watch. It asserts what must hold after every
// transition.
func (w *World) After(key store.Key, run *machine.Run, in *machine.Input, t *machine.Turn) {
	if w.opt.Observe != nil {
		w.opt.Observe.After(key, run, in, t)
	}
	if w.trace != nil {
		w.say("  %s: input %d %s gives %d events %v", key.Run, in.Kind, journal.StepPath(run.Plan(), in.Ref), len(t.Events), t.Err)
	}
	if len(t.Events) == 0 {
		if run.Last() != w.turn.last {
			w.broken("run %s: an input without events moved it from event %d to %d", key.Run, w.turn.last, run.Last())
		}
		return
	}
	w.stats.Transitions++
	w.handedBack(key, in)
	if t.Err != nil {
		w.broken("I1: run %s: input %d was refused and gave %s", key.Run, in.Kind, t.Events[0].Name())
	}
	if w.turn.terminal && in.Kind != machine.InRetry && in.Kind != machine.InEdit {
		w.broken("I7: run %s had ended, and input %d gave %s", key.Run, in.Kind, t.Events[0].Name())
	}
	if !w.turn.admits {
		for i := range t.Events {
			if t.Events[i].Kind != journal.EvNodeIgnored {
				w.broken("I3: run %s: a report of an attempt that is over gave %s", key.Run, t.Events[i].Name())
			}
		}
	}
	for i := range t.Events {
		if ev := &t.Events[i]; ev.At < in.At {
			w.broken("I10: run %s: event %d is older than what caused it", key.Run, ev.Seq)
		}
	}
	if err := run.Check(); err != nil {
		w.broken("run %s after event %d: %v", key.Run, run.Last(), err)
	}
}

// began hears that a process begins.
func (j *checker) began(p *process) {
	p.orderly, j.orderly = j.orderly, false
	for _, t := range j.all {
		t.inborn = t.seen.Last()
	}
}

// stopped hears that a process has stopped in order. If it could note that, its
// attempts are handed back; those that it found and never told of are not its own.
func (j *checker) stopped(p *process) {
	raw, err := j.w.mem.Note(context.Background(), "engine.history")
	var note struct {
		Running bool  `json:"running"`
		Stopped int64 `json:"stopped"`
	}
	if err != nil || json.Unmarshal(raw, &note) != nil || note.Running {
		return
	}
	j.orderly = note.Stopped > 0 // else it left runs unread that a crash had hit, and counts all as lost
	for _, t := range j.all {
		switch last := t.seen.Last(); {
		case last != t.inborn:
			t.givenUp, t.unclear = last, !j.orderly
		case t.givenUp == last && (!p.orderly || !j.orderly):
			t.unclear = true
		}
	}
}

// handedBack asserts that a run is told the truth of how its attempts were lost:
// handed back if the process that wrote its last event was stopped in order, else
// lost to a crash (F45). Who was replaced by another process may not know it.
func (w *World) handedBack(key store.Key, in *machine.Input) {
	t := w.judge.record(key)
	if in.Kind != machine.InWorkerLost || !in.All || t.unclear || w.stats.Faults[TakenOver] > 0 {
		return
	}
	head, err := w.mem.Head(w.ctx(), key)
	apart := err == nil && head.Quarantine != "" // it is being released; its attempts were told to stop then
	if back := w.turn.last == t.givenUp && !apart; back != (in.Text != "") {
		w.broken("F45: run %s: its attempts after event %d are handed back: %v, and the run is told %q", key.Run, w.turn.last, back, in.Text)
	}
}

// mix and the hashes below are not for adversaries: they tell histories apart.
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
