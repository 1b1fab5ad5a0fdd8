// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/list"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/store"
)

// A loadedRun is a run in memory.
type loadedRun struct {
	key   store.Key
	prog  *program.Program
	run   *machine.Run
	head  store.Head // as of the last encoded batch
	start *runStart  // until the run's first transition is durable
	// unended is true while the stored head does not record an end; any goroutine may
	// read it.
	unended atomic.Bool
	ended   int64 // when the run reached its last terminal event; 0 = it has not ended
	seen    feed.Seen

	storedState
	changes

	continueDue bool // an InContinue input is due
	interrupted bool // loaded with attempts whose process has ended
	released    bool // just released; its attempts were told to stop when it was quarantined
	dropped     bool // removed from memory; pointers to it are stale
	refused     bool // dropped because the store refused its last transition

	// Of a root: what expressions have named, since the last batch and since it was loaded.
	plans    []store.EncodedPlan
	resolved program.Family

	// Of a run in a tree of runs.
	root    string         // its root; "" = the run starts no other runs and is no child run
	place   *journal.Child // nil = it is a root
	parent  *loadedRun     // as it was last looked up
	orphan  bool           // its parent cannot be loaded
	owesEnd bool           // it has ended and its parent does not know

	requests requestSet
	claim    purse.Claim   // on its account, if that pays
	tasks    jobs.Unstored // of remote workers, those that have no record
	admitting
	routes    []*route // by plan action; nil = it depends on more
	throttled bool     // one of its routes is, see slots.Route

	timer   *timer // nil until the run has an alarm
	alarm   int64  // time of its valid alarm; 0 = none
	touched int64
	age     list.Link[loadedRun] // in residency.recent
}

// storedState is what the store holds of a run, or is about to hold.
type storedState struct {
	tail         []byte // frames after event chunked, durable or not
	chunked      uint64 // last event kept in a chunk
	snapshotSize int    // size of the last snapshot
	suspended    bool   // the store has a suspension entry as of the last event
	wakeAt       int64  // its WakeAt
}

// changes are what the next batch must write of a run.
type changes struct {
	dirty      bool          // in the batch under construction
	from       int           // while dirty: where the frames of that batch begin in tail
	first      uint64        // while dirty: the first event of those frames
	committing bool          // in the batch being committed
	version    uint32        // incremented by every touch
	encoded    uint32        // version when last encoded
	compact    bool          // encode with a compaction
	suspending bool          // encode with a suspension
	forceHead  bool          // encode with a head row
	jobs       []jobs.Change // what becomes of its external jobs
	told       []jobs.Change // while committing: what is then durable of that
}

// settled reports whether nothing will happen to the run unless it is requested.
func (l *loadedRun) settled() bool {
	return l.run.Status().Terminal() && l.run.Quiet() && !l.owesEnd
}

// newHead updates the head row and reports whether it must be written: at the start, at
// the end, when the status changes and when the run is queued again.
func (l *loadedRun) newHead(now int64) bool {
	h, status := &l.head, l.run.Status()
	text, ended, owes := status.String(), int64(0), false
	if status.Terminal() {
		ended, owes = l.ended, !l.run.Quiet() || l.owesEnd
	}
	// A queued run may have been cancelled and retried since the last batch.
	again := text == store.StatusQueued && l.queuedAt != h.Updated
	if l.start == nil && text == h.Status && ended == h.Ended && owes == h.Owes && !l.forceHead && !again {
		return false
	}
	h.Status, h.Ended, h.Owes, h.Code, h.Message = text, ended, owes, "", ""
	if status.Terminal() {
		h.Code, h.Message = l.run.Failure()
	}
	h.Used, h.Failures, h.Updated = l.run.Used(), l.run.HasFailures(), now
	if text == store.StatusQueued {
		h.Updated = l.queuedAt // the store lists queued runs in that order
	}
	return true
}

// rebuild folds a stored run. It does not change the core.
func (m *residency) rebuild(saved *store.Saved) (l *loadedRun, err error) {
	defer func() {
		if v := recover(); v != nil {
			m.c.cfg.Logger.Error("folding a journal panicked", "run", saved.Head.Run, "panic", v, "stack", string(debug.Stack()))
			err = fault.New(fault.InternalError, "folding its journal panicked: %v", v)
		}
	}()
	if saved.Err != nil {
		return nil, saved.Err
	}
	prog, err := m.c.programs.Load(m.c.ctx, m.c.cfg.Store, saved.Head.PlanHash)
	if err != nil {
		return nil, err
	}
	run, err := prog.Fold(m.c.ctx, m.c.cfg.Store, saved, 0)
	if err != nil {
		return nil, err
	}
	l = &loadedRun{
		key: saved.Head.Key, prog: prog, run: run, head: saved.Head, ended: saved.Head.Ended,
		seen:        feed.Seen{Started: true, Ended: saved.Head.Ended, Used: saved.Head.Used},
		storedState: storedState{chunked: saved.Chunked, snapshotSize: len(saved.State)},
	}
	l.setPlace(run.Start())
	l.owesEnd = l.place != nil && saved.Head.Owes
	if l.ended == 0 && run.Status().Terminal() {
		l.ended = run.Now() // the head lags
	}
	l.unended.Store(l.ended == 0)
	if saved.Suspension != nil {
		l.suspended, l.wakeAt = true, saved.Suspension.WakeAt
	} else if err := m.findUnstored(l); err != nil {
		return nil, err
	}
	if saved.Last > saved.Chunked {
		l.tail, err = journal.FramesAfter(saved.Tail, saved.Chunked)
	}
	return l, err
}
