// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// settledBelow is a child run that has ended, with all events compacted.
func settledBelow(epoch uint64, root string, k store.Key) store.Transition {
	tr := startOf(epoch, k, "1")
	tr.Head.Root, tr.Head.Parent, tr.Head.Ended = root, root, 5
	if root == "" {
		tr.Head.Parent = ""
	}
	tr.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: tr.Frames}
	return tr
}

// childKey is the key of a child run in the account of runKey.
func childKey(i int) store.Key {
	return store.Key{Account: runKey(0).Account, Run: fmt.Sprintf("child_%05d", i)}
}

// queryPlan returns how SQLite would run a query.
func queryPlan(t *testing.T, s *Store, query string, args ...any) string {
	t.Helper()
	rows, err := s.read.Query(`EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	if err := conn.EachRow(rows, func() error {
		var id, parent, unused int
		var line string
		err := rows.Scan(&id, &parent, &unused, &line)
		lines = append(lines, line)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "; ")
}

// Every list reads the runs that it returns, and no others: by an index that has them in
// their order. The statements that guard the deletion of a tree use that index, too.
func TestListsOfTreesUseTheirIndex(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	mustCommit(t, s, startOf(epoch, runKey(0), "1"), settledBelow(epoch, runKey(0).Run, childKey(1)))
	account, root := runKey(0).Account, runKey(0).Run
	const ofRecipe = "SEARCH s USING PRIMARY KEY (account=? AND recipe=? AND span>? AND span<?); SEARCH r USING INDEX runs_newest (account=? AND created>? AND created<?)"
	for _, c := range []struct {
		q    store.Query
		want string
	}{
		{store.Query{}, "USING INDEX runs_newest (account=?)"},
		{store.Query{After: root}, "USING INDEX runs_newest (account=? AND (created,run)<(?,?))"},
		{store.Query{Since: 5}, "USING INDEX runs_newest (account=? AND created>?)"},
		{store.Query{Parent: root}, "USING INDEX runs_tree (account=? AND root=? AND parent=?)"},
		{store.Query{Parent: root, After: childKey(1).Run}, "USING INDEX runs_tree (account=? AND root=? AND parent=?"},
		{store.Query{Root: root}, "USING INDEX runs_tree (account=? AND root=?)"},
		{store.Query{Root: root, After: childKey(1).Run}, "USING INDEX runs_tree (account=? AND root=? AND (parent,created,run)>(?,?,?))"},
		{store.Query{CreatedBefore: 5}, "USING INDEX runs_newest (account=? AND (created,run)<(?,?))"},
		{store.Query{Recipe: "r"}, ofRecipe},
		{store.Query{Recipe: "r", Since: 5, Status: "completed"}, ofRecipe},
		{store.Query{Recipe: "r", After: root, CreatedBefore: 1 << 40, Prefix: "run"}, ofRecipe},
		{store.Query{Recipe: "r", Status: "failed"}, "USING INDEX runs_failed (account=?)"},
		{store.Query{Status: "failed"}, "USING INDEX runs_failed (account=?)"},
		{store.Query{Statuses: []string{"failed", "expired"}, CreatedBefore: 5}, "USING INDEX runs_failed (account=? AND (created,run)<(?,?))"},
		{store.Query{All: true}, "USING PRIMARY KEY (account=? AND run>?)"},
		{store.Query{All: true, Prefix: "c"}, "USING PRIMARY KEY (account=? AND run>? AND run<?)"},
	} {
		c.q.Account = account
		l, err := s.compose(ctx, &c.q)
		if err != nil {
			t.Fatal(err)
		}
		got := queryPlan(t, s, l.text.String(), l.args...)
		if !strings.Contains(got, c.want) || strings.Contains(got, "TEMP B-TREE") || strings.Contains(got, "SCAN") {
			t.Errorf("%+v: %s\nwant %s", c.q, got, c.want)
		}
	}
	for _, query := range []string{s.t.treeRuns, s.t.halfRemoved} {
		if got := queryPlan(t, s, query, account, root); !strings.Contains(got, "INDEX runs_tree (account=? AND root=?") {
			t.Errorf("%s\n%s", query, got)
		}
	}
	// Few runs have not ended: those are sorted.
	l, err := s.compose(ctx, &store.Query{Account: account, Statuses: []string{"running", "queued"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := queryPlan(t, s, l.text.String(), l.args...); !strings.Contains(got, "USING INDEX runs_live (parked=? AND account=?)") {
		t.Error(got)
	}
	// There are many: those of a recipe are found by its spans.
	for n := 1; n <= fewUnended; n += 1_000 {
		var batch []store.Transition
		for i := range 1_000 {
			batch = append(batch, startOf(epoch, runKey(n+i), "1"))
		}
		mustCommit(t, s, batch...)
	}
	if l, err = s.compose(ctx, &store.Query{Account: account, Recipe: "r", Statuses: []string{"running", "queued"}}); err != nil {
		t.Fatal(err)
	}
	if got := queryPlan(t, s, l.text.String(), l.args...); !strings.Contains(got, ofRecipe) {
		t.Error(got)
	}
	for query, want := range map[string]string{
		"labelledRuns": "SEARCH run_labels USING PRIMARY KEY (account=? AND key=? AND value=? AND created>? AND (created,run)<(?,?))",
		"hiddenRuns":   "SEARCH hidden_runs USING PRIMARY KEY (account=? AND created>? AND (created,run)<(?,?))",
	} {
		if got := queryPlan(t, s, textOf(t, query), 1, 2, 3, 4, 5, 6, 7); got != want {
			t.Errorf("%s: %s", query, got)
		}
	}
	if got := queryPlan(t, s, s.t.endedRuns, 1, 0, "", "", 9); !strings.Contains(got, "runs_ended") || strings.Contains(got, "TEMP B-TREE") {
		t.Error(got)
	}
}

// A process that dies after the root of a large tree was deleted leaves runs below it. The
// next Delete removes them, and the mark of the root stays until then, also when the journal
// has nothing of it. A root that was imported again keeps them.
func TestHalfRemovedTreesAreFinished(t *testing.T) {
	const children = 3*purgeTree + 7
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	count := func(query string) (n int) {
		t.Helper()
		if err := s.read.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, imported := range []bool{false, true} {
		batch := []store.Transition{settledBelow(epoch, "", runKey(0))}
		for i := range children {
			batch = append(batch, settledBelow(epoch, runKey(0).Run, childKey(i)))
		}
		mustCommit(t, s, batch...)
		d := deletion{s: s}
		if v, err := d.deleteAll(epoch, 0, []store.Key{runKey(0)}); err != nil || v[0].Err != nil { // and the process dies here
			t.Fatal(err, v)
		}
		if n := count(`SELECT count(*) FROM runs`); n != children {
			t.Fatalf("%d runs after the root went, want %d", n, children)
		}
		below, err := s.treeRuns(ctx, runKey(0))
		if err == nil {
			_, err = s.removeBelow(below[:purgeTree])
		}
		if err == nil {
			err = s.removeCompacted(ctx, []store.Key{runKey(0)})
		}
		if err == nil { // nothing of the root is left but its mark
			s.w.Lock()
			_, err = s.forgetMarks() // and here
			s.w.Unlock()
		}
		if err != nil {
			t.Fatal(err)
		}
		_, complaints, err := s.Check(ctx)
		if err != nil || len(complaints) > 0 {
			t.Errorf("a half-removed tree: %q, %v", complaints, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		epoch = own(t, s)
		want := 0
		if imported {
			mustCommit(t, s, settledBelow(epoch, "", runKey(0)))
			want = children - purgeTree + 1
		}
		for range 2 + children/purgeRuns {
			if _, err := s.Delete(ctx, epoch, 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(`SELECT count(*) FROM runs`); n != want {
			t.Errorf("%d runs are left, want %d (imported again: %v)", n, want, imported)
		}
		if !imported {
			if n := count(`SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM packs) + (SELECT count(*) FROM pieces)`); n != 0 {
				t.Errorf("%d marks, packs and pieces are left", n)
			}
		}
	}
}

// A damaged run keeps its tree. It is listed as damaged where its index has it.
func TestDamagedRunsInTrees(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	root := runKey(0)
	mustCommit(t, s, settledBelow(epoch, "", root), settledBelow(epoch, root.Run, childKey(1)), settledBelow(epoch, root.Run, childKey(2)))
	for _, column := range []string{"parent = 'x'", "root = 'x'", "root = '', parent = ''", "status = 'x'", "packed = packed + 1"} {
		mustExec(t, s, `UPDATE runs SET `+column+` WHERE run = '`+childKey(1).Run+`'`)
		_, complaints, err := s.Check(ctx)
		if err != nil || !slices.ContainsFunc(complaints, func(c string) bool { return strings.Contains(c, childKey(1).Run) }) {
			t.Errorf("%s: %q, %v", column, complaints, err)
		}
		heads, err := s.List(ctx, store.Query{Account: root.Account, All: true})
		if err != nil || len(heads) != 3 || (heads[0].Damage == "") != strings.HasPrefix(column, "packed") {
			t.Errorf("%s: %+v, %v", column, heads, err)
		}
		if strings.HasPrefix(column, "root") { // it is of another tree, or of none
			mustExec(t, s, `UPDATE runs SET root = '`+root.Run+`', parent = '`+root.Run+`' WHERE run = '`+childKey(1).Run+`'`)
			continue
		}
		verdicts, err := s.Delete(ctx, epoch, 0, []store.Key{root})
		if err != nil || fault.CodeOf(verdicts[0].Err) != fault.StoreCorrupt {
			t.Errorf("%s: Delete = %v, %v", column, verdicts, err)
		}
		mustExec(t, s, `UPDATE runs SET parent = root, status = 'running', packed = 1 WHERE run = '`+childKey(1).Run+`'`)
	}
	verdicts, err := s.Delete(ctx, epoch, 0, []store.Key{root})
	if err != nil || verdicts[0].Err != nil {
		t.Errorf("Delete = %v, %v", verdicts, err)
	}
}

// A child run whose root or parent is missing is a complaint.
func TestCheckNamesOrphans(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	grandchild := settledBelow(epoch, runKey(0).Run, childKey(2))
	grandchild.Head.Parent = childKey(1).Run
	mustCommit(t, s, settledBelow(epoch, "", runKey(0)), settledBelow(epoch, runKey(0).Run, childKey(1)), grandchild)
	complaints := func(want ...string) {
		t.Helper()
		_, got, err := s.Check(ctx)
		if err != nil || len(got) != len(want) {
			t.Fatalf("complaints %q, %v, want %q", got, err, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("complaint %q, want %q", got[i], want[i])
			}
		}
	}
	complaints()
	mustExec(t, s, `DELETE FROM runs WHERE run = '`+childKey(1).Run+`'`)
	complaints(fmt.Sprintf("run %q: its parent, run %q, is missing", childKey(2).Run, childKey(1).Run))
	mustExec(t, s, `DELETE FROM runs WHERE run = '`+runKey(0).Run+`'`)
	complaints(fmt.Sprintf("run %q: its root, run %q, is missing", childKey(2).Run, runKey(0).Run), `recipe "r": no run was created in a span that it has`)
}

// mustExec changes rows of an open store.
func mustExec(t *testing.T, s *Store, query string) {
	t.Helper()
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.db.Once(query); err != nil {
		t.Fatal(err)
	}
}
