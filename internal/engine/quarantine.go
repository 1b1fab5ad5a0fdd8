// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/reads"
	"github.com/roux-engine/roux/internal/store"
)

// quarantineLoaded is quarantine for a run that has just left memory. Its tasks hold their slots also after
// the next start, when it is not read.
func (r *recovery) quarantineLoaded(l *loadedRun, reason string) {
	_, records := l.tasks.Take(nil, true)
	r.quarantine(l.head, reason, records...)
}

// quarantine quarantines a run that is not, or no longer, in memory (I16). If the head
// is damaged nothing is stored, because a new row would hide the damage.
func (r *recovery) quarantine(head store.Head, reason string, records ...store.RecordChange) {
	r.c.cfg.Logger.Error("run quarantined", "run", head.Run, "reason", reason)
	r.quarantined[head.Key] = reason
	if head.Damage == "" {
		head.Quarantine, head.Updated = reason, r.c.now
		r.c.pipeline.building.extra = append(r.c.pipeline.building.extra, store.Transition{Key: head.Key, Epoch: r.c.epoch, Head: &head, Records: records, RecordsAt: r.c.now})
		r.c.pipeline.building.urgent = true
	}
	r.cancelOrphans(head.Key)
}

// quarantineStored is quarantine for a run of which only the head can be read.
func (r *recovery) quarantineStored(key store.Key, reason string) {
	head, err := r.c.cfg.Store.Head(r.c.ctx, key)
	if err != nil || head.Quarantine != "" {
		return
	}
	r.quarantine(head, reason)
}

// correctMark replaces the mark of a run whose last transition was refused after the
// run was quarantined: the mark is not stored yet, and its head includes that
// transition. A run whose start was refused does not exist and has no mark.
func (r *recovery) correctMark(key store.Key, reason string, began bool) {
	if began {
		r.dropMark(key)
		delete(r.quarantined, key)
		return
	}
	head, err := r.c.cfg.Store.Head(r.c.ctx, key)
	if err != nil {
		r.c.cfg.Logger.Error("the head of a run that is quarantined cannot be read", "run", key.Run, "err", err)
		return
	}
	r.dropMark(key)
	if head.Quarantine == "" {
		r.quarantine(head, reason)
	}
}

// dropMark removes the mark of a run from the batch under construction.
func (r *recovery) dropMark(key store.Key) {
	r.c.pipeline.building.extra = slices.DeleteFunc(r.c.pipeline.building.extra, func(t store.Transition) bool { return t.Key == key })
}

// cancelOrphans tells the attempts of a quarantined run to stop, including those that
// were not found again after a reload. After a release they count as lost; until then
// nothing else would tell their actions.
func (r *recovery) cancelOrphans(key store.Key) {
	for _, id := range r.c.attempts.Running(key) { // external jobs go on
		attempt := r.c.attempts.stop(nil, id)
		r.c.effects = append(r.c.effects, effect{kind: machine.CmdCancelTask, id: id, prog: attempt.prog, attempt: attempt})
	}
}

// restoreMarks quarantines again the runs whose marks were in a lost batch and were not
// written.
func (r *recovery) restoreMarks() error {
	keys := slices.SortedFunc(maps.Keys(r.quarantined), store.Key.Compare)
	for _, key := range keys {
		head, err := r.c.cfg.Store.Head(r.c.ctx, key)
		switch {
		case store.Transient(err):
			return err
		case err != nil || head.Quarantine != "":
			delete(r.quarantined, key)
		default:
			r.quarantine(head, r.quarantined[key])
		}
	}
	return nil
}

// release releases a run from quarantine. Attempts that were in flight when it was
// quarantined are lost.
func (r *recovery) release(key store.Key) error {
	if r.c.residency.runs[key] != nil {
		return fault.New(fault.Conflict, "run %s is not quarantined", key.Run)
	}
	saved, err := r.c.cfg.Store.Load(r.c.ctx, key)
	unmarked := err == nil && saved.Head.Quarantine == ""
	// The run itself may not be stored yet, when it was quarantined as it started.
	if r.quarantined[key] != "" && (unmarked || errors.Is(err, fault.RunNotFound)) {
		return &fault.Error{Code: fault.ServiceUnavailable, RetryAfterMS: 1000,
			Msg: "run " + key.Run + " has just been quarantined and its mark is not stored yet; try again in a moment"}
	}
	if err != nil {
		return err
	}
	if saved.Head.Deleted != 0 {
		return reads.ErrDeleted(key.Run)
	}
	if unmarked {
		return fault.New(fault.Conflict, "run %s is not quarantined", key.Run)
	}
	head := saved.Head
	saved.Head.Quarantine = ""
	if err := r.c.residency.above(&saved.Head); err != nil {
		return err
	}
	l, err := r.c.residency.rebuild(saved)
	if err != nil {
		return store.QuarantinedError(key.Run, err.Error())
	}
	delete(r.quarantined, key)
	r.c.cfg.Logger.Info("run released", "run", key.Run, "reason", head.Quarantine)
	r.c.residency.advanceClock(l, head)
	r.c.loadedClass(l, &head)
	if l.limited { // an imported run counts from here on
		r.c.reclassify(l, admission.ClassOfRun(l.run.Last(), l.run.Status()))
	}
	r.c.residency.add(l)
	r.c.adoptJobs(l, true)
	r.c.attempts.EndOrphans(key)
	l.forceHead, l.released = true, true
	r.c.pipeline.touch(l, l.run.Last()+1)
	r.c.pipeline.building.urgent = true
	l.interrupted = runningAttempts(l) > 0
	r.recoverRun(l)
	return nil
}

// softDelete hides a run from its user. It is loaded for that, so that a retry that comes
// in the same batch finds it deleted; only a quarantined run is not.
func (c *core) softDelete(key store.Key) error {
	l, err := c.residency.get(key)
	var head store.Head
	switch {
	case errors.Is(err, fault.Quarantined):
		head, err = c.cfg.Store.Head(c.ctx, key)
	case err == nil:
		head = l.head
		if !l.settled() {
			head.Ended = 0
		} else if head.Ended == 0 {
			head.Ended = l.ended // its end is not encoded yet
		}
	}
	switch {
	case err != nil:
		return err
	case head.Deleted != 0:
		return reads.ErrDeleted(key.Run)
	case head.Root != "":
		return fault.New(fault.Conflict, "run %s is a child run: it is deleted with its root, run %s", key.Run, head.Root)
	case head.Ended == 0 || l == nil && head.Owes:
		return fault.New(fault.Conflict, "run %s has not ended: cancel it first", key.Run)
	case l != nil:
		l.head.Deleted, l.forceHead = c.now, true
		c.pipeline.touch(l, l.run.Last()+1)
	default:
		head.Deleted, head.Updated = c.now, c.now
		c.pipeline.building.extra = append(c.pipeline.building.extra, store.Transition{Key: key, Epoch: c.epoch, Head: &head})
	}
	return nil
}
