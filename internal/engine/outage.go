// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// lose handles a failed commit. The connection may have died before the commit
// or after it. We cannot tell, so every run in memory is suspect: forget them
// and load again, once the store answers.
func (r *recovery) lose(b *batch, err error) {
	if r.c.ctx.Err() == nil && r.c.cfg.CommitFailed != nil {
		r.c.cfg.CommitFailed(err)
	}
	if fatal(err) {
		r.die(err, b)
		return
	}
	r.c.cfg.Logger.Warn("a commit failed; loading every run again", "err", err)
	r.stalled = err
	r.backoff = min(max(2*r.backoff, minBackoff), maxBackoff)
	r.retryAt = r.c.now + r.backoff
	r.forget()
	r.lost = append(r.lost, b)
	// What was never sent to the store is certainly not written.
	for _, in := range r.c.pipeline.building.ins {
		r.redo(in)
	}
	r.c.pipeline.building.reset()
	r.refuse()
}

// redo keeps a report of a worker for when the runs are back, and refuses what
// a caller can ask for again.
func (r *recovery) redo(in *input) {
	if in.reply == nil {
		r.c.backlog = append(r.c.backlog, in)
		return
	}
	in.out = answer{run: in.key.Run, err: r.stalled}
	in.send()
}

// forget empties memory.
func (r *recovery) forget() {
	for l := r.c.residency.recent.front(); l != nil; l = r.c.residency.recent.front() {
		l.requests.Each(r.c.attempts.orphan)
		l.requests = requestSet{} // the arbiter starts anew
		r.c.residency.drop(l)
	}
	for _, k := range r.c.attempts.overdue {
		r.c.attempts.orphan(k)
	}
	r.c.attempts.arbiter = newArbiter(r.c.cfg.Concurrency)
	r.c.residency.alarms = alarms{}
	r.c.residency.resting = nil
	r.c.residency.horizon = 0
	clear(r.c.attempts.overdue)
	r.c.continues, r.entering, r.suspects = nil, nil, nil
}

// refuse answers callers while nothing can be committed. Reports of workers
// stay: they always get in.
func (r *recovery) refuse() {
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
		in.send()
	}
	clear(r.c.backlog[len(kept):])
	r.c.backlog = kept
}

// die ends the engine: what is not acknowledged by now never will be (I21).
func (r *recovery) die(err error, b *batch) {
	r.c.cfg.Logger.Error("the engine stops acknowledging", "err", err)
	r.dead = err
	r.forget()
	r.lost = append(r.lost, b)
	r.tellAll(err)
}

// tellAll answers everybody who still waits: nothing more will be written.
func (r *recovery) tellAll(err error) {
	for _, b := range append(r.lost, r.c.pipeline.building) {
		for _, in := range b.ins {
			in.out = answer{run: in.key.Run, err: err}
			in.send()
		}
		b.reset()
	}
	r.lost = nil
	r.refuse()
}

// fatal says that no later commit can succeed.
func fatal(err error) bool {
	switch fault.CodeOf(err) {
	case fault.StoreFailed, fault.StaleEpoch:
		return true
	}
	return false
}

// reload loads every run again after a failed commit, and says whether it could.
// What the lost batch held is looked up run by run: our epoch guards the
// journals, so an event number that is there was written by that batch (F16).
func (r *recovery) reload() bool {
	if r.c.now < r.retryAt {
		return false
	}
	err := r.c.cfg.Store.Recover(r.c.ctx, func(saved *store.Saved) error {
		key := saved.Head.Key
		switch {
		case !r.c.residency.takes(key) || saved.Head.Quarantine != "" || r.quarantined[key] != "":
		case r.inherited[key].suspect:
			r.suspects = append(r.suspects, key)
		default:
			return r.enterSaved(saved)
		}
		return nil
	})
	written := map[store.Key]bool{}
	for _, b := range r.lost {
		for i := range b.trans {
			if t := &b.trans[i]; err == nil {
				written[t.Key], err = r.wrote(t)
			}
		}
	}
	if err == nil {
		err = r.markAgain()
	}
	if err == nil {
		err = r.c.residency.lookAhead()
	}
	if err == nil {
		err = r.owns()
	}
	if err != nil {
		r.forget()
		r.backoff = min(2*r.backoff, maxBackoff)
		r.retryAt = r.c.now + r.backoff
		if fatal(err) {
			r.die(err, r.c.pipeline.building)
		}
		return false
	}
	whole := !slices.Contains(slices.Collect(maps.Values(written)), false)
	for _, b := range r.lost {
		for _, in := range b.ins {
			if is, ok := written[in.key]; ok && !is || in.kind == inBarrier && !whole {
				r.redo(in)
				continue
			}
			in.send()
		}
		for i := range b.owed {
			// What a run still wants it asks for again; of what it gave up nobody
			// else would tell the worker.
			if o := &b.owed[i]; o.cmd.Kind == machine.CmdCancelTask && written[o.l.key] {
				r.c.pipeline.emit(o.l, &o.cmd)
			}
		}
		b.reset()
		r.c.pipeline.spare = b
	}
	r.lost = nil
	r.stalled = nil
	// What a lost batch wrote all the same was published to nobody, and may be the
	// last thing that its runs ever do.
	r.c.frames = append(r.c.frames, feed.Published{})
	r.c.cfg.Logger.Info("the store answers again", "runs", len(r.c.residency.runs))
	return true
}

// wrote says whether the store holds a transition of a lost batch.
func (r *recovery) wrote(t *store.Transition) (bool, error) {
	if t.Last == 0 {
		return r.unmarked(t)
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

// unmarked says whether the store holds a transition without events, as far as
// somebody waits for that: for a mark that was taken back, not for a compaction or a mark.
func (r *recovery) unmarked(t *store.Transition) (bool, error) {
	if t.Head == nil || t.Head.Quarantine != "" {
		return true, nil
	}
	head, err := r.c.cfg.Store.Head(r.c.ctx, t.Key)
	if passing(err) {
		return false, err
	}
	return err == nil && head.Quarantine == "", nil
}

// hang ends a core whose commit does not come back. The batch is not touched:
// the store is still reading it.
func (r *recovery) hang() {
	b := r.c.pipeline.flying
	r.c.pipeline.flying = nil
	for _, in := range b.ins {
		in.out = answer{run: in.key.Run, err: ErrHangs}
		in.send()
	}
	r.die(ErrHangs, new(batch))
}
