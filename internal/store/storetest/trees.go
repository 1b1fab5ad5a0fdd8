// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// below makes a start one of a child run.
func below(root, parent string, t store.Transition) store.Transition {
	t.Head.Root, t.Head.Parent = root, parent
	return t
}

// created sets the time of creation of a start.
func created(at int64, t store.Transition) store.Transition {
	t.Head.Created = at
	return t
}

// listed returns the ids of the runs that a query selects, read in pages of several sizes.
func (h *harness) listed(q store.Query) string {
	h.Helper()
	q.Account = "acme"
	var first []string
	for _, limit := range []int{500, 1, 2, 3} {
		var got []string
		q.Limit, q.After = limit, ""
		for {
			heads, err := h.s.List(ctx, q)
			h.must(err)
			for _, head := range heads {
				got = append(got, head.Run)
			}
			if len(heads) < limit {
				break
			}
			q.After = heads[len(heads)-1].Run
		}
		if first == nil {
			first = got
		}
		h.equal(fmt.Sprintf("%+v in pages of %d", q, limit), strings.Join(got, " "), strings.Join(first, " "))
	}
	return strings.Join(first, " ")
}

// trees: the first transition of a child run fixes its root and its parent. Lists show
// roots, the children of a run, a tree, or all of them.
func trees(h *harness) {
	h.commit(created(10, h.start(key("r1"), 1)), created(20, h.start(key("r2"), 1)))
	h.commit(
		created(30, below("r1", "r1", h.start(key("c3"), 1))),
		created(25, below("r1", "r1", h.start(key("c2"), 1))),
		created(30, below("r1", "r1", h.start(key("c1"), 1))),
		created(40, below("r1", "c2", h.start(key("d1"), 1))),
		created(41, below("r1", "d1", h.start(key("e1"), 1))),
		created(26, below("r2", "r2", h.start(key("c9"), 1))),
	)
	head, err := h.s.Head(ctx, key("e1"))
	h.must(err)
	h.equal("root and parent", head.Root+" "+head.Parent, "r1 d1")
	later := h.next(key("e1"), 2, 2)
	later.Head = below("r2", "r2", h.start(key("e1"), 1)).Head
	h.commit(later)
	later = h.next(key("r2"), 2, 2)
	later.Head = below("r1", "r1", created(20, h.start(key("r2"), 1))).Head
	h.commit(later)
	h.equal("of a loaded run", h.load(key("e1")).Head.Root+" "+h.load(key("e1")).Head.Parent, "r1 d1")
	h.equal("of a root", h.load(key("r2")).Head.Root, "")

	for _, c := range []struct {
		name string
		q    store.Query
		want string
	}{
		{"roots", store.Query{}, "r2 r1"},
		{"roots with a prefix", store.Query{Prefix: "c"}, ""},
		{"children", store.Query{Parent: "r1"}, "c2 c1 c3"},
		{"children of a child", store.Query{Parent: "c2"}, "d1"},
		{"no children", store.Query{Parent: "c1"}, ""},
		{"a tree", store.Query{Root: "r1"}, "d1 e1 c2 c1 c3"},
		{"the tree of a child", store.Query{Root: "c2"}, ""},
		{"all", store.Query{All: true}, "c1 c2 c3 c9 d1 e1 r1 r2"},
		{"all with a prefix", store.Query{All: true, Prefix: "c"}, "c1 c2 c3 c9"},
		{"children since", store.Query{Parent: "r1", Since: 26}, "c1 c3"},
		{"a tree with a prefix", store.Query{Root: "r1", Prefix: "c"}, "c2 c1 c3"},
		{"a recipe in a tree", store.Query{Root: "r1", Recipe: "other"}, ""},
		{"a status in a tree", store.Query{Root: "r1", Status: "running"}, "d1 e1 c2 c1 c3"},
	} {
		h.equal(c.name, h.listed(c.q), c.want)
	}
	for _, q := range []store.Query{
		{Account: "acme", Parent: "nobody"}, {Account: "acme", Root: "nobody"}, {Account: "rival", Parent: "r1"}, {Account: "rival", Root: "r1"},
		{Account: "acme", After: "c1"}, {Account: "acme", Parent: "r1", After: "r1"}, {Account: "acme", Parent: "r1", After: "d1"}, {Account: "acme", Root: "r1", After: "c9"},
	} {
		_, err := h.s.List(ctx, q)
		h.wantCode(err, fault.RunNotFound)
	}
	rest, err := h.s.List(ctx, store.Query{Account: "acme", All: true, After: "c4"})
	h.must(err)
	h.equal("after a run that is not there", rest[0].Run, "c9")

	for _, wrong := range []store.Transition{
		below("", "r1", h.start(key("w"), 1)), below("r1", "", h.start(key("w"), 1)), below("w", "r1", h.start(key("w"), 1)), below("r1", "w", h.start(key("w"), 1)),
	} {
		h.refused(fault.Conflict, wrong)
	}
}

// Child runs are recovered and due like others. Roots alone count as live (X206), and a
// change says to which root its run belongs.
func childRuns(h *harness) {
	waits := below("r", "r", h.start(key("waits"), 1))
	waits.Compaction, waits.Suspension = compaction(key("waits"), 1, 1), &store.Suspension{WakeAt: 5}
	line := below("r", "r", h.start(key("queued"), 1))
	line.Head.Status = store.StatusQueued
	h.commit(h.start(key("r"), 1), below("r", "r", h.start(key("live"), 1)), waits, line)
	n, err := h.s.Unended(ctx, "acme")
	h.must(err)
	h.equal("runs that have not ended", n, store.Unended{Live: 1})
	queued, err := h.s.Queued(ctx, store.Wake{}, 10)
	h.must(err)
	h.equal("queued runs", len(queued), 0)
	due, err := h.s.Due(ctx, 5, 10)
	h.must(err)
	h.equal("due", due, []store.Wake{{Key: key("waits"), At: 5, Root: "r"}})
	var found []string
	h.must(h.s.Recover(ctx, func(s *store.Saved) error {
		found = append(found, s.Head.Run+" "+s.Head.Root)
		return s.Err
	}))
	slices.Sort(found)
	h.equal("recovered", found, []string{"live r", "queued r", "r "})
	child := func(run string) store.Change {
		c := started(run)
		c.Root = "r"
		return c
	}
	line2 := child("queued")
	line2.Status = store.StatusQueued
	h.feedIs("acme", 0, started("r"), child("live"), child("waits"), line2)
}

// treesGo: retention finds roots only, and a tree is deleted whole once all of it has
// settled.
func treesGo(h *harness) {
	h.commit(
		h.settled(key("r"), 50, "f", "mine"), below("r", "r", h.settled(key("c1"), 10, "f", "deep")), below("r", "c1", h.settled(key("c2"), 20, "f")),
		h.settled(key("s"), 60), below("s", "s", h.start(key("live"), 1)),
		h.settled(key("t"), 70), below("t", "t", h.settled(key("owing"), 30)),
		h.settled(key("u"), 80), below("u", "u", h.settled(key("journal"), 30)),
	)
	owes := head(key("owing"), "completed", 1000)
	owes.Ended, owes.Owes = 30, true
	again := h.next(key("journal"), 3, 3)
	h.commit(store.Transition{Key: key("owing"), Epoch: h.epoch, Head: owes}, again)
	ended, err := h.s.Ended(ctx, 1000, store.Wake{}, 10)
	h.must(err)
	h.equal("ended", ended, []store.Wake{{Key: key("r"), At: 50}, {Key: key("s"), At: 60}, {Key: key("t"), At: 70}, {Key: key("u"), At: 80}})
	last, _, err := h.s.Newest(ctx, "acme")
	h.must(err)

	h.delete(fault.Conflict, key("c1"), key("c2"), key("live"), key("s"), key("t"), key("u"))
	h.holds(key("c1"), 2)
	h.holds(key("s"), 2)
	h.equal("names of f", h.naming("acme", "f"), "c1 c2 r")
	h.delete("", key("r"))
	for _, run := range []string{"r", "c1", "c2"} {
		h.gone(key(run))
	}
	h.equal("names of f", h.naming("acme", "f"), "@50")
	h.equal("names of deep", h.naming("acme", "deep"), "@10")
	h.equal("changes", h.changes("acme", last, 10), []store.Change{{N: last + 1, At: 1000, Run: "r", Deleted: true}})
	h.equal("left", h.listed(store.Query{All: true}), "journal live owing s t u")
	h.delete(fault.RunNotFound, key("r"), key("c1"))
	owes.Owes = false
	end := h.next(key("live"), 2, 2)
	end.Head, end.Compaction = head(key("live"), "completed", 1000), &store.Compaction{First: 1, Last: 2, Chunk: frames(key("live"), 1, 2)}
	end.Head.Ended = 90
	h.commit(store.Transition{Key: key("owing"), Epoch: h.epoch, Head: owes}, end,
		store.Transition{Key: key("journal"), Epoch: h.epoch, Compaction: &store.Compaction{First: 3, Last: 3, Chunk: frames(key("journal"), 3, 3)}})
	h.delete("", key("s"), key("t"), key("u"))
	h.equal("left", h.listed(store.Query{All: true}), "")
}

// A tree larger than what one commit removes goes, too, among others.
func largeTreesGo(h *harness) {
	var batch []store.Transition
	for _, root := range []string{"r", "s", "t"} {
		batch = append(batch, h.settled(key(root), 50))
		for i := range 700 {
			batch = append(batch, below(root, root, h.settled(key(fmt.Sprint(root, i)), 10, "f")))
		}
	}
	h.commit(append(batch, h.settled(key("v"), 60), h.start(key("w"), 1))...)
	h.delete("", key("r"), key("v"), key("s"))
	h.delete(fault.Conflict, key("w"))
	h.gone(key("r699"))
	left, err := h.s.List(ctx, store.Query{Account: "acme", All: true, Limit: 500})
	h.must(err)
	h.equal("left", []string{left[0].Run, left[1].Run}, []string{"t", "t0"})
	h.equal("roots left", h.listed(store.Query{}), "w t")
	h.delete("", key("t"))
	h.equal("left", h.listed(store.Query{All: true}), "w")
	h.equal("names of f", h.naming("acme", "f"), "@10")
}

// Trees are as they were after a crash, also those that were deleted.
func treesSurvive(h *harness, d Disk) {
	h.commit(h.settled(key("r"), 50), below("r", "r", h.settled(key("c"), 10)), h.start(key("s"), 1), below("s", "s", h.start(key("d"), 1)))
	h.delete("", key("r"))
	for range 2 {
		h.reopen(d.Crash(h.T, h.s))
		h.gone(key("r"))
		h.gone(key("c"))
		h.equal("all", h.listed(store.Query{All: true}), "d s")
		h.equal("roots", h.listed(store.Query{}), "s")
		h.equal("root and parent", h.load(key("d")).Head.Root+h.load(key("d")).Head.Parent, "ss")
	}
}
