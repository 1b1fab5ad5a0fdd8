// SPDX-License-Identifier: Apache-2.0

package store

import (
	"log/slog"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/mutation"
)

// A Standing is what a store knows of a run when a transition of it is checked: what is
// stored, and what the same commit has already accepted.
type Standing interface {
	// Ends returns the number of the run's last event and of the last event that a
	// chunk covers.
	Ends() (last, chunked uint64)
	// Boundary reports whether a transition that no chunk covers ends with the event.
	Boundary(event uint64) bool
	// Damage returns why the run's events cannot be read, or nil.
	Damage() error
}

// Admit checks the guards of a transition against the stored state of its run; run is
// nil when there is no such run. Every store checks the epoch ([Fenced]) first, then
// calls Admit, checks the idempotency key ([Idempotency.Taken]), and the entries
// ([AdmitEntries]) last. A transition that one of these checks refuses changes nothing,
// and neither does its group ([RefuseGroup]).
func Admit(t *Transition, run Standing) Verdict {
	if t.Run == "" {
		return admitEntriesOnly(t)
	}
	var last, chunked uint64
	if run != nil {
		last, chunked = run.Ends()
		if t.Last != 0 || t.Compaction != nil || t.Suspension != nil {
			if err := run.Damage(); err != nil {
				return Verdict{Err: err}
			}
		}
	}
	switch {
	case t.First == 0 && t.Last == 0 && len(t.Frames) == 0:
		if run == nil {
			return Refuse(fault.Conflict, "run %s has no events yet", t.Run)
		}
	case t.First != last+1 || t.Last < t.First || len(t.Frames) == 0:
		return Refuse(fault.Conflict, "run %s: events %d to %d do not follow event %d", t.Run, t.First, t.Last, last)
	case run == nil && t.Head == nil:
		return Refuse(fault.Conflict, "run %s: the first transition needs a head", t.Run)
	case run == nil && ((t.Head.Root == "") != (t.Head.Parent == "") || t.Head.Root == t.Run || t.Head.Parent == t.Run):
		return Refuse(fault.Conflict, "run %s: a child run has a root and a parent, which are other runs, not root %q and parent %q", t.Run, t.Head.Root, t.Head.Parent)
	}
	if f := t.Compaction; f != nil {
		ends := f.Last == last || t.Last != 0 && f.Last == t.Last || run != nil && run.Boundary(f.Last)
		if f.First != chunked+1 || f.Last < f.First || len(f.Chunk) == 0 || !ends {
			return Refuse(fault.Conflict, "run %s: a chunk of events %d to %d does not follow event %d or end with a transition", t.Run, f.First, f.Last, chunked)
		}
		chunked = f.Last
	}
	if t.Suspension != nil && chunked != max(last, t.Last) {
		return Refuse(fault.Conflict, "run %s cannot be suspended: chunks end at event %d of %d", t.Run, chunked, max(last, t.Last))
	}
	return Verdict{}
}

// admitEntriesOnly checks a transition without a run.
func admitEntriesOnly(t *Transition) Verdict {
	if len(t.Entries) == 0 || t.First != 0 || t.Last != 0 || len(t.Frames)+len(t.Plans)+len(t.Files) > 0 ||
		t.Head != nil || t.Idempotency != nil || t.Compaction != nil || t.Suspension != nil {
		return Refuse(fault.Conflict, "a transition without a run has entries and nothing else")
	}
	return Verdict{}
}

// AdmitEntries checks the entries of a transition and applies them to the account, all
// or none. recorded reports whether the account has an entry under a key; it is asked
// for the keys that do not follow from an event ([KeyFollows]). When the verdict is a
// refusal, or recorded fails, the account is as it was.
func AdmitEntries(t *Transition, account *ledger.Account, recorded func(key string) (bool, error)) (Verdict, error) {
	for i, e := range t.Entries {
		// What a run reserves and pays belongs to events of that run.
		ofRun := e.Kind == ledger.Reserve || e.Kind == ledger.Extend || e.Kind == ledger.Settle || e.Kind == ledger.Release
		if ofRun && (t.Last == 0 || e.Run != t.Run) {
			return Refuse(fault.Conflict, "entry %s (%s) of run %q does not belong to events of run %q", e.Key, e.Kind, e.Run, t.Run), nil
		}
		known := slices.ContainsFunc(t.Entries[:i], func(f *ledger.Entry) bool { return f.Key == e.Key })
		if !known && !KeyFollows(t, i) {
			var err error
			if known, err = recorded(e.Key); err != nil {
				return Verdict{}, err
			}
		}
		if known {
			return Refuse(fault.Conflict, "account %s has an entry %s already", t.Account, e.Key), nil
		}
	}
	notices, err := t.Watch.ApplyAll(account, t.Entries)
	t.notices = notices
	return Verdict{Err: err}, nil
}

// Notices are the levels that the entries of the transition have crossed, once the
// transition was accepted.
func (t *Transition) Notices() []ledger.Notice { return t.notices }

// LogNotices logs them. The transition must be durable.
func (t *Transition) LogNotices(log *slog.Logger) {
	for _, n := range t.notices {
		if n.Source == "account" {
			log.Warn("few credits are left", "account", t.Account, "available", n.Amount, "level", n.Limit)
		} else {
			log.Warn("a budget is exceeded", "account", t.Account, "limitSource", n.Source, "used", n.Amount, "limit", n.Limit)
		}
	}
}

// KeyFollows reports whether the key of entry i of a transition follows from one of its
// events. Then no other transition can have it: the key names a reservation and an event
// of its run. A reservation has a name that is looked up; an entry fits only while its
// reservation is there; and an event is in one transition, because [Admit] refuses those
// that do not follow the last one stored. Such a key need not be looked up, nor be found
// by [Ledger.Entry].
func KeyFollows(t *Transition, i int) bool {
	e := t.Entries[i]
	event, ok := e.Event()
	if !ok || e.Run != t.Run || event < t.First || event > t.Last {
		return false
	}
	if e.Kind == ledger.Expire || e.Kind == ledger.Void {
		// Nothing but a release before it proves that it belongs to a reservation.
		return slices.ContainsFunc(t.Entries[:i], func(f *ledger.Entry) bool { return f.Kind == ledger.Release && f.Hold == e.Hold })
	}
	return true
}

// RefuseGroup refuses the group of batch[i], which verdicts[i] refuses. again reports that
// this takes back transitions before batch[i]: the store then undoes what it has done for
// the batch and begins it anew, without the members of groups that have been refused
// ([InRefusedGroup]). So what is written was never checked against what is not. A group
// may be refused for what another had taken that is refused only later in the batch.
//
// Groups in which events of a run follow refused ones are refused as well. Otherwise, if
// many runs tell one run of their end, the batch would begin anew for each of them.
func RefuseGroup(batch []Transition, verdicts []Verdict, i int) (again bool) {
	if mutation.Group {
		return false
	}
	refused := map[Key]bool{batch[i].group(): true}
	for more := true; more; {
		more = false
		missing := map[Key]uint64{} // the first event that is refused, by run
		for j := range batch {
			t := &batch[j]
			if t.Group == "" || t.First == 0 {
				continue
			}
			first := missing[t.Key]
			switch group := t.group(); {
			case refused[group] && first == 0:
				missing[t.Key] = t.First
			case !refused[group] && first != 0 && first < t.First:
				refused[group], more = true, true
			}
		}
	}
	why := fault.Message(verdicts[i].Err)
	for j := range batch {
		if t := &batch[j]; t.Group != "" && verdicts[j].Err == nil && refused[t.group()] {
			verdicts[j] = Refuse(fault.Conflict, "run %s: another transition of its group was refused: %s", t.Run, why)
			verdicts[j].Group = true
			again = again || j < i
		}
	}
	return again
}

// InRefusedGroup reports whether RefuseGroup has refused the transition, which then is
// not checked any more.
func InRefusedGroup(t *Transition, v *Verdict) bool { return t.Group != "" && v.Err != nil }

// Subject names what a transition is about: a run, or an entry of an account.
func (t *Transition) Subject() Key {
	if t.Run == "" {
		return Key{t.Account, t.Entries[0].Key}
	}
	return t.Key
}

// group returns the group of a transition with its account.
func (t *Transition) group() Key { return Key{t.Account, t.Group} }

// Fenced returns fault.StaleEpoch unless epoch is the owner's, else nil.
func Fenced(epoch, owner uint64) error {
	if epoch == owner {
		return nil
	}
	return fault.New(fault.StaleEpoch, "epoch %d has ended, %d owns the runs", epoch, owner)
}

// Taken returns the verdict on a start whose key has already started a run (I13).
// bodyHash is the hash of the request that started it. The verdict is fault.Conflict
// for an equal request and fault.IdempotencyMismatch for another one, and names the
// run.
func (id *Idempotency) Taken(run, bodyHash string) Verdict {
	v := Refuse(fault.Conflict, "idempotency key %q already started run %s", id.Key, run)
	if bodyHash != id.BodyHash {
		v = Refuse(fault.IdempotencyMismatch, "idempotency key %q was used with another request", id.Key)
	}
	v.Run = run
	return v
}

// Refuse returns the verdict on a transition that is not written.
func Refuse(code fault.Code, format string, args ...any) Verdict {
	return Verdict{Err: fault.New(code, format, args...)}
}
