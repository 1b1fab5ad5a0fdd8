// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// of returns the transitions as members of a group.
func of(group string, batch ...store.Transition) []store.Transition {
	for i := range batch {
		batch[i].Group = group
	}
	return batch
}

// outcomes commits a batch and returns the verdict on each: the code of its error, with
// an asterisk if another of its group was refused, or "ok".
func (h *harness) outcomes(batch ...store.Transition) (got []string) {
	h.Helper()
	verdicts, err := h.s.Commit(ctx, batch)
	h.must(err)
	h.equal("verdicts", len(verdicts), len(batch))
	for _, v := range verdicts {
		switch text := string(fault.CodeOf(v.Err)); {
		case v.Err == nil:
			got = append(got, "ok")
		case v.Group:
			got = append(got, text+"*")
		default:
			got = append(got, text)
		}
	}
	return got
}

// groupOf is a start with all that a start can have, more events of a run, and a head.
func (h *harness) groupOf(name string, a *ledger.Account) []store.Transition {
	h.Helper()
	child := h.start(key("child"), 2)
	child.Plans = []store.EncodedPlan{{Key: "plan of child", Data: []byte("plan")}}
	child.Files = []string{"file of child"}
	child.Idempotency = &store.Idempotency{Key: "key of child", BodyHash: "b", Until: 1 << 50}
	reserve, err := a.Reserve(20, "child/1/reserve", "child/1", "child", 60, 0)
	h.must(err)
	child.Entries = []*ledger.Entry{reserve}
	child.Compaction = compaction(key("child"), 1, 2)
	child.Suspension = &store.Suspension{WakeAt: 7}
	parent := h.next(key("parent"), 4, 5)
	parent.Files = []string{"file of parent"}
	parent.Records, parent.RecordsAt = []store.RecordChange{written("of parent", "data"), erased("before")}, 5
	end := store.Transition{Key: key("other"), Epoch: h.epoch, Head: head(key("other"), "completed", 1000)}
	return of(name, child, parent, end)
}

// content is all that transitions of groupOf change.
func (h *harness) content() string {
	h.Helper()
	var b []byte
	for _, run := range []string{"child", "parent", "other"} {
		saved, err := h.s.Load(ctx, key(run))
		b = fmt.Appendf(b, "%s: %v\n", run, fault.CodeOf(err))
		if err == nil {
			b = fmt.Appendf(b, "%+v %q %v\n", saved.Head, saved.Tail, saved.Last)
		}
	}
	_, err := h.s.Plan(ctx, "plan of child")
	b = fmt.Appendf(b, "plan: %v, file of child: %q, of parent: %q\n", fault.CodeOf(err), h.naming("acme", "file of child"), h.naming("acme", "file of parent"))
	for _, id := range []string{"of parent", "before"} {
		r, err := h.s.Record(ctx, recordKey(id))
		b = fmt.Appendf(b, "record %s: %q %d %v\n", id, r.Data, r.Created, fault.CodeOf(err))
	}
	last, _, err := h.s.Newest(ctx, "acme")
	h.must(err)
	due, err := h.s.Due(ctx, 1<<50, 10)
	h.must(err)
	size, events, oldest := h.s.Uncompacted()
	b = fmt.Appendf(b, "changes: %d, due: %v, uncompacted: %d %d %v\n", last, due, size, events, oldest)
	return string(append(b, h.account("acme", now).AppendState(nil)...))
}

// Whatever guard refuses one of a group, and wherever it is in the batch, nothing of the
// group is written, and what is beside it is. Afterwards the group can be written.
func groupsAreAllOrNothing(h *harness) {
	a := h.account("acme", now)
	h.commit(h.entriesOnly("acme", h.grant(a, 10, "welcome", 100)), h.start(key("parent"), 3), h.start(key("other"), 1))
	used := h.start(key("used"), 1)
	used.Idempotency = &store.Idempotency{Key: "used", BodyHash: "b", Until: 1 << 50}
	h.commit(used)

	twin := func(body string) store.Transition {
		t := h.start(key("twin"), 1)
		t.Idempotency = &store.Idempotency{Key: "used", BodyHash: body}
		return t
	}
	paying := func(e ledger.Entry) store.Transition {
		t := h.start(key("payer"), 1)
		e.Kind, e.At, e.Hold = ledger.Reserve, 15, "payer"
		t.Entries = []*ledger.Entry{&e}
		return t
	}
	stale := h.start(key("stale"), 1)
	stale.Epoch--
	headless := h.start(key("headless"), 1)
	headless.Head = nil
	chunk := h.start(key("chunk"), 2)
	chunk.Compaction = compaction(key("chunk"), 2, 2)
	suspended := h.start(key("suspended"), 2)
	suspended.Suspension = &store.Suspension{}
	empty := store.Transition{Key: store.Key{Account: "acme"}, Epoch: h.epoch}
	welcome := []ledger.Part{{Lot: "welcome", Amount: 1}}
	for _, c := range []struct {
		name string
		t    store.Transition
		want fault.Code
	}{
		{"epoch", stale, fault.StaleEpoch},
		{"gap", h.next(key("used"), 3, 3), fault.Conflict},
		{"again", h.start(key("used"), 1), fault.Conflict},
		{"no run", h.next(key("nobody"), 2, 2), fault.Conflict},
		{"no head", headless, fault.Conflict},
		{"head alone", store.Transition{Key: key("nobody"), Epoch: h.epoch, Head: head(key("nobody"), "running", 1)}, fault.Conflict},
		{"used key", twin("b"), fault.Conflict},
		{"used key, other body", twin("c"), fault.IdempotencyMismatch},
		{"chunk", chunk, fault.Conflict},
		{"suspension", suspended, fault.Conflict},
		{"no run and no entries", empty, fault.Conflict},
		{"used entry", paying(ledger.Entry{Key: "grant/welcome", Run: "payer", Parts: welcome}), fault.Conflict},
		{"entry of another run", paying(ledger.Entry{Key: "e", Run: "used", Parts: welcome}), fault.Conflict},
		{"too few credits", paying(ledger.Entry{Key: "e", Run: "payer", Parts: []ledger.Part{{Lot: "welcome", Amount: 101}}}), fault.Conflict},
	} {
		before := h.content()
		for at := range 4 {
			batch := slices.Insert(h.groupOf("g", a.Clone()), at, of("g", c.t)[0])
			want := []string{"CONFLICT*", "CONFLICT*", "CONFLICT*", "CONFLICT*"}
			want[at] = string(c.want)
			h.equal(fmt.Sprintf("%s at %d", c.name, at), h.outcomes(batch...), want)
			if after := h.content(); after != before {
				h.Fatalf("%s at %d: the group has left something:\n%s\nwas\n%s", c.name, at, after, before)
			}
		}
	}
	h.equal("the group alone", h.outcomes(h.groupOf("g", a)...), []string{"ok", "ok", "ok"})
	h.holds(key("parent"), 5)
	h.holds(key("child"), 2)
	h.equal("file of child", h.naming("acme", "file of child"), "child")
	h.equal("credits", h.account("acme", now).Balance(30), ledger.Balance{Granted: 100, Available: 40, Held: 60})
}

// What is not of a refused group is checked as if that were not in the batch: other
// groups, groups of that name in another account, and transitions without one.
func groupsBesideEachOther(h *harness) {
	a := h.account("acme", now)
	h.commit(h.entriesOnly("acme", h.grant(a, 10, "welcome", 100)), h.start(key("p"), 1), h.start(key("q"), 1), h.start(key("r"), 1))
	reserving := func(run, group string) store.Transition {
		t := h.start(key(run), 2)
		e, err := a.Clone().Reserve(20, run+"/1/reserve", run+"/1", run, 60, 0)
		h.must(err)
		t.Entries, t.Group = []*ledger.Entry{e}, group
		t.Plans = []store.EncodedPlan{{Key: "plan", Data: []byte("plan")}}
		t.Idempotency = &store.Idempotency{Key: "k", BodyHash: run, Until: 1 << 50}
		return t
	}
	late := of("one", h.next(key("p"), 3, 3))[0]
	rival := of("one", h.start(store.Key{Account: "rival", Run: "a"}, 1))[0]
	h.equal("verdicts", h.outcomes(
		reserving("a", "one"), // takes 60 of 100 credits and the key
		h.next(key("q"), 2, 2),
		of("one", h.next(key("q"), 3, 3))[0],
		h.next(key("q"), 4, 4), // follows what is refused
		rival,
		late, // refuses the first group
		of("two", h.next(key("r"), 2, 2))[0],
		reserving("b", "two"), // needs the same
		h.start(key("a"), 1),  // not started by the first group
		reserving("c", ""),    // too late
	), []string{"CONFLICT*", "ok", "CONFLICT*", "CONFLICT", "ok", "CONFLICT", "ok", "ok", "ok", "IDEMPOTENCY_MISMATCH"})
	h.holds(key("a"), 1)
	h.holds(key("b"), 2)
	h.holds(key("p"), 1)
	h.holds(key("q"), 2)
	h.holds(key("r"), 2)
	h.holds(store.Key{Account: "rival", Run: "a"}, 1)
	h.equal("credits", h.account("acme", now).Balance(30), ledger.Balance{Granted: 100, Available: 40, Held: 60})
	h.feedIs("rival", 0, started("a"))
	h.feedIs("acme", 0,
		store.Change{At: 10, Entry: 1, Key: "grant/welcome", Kind: ledger.Grant}, started("p"), started("q"), started("r"),
		started("b"), store.Change{At: 1000, Entry: 2, Key: "b/1/reserve", Kind: ledger.Reserve}, started("a"))
}

// Many runs tell one run of their end, each in a group of its own, and go on from there:
// those before the one that is refused are written, and none after it.
func groupsFollowEachOther(h *harness) {
	const children = 200
	started := []store.Transition{h.start(key("parent"), 1)}
	for i := range children {
		started = append(started, h.start(key(fmt.Sprint("c", i)), 1))
	}
	h.commit(started...)
	for _, wrong := range []int{0, 150, children} {
		saved := h.load(key("parent"))
		next := saved.Last + 1
		done := int(saved.Last) - 1
		var batch []store.Transition
		var want []string
		for i := done; i < children; i++ {
			if i == wrong {
				next++ // a gap
			}
			child := h.next(key(fmt.Sprint("c", i)), 2, 2)
			child.Head = head(child.Key, "completed", 1000)
			batch = append(batch, of(fmt.Sprint("g", i), child, h.next(key("parent"), next, next))...)
			next++
			switch {
			case i < wrong:
				want = append(want, "ok", "ok")
			case i == wrong:
				want = append(want, "CONFLICT*", "CONFLICT")
			default:
				want = append(want, "CONFLICT*", "CONFLICT*")
			}
		}
		h.equal("verdicts", h.outcomes(batch...), want)
		h.holds(key("parent"), uint64(wrong)+1)
		if wrong < children {
			h.holds(key(fmt.Sprint("c", wrong)), 1)
		}
		if wrong > 0 {
			h.holds(key(fmt.Sprint("c", wrong-1)), 2)
		}
	}
}

// A group may have several transitions of one run, which stay in the order of their events,
// among others of that run.
func groupsOfOneRun(h *harness) {
	k := key("a")
	h.commit(h.start(k, 1))
	batch := func(last uint64) []store.Transition {
		return []store.Transition{
			h.next(k, 2, 2), of("g", h.next(k, 3, 4))[0], h.next(k, 5, 5), of("g", h.next(k, 6, 6))[0], of("g", h.next(k, last, last))[0], h.next(k, 8, 8),
		}
	}
	h.equal("with a gap", h.outcomes(batch(9)...), []string{"ok", "CONFLICT*", "CONFLICT", "CONFLICT*", "CONFLICT", "CONFLICT"})
	h.holds(k, 2)
	h.equal("without", h.outcomes(batch(7)[1:]...), []string{"ok", "ok", "ok", "ok", "ok"})
	h.holds(k, 8)
}

// A damaged run refuses its group. After a crash each group is there, or none of it is.
func groupsSurvive(h *harness, d Disk) {
	h.commit(h.start(key("whole"), 3), h.start(key("hurt"), 3))
	h.s = d.Damage(h.T, h.s, key("hurt"))
	h.own()
	h.equal("with a damaged run", h.outcomes(of("g", h.start(key("child"), 1), h.next(key("whole"), 4, 4), h.next(key("hurt"), 4, 4))...),
		[]string{"CONFLICT*", "CONFLICT*", "STORE_CORRUPT"})
	h.holds(key("whole"), 3)
	bad := h.next(key("whole"), 9, 9)
	h.equal("two groups", h.outcomes(slices.Concat(of("one", h.start(key("lost"), 1), bad), of("two", h.start(key("child"), 1), h.next(key("whole"), 4, 4)))...),
		[]string{"CONFLICT*", "CONFLICT", "ok", "ok"})
	for range 2 {
		h.reopen(d.Crash(h.T, h.s))
		h.holds(key("whole"), 4)
		h.holds(key("child"), 1)
		_, err := h.s.Head(ctx, key("lost"))
		h.wantCode(err, fault.RunNotFound)
	}
}
