// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/marks"
)

// spansOf counts the spans that the store has of a recipe.
func spansOf(t *testing.T, s *Store, recipe string) (n int) {
	t.Helper()
	if err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM recipe_spans WHERE recipe = ?1`, recipe).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Lists of runs of a recipe, from any place on and in pages of any size, are what a search
// through all runs finds, whatever is deleted between them.
func TestListsOfARecipeAreComplete(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	dice := rand.New(rand.NewPCG(16, 3))
	var all []store.Head
	for i := range 400 {
		start := startOf(epoch, runKey(i), "1")
		start.Head.Recipe = fmt.Sprint("recipe", dice.IntN(4))
		// Runs of one time, of one span, and of spans far from each other, in no order.
		start.Head.Created = int64(dice.IntN(4))<<22 + int64(dice.IntN(3))<<19 + int64(dice.IntN(2))
		start.Head.Ended, start.Head.Status = start.Head.Created+1, []string{"completed", "failed"}[dice.IntN(2)]
		start.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
		if i%5 == 4 { // of another account, in the same spans
			start.Account, start.Head.Account = "rival", "rival"
			mustCommit(t, s, start)
			continue
		}
		mustCommit(t, s, start)
		all = append(all, *start.Head)
	}
	for len(all) > 10 {
		if c := checkOf(t, s); len(c) != 0 {
			t.Fatalf("with %d runs: %q", len(all), c)
		}
		slices.SortFunc(all, func(a, b store.Head) int {
			if a.Created != b.Created {
				return int(b.Created - a.Created)
			}
			return strings.Compare(b.Run, a.Run)
		})
		for range 40 {
			q := store.Query{Account: "acme", Recipe: fmt.Sprint("recipe", dice.IntN(5)), Limit: 1 + dice.IntN(50)}
			q.Status = []string{"", "", "completed", "failed"}[dice.IntN(4)]
			if dice.IntN(2) == 0 {
				q.Since = int64(dice.IntN(16 << 20))
			}
			if dice.IntN(2) == 0 {
				q.CreatedBefore = int64(dice.IntN(16 << 20))
			}
			if dice.IntN(2) == 0 {
				q.After = all[dice.IntN(len(all))].Run
			}
			var want []string
			from := slices.IndexFunc(all, func(h store.Head) bool { return h.Run == q.After }) + 1
			for _, h := range all[from:] {
				if q.Match(&h) {
					want = append(want, h.Run)
				}
			}
			var got []string
			for page := q; ; page.After = got[len(got)-1] {
				heads, err := s.List(ctx, page)
				if err != nil {
					t.Fatal(err)
				}
				for _, h := range heads {
					got = append(got, h.Run)
				}
				if len(heads) < q.Limit {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%+v: %q, want %q", q, got, want)
			}
		}
		dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var gone []store.Key
		for _, h := range all[len(all)*3/4:] {
			gone = append(gone, h.Key)
		}
		all = all[:len(all)*3/4]
		if _, err := s.Delete(ctx, epoch, 1, gone); err != nil {
			t.Fatal(err)
		}
	}
}

// A span is written once, goes with its last run, and is written again for a run that
// begins in it later, also after a commit was taken back.
func TestSpansOfRecipes(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	start := func(i int, at int64) store.Transition {
		t := settledStart(epoch, runKey(i))
		t.Head.Created, t.Head.Ended = at, at+1
		return t
	}
	listed := func(want int) {
		t.Helper()
		heads, err := s.List(ctx, store.Query{Account: "acme", Recipe: "r"})
		if err != nil || len(heads) != want {
			t.Fatalf("%d runs of the recipe, %v, want %d", len(heads), err, want)
		}
	}
	remove := func(i, want int) {
		t.Helper()
		if v, err := s.Delete(ctx, epoch, 1, []store.Key{runKey(i)}); err != nil || v[0].Err != nil {
			t.Fatal(v, err)
		}
		if n := spansOf(t, s, "r"); n != want {
			t.Fatalf("%d spans, want %d", n, want)
		}
	}
	mustCommit(t, s, start(0, 5), start(1, 6))
	mustCommit(t, s, start(2, 7))
	listed(3)
	remove(0, 1)
	remove(1, 1)
	remove(2, 0)
	listed(0)
	mustCommit(t, s, start(3, 8))
	listed(1)
	remove(3, 0)

	// The whole group is refused, and with it the first run of the span.
	refused := startOf(epoch, runKey(5), "1")
	refused.First, refused.Last = 7, 7
	batch := []store.Transition{start(4, 9), refused}
	batch[0].Group, batch[1].Group = "g", "g"
	if v, err := s.Commit(ctx, batch); err != nil || !errors.Is(v[0].Err, fault.RunNotFound) && !errors.Is(v[0].Err, fault.Conflict) {
		t.Fatal(v, err)
	}
	if n := spansOf(t, s, "r"); n != 0 {
		t.Fatalf("%d spans after a refused group", n)
	}
	mustCommit(t, s, start(6, 10))
	listed(1)
	if c := checkOf(t, s); len(c) != 0 {
		t.Errorf("%q", c)
	}
}

// A check says which span is missing, and which has no run.
func TestCheckOfSpans(t *testing.T) {
	s := open(t, t.TempDir())
	mustCommit(t, s, startOf(own(t, s), runKey(0), "1"))
	mustExec(t, s, `UPDATE recipe_spans SET span = 77`)
	got := strings.Join(checkOf(t, s), "\n")
	for _, want := range []string{
		`recipe "r": no run was created in a span that it has`,
		fmt.Sprintf(`run %q: lists of its recipe do not have it`, runKey(0).Run),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	if n := marks.Span(1<<20 - 1); n != 0 || marks.Span(1<<20) != 1 {
		t.Error("the spans of the table are of 2^20 µs")
	}
}

func settledStart(epoch uint64, key store.Key) store.Transition {
	t := startOf(epoch, key, "1")
	t.Head.Status, t.Head.Ended = "completed", 2
	t.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
	return t
}
