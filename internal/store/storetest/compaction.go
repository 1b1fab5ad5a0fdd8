// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

func compactions(h *harness) {
	k := key("a")
	h.commit(h.start(k, 4), h.next(k, 5, 6))
	saved := h.load(k)
	h.equal("state before a compaction", saved.State, []byte(nil))
	h.equal("chunked before a compaction", saved.Chunked, uint64(0))
	// In a transition of its own, up to an earlier event.
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Compaction: compaction(k, 1, 4)})
	saved = h.load(k)
	h.equal("state", string(saved.State), string(state(k, 4)))
	h.equal("format, state's and chunk's last", []uint64{uint64(saved.Format), saved.StateLast, saved.Chunked}, []uint64{7, 4, 4})
	h.holds(k, 6)
	// Together with events, over all of them.
	tr := h.next(k, 7, 9)
	tr.Compaction = compaction(k, 5, 9)
	h.commit(tr)
	saved = h.load(k)
	h.equal("state's and chunk's last", []uint64{saved.StateLast, saved.Chunked}, []uint64{9, 9})
	h.holds(k, 9)
	// Without a state: the older one stays, and the chunk after it is the tail.
	tr = h.next(k, 10, 12)
	tr.Compaction = compaction(k, 10, 12)
	tr.Compaction.State = nil
	h.commit(tr)
	saved = h.load(k)
	h.equal("state's and chunk's last", []uint64{saved.StateLast, saved.Chunked}, []uint64{9, 12})
	h.holds(k, 12)
	// In the first commit, by a run that ends in it.
	b := key("b")
	tr = h.start(b, 3)
	tr.Head.Ended = 5
	tr.Compaction = compaction(b, 1, 3)
	tr.Compaction.State = nil
	h.commit(tr)
	h.holds(b, 3)
	h.commit(h.next(b, 4, 4))
	h.holds(b, 4)
	// Twice in one batch.
	c := key("c")
	one, two := h.start(c, 2), h.next(c, 3, 4)
	one.Compaction, two.Compaction = compaction(c, 1, 2), compaction(c, 3, 4)
	h.commit(one, two, h.next(c, 5, 5))
	h.holds(c, 5)
	// Of events that an earlier transition of the batch brought.
	d := key("d")
	two = h.next(d, 3, 4)
	two.Compaction = compaction(d, 1, 2)
	h.commit(h.start(d, 2), two)
	h.holds(d, 4)
	// A large one.
	e := key("e")
	big := h.start(e, 30000)
	big.Compaction = compaction(e, 1, 30000)
	h.commit(big)
	h.holds(e, 30000)
}

func compactionGuards(h *harness) {
	k := key("a")
	h.commit(h.start(k, 4), h.next(k, 5, 6))
	for _, f := range []*store.Compaction{
		compaction(k, 2, 4),                     // leaves out event 1
		compaction(k, 1, 7),                     // an event that is not there
		compaction(k, 1, 5),                     // ends inside a transition
		{First: 1, Last: 6, State: state(k, 6)}, // would lose the events
	} {
		h.refused(fault.Conflict, store.Transition{Key: k, Epoch: h.epoch, Compaction: f})
	}
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Compaction: compaction(k, 1, 4)})
	h.refused(fault.Conflict, store.Transition{Key: k, Epoch: h.epoch, Compaction: compaction(k, 1, 4)})
	h.refused(fault.Conflict, store.Transition{Key: k, Epoch: h.epoch, Compaction: compaction(k, 1, 6)})
	h.refused(fault.Conflict, store.Transition{Key: k, Epoch: h.epoch, Suspension: &store.Suspension{}}) // 5 and 6 are not covered
	h.holds(k, 6)
	if h.load(k).Suspension != nil {
		h.Fatal("a refused suspension suspended the run")
	}
}

func uncompacted(h *harness) {
	size, events, oldest := h.s.Uncompacted()
	h.equal("uncompacted of an empty store", []any{size, events, len(oldest)}, []any{int64(0), int64(0), 0})
	a, b, c := key("a"), key("b"), key("c")
	h.commit(h.start(c, 3))
	h.commit(h.start(a, 2))
	h.commit(h.start(b, 5), h.next(a, 3, 3))
	size, events, oldest = h.s.Uncompacted()
	h.equal("uncompacted events", events, int64(11))
	h.equal("oldest", oldest, []store.Key{c, a, b})
	if size < int64(len(frames(a, 1, 3))) {
		h.Fatalf("uncompacted bytes = %d", size)
	}
	h.commit(store.Transition{Key: c, Epoch: h.epoch, Compaction: compaction(c, 1, 3)})
	smaller, events, oldest := h.s.Uncompacted()
	h.equal("uncompacted events", events, int64(8))
	h.equal("oldest", oldest, []store.Key{a, b})
	if smaller >= size {
		h.Fatalf("uncompacted bytes = %d after a compaction, %d before", smaller, size)
	}
	// A compacted run goes to the end of the queue.
	h.commit(h.next(c, 4, 4))
	h.commit(h.next(b, 6, 6))
	h.commit(store.Transition{Key: b, Epoch: h.epoch, Compaction: compaction(b, 1, 5)})
	_, events, oldest = h.s.Uncompacted()
	h.equal("uncompacted events", events, int64(5))
	h.equal("oldest", oldest, []store.Key{a, c, b})
	h.commit(
		store.Transition{Key: a, Epoch: h.epoch, Compaction: compaction(a, 1, 3)},
		store.Transition{Key: b, Epoch: h.epoch, Compaction: compaction(b, 6, 6)},
		store.Transition{Key: c, Epoch: h.epoch, Compaction: compaction(c, 4, 4)})
	size, events, oldest = h.s.Uncompacted()
	h.equal("uncompacted when all is compacted", []any{size, events, len(oldest)}, []any{int64(0), int64(0), 0})
}

// A journal row stays as long as it holds an event that no chunk has. After that it is
// deleted within some commits.
func trimmed(h *harness) {
	const runs = 8
	for n := uint64(1); n <= 600; n++ {
		var batch []store.Transition
		for r := range runs {
			k := key(fmt.Sprint("r", r))
			tr := h.next(k, n, n)
			if n == 1 {
				tr = h.start(k, 1)
			}
			if n%100 == 0 && r > 0 {
				tr.Compaction = compaction(k, n-99, n)
			}
			batch = append(batch, tr)
		}
		h.commit(batch...)
	}
	laggard := key("r0")
	h.holds(laggard, 600)
	_, events, oldest := h.s.Uncompacted()
	h.equal("uncompacted", []any{events, oldest}, []any{int64(600), []store.Key{laggard}})
	h.commit(store.Transition{Key: laggard, Epoch: h.epoch, Compaction: compaction(laggard, 1, 600)})
	var before, after store.Stats
	for n := uint64(601); n <= 640; n++ { // commits trim
		k := key("r1")
		tr := h.next(k, n, n)
		tr.Compaction = compaction(k, n, n)
		h.commit(tr)
		var err error
		after, err = h.s.Stats(ctx)
		h.must(err)
		if n == 601 {
			before = after
		}
	}
	if after.JournalRows > 5 {
		h.Fatalf("%d of %d journal rows are left although chunks cover them", after.JournalRows, before.JournalRows)
	}
	for r := range runs {
		want := uint64(600)
		if r == 1 {
			want = 640
		}
		h.holds(key(fmt.Sprint("r", r)), want)
	}
}

func suspensions(h *harness) {
	k := key("a")
	h.commit(h.start(k, 3))
	if h.load(k).Suspension != nil {
		h.Fatal("a run that was not suspended is")
	}
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Compaction: compaction(k, 1, 3), Suspension: &store.Suspension{WakeAt: 50}})
	h.equal("suspension", h.load(k).Suspension, &store.Suspension{WakeAt: 50})
	h.holds(k, 3)
	// A head alone does not wake it; another wake-up time replaces the first.
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Head: head(k, "running", 2)})
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Suspension: &store.Suspension{WakeAt: 60}})
	h.equal("suspension", h.load(k).Suspension, &store.Suspension{WakeAt: 60})
	// Events wake it.
	h.refused(fault.Conflict, h.next(k, 3, 3))
	h.commit(h.next(k, 4, 5))
	if p := h.load(k).Suspension; p != nil {
		h.Fatalf("suspension = %v after an event", p)
	}
	wakes, err := h.s.Due(ctx, 100, 10)
	h.must(err)
	h.equal("due", len(wakes), 0)
	h.holds(k, 5)
	// And suspended again, with its last event in the same transition.
	tr := h.next(k, 6, 6)
	tr.Compaction, tr.Suspension = compaction(k, 4, 6), &store.Suspension{}
	h.commit(tr)
	h.equal("suspension", h.load(k).Suspension, &store.Suspension{})
	wakes, err = h.s.Due(ctx, 1<<60, 10)
	h.must(err)
	h.equal("due without a timer", len(wakes), 0)
	h.holds(k, 6)
}

func due(h *harness) {
	for i, at := range []int64{30, 10, 20, 0, 10} {
		k := key(fmt.Sprint("p", i))
		tr := h.start(k, 1)
		tr.Compaction, tr.Suspension = compaction(k, 1, 1), &store.Suspension{WakeAt: at}
		h.commit(tr)
	}
	at := func(until int64, limit int) (runs string) {
		wakes, err := h.s.Due(ctx, until, limit)
		h.must(err)
		for _, w := range wakes {
			runs += fmt.Sprintf("%s@%d ", w.Run, w.At)
		}
		return runs
	}
	h.equal("before the first", at(9, 10), "")
	h.equal("at the first", at(10, 10), "p1@10 p4@10 ")
	h.equal("all", at(1000, 10), "p1@10 p4@10 p2@20 p0@30 ")
	h.equal("limited", at(1000, 3), "p1@10 p4@10 p2@20 ")
	h.equal("none wanted", at(1000, 0), "")
}
