// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// manualPrefix begins the names of occurrences that users ask for.
const manualPrefix = "now."

func manual(o schedule.Occurrence) bool { return strings.HasPrefix(o.Name, manualPrefix) }

// run decides about what is due, stores that, and works off the queue until it is empty or its
// first occurrence waits.
func (w *working) run(ctx context.Context) error {
	if gone, err := w.forget(ctx); gone || err != nil {
		return err
	}
	if w.Paused == 0 {
		after := w.After
		for _, k := range w.table.Step(w.ID, &w.State, w.s.clock.Now()) {
			w.skip(k, "")
		}
		w.unsaved = w.unsaved || w.After != after
	}
	// What is to be started is stored before it is: after a crash it is started under the same
	// key, however late that is. What only waits is stored already, and may be large.
	if w.unsaved || len(w.Queue) == 0 {
		if err := w.save(ctx, 0); err != nil {
			return err
		}
	}
	for len(w.Queue) > 0 {
		if d := w.settling(); d > 0 {
			return w.save(ctx, d)
		}
		wait, err := w.first(ctx)
		if err != nil {
			return err
		}
		if wait {
			w.Attempts++
			return w.save(ctx, w.pause())
		}
		w.Attempts = 0
		if err := w.save(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// pause is how long the first occurrence waits before it is looked at again.
func (w *working) pause() time.Duration {
	return min(firstPause<<min(w.Attempts, 10), longestPause)
}

// active reports whether the run that was started last has not ended.
func (w *working) active(ctx context.Context) (bool, error) {
	if w.Active == "" {
		return false, nil
	}
	head, err := w.s.cfg.Runs.Head(ctx, w.account, w.Active)
	switch {
	case fault.CodeOf(err) == fault.RunNotFound:
		return false, nil
	case err != nil:
		return false, err
	}
	return !head.Settled(), nil
}

// first does what is to be done with the first occurrence of the queue. wait reports that it
// stays there.
func (w *working) first(ctx context.Context) (wait bool, err error) {
	o := w.Queue[0]
	active, err := w.active(ctx)
	if err != nil {
		return false, err
	}
	verdict, reason := w.State.First(w.policy(o), active)
	if w.keyed() && reason == schedule.Superseded {
		// No request stands for another one: what a newer one replaces has left the queue, see take.
		verdict = schedule.Cancel
	}
	switch verdict {
	case schedule.Wait:
		return true, nil
	case schedule.Cancel:
		if found, err := w.recall(ctx); found || err != nil { // what is active was retried since
			return false, err
		}
		err := w.s.cfg.Runs.Cancel(ctx, w.account, w.Active, w.why())
		if code := fault.CodeOf(err); err != nil && code != fault.TooLate && code != fault.RunNotFound {
			return false, err
		}
		return true, nil
	case schedule.Skip:
		if found, err := w.recall(ctx); found || err != nil {
			return false, err
		}
		if w.keyed() {
			w.s.cfg.Logger.InfoContext(ctx, "a request with a key starts no run, because one of the key is active", "account", w.account, "schedule", w.ID, "occurrence", o.Name, "run", w.Active)
		}
		w.pop()
		w.skip(schedule.Skipped{First: o, Last: o, Count: 1, Reason: reason}, w.Active)
		return false, nil
	}
	return w.start(ctx, o)
}

// start starts the run of an occurrence.
func (w *working) start(ctx context.Context, o schedule.Occurrence) (wait bool, err error) {
	f := Firing{Name: o.Name, At: o.At, Result: Started, Manual: manual(o)}
	var run starts.Run
	var found bool
	if w.unsure && w.s.clock.Now()-o.At > keyLasts.Microseconds() {
		if run, found, err = w.find(ctx, o); err != nil {
			return false, err
		}
	}
	w.unsure = !found // until it is known what came of the start
	if !found {
		run, err = w.s.cfg.Starter.Start(ctx, w.account, w.request(o), w.idempotencyKey(o), w.labels(o))
	}
	switch code := fault.CodeOf(err); {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err == nil:
		f.Run, f.Version, f.existing, w.Active = run.ID, run.Version, run.Existing, run.ID
	case code == fault.IdempotencyMismatch, code == fault.Quarantined:
		// It was started before a crash, and the recipe has a newer version since; or its run began,
		// and was quarantined before that was answered.
		cause := err
		if run, found, err = w.find(ctx, o); err != nil {
			return false, err
		}
		if f.Run = run.ID; found {
			f.Version, f.existing, w.Active = run.Version, true, run.ID
		} else if w.keyed() || code == fault.Quarantined { // the user's own key is that of another request
			w.fail(ctx, &f, cause)
		}
	case transient(code), w.Attempts < maxAttempts && perhaps(code), code == fault.QuotaExceeded && o.Name != w.asked:
		// Who asks at this moment learns that the account has too many runs; what was to be
		// started before waits until some have ended.
		w.s.cfg.Logger.WarnContext(ctx, "a run of a schedule cannot be started; it is tried again", "account", w.account, "schedule", w.ID, "occurrence", o.Name, "error", err)
		return true, nil
	default:
		w.fail(ctx, &f, err)
	}
	w.unsure = false
	if w.pop(); f.Result == Started {
		w.Latest = o.Name
	}
	w.note(f)
	return false, nil
}

// fail notes in a firing why its run cannot be started.
func (w *working) fail(ctx context.Context, f *Firing, err error) {
	f.Result, f.Code, f.Reason, f.err = Failed, fault.CodeOf(err), fault.Message(err), err
	w.s.cfg.Logger.WarnContext(ctx, "a run of a schedule cannot be started", "account", w.account, "schedule", w.ID, "occurrence", f.Name, "code", f.Code)
}

// transient reports whether a start may succeed a little later although nobody changes
// anything.
func transient(code fault.Code) bool {
	switch code {
	case fault.ServiceUnavailable, fault.StoreFailed, fault.StoreFull, fault.RateLimited, fault.Stopping, fault.StaleEpoch:
		return true
	}
	return false
}

// perhaps reports whether another attempt may succeed: the recipe was being replaced, or nobody
// knows. Such a start is tried maxAttempts times more, so that it does not keep the ones behind
// it waiting for ever.
func perhaps(code fault.Code) bool {
	return code == "" || code == fault.InternalError || code == fault.Conflict
}

func (w *working) labels(o schedule.Occurrence) map[string]string {
	if w.keyed() {
		return map[string]string{LabelKey: w.Key, LabelOccurrence: o.Name}
	}
	return map[string]string{LabelSchedule: w.Name, LabelOccurrence: o.Name}
}

// recall looks for the run of the first occurrence of the queue, which a process may have started
// that ended before it stored that. It is called before that occurrence leaves the queue without a
// run.
func (w *working) recall(ctx context.Context) (found bool, err error) {
	if !w.unsure || len(w.Queue) == 0 {
		return false, nil
	}
	o := w.Queue[0]
	run, found, err := w.find(ctx, o)
	if err != nil {
		return false, err
	}
	if w.unsure = false; found {
		w.Active, w.Latest, w.unsaved = run.ID, o.Name, true
		w.pop()
		w.note(Firing{Name: o.Name, At: o.At, Result: Started, Manual: manual(o), Run: run.ID, Version: run.Version, existing: true})
	}
	return found, nil
}

// find finds the run of an occurrence by its labels.
func (w *working) find(ctx context.Context, o schedule.Occurrence) (run starts.Run, found bool, err error) {
	labels := w.labels(o)
	if w.keyed() {
		delete(labels, LabelKey) // the name alone is enough, and few runs have it
	}
	heads, err := w.s.cfg.Runs.List(ctx, store.Query{Account: w.account, Labels: labels, Limit: 1})
	if err != nil || len(heads) == 0 || w.keyed() && heads[0].LabelsOf()[LabelKey] != w.Key {
		return run, false, err
	}
	return starts.Run{ID: heads[0].Run, Version: heads[0].Version, Existing: true}, true, nil
}
