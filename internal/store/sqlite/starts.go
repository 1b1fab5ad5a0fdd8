// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"cmp"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// rowsAtOnce is how many rows of runs one statement inserts. It costs two thirds of what
// as many statements cost: the ids of runs ascend, so that each row of a statement is put
// behind the one before it without a search.
const rowsAtOnce = 16

// manyRows returns a text that inserts the row of a run for several runs.
func manyRows(text string) string {
	_, row, _ := strings.Cut(text, "VALUES ")
	row, _, _ = strings.Cut(row, " ON CONFLICT")
	return strings.Replace(text, row, row+strings.Repeat(", "+row, rowsAtOnce-1), 1)
}

// A newRun is a row of a run that is not written yet. Its events are in no pack, or the
// first of them are at a place.
type newRun struct {
	key  store.Key
	head *store.Head
	last uint64 // event
	at   location
}

// A rowQueue are rows that are written by one statement.
type rowQueue struct {
	waiting   []newRun
	one, many *conn.Stmt
	ended     *conn.Stmt // for many rows that share columns; nil = none
}

// starts are the runs of the commit under way whose rows are not written yet.
type starts struct {
	plain, placed rowQueue
	args          []driver.Value
	texts         [7]driver.Value // of the row before; see text
	// deferred are runs that begin in this commit, whose rows are deferred. It is not known
	// yet that none of them has a row.
	deferred []*store.Transition
	last     map[string]string // the last run of an account that has a row, or had one
	// taken reports that one of the rows was there already, and alone that each is
	// written by a statement of its own, to find out which; then none is deferred.
	taken, alone bool
}

// forget releases what the starts of a commit point to.
func (q *starts) forget() {
	for _, r := range [...]*rowQueue{&q.plain, &q.placed} {
		clear(r.waiting)
		r.waiting = r.waiting[:0]
	}
	clear(q.args)
	clear(q.texts[:])
	clear(q.deferred)
	q.deferred = q.deferred[:0]
	q.taken, q.alone = false, false
}

// start writes the row of a run that begins, now or with those of other runs, or defers
// it, and checks the entries of its first transition.
func (s *Store) start(t *store.Transition) (deferred bool, v store.Verdict, err error) {
	q := &s.c.starts
	if !q.alone && mayDefer(t) {
		q.deferred = append(q.deferred, t)
		return true, v, nil
	}
	if err := s.begin(); err != nil {
		return false, v, err
	}
	s.c.rows++
	row := newRun{key: t.Key, head: t.Head, last: t.Last}
	if !q.alone && t.Compaction == nil && t.Suspension == nil { // those change the row
		if len(t.Entries) > 0 {
			if v, err := s.admitEntries(t); err != nil || v.Err != nil {
				return false, v, err
			}
		}
		return false, v, s.queueRow(row)
	}
	started, err := s.writeRow(row)
	switch {
	case err != nil:
		return false, v, err
	case started == 0:
		return false, store.Refuse(fault.Conflict, "run %s has begun already", t.Run), nil
	}
	if len(t.Entries) > 0 {
		if v, err = s.admitEntries(t); err == nil && v.Err != nil {
			_, err = s.st.dropRun.Exec(t.Account, t.Run)
		}
	}
	return false, v, err
}

// queueOf returns the queue for a row, which is about to be written.
func (q *starts) queueOf(r newRun) *rowQueue {
	if last, known := q.last[r.key.Account]; known && r.key.Run > last {
		q.last[r.key.Account] = r.key.Run
	}
	if r.at.first != nil {
		return &q.placed
	}
	return &q.plain
}

// queueRow writes a row with those of other runs: of runs that begin when they are many,
// of others at the end, so that they can be sorted.
func (s *Store) queueRow(r newRun) error {
	q := s.c.starts.queueOf(r)
	q.waiting = append(q.waiting, r)
	if q.ended == nil && len(q.waiting) == rowsAtOnce {
		return s.writeQueue(q)
	}
	return nil
}

// writeRow writes one row, and returns 0 if it is there already.
func (s *Store) writeRow(r newRun) (int64, error) {
	q := &s.c.starts
	return q.queueOf(r).one.Exec(q.columns(nil, &r)...)
}

// writeStarts writes the rows that wait.
func (s *Store) writeStarts() error {
	return cmp.Or(s.writeQueue(&s.c.starts.plain), s.writeQueue(&s.c.starts.placed))
}

func (s *Store) writeQueue(q *rowQueue) error {
	if q.ended != nil && len(q.waiting) >= rowsAtOnce {
		slices.SortFunc(q.waiting, compareRows)
	}
	starts := &s.c.starts
	for rest := q.waiting; len(rest) > 0; {
		st, n := q.many, rowsAtOnce
		if len(rest) < rowsAtOnce {
			st, n = q.one, 1
		}
		starts.args = starts.args[:0]
		if n > 1 && q.ended != nil && alike(rest[:n]) {
			st, starts.args = q.ended, starts.endedColumns(starts.args, rest[:n])
		} else {
			for i := range n {
				starts.args = starts.columns(starts.args, &rest[i])
			}
		}
		started, err := st.Exec(starts.args...)
		if err != nil {
			return err
		}
		starts.taken = starts.taken || started != int64(n)
		rest = rest[n:]
	}
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return nil
}

// compareRows compares rows by the columns that those of child runs often share, then by
// their parents and ids, as the index of trees and the table do.
func compareRows(a, b newRun) int {
	return cmp.Or(cmp.Compare(a.key.Account, b.key.Account), cmp.Compare(a.head.Root, b.head.Root), cmp.Compare(a.head.PlanHash, b.head.PlanHash),
		cmp.Compare(a.head.Status, b.head.Status), cmp.Compare(a.at.pack, b.at.pack), cmp.Compare(a.head.Parent, b.head.Parent), cmp.Compare(a.key.Run, b.key.Run))
}

// alike reports whether the statement endedRuns can write rows: they share columns, and
// nothing went wrong in these runs.
func alike(rows []newRun) bool {
	first := rows[0].head
	for i := range rows {
		h := rows[i].head
		if rows[i].key.Account != rows[0].key.Account || rows[i].at.pack != rows[0].at.pack || h.Root != first.Root ||
			h.PlanHash != first.PlanHash || h.Recipe != first.Recipe || h.Version != first.Version || h.Status != first.Status ||
			h.Code != "" || h.Message != "" || h.Failures || h.Quarantine != "" || h.Owes {
			return false
		}
	}
	return true
}

// endedColumns appends the arguments of the statement endedRuns.
func (q *starts) endedColumns(args []driver.Value, rows []newRun) []driver.Value {
	first := rows[0].head
	args = append(args, q.text(0, rows[0].key.Account), q.text(1, first.Recipe), q.text(2, first.Version), q.text(3, first.PlanHash),
		q.text(4, first.Status), q.text(5, first.Root), rows[0].at.first)
	for i := range rows {
		r := &rows[i]
		h, last := r.head, int64(r.last)
		k := format.NewRowSum(r.key)
		args = append(args, r.key.Run, q.text(6, h.Parent), h.Created, h.Updated, h.Ended, h.Used, last, r.at.reach, k.Start(h), k.Head(h), k.Reach(last), r.at.sum)
		k.Done()
	}
	return args
}

// text returns s as an argument. Most runs of a commit have the account, the recipe and the
// tree of the one before, and those need not be copied to the heap again.
func (q *starts) text(i int, s string) driver.Value {
	if was, ok := q.texts[i].(string); !ok || was != s {
		q.texts[i] = s
	}
	return q.texts[i]
}

// columns appends the columns of a row, with its checksums. The run is not suspended,
// which is the default of those columns and their checksum, as is that its events are in no
// pack.
func (q *starts) columns(args []driver.Value, r *newRun) []driver.Value {
	h, last := r.head, int64(r.last)
	k := format.NewRowSum(r.key)
	defer k.Done()
	args = append(args,
		q.text(0, r.key.Account), r.key.Run, q.text(1, h.Recipe), q.text(2, h.Version), q.text(3, h.PlanHash), q.text(4, h.Status), h.Created, h.Updated, h.Ended,
		string(h.Code), h.Message, h.Used, format.Flag(h.Failures), h.Quarantine, format.Flag(h.Owes), last, q.text(5, h.Root), q.text(6, h.Parent),
		k.Start(h), k.Head(h), k.Reach(last))
	if r.at.first != nil {
		args = append(args, r.at.first, r.at.reach, r.at.sum)
	}
	return args
}
