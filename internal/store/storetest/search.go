// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// search reads all pages of a query.
func (h *harness) search(q store.Query) (runs []string) {
	h.Helper()
	for {
		page, next, err := h.s.Search(ctx, q)
		h.must(err)
		if len(page) > q.Cap() {
			h.Fatalf("%+v: %d heads on a page", q, len(page))
		}
		for i := range page {
			runs = append(runs, page[i].Run)
		}
		if next == "" {
			return runs
		}
		q.After = next
	}
}

// hide commits that a user has deleted a run, at time `at`.
func (h *harness) hide(k store.Key, at int64) {
	h.Helper()
	head, err := h.s.Head(ctx, k)
	h.must(err)
	head.Deleted, head.Updated = at, at
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Head: &head})
}

// X194: lists select by status, recipe, time, labels and text, on any number of pages.
func filters(h *harness) {
	labels := []map[string]string{nil, {"env": "prod", "team": "Blue"}, {"env": "prod"}, {"env": "test"}}
	statuses := []string{"running", "completed", "failed", "queued", "completed", "cancelled"}
	var all []store.Head
	for n := range 60 {
		k := key(fmt.Sprintf("run-%02d", n))
		t := h.start(k, 1)
		t.Head.Created, t.Head.Recipe, t.Head.Status = int64(1000+n/2), fmt.Sprint("recipe-", n%5), statuses[n%len(statuses)]
		var err error
		t.Head.Labels, err = store.EncodeLabels(labels[n%len(labels)])
		h.must(err)
		if s := t.Head.Status; s != "running" && s != "queued" {
			t.Head.Ended = 2000
		}
		if t.Head.Status == "failed" {
			t.Head.Code, t.Head.Message = fault.StepFailed, fmt.Sprintf("the pump number %d broke", n)
		}
		h.commit(t)
		all = append(all, *t.Head)
		if n%10 == 1 && t.Head.Ended != 0 {
			h.hide(k, 3000)
			all[n].Deleted, all[n].Updated = 3000, 3000
		}
	}
	child := h.start(key("child"), 1)
	child.Head.Root, child.Head.Parent = "run-01", "run-01"
	other := h.start(store.Key{Account: "other", Run: "run-01"}, 1) // I17
	other.Head.Labels = all[1].Labels
	h.commit(child, other)
	for i := range all {
		got, err := h.s.Head(ctx, all[i].Key)
		h.must(err)
		h.equal("head", got, all[i])
	}
	slices.Reverse(all)
	for _, q := range []store.Query{
		{}, {Deleted: true}, {Status: "failed"}, {Statuses: []string{"failed", "cancelled"}}, {Statuses: []string{"running", "queued"}},
		{Statuses: []string{"completed", "running"}}, {Status: "completed", Recipe: "recipe-1"}, {Recipe: "recipe-3"}, {Recipe: "recipe"},
		{Recipe: "recipe-2", Statuses: []string{"failed"}}, {Since: 1010, CreatedBefore: 1020}, {CreatedBefore: 1005}, {CreatedBefore: 1}, {Since: 1020, Status: "failed"},
		{Labels: map[string]string{"env": "prod"}}, {Labels: map[string]string{"env": "prod", "team": "Blue"}}, {Labels: map[string]string{"env": "blue"}},
		{Labels: map[string]string{"env": "test"}, Since: 1007, CreatedBefore: 1021}, {Labels: map[string]string{"env": "prod"}, Deleted: true},
		{Text: "pump number 2"}, {Text: "PUMP"}, {Text: "blue"}, {Text: "run-3"}, {Text: "recipe-4", Status: "completed"}, {Text: "step_fail"}, {Text: "nothing"},
		{Deleted: true, Recipe: "recipe-1", CreatedBefore: 1011}, {Prefix: "run-1", Labels: map[string]string{"env": "prod"}}, {Prefix: "run-2", Status: "failed"},
	} {
		q.Account = "acme"
		var want []string
		for i := range all {
			if a := &all[i]; selects(&q, a, labels) {
				want = append(want, a.Run)
			}
		}
		for _, limit := range []int{0, 1, 7} {
			q.Limit = limit
			h.equal(fmt.Sprintf("Search(%+v)", q), h.search(q), want)
			heads, err := h.s.List(ctx, q)
			h.must(err)
			h.equal(fmt.Sprintf("length of List(%+v)", q), len(heads), min(len(want), q.Cap()))
		}
	}
	heads, err := h.s.List(ctx, store.Query{Account: "acme", Parent: "run-01"})
	h.must(err)
	h.equal("children of a deleted run", len(heads), 1)
}

// selects says by other means than the store whether a query selects a head of filters.
func selects(q *store.Query, a *store.Head, labels []map[string]string) bool {
	var n int
	_, _ = fmt.Sscanf(a.Run, "run-%d", &n) // it has one
	for k, v := range q.Labels {
		if labels[n%len(labels)][k] != v {
			return false
		}
	}
	if q.Status != "" && a.Status != q.Status || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, a.Status) || q.Recipe != "" && a.Recipe != q.Recipe ||
		a.Created < q.Since || q.CreatedBefore > 0 && a.Created >= q.CreatedBefore || !strings.HasPrefix(a.Run, q.Prefix) || (a.Deleted != 0) != q.Deleted {
		return false
	}
	text := strings.ToLower(fmt.Sprint(a.Recipe, "\n", a.Run, "\n", a.Message, "\n", a.Code, "\n", labels[n%len(labels)]["team"], "\n", labels[n%len(labels)]["env"]))
	return strings.Contains(text, strings.ToLower(q.Text))
}

// F49: what a query does not select does not make one call read without end, and hides
// nothing behind it.
func longSearches(h *harness) {
	const n = 2*store.MaxScan + 500
	var batch []store.Transition
	for i := range n {
		t := h.start(key(fmt.Sprintf("run-%05d", i)), 1)
		t.Head.Created = int64(i)
		t.Head.Status, t.Head.Ended = "completed", 5
		if i == 3 {
			t.Head.Recipe = "needle"
		}
		if batch = append(batch, t); len(batch) == 500 {
			h.commit(batch...)
			batch = batch[:0]
		}
	}
	q := store.Query{Account: "acme", Text: "needle"}
	for page := range 3 {
		heads, next, err := h.s.Search(ctx, q)
		h.must(err)
		if (next == "") != (page == 2) || len(heads) != page/2 {
			h.Fatalf("page %d: %d heads, then %q", page, len(heads), next)
		}
		if page == 0 {
			h.equal("the first page ends", next, fmt.Sprintf("run-%05d", n-store.MaxScan))
		}
		q.After = next
	}
	heads, err := h.s.List(ctx, store.Query{Account: "acme", Text: "needle"})
	h.must(err)
	h.equal("listed", len(heads), 1)
	h.equal("found at once", h.search(store.Query{Account: "acme", Recipe: "needle"}), []string{"run-00003"})
}

// X98: a run that its user has deleted is not listed, and stays until retention removes it,
// with its labels. The feed tells both.
func hiddenRuns(h *harness) {
	k := key("a")
	t := h.start(k, 2)
	t.Head.Ended, t.Head.Status, t.Head.Labels = 9, "completed", `{"env":"prod"}`
	t.Compaction = compaction(k, 1, 2)
	h.commit(t, h.start(key("b"), 1))
	h.hide(k, 50)
	head, err := h.s.Head(ctx, k)
	h.must(err)
	h.equal("deleted", []any{head.Deleted, head.Labels}, []any{int64(50), `{"env":"prod"}`})
	h.equal("loaded", h.load(k).Head, head)
	h.holds(k, 2)
	h.equal("listed", h.search(store.Query{Account: "acme"}), []string{"b"})
	h.equal("behind it", h.search(store.Query{Account: "acme", After: "b"}), []string(nil))
	h.equal("by label", h.search(store.Query{Account: "acme", Labels: map[string]string{"env": "prod"}}), []string(nil))
	h.equal("deleted runs", h.search(store.Query{Account: "acme", Deleted: true}), []string{"a"})
	changes, err := h.s.Changes(ctx, "acme", 2, 10)
	h.must(err)
	if len(changes) != 1 || changes[0].Run != "a" || !changes[0].Hidden || changes[0].Deleted || changes[0].Status != "completed" {
		h.Fatalf("changes = %+v", changes)
	}
	// A later head does not bring it back, nor change its labels.
	head.Deleted, head.Labels = 0, ""
	h.commit(store.Transition{Key: k, Epoch: h.epoch, Head: &head})
	head, err = h.s.Head(ctx, k)
	h.must(err)
	h.equal("still deleted", []any{head.Deleted, head.Labels}, []any{int64(50), `{"env":"prod"}`})
	verdicts, err := h.s.Delete(ctx, h.epoch, 60, []store.Key{k})
	h.must(err)
	h.must(verdicts[0].Err)
	for _, q := range []store.Query{{Deleted: true}, {Labels: map[string]string{"env": "prod"}}} {
		q.Account = "acme"
		h.equal("after its removal", h.search(q), []string(nil))
	}
	again := h.start(k, 1) // a run that is imported again is another one
	h.commit(again)
	head, err = h.s.Head(ctx, k)
	h.must(err)
	h.equal("anew", []any{head.Deleted, head.Labels}, []any{int64(0), ""})
}

// Labels and deletions survive, in any order of reopening.
func marksSurvive(h *harness, d Disk) {
	for n := range 4 {
		t := h.start(key(fmt.Sprint(n)), 1)
		t.Head.Status, t.Head.Ended, t.Head.Labels = "completed", 9, `{"env":"prod"}`
		t.Compaction = compaction(t.Key, 1, 1)
		h.commit(t)
	}
	h.hide(key("1"), 5)
	for round := range 2 {
		if round == 0 {
			h.reopen(d.Crash(h.T, h.s))
		} else {
			h.must(h.s.Close())
			h.reopen(d.Reopen(h.T, h.s))
		}
		h.equal("by label", h.search(store.Query{Account: "acme", Labels: map[string]string{"env": "prod"}}), []string{"3", "2", "0"})
		h.equal("deleted", h.search(store.Query{Account: "acme", Deleted: true}), []string{"1"})
	}
}
