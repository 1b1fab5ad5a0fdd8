// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
)

// startsAtOnce is how many rows of runs one statement inserts. It costs two thirds of what
// as many statements cost: the ids of runs ascend, so that each row of a statement is put
// behind the one before it without a search.
const startsAtOnce = 16

// startsText returns the text startRun for several runs.
func startsText(c *catalog.Texts) string {
	text := c.Text("startRun")
	_, row, _ := strings.Cut(text, "VALUES ")
	row, _, _ = strings.Cut(row, " ON CONFLICT")
	return strings.Replace(text, row, row+strings.Repeat(", "+row, startsAtOnce-1), 1)
}

// starts are the runs that begin in the commit under way whose rows are not written yet.
type starts struct {
	waiting []*store.Transition
	args    []driver.Value
	// taken reports that one of the rows was there already, and alone that each is
	// written by a statement of its own, to find out which.
	taken, alone bool
}

// forget releases what the starts of a commit point to.
func (q *starts) forget() {
	clear(q.waiting)
	clear(q.args)
	q.waiting, q.args = q.waiting[:0], q.args[:0]
	q.taken, q.alone = false, false
}

// start writes the row of a run that begins, now or with those of other runs, and checks
// the entries of its first transition.
func (s *Store) start(t *store.Transition) (v store.Verdict, err error) {
	if err := s.begin(); err != nil {
		return v, err
	}
	s.c.rows++
	if q := &s.c.starts; !q.alone && t.Compaction == nil && t.Suspension == nil { // those change the row
		if len(t.Entries) > 0 {
			if v, err := s.admitEntries(t); err != nil || v.Err != nil {
				return v, err
			}
		}
		q.waiting = append(q.waiting, t)
		if len(q.waiting) == startsAtOnce {
			err = s.writeStarts()
		}
		return v, err
	}
	started, err := s.st.startRun.exec(startRow(nil, t)...)
	switch {
	case err != nil:
		return v, err
	case started == 0:
		return store.Refuse(fault.Conflict, "run %s has begun already", t.Run), nil
	}
	if len(t.Entries) > 0 {
		if v, err = s.admitEntries(t); err == nil && v.Err != nil {
			_, err = s.st.dropRun.exec(t.Account, t.Run)
		}
	}
	return v, err
}

// writeStarts writes the rows that wait.
func (s *Store) writeStarts() error {
	q := &s.c.starts
	st, n := s.st.startRuns, startsAtOnce
	if len(q.waiting) < startsAtOnce {
		st, n = s.st.startRun, 1
	}
	for from := 0; from < len(q.waiting); from += n {
		q.args = q.args[:0]
		for _, t := range q.waiting[from : from+n] {
			q.args = startRow(q.args, t)
		}
		started, err := st.exec(q.args...)
		if err != nil {
			return err
		}
		q.taken = q.taken || started != int64(n)
	}
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return nil
}

// startRow appends the columns of the row of a new run, with its checksums. The run is not
// suspended and its events are in no pack, which is the default of those columns and
// their checksums.
func startRow(args []driver.Value, t *store.Transition) []driver.Value {
	k := format.NewRowSum(t.Key)
	defer k.Done()
	h, last := t.Head, int64(t.Last)
	return append(args,
		t.Account, t.Run, h.Recipe, h.Version, h.PlanHash, h.Status, h.Created, h.Updated, h.Ended,
		string(h.Code), h.Message, h.Used, format.Flag(h.Failures), h.Quarantine, format.Flag(h.Owes), last, h.Root, h.Parent,
		k.Start(h), k.Head(h), k.Reach(last))
}
