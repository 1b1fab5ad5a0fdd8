// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/alarms"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// commitFailed handles a failed commit. The connection may have failed before the
// commit or after it, which cannot be distinguished. So every run in memory is suspect:
// drop them all and load them again once the store responds.
func (r *recovery) commitFailed(b *batch, err error) {
	if r.c.ctx.Err() == nil && r.c.cfg.CommitFailed != nil {
		r.c.cfg.CommitFailed(err)
	}
	if store.Fatal(err) {
		r.fail(err, b)
		return
	}
	r.c.cfg.Logger.Warn("a commit failed; loading every run again", "err", err)
	r.stalled = err
	r.backoff = min(max(2*r.backoff, minBackoff), maxBackoff)
	r.retryAt = r.c.now + r.backoff
	r.unloadAll()
	r.lostBatches = append(r.lostBatches, b)
	// What was never sent to the store is certainly not written.
	for _, in := range r.c.pipeline.building.inputs {
		r.requeue(in)
	}
	r.c.pipeline.building.reset()
	r.refuseBacklog()
}

// requeue keeps a report of a worker until the runs are loaded again, and refuses what
// a caller can request again.
func (r *recovery) requeue(in *input) {
	if in.reply == nil {
		r.c.backlog = append(r.c.backlog, in)
		return
	}
	in.out = answer{run: in.key.Run, err: r.stalled}
	in.sendAnswer()
}

// unloadAll drops every run from memory.
func (r *recovery) unloadAll() {
	r.c.attempts.Arbiter.ForgetWaiting()
	for l := r.c.residency.recent.Front(); l != nil; l = r.c.residency.recent.Front() {
		r.c.residency.drop(l)
	}
	r.c.attempts.UnloadOverdue()
	r.c.residency.alarms = alarms.Queue[loadedRun]{}
	r.c.residency.quiet = nil
	r.c.residency.horizon = 0
	r.c.purses.Reset()
	r.c.queues.Reset()
	r.c.continues, r.recovering, r.suspects = nil, nil, nil
	r.c.backlog = append(append(r.c.again, r.c.tree.postponed...), r.c.backlog...)
	r.c.again = nil
	r.c.tree.init()
}

// refuseBacklog answers callers with an error while nothing can be committed. Reports
// of workers stay, because they are never refused.
func (r *recovery) refuseBacklog() {
	err := r.dead
	if err == nil {
		err = r.stalled
	}
	kept := r.c.backlog[:0]
	for _, in := range r.c.backlog {
		if in.reply == nil {
			if r.dead == nil {
				kept = append(kept, in)
			}
			continue
		}
		in.out = answer{run: in.key.Run, err: err}
		in.sendAnswer()
	}
	clear(r.c.backlog[len(kept):])
	r.c.backlog = kept
}

// fail ends the engine: what is not acknowledged by now never will be (I21).
func (r *recovery) fail(err error, b *batch) {
	r.c.cfg.Logger.Error("the engine stops acknowledging", "err", err)
	r.dead = err
	r.unloadAll()
	r.lostBatches = append(r.lostBatches, b)
	r.answerAll(err)
}

// answerAll answers all waiting callers with err, because nothing more will be written.
func (r *recovery) answerAll(err error) {
	for _, b := range append(r.lostBatches, r.c.pipeline.building) {
		for _, in := range b.inputs {
			in.out = answer{run: in.key.Run, err: err}
			in.sendAnswer()
		}
		b.reset()
	}
	r.lostBatches = nil
	r.refuseBacklog()
}

// reload loads every run again after a failed commit, and reports whether that
// succeeded. What the lost batches contained is looked up run by run: because our epoch
// guards the journals, an event number found there was written by that batch (F16).
func (r *recovery) reload() bool {
	if r.c.now < r.retryAt {
		return false
	}
	err := r.c.cfg.Store.Recover(r.c.ctx, func(saved *store.Saved) error {
		key := saved.Head.Key
		switch {
		case !r.c.residency.selectsOf(saved.Head.Key, saved.Head.Root) || saved.Head.Quarantine != "" || r.quarantined[key] != "":
		case r.inherited[key].suspect:
			r.suspects = append(r.suspects, key)
		default:
			return r.loadSaved(saved)
		}
		return nil
	})
	r.reserve()
	if err == nil {
		err = r.listQueued()
	}
	written, told := map[store.Key]bool{}, []*loadedRun(nil)
	for _, b := range r.lostBatches {
		for i := range b.transitions {
			if t := &b.transitions[i]; err == nil {
				var is bool
				is, err = r.wasWritten(t)
				if written[t.Subject()] = is; is && b.runs[i] != nil {
					told = append(told, b.runs[i])
				}
			}
		}
	}
	if err == nil {
		err = r.restoreMarks()
	}
	if err == nil {
		err = r.c.residency.lookAhead()
	}
	if err == nil {
		err = r.checkOwnership()
	}
	if err != nil {
		r.unloadAll()
		r.backoff = min(2*r.backoff, maxBackoff)
		r.retryAt = r.c.now + r.backoff
		if store.Fatal(err) {
			r.fail(err, r.c.pipeline.building)
		}
		return false
	}
	allWritten := !slices.Contains(slices.Collect(maps.Values(written)), false)
	for _, b := range r.lostBatches {
		for _, in := range b.inputs {
			if is, ok := written[in.subject()]; ok && !is || in.kind == inBarrier && !allWritten {
				r.requeue(in)
				continue
			}
			in.sendAnswer()
		}
		for i := range b.commands {
			// A run repeats the commands that it still needs. Cancels must be sent
			// here, because nothing else would tell the worker to stop, and slots of
			// jobs freed.
			if o := &b.commands[i]; (o.cmd.Kind == machine.CmdCancelTask || o.cmd.Kind == cmdFree) && written[o.l.key] {
				r.c.pipeline.emit(o)
			}
		}
		b.reset()
		r.c.pipeline.spare = b
	}
	r.lostBatches = nil
	r.stalled = nil
	for _, l := range told {
		r.c.publishJobs(l)
	}
	// A lost batch may have been written without being published, and its events may be
	// the last ones of their runs. The zero Published makes watchers read the journal.
	r.c.frames = append(r.c.frames, feed.Published{})
	r.c.cfg.Logger.Info("the store responds again", "runs", len(r.c.residency.runs))
	return true
}

// wasWritten reports whether the store holds a transition of a lost batch.
func (r *recovery) wasWritten(t *store.Transition) (bool, error) {
	if t.Run == "" {
		e, _, err := r.c.cfg.Store.Entry(r.c.ctx, t.Account, t.Entries[0].Key)
		return e != nil, err
	}
	if t.Last == 0 {
		return store.HeadWritten(r.c.ctx, r.c.cfg.Store, t)
	}
	if l := r.c.residency.runs[t.Key]; l != nil {
		return l.run.Last() >= t.Last, nil
	}
	saved, err := r.c.cfg.Store.Load(r.c.ctx, t.Key)
	switch fault.CodeOf(err) {
	case "":
		return saved.Last >= t.Last, nil
	case fault.RunNotFound:
		return false, nil
	}
	return false, err
}

// commitHung ends a core whose commit does not return. The batch must not be touched,
// because the store is still reading it.
func (r *recovery) commitHung() {
	b := r.c.pipeline.committing
	r.c.pipeline.committing = nil
	for _, in := range b.inputs {
		in.out = answer{run: in.key.Run, err: ErrHangs}
		in.sendAnswer()
	}
	r.fail(ErrHangs, new(batch))
}
