// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// lastLine returns the number of the last event in frames that follow event from in
// order and without a gap, else 0.
func lastLine(data []byte, from uint64) uint64 {
	last := from
	for line := range strings.Lines(string(data)) {
		var n uint64
		if _, err := fmt.Sscanf(line, "%d ", &n); err != nil {
			return 0
		}
		switch {
		case n <= from:
		case n == last+1:
			last = n
		default:
			return 0
		}
	}
	return last
}

// Chunks and journal are one sequence, wherever a reader begins and whatever the size
// of its pages.
func cursors(h *harness) {
	k := key("a")
	h.commit(h.start(k, 5))
	tr := h.next(k, 6, 11)
	tr.Compaction = compaction(k, 1, 11)
	h.commit(tr)
	for n := uint64(12); n < 30; n += 3 {
		h.commit(h.next(k, n, n+2))
	}
	tr = h.next(k, 30, 30)
	tr.Compaction = compaction(k, 12, 26)
	h.commit(tr)
	h.commit(h.next(k, 31, 33))
	const last = 33
	for after := uint64(0); after <= last; after++ {
		for _, maxBytes := range []int{0, 1, 40, 200, 1 << 20} {
			if got := h.readAll(k, after, maxBytes); got != last {
				h.Fatalf("after %d in pages of %d bytes: events end at %d, want %d", after, maxBytes, got, last)
			}
		}
	}
	for _, after := range []uint64{last, last + 1, last + 1000} {
		page, err := h.s.Events(ctx, k, after, 100)
		h.must(err)
		h.equal("page after the end", page, store.Page{Next: after, Last: last})
	}
	page, err := h.s.Events(ctx, k, 28, 1) // at least one frame, however small the page
	h.must(err)
	if len(page.Frames) == 0 || page.Next < 29 {
		h.Fatalf("page = %+v, want event 29", page)
	}
	small, err := h.s.Events(ctx, k, 0, 1)
	h.must(err)
	if small.Next >= last {
		h.Fatalf("a page of 1 byte holds everything")
	}
}

func accounts(h *harness) {
	mine, theirs := key("a"), store.Key{Account: "rival", Run: "a"}
	tr := h.start(mine, 3)
	tr.Compaction = compaction(mine, 1, 3)
	tr.Suspension = &store.Suspension{WakeAt: 5}
	h.commit(tr, h.start(key("b"), 1))
	unknown := store.Key{Account: "rival", Run: "zzz"}
	for _, k := range []store.Key{theirs, unknown, {Account: "", Run: "a"}} {
		_, err := h.s.Load(ctx, k)
		h.wantCode(err, fault.RunNotFound)
		_, err = h.s.Head(ctx, k)
		h.wantCode(err, fault.RunNotFound)
		_, err = h.s.Events(ctx, k, 0, 100)
		h.wantCode(err, fault.RunNotFound)
		h.refused(fault.Conflict, h.next(k, 4, 4))
	}
	// One id in two accounts is two runs.
	h.commit(h.start(theirs, 2))
	h.commit(h.next(theirs, 3, 3))
	h.commit(store.Transition{Key: theirs, Epoch: h.epoch, Compaction: compaction(theirs, 1, 3)}, h.next(mine, 4, 4))
	h.holds(theirs, 3)
	h.holds(mine, 4)
	for account, want := range map[string]int{"acme": 2, "rival": 1, "nobody": 0, "": 0} {
		heads, err := h.s.List(ctx, store.Query{Account: account})
		h.must(err)
		for _, head := range heads {
			h.equal("account of a listed run", head.Account, account)
		}
		h.equal("runs of "+account, len(heads), want)
	}
	_, err := h.s.List(ctx, store.Query{Account: "rival", After: "b"})
	h.wantCode(err, fault.RunNotFound)
}

func list(h *harness) {
	for i, r := range []struct {
		run, recipe, status string
		created             int64
	}{
		{"run_a1", "x", "running", 10},
		{"run_a2", "x", "completed", 30},
		{"run_b1", "y", "running", 20},
		{"run_b2", "y", "running", 20},
	} {
		tr := h.start(key(r.run), uint64(i+1))
		tr.Head = head(key(r.run), r.status, r.created)
		tr.Head.Recipe = r.recipe
		h.commit(tr)
	}
	for _, c := range []struct {
		name string
		q    store.Query
		want string
	}{
		{"newest first, ties by id", store.Query{}, "run_a2 run_b2 run_b1 run_a1"},
		{"limit", store.Query{Limit: 2}, "run_a2 run_b2"},
		{"after", store.Query{After: "run_b2"}, "run_b1 run_a1"},
		{"after and limit", store.Query{After: "run_a2", Limit: 1}, "run_b2"},
		{"after the last", store.Query{After: "run_a1"}, ""},
		{"status", store.Query{Status: "running"}, "run_b2 run_b1 run_a1"},
		{"recipe", store.Query{Recipe: "x"}, "run_a2 run_a1"},
		{"prefix", store.Query{Prefix: "run_b"}, "run_b2 run_b1"},
		{"prefix is no pattern", store.Query{Prefix: "run%"}, ""},
		{"since", store.Query{Since: 20}, "run_a2 run_b2 run_b1"},
		{"all together", store.Query{Status: "running", Recipe: "y", Prefix: "run_", Since: 20, After: "run_b2"}, "run_b1"},
	} {
		c.q.Account = "acme"
		heads, err := h.s.List(ctx, c.q)
		h.must(err)
		var got []string
		for _, head := range heads {
			got = append(got, head.Run)
		}
		h.equal(c.name, strings.Join(got, " "), c.want)
	}
	_, err := h.s.List(ctx, store.Query{Account: "acme", After: "run_zz"})
	h.wantCode(err, fault.RunNotFound)
	var batch []store.Transition
	for i := range 60 {
		batch = append(batch, h.start(key(fmt.Sprintf("many_%d", i)), 1))
	}
	h.commit(batch...)
	heads, err := h.s.List(ctx, store.Query{Account: "acme"})
	h.must(err)
	h.equal("default limit", len(heads), 50)
}

// recovery: Recover passes all runs but suspended and settled ones.
func recovery(h *harness) {
	live, compacted, suspended, ended, owing := key("live"), key("compacted"), key("suspended"), key("ended"), key("owing")
	suspension := h.start(suspended, 2)
	suspension.Compaction, suspension.Suspension = compaction(suspended, 1, 2), &store.Suspension{WakeAt: 7}
	half := h.start(compacted, 4)
	half.Compaction = compaction(compacted, 1, 4)
	over := h.start(ended, 3)
	over.Head.Ended = 9
	owes := h.start(owing, 3)
	owes.Head.Ended, owes.Head.Owes = 9, true
	h.commit(h.start(live, 1), h.next(live, 2, 5), half, h.next(compacted, 5, 6), suspension, over, owes)

	recovered := func() string {
		var got []string
		h.must(h.s.Recover(ctx, func(s *store.Saved) error {
			h.must(s.Err)
			h.equal("recovered "+s.Head.Run, s, h.load(s.Head.Key))
			got = append(got, fmt.Sprintf("%s:%d", s.Head.Run, h.numbers(s.Head.Key, s.Tail, s.StateLast)))
			return nil
		}))
		slices.Sort(got)
		return strings.Join(got, " ")
	}
	h.equal("recovered", recovered(), "compacted:6 live:5 owing:3")
	// An event makes a suspended run live; a head without Owes settles an ended run.
	paid := store.Transition{Key: owing, Epoch: h.epoch, Head: head(owing, "failed", 1)}
	paid.Head.Ended = 9
	h.commit(h.next(suspended, 3, 3), paid)
	h.equal("recovered", recovered(), "compacted:6 live:5 suspended:3")
	again := h.next(ended, 4, 4) // a user's retry
	again.Head = head(ended, "running", 1)
	h.commit(again)
	h.equal("recovered", recovered(), "compacted:6 ended:4 live:5 suspended:3")
	stop := fault.New(fault.Stopping, "enough")
	if err := h.s.Recover(ctx, func(*store.Saved) error { return stop }); err != stop { //nolint:errorlint // the very error
		h.Fatalf("Recover = %v, want the error of fn", err)
	}
	// Runs that are passed later include what was committed meanwhile, or are left out.
	moved := false
	h.must(h.s.Recover(ctx, func(s *store.Saved) error {
		if !moved {
			moved = true
			for _, n := range []uint64{6, 7} {
				if s.Head.Key != live {
					h.commit(h.next(live, n, n))
				}
				if s.Head.Key != compacted {
					h.commit(h.next(compacted, n+1, n+1))
				}
			}
		}
		h.equal("recovered "+s.Head.Run, s, h.load(s.Head.Key))
		return nil
	}))
	stopped, cancel := context.WithCancel(ctx)
	seen := 0
	err := h.s.Recover(stopped, func(*store.Saved) error { seen++; cancel(); return nil })
	if seen != 1 || !errors.Is(err, context.Canceled) {
		h.Fatalf("Recover = %v after %d runs, want that it was cancelled after one", err, seen)
	}
}
