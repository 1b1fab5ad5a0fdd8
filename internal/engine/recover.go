// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/crashes"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

const (
	minBackoff = 20_000    // µs between attempts to reach a failing store
	maxBackoff = 1_000_000 // µs
	maxRecover = 256       // runs that one pass recovers
)

// A recovery loads runs after a crash or a failed commit, finds those that crash the
// process, and keeps quarantined runs out of memory.
type recovery struct {
	c          *core
	recovering []*loadedRun // loaded, their commands not queued yet
	// inherited are the runs that had attempts in flight when this engine started and
	// have had no new events since.
	inherited map[store.Key]inherited
	// quarantined holds runs and the reason, until their mark is durable.
	quarantined map[store.Key]string

	cleanSince    int64           // no process has crashed since then; 0 = since this one started
	history       crashes.History // of crashes of engines over this store
	suspects      []store.Key     // to be loaded one at a time
	nextSuspectAt int64           // when the next suspect may be loaded
	suspectMarked bool            // the history still names the last suspect as being loaded

	stalled     error // why commits fail; no run is in memory until reload succeeds
	lostBatches []*batch
	retryAt     int64
	backoff     int64
	dead        error // why no commit will ever succeed again
}

func (r *recovery) init(c *core) {
	r.c, r.inherited, r.quarantined = c, map[store.Key]inherited{}, map[store.Key]string{}
}

// open makes this core the owner of the store's runs and loads those that are neither
// suspended nor settled. Their open attempts have no worker any more, which recoverRun
// records.
func (r *recovery) open(now int64) error {
	r.c.now = now
	r.c.attempts.Arbiter.Begin(now, r.c.cfg.Limits.Policy)
	epoch, err := r.c.cfg.Store.Own(r.c.ctx)
	if err != nil {
		return err
	}
	r.c.epoch = epoch
	if err := failpoint.Hit(failpoint.RecoverFirst); err != nil {
		return err
	}
	if err := r.checkHistory(); err != nil {
		return err
	}
	if err := r.countJobs(); err != nil {
		return err
	}
	err = r.c.cfg.Store.Recover(r.c.ctx, func(saved *store.Saved) error {
		if err := failpoint.Hit(failpoint.RecoverRun); err != nil {
			return err
		}
		if !r.c.residency.selectsOf(saved.Head.Key, saved.Head.Root) || saved.Head.Quarantine != "" || r.quarantined[saved.Head.Key] != "" {
			return nil
		}
		h := inherited{last: saved.Last}
		h.suspect, h.running = r.history.Suspect(saved)
		if r.inherited[saved.Head.Key] = h; !h.suspect {
			return r.loadSaved(saved)
		}
		r.suspects = append(r.suspects, saved.Head.Key)
		return nil
	})
	r.reserve()
	if err == nil {
		err = r.listQueued()
	}
	if r.cleanSince == 0 {
		for _, l := range r.recovering {
			if l.interrupted { // its last event must be older than cleanSince
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

// loadSaved loads one run during recovery. A damaged run is quarantined and does not
// stop the others; a returned error is the store's.
func (r *recovery) loadSaved(saved *store.Saved) error {
	l, err := r.c.residency.admit(saved)
	if err != nil {
		if store.Transient(err) {
			return err
		}
		return nil
	}
	r.recovering = append(r.recovering, l)
	_ = r.c.protect(l, func() { r.adoptAttempts(l) }) // before other runs are granted slots
	return nil
}

// An inherited run is as the previous process left it, up to event last: the attempts
// that it had in flight are lost. That stays true until this engine commits new events
// of the run, however often it loads the run before.
type inherited struct {
	last    uint64
	suspect bool // it must not be loaded yet
	running int  // attempts that a suspect may have had in flight
}

// lostAttempts reports whether the attempts of a run that is being loaded were lost
// with an earlier process. It forgets runs for which that can no longer be true.
func (r *recovery) lostAttempts(l *loadedRun) bool {
	h, ok := r.inherited[l.key]
	if ok && (h.last != l.run.Last() || runningAttempts(l) == 0) {
		delete(r.inherited, l.key)
		ok = false
	}
	return ok
}

// recoverNext recovers loaded runs, a bounded number in one pass.
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

// recoverRun records lost attempts of a loaded run and queues the commands that the run
// owes.
func (r *recovery) recoverRun(l *loadedRun) {
	if r.c.needParents(l) != nil {
		return
	}
	if l.interrupted {
		l.interrupted = false
		// The commands of this turn are included in those of Owed below.
		in := &machine.Input{Kind: machine.InWorkerLost, All: true}
		if r.handedBack(l) && !mutation.HandBack {
			in.Text = handedBack
		}
		if err := r.decideWithoutCommands(l, in); err != nil && !l.dropped {
			r.c.cfg.Logger.Error("a run refused the loss of its attempts", "run", l.key.Run, "err", err)
		}
		if l.dropped {
			return
		}
		failpoint.Pass(failpoint.LostRecorded)
	}
	var cmds []machine.Command
	if err := r.c.protect(l, func() {
		r.adoptAttempts(l)
		cmds = l.run.Owed(nil)
	}); err != nil {
		return
	}
	for i := range cmds {
		if k := cmds[i].Kind; k == machine.CmdChild || k == machine.CmdCancelChild {
			r.checkChild(l, &cmds[i])
		} else if k == machine.CmdDispatch && l.inFlight(cmds[i].Ref) {
			continue // it is in flight; a loss of it may be reported before this batch is durable
		}
		if l.dropped { // it panicked when it was told of the end
			return
		}
		r.c.enqueueCommand(l, &cmds[i])
	}
	r.c.askParent(l)
	if l.root != "" && l.place == nil {
		r.c.askAgain(l.root)
	}
	r.c.residency.arm(l)
}

// adoptAttempts counts the attempts that are open in a loaded run, and finds those again that
// are still in flight in this process.
func (r *recovery) adoptAttempts(l *loadedRun) {
	l.run.EachRunning(func(ref journal.Ref, fence journal.Fence) {
		id := taskID{Key: l.key, Ref: ref, Fence: fence}
		if r.c.attempts.Orphaned(id) || !l.run.Ending(ref) { // a child run beside it may need the slot to end
			route, demand := r.c.routeOf(l, ref)
			r.c.attempts.hold(l, id, route, demand, false, false)
		}
	})
}

// handedBack is the text of a loss caused by a clean stop: nothing went wrong with the
// attempt (F45).
const handedBack = "handed back"

// handedBack reports whether the attempts of a loaded run were abandoned by a clean
// stop: the process that wrote the run's last event was stopped cleanly. Later
// processes that wrote nothing to the run do not count, because they handed out none of
// its attempts.
func (r *recovery) handedBack(l *loadedRun) bool {
	return r.history.Clean(l.run.Now()) && !l.released
}

// decideWithoutCommands is decide for a turn whose commands are taken from Owed.
func (r *recovery) decideWithoutCommands(l *loadedRun, in *machine.Input) error {
	before := r.c.discardFor // a turn may load the parent of its run
	r.c.discardFor = l
	defer func() { r.c.discardFor = before }()
	err := r.c.decide(l, in)
	r.c.pipeline.building.urgent = true
	return err
}

// checkOwnership returns an error if this engine no longer owns the runs that it has
// just read: another engine may have taken over meanwhile, and then nothing of theirs
// may be carried out here.
func (r *recovery) checkOwnership() error { return r.c.cfg.Store.Owns(r.c.ctx, r.c.epoch) }

// runningAttempts returns how many attempts of a run are in flight.
func runningAttempts(l *loadedRun) int {
	_, n := l.run.Open()
	return n
}

// inFlight reports whether a step's attempt is with an action of this process.
func (l *loadedRun) inFlight(ref journal.Ref) bool {
	req := l.requests.Get(ref)
	return req != nil && req.Holder.attempt != nil
}
