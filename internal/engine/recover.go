// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

const (
	minBackoff = 20_000    // µs between attempts to reach a failing store
	maxBackoff = 1_000_000 // µs
	maxRecover = 256       // runs whose recovery one pass begins
)

// A recovery brings runs back after a crash or a failed commit, finds those that crash
// the process, and keeps quarantined runs out of memory.
type recovery struct {
	c          *core
	recovering []*loadedRun // loaded, their commands not yet carried out
	// inherited are the runs that had attempts out when this engine began and were
	// not written to since.
	inherited map[store.Key]inherited
	// quarantined are the runs that were quarantined, and why, until their mark is
	// durable.
	quarantined map[store.Key]string

	cleanSince    int64       // no process has died since then; 0 = since this one began
	history       history     // of this engine's crashes
	suspects      []store.Key // to be loaded one at a time
	nextSuspectAt int64       // not before
	suspectMarked bool        // the last one marked is not cleared yet

	stalled     error // commits fail: memory is empty until retryAt
	lostBatches []*batch
	retryAt     int64
	backoff     int64
	dead        error // no commit will ever succeed again
}

func (r *recovery) init(c *core) {
	r.c, r.inherited, r.quarantined = c, map[store.Key]inherited{}, map[store.Key]string{}
}

// open makes this core the owner of the store's runs and loads those that are
// neither suspended nor settled. Attempts that were open have no worker any more:
// their runs are told so as they enter.
func (r *recovery) open(now int64) error {
	r.c.now = now
	epoch, err := r.c.cfg.Store.Own(r.c.ctx)
	if err != nil {
		return err
	}
	r.c.epoch = epoch
	if err := failpoint.Hit(failpoint.RecoverFirst); err != nil {
		return err
	}
	isolate, err := r.checkHistory()
	if err != nil {
		return err
	}
	err = r.c.cfg.Store.Recover(r.c.ctx, func(saved *store.Saved) error {
		if err := failpoint.Hit(failpoint.RecoverRun); err != nil {
			return err
		}
		if !r.c.residency.selects(saved.Head.Key) || saved.Head.Quarantine != "" || r.quarantined[saved.Head.Key] != "" {
			return nil
		}
		suspect := isolate && r.suspect(saved)
		r.inherited[saved.Head.Key] = inherited{saved.Last, suspect}
		if suspect {
			r.suspects = append(r.suspects, saved.Head.Key)
			return nil
		}
		return r.loadSaved(saved)
	})
	if r.cleanSince == 0 {
		for _, l := range r.recovering {
			if l.interrupted { // what was found is older
				r.c.now = max(r.c.now, l.run.Now()+1)
			}
		}
		r.cleanSince = r.c.now
	}
	if err == nil {
		err = failpoint.Hit(failpoint.RecoverLast)
	}
	if err == nil {
		err = r.checkOwnership()
	}
	if err != nil {
		return err
	}
	return r.c.residency.lookAhead()
}

// loadSaved loads one run of recovery. A damaged one is quarantined and does not
// stop the others; an error is the store's.
func (r *recovery) loadSaved(saved *store.Saved) error {
	l, err := r.c.residency.admit(saved)
	if err == nil {
		r.recovering = append(r.recovering, l)
	}
	if transient(err) {
		return err
	}
	return nil
}

// transient says that an error tells of the store as it is now and not of a run:
// trying again may help.
func transient(err error) bool {
	switch fault.CodeOf(err) {
	case fault.ServiceUnavailable, fault.StoreFailed, fault.StoreFull:
		return true
	}
	return errors.Is(err, context.Canceled)
}

// An inherited run is as the process before left it, up to event last: whatever
// it had handed out is lost. That stays true until this engine has written to it,
// however often it is loaded until then.
type inherited struct {
	last    uint64
	suspect bool // it is not to be loaded yet
}

// lostAttempts says whether the attempts of a run that is being loaded were lost with
// an earlier process, and forgets runs of which that will never be so.
func (r *recovery) lostAttempts(l *loadedRun) bool {
	h, ok := r.inherited[l.key]
	if ok && (h.last != l.run.Last() || runningAttempts(l) == 0) {
		delete(r.inherited, l.key)
		ok = false
	}
	return ok
}

// recoverNext carries out what loaded runs owe, a bounded number in one pass.
func (r *recovery) recoverNext() {
	for n := 0; len(r.recovering) > 0 && n < maxRecover && !r.c.pipeline.full(); n++ {
		l := r.recovering[0]
		r.recovering = r.recovering[1:]
		if !l.dropped {
			r.recoverRun(l)
		}
	}
	if len(r.recovering) == 0 && (len(r.suspects) > 0 || r.suspectMarked) {
		r.nextSuspect()
	}
}

// recoverRun carries out what a loaded run owes.
func (r *recovery) recoverRun(l *loadedRun) {
	if l.interrupted {
		l.interrupted = false
		// The commands of this turn are among those owed below.
		in := &machine.Input{Kind: machine.InWorkerLost, All: true}
		if r.handedBack(l) && !mutation.HandBack {
			in.Text = handedBack
		}
		if err := r.decideWithoutCommands(l, in); err != nil && !l.dropped {
			r.c.cfg.Logger.Error("a run did not take that its attempts are lost", "run", l.key.Run, "err", err)
		}
		if l.dropped {
			return
		}
		failpoint.Pass(failpoint.LostRecorded)
	}
	var cmds []machine.Command
	if err := r.c.protect(l, func() {
		l.run.EachRunning(func(ref journal.Ref, fence journal.Fence) { r.adoptAttempt(l, ref, fence) })
		cmds = l.run.Owed(nil)
	}); err != nil {
		return
	}
	for i := range cmds {
		r.c.enqueueCommand(l, &cmds[i])
	}
	r.c.residency.arm(l)
}

// adoptAttempt takes up an attempt that is open in a loaded run, and finds it again
// where this process still carries it out.
func (r *recovery) adoptAttempt(l *loadedRun, ref journal.Ref, fence journal.Fence) {
	r.c.attempts.holdSlot(l, ref, fence, r.c.limitsOf(l, ref))
	id := taskID{l.key, ref, fence}
	if attempt := r.c.attempts.orphans[id]; attempt != nil {
		if req := l.requests.Get(ref); req.Fence == fence {
			req.Holder.attempt = attempt
			delete(r.c.attempts.orphans, id)
		}
	}
}

// handedBack says that attempts were given up by an orderly stop: nothing went
// wrong with them (F45).
const handedBack = "handed back"

// handedBack says whether the attempts of a loaded run were given up by an orderly
// stop: the process that wrote its last event was stopped in order. What became of
// later ones is not asked: one that died before it wrote to the run has not lost
// attempts of it, and one that was stopped before has not given them up.
func (r *recovery) handedBack(l *loadedRun) bool {
	return r.history.CleanFrom <= l.run.Now() && l.run.Now() <= r.history.CleanUntil && !l.released
}

// decideWithoutCommands is decide for a turn whose commands are taken from Owed.
func (r *recovery) decideWithoutCommands(l *loadedRun, in *machine.Input) error {
	r.c.discardCommands = true
	defer func() { r.c.discardCommands = false }()
	err := r.c.decide(l, in)
	r.c.pipeline.building.urgent = true
	return err
}

// checkOwnership asks whether this engine still owns the runs it has just read: they may be
// the work of one that has taken over meanwhile, and nothing of theirs may then be
// carried out here.
func (r *recovery) checkOwnership() error { return r.c.cfg.Store.Owns(r.c.ctx, r.c.epoch) }

// runningAttempts is how many attempts of a run are handed out.
func runningAttempts(l *loadedRun) int {
	_, n := l.run.Open()
	return n
}
