// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// maxRow bounds a journal row. A larger batch takes several rows in one transaction; a
// single transition is never split.
const maxRow = 4 << 20

// Bounds of what one commit deletes beside its own work.
const (
	trimRows  = 256
	trimBytes = 1 << 20
)

// The memory that is kept for the next commit: for so many runs, and so many bytes of a
// journal row.
const (
	keptRuns  = 1024
	keptBytes = 256 << 10
)

// A commit is the state of one call of Commit. It is part of the Store so that its
// slices are reused.
type commit struct {
	mark    uint64
	inTx    bool
	touched []*entry
	// accepted are the transitions whose events go to the journal, and places where
	// each entry keeps the ref to fill in.
	accepted []*store.Transition
	places   []placed
	plans    []string
	fresh    map[store.Key]*entry // entries that are not in the index yet
	starts   starts
	packing  packing
	buf      []byte
	// accounts have entries of this commit, in the order of their first.
	accounts  []*cachedAccount
	entryRows format.Rows[format.Entries, *format.Entries]
	fed       []store.Transition // the changes, as records of the journal
	changes   []store.Change     // of one transition
	rows      int64              // written outside the journal (an estimate)
	bytes     int64              // in those rows
}

type placed struct {
	e    *entry // nil = of changes
	i    int    // in e.added, or in fed
	head bool   // the record holds the run's head
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	encoded := encodeCompactions(batch)
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	verdicts, err := s.commitLocked(batch, encoded)
	if err == nil {
		err = failpoint.Hit(failpoint.CommitAfter)
	}
	if err != nil {
		if s.c.inTx {
			// A failed COMMIT has usually rolled back by itself.
			_, _ = s.st.rollback.Exec()
		}
		clear(s.accounts) // some may have entries that were not written
		s.feed.Discard()
		s.records.Discard()
		s.marks.Forget()
		return nil, s.fail(err)
	}
	return verdicts, nil
}

func (s *Store) commitLocked(batch []store.Transition, encoded []encodedCompaction) ([]store.Verdict, error) {
	if err := failpoint.Hit(failpoint.CommitBefore); err != nil {
		return nil, err
	}
	c := &s.c
	c.inTx = false
	c.reset()
	defer c.forget()
	s.trimAccounts()
	s.feed.Trim(maxCached)
	s.records.Begin()

	verdicts := make([]store.Verdict, len(batch))
	written, again, err := s.writeTransitions(batch, encoded, verdicts)
	for again && err == nil {
		if err = s.takeBack(); err == nil {
			written, again, err = s.writeTransitions(batch, encoded, verdicts)
		}
	}
	if err != nil {
		return nil, err
	}
	if written == 0 && !c.inTx {
		return verdicts, nil
	}
	if err := s.writePack(); err != nil {
		return nil, err
	}
	if err := s.writeEntries(); err != nil {
		return nil, err
	}
	if err := s.writeChanges(); err != nil {
		return nil, err
	}
	rows, trim, err := s.writeRows()
	if err == nil && c.inTx {
		err = failpoint.Hit(failpoint.CommitMiddle)
	}
	if err != nil {
		return nil, err
	}
	if c.inTx {
		s.x.Lock()
		s.x.publishBegin(c.touched)
		s.x.Unlock()
		_, err = s.st.commit.Exec()
	}
	s.x.Lock()
	s.x.publishEnd(c.touched)
	if err != nil {
		s.x.Unlock()
		return nil, err
	}
	for _, r := range rows {
		s.x.addRow(r.id, r.size)
	}
	s.publishChanges()
	for _, e := range c.touched {
		s.x.settle(e)
	}
	if n := len(rows); n > 0 {
		c.buf = s.x.keepRecent(rows[n-1].id, c.buf)
	}
	s.x.trimmed(trim)
	s.x.commits++
	s.x.transitions += written
	s.x.Unlock()
	for _, hash := range c.plans {
		s.plans[hash] = struct{}{}
	}
	s.nudge(rows)
	if s.x.endedCount >= 2*flushAfter { // upkeep is behind
		_ = s.flush(&s.x.endedRuns) // this batch is durable; a failed store tells the next one
	}
	return verdicts, nil
}

// reset makes c ready for the transitions of a batch.
func (c *commit) reset() {
	c.mark++
	c.touched, c.accepted, c.places, c.plans = c.touched[:0], c.accepted[:0], c.places[:0], c.plans[:0]
	c.packing.nextPack()
	c.rows, c.bytes, c.fed = 0, 0, nil
}

// writeTransitions checks and writes the transitions whose group has not been refused, and
// counts those that it has written. again reports that the commit is to be taken back: a
// group was refused of which a part is written, or one of the runs had begun already.
func (s *Store) writeTransitions(batch []store.Transition, encoded []encodedCompaction, verdicts []store.Verdict) (written int64, again bool, err error) {
	for i := range batch {
		t := &batch[i]
		if store.InRefusedGroup(t, &verdicts[i]) {
			continue
		}
		var compaction encodedCompaction
		if encoded != nil {
			compaction = encoded[i]
		}
		if verdicts[i], err = s.writeTransition(t, compaction); err != nil {
			return 0, false, err
		}
		switch {
		case verdicts[i].Err == nil:
			written++
			err := s.addChanges(t)
			if err == nil {
				err = s.addRecords(t)
			}
			if err == nil && t.Group != "" {
				err = failpoint.Hit(failpoint.GroupMiddle)
			}
			if err != nil {
				return 0, false, err
			}
		case t.Group != "" && store.RefuseGroup(batch, verdicts, i):
			return 0, true, nil
		}
	}
	s.c.packing.encodePack()
	if err = s.checkDeferred(); err == nil {
		err = s.writeStarts()
	}
	return written, s.c.starts.taken, err
}

// takeBack undoes what the commit under way has done.
func (s *Store) takeBack() error {
	if s.c.inTx {
		if _, err := s.st.rollback.Exec(); err != nil {
			return err
		}
		s.c.inTx = false
	}
	clear(s.accounts) // some have entries that are not there any more
	s.feed.Discard()
	s.records.Discard()
	s.marks.Forget()
	clear(s.c.fresh)
	s.c.forgetEntries()
	alone := s.c.starts.alone || s.c.starts.taken
	s.c.reset()
	s.c.starts.forget()
	s.c.starts.alone = alone
	return nil
}

// forget releases what the commit points to, and the memory that a large one took: the
// batch belongs to the caller again, and the next commit may be hours away.
func (c *commit) forget() {
	if max(len(c.touched), len(c.accepted)) > keptRuns {
		c.touched, c.accepted, c.places = nil, nil, nil
	}
	clear(c.touched)
	clear(c.accepted)
	clear(c.places)
	if len(c.fresh) > keptRuns { // the time to clear a map grows with the largest size that it had
		c.fresh = map[store.Key]*entry{}
	}
	clear(c.fresh)
	c.starts.forget()
	c.forgetEntries()
	if format.Roomy(c.buf) {
		c.buf = nil
	}
}

// begin opens the transaction before the first statement that needs one. A common batch
// is one insert and needs none.
func (s *Store) begin() error {
	if s.c.inTx {
		return nil
	}
	if _, err := s.st.begin.Exec(); err != nil {
		return err
	}
	s.c.inTx = true
	return nil
}

// known returns the entry of a run if that is in memory, else nil.
func (s *Store) known(key store.Key) *entry {
	if e := s.x.runs[key]; e != nil {
		return e
	}
	return s.c.fresh[key]
}

// find reads the entry of a run from the tables; nil = no such run.
func (s *Store) find(key store.Key) (*entry, error) {
	var r foundRun
	found, err := r.find(s.st.findRun, key)
	if err != nil || !found {
		return nil, err
	}
	e := &entry{key: key, suspended: r.suspended, settled: r.ended != 0 && !r.owes, open: r.ended == 0 && !r.owes, chunked: r.compacted.last(), last: r.compacted.last()}
	if e.damage = r.compacted.check(key); e.damage == nil && r.compacted.reach > e.last {
		e.damage = lostEvents(key, e.last+1, r.compacted.reach)
	}
	s.c.fresh[key] = e
	return e, nil
}

func (s *Store) touch(e *entry) {
	if e.mark == s.c.mark {
		return
	}
	e.mark = s.c.mark
	e.newLast, e.newChunked, e.newSuspended, e.newSettled, e.newOpen, e.newDeferred = e.last, e.chunked, e.suspended, e.settled, e.open, e.deferred
	e.newEnd, e.newHeadAt = e.end, e.headAt
	e.added = e.added[:0]
	s.c.touched = append(s.c.touched, e)
}

// writeTransition checks the guards of a transition and writes all of it except its
// events. A refused transition has written nothing.
func (s *Store) writeTransition(t *store.Transition, compaction encodedCompaction) (store.Verdict, error) {
	if err := store.Fenced(t.Epoch, s.epoch); err != nil {
		return store.Verdict{Err: err}, nil
	}
	if t.Run == "" {
		if v := store.Admit(t, nil); v.Err != nil {
			return v, nil
		}
		return s.admitEntries(t)
	}
	e := s.known(t.Key)
	// A plain start does not need to read the table: its insert fails if the run
	// exists.
	if e == nil && (t.First != 1 || t.Idempotency != nil) {
		var err error
		if e, err = s.find(t.Key); err != nil {
			return store.Verdict{}, err
		}
	}
	var standing store.Standing
	if e != nil {
		if !e.indexed || e.mark == s.c.mark { // its row may be one of those that wait
			if err := s.writeStarts(); err != nil {
				return store.Verdict{}, err
			}
		}
		s.touch(e)
		if e.newDeferred && e.newSettled { // what follows is about a run that is compacted
			if !e.settled { // it has ended in this commit
				s.c.starts.taken = true
				return store.Verdict{}, nil
			}
			row, err := s.deferredRun(e)
			if err == nil {
				err = s.writeNow(e, row)
			}
			if err != nil {
				return store.Verdict{}, err
			}
		}
		standing = e
	}
	if v := store.Admit(t, standing); v.Err != nil {
		return v, nil
	}
	if t.Idempotency != nil {
		if v, err := s.keyIsFree(t); err != nil || v.Err != nil {
			return v, err
		}
	}
	if e == nil {
		deferred, v, err := s.start(t)
		if err != nil || v.Err != nil {
			return v, err
		}
		e = &entry{key: t.Key}
		s.c.fresh[t.Key] = e
		s.touch(e)
		if err := s.marks.Start(t.Key, t.Head); err != nil {
			return store.Verdict{}, err
		}
		if e.newDeferred = deferred; deferred {
			e.startSum = format.StartSum(t.Key, t.Head)
		}
		e.setHead(t.Head)
		at, err := s.pack(t)
		if err != nil {
			return store.Verdict{}, err
		}
		return store.Verdict{}, s.writeRest(t, e, compaction, at, true)
	}
	if len(t.Entries) > 0 {
		if v, err := s.admitEntries(t); err != nil || v.Err != nil {
			return v, err
		}
	}
	if e.newDeferred {
		return store.Verdict{}, s.writeDeferred(t, e, compaction)
	}
	at, err := s.pack(t)
	if err != nil {
		return store.Verdict{}, err
	}
	if t.Head != nil {
		if err := s.writeHead(e, t.Head, max(e.newLast, t.Last), at); err != nil {
			return store.Verdict{}, err
		}
		if t.Head.Deleted != 0 {
			if err := s.hide(t); err != nil {
				return store.Verdict{}, err
			}
		}
		e.setHead(t.Head)
	}
	return store.Verdict{}, s.writeRest(t, e, compaction, at, t.Head == nil)
}

// writeRest writes the rows of a transition other than its head, and records its
// events. place reports that the run's row does not record the compaction's location
// yet.
func (s *Store) writeRest(t *store.Transition, e *entry, compaction encodedCompaction, at location, place bool) error {
	for _, p := range t.Plans {
		if _, known := s.plans[p.Key]; known {
			continue
		}
		if err := failpoint.Hit(failpoint.PlanWrite); err != nil {
			return err
		}
		if err := s.write(s.st.putPlan, p.Key, p.Data, format.Sum(p.Key, p.Data)); err != nil {
			return err
		}
		s.c.plans = append(s.c.plans, p.Key)
		s.c.bytes += int64(len(p.Data))
	}
	if id := t.Idempotency; id != nil {
		if err := s.write(s.st.putKey, t.Account, id.Key, id.BodyHash, t.Run, id.Until,
			format.Sum(t.Account, id.Key, id.BodyHash, t.Run, id.Until)); err != nil {
			return err
		}
	}
	for _, hash := range t.Files {
		if err := s.write(s.st.putName, t.Account, hash, t.Run); err != nil {
			return err
		}
	}
	if t.Last != 0 {
		e.newLast = t.Last
		e.added = append(e.added, ref{first: t.First, last: t.Last})
		s.c.accepted = append(s.c.accepted, t)
		head := e.newDeferred && t.Head != nil
		if head {
			e.newHeadAt = t.First
		}
		s.c.places = append(s.c.places, placed{e, len(e.added) - 1, head})
		if e.newSuspended && t.Suspension == nil {
			if err := s.write(s.st.wake, t.Account, t.Run, format.SuspendSum(t.Key, 0, 0)); err != nil {
				return err
			}
			e.newSuspended = false
		}
	}
	if f := t.Compaction; f != nil && !e.newDeferred {
		if err := failpoint.Hit(failpoint.CompactionWrite); err != nil {
			return err
		}
		if err := s.writeCompaction(t, compaction, at); err != nil {
			return err
		}
		e.newChunked = f.Last
	}
	if p := t.Suspension; p != nil {
		if err := failpoint.Hit(failpoint.SuspendWrite); err != nil {
			return err
		}
		e.newSuspended = true
		return s.write(s.st.suspend, t.Account, t.Run, p.WakeAt, at.first, at.reach, format.SuspendSum(t.Key, 1, p.WakeAt), at.sum,
			int64(e.newLast), format.ReachSum(t.Key, int64(e.newLast)))
	}
	// Events that leave the journal could be lost unnoticed unless the run's row
	// records the number of the last one.
	if place && t.Compaction != nil {
		return s.write(s.st.place, t.Account, t.Run, at.first, at.reach, at.sum, int64(e.newLast), format.ReachSum(t.Key, int64(e.newLast)))
	}
	return nil
}

// writeCompaction writes the rows of a compaction, if it needs any of its own.
func (s *Store) writeCompaction(t *store.Transition, compaction encodedCompaction, at location) error {
	f := t.Compaction
	if f.State != nil && at.pack != 0 {
		if err := failpoint.Hit(failpoint.SnapshotWrite); err != nil {
			return err
		}
	}
	switch {
	case at.first != nil:
		return nil
	case at.pack != 0:
		return s.write(s.st.putPiece, t.Account, t.Run, int64(f.First), int64(f.Last), at.pack, format.PieceSum(t.Key, f.First, f.Last, at.pack))
	}
	s.c.bytes += int64(len(compaction.chunk) + len(compaction.state))
	err := s.write(s.st.putChunk, t.Account, t.Run, int64(f.First), int64(f.Last), compaction.chunk, format.ChunkSum(t.Key, f.First, f.Last))
	if err == nil && compaction.state != nil {
		err = failpoint.Hit(failpoint.SnapshotWrite)
	}
	if err != nil || compaction.state == nil {
		return err
	}
	return s.write(s.st.putSnapshot, t.Account, t.Run, int64(f.Last), int64(f.Format), compaction.state,
		format.StateSum(t.Key, f.Last, f.Format))
}

// write runs a statement inside the commit's transaction.
func (s *Store) write(st *conn.Stmt, args ...driver.Value) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.c.rows++
	_, err := st.Exec(args...)
	return err
}

func (s *Store) keyIsFree(t *store.Transition) (store.Verdict, error) {
	var v [4]driver.Value // the columns of findKey
	found, err := s.st.findKey.Row(v[:], t.Account, t.Idempotency.Key)
	if err != nil {
		return store.Verdict{}, err
	}
	if !found {
		return store.Verdict{Err: t.Idempotency.Refusal}, nil
	}
	if v[3] != format.Sum(t.Account, t.Idempotency.Key, v[1], v[0], v[2]) {
		return store.Verdict{Err: damagedRow(fmt.Sprintf("idempotency key %q", t.Idempotency.Key), "run")}, nil
	}
	run, _ := v[0].(string)
	hash, _ := v[1].(string)
	return t.Idempotency.Taken(run, hash), nil
}

// Ends implements store.Standing, including the commit under way.
func (e *entry) Ends() (last, chunked uint64) { return e.newLast, e.newChunked }

// Boundary implements store.Standing.
func (e *entry) Boundary(event uint64) bool {
	for _, refs := range [][]ref{e.refs, e.added} {
		for i := range refs {
			if refs[i].last == event {
				return true
			}
		}
	}
	return false
}

// Damage implements store.Standing.
func (e *entry) Damage() error { return e.damage }

type newRow struct{ id, size int64 }

// writeRows writes the events of the accepted transitions. It also deletes some dead
// rows if there is a transaction anyway or if they are many.
func (s *Store) writeRows() (rows []newRow, trim []int64, err error) {
	c := &s.c
	s.dropCompacted()
	for i := range c.fed {
		c.accepted, c.places = append(c.accepted, &c.fed[i]), append(c.places, placed{i: i})
	}
	var spans []span
	if c.inTx || len(s.x.dead) > 4*trimRows {
		spans, trim = s.x.trimmable(trimRows, trimBytes)
	}
	size, total := 0, 0
	for i, t := range c.accepted {
		total += format.RecordSize(t, c.places[i].head)
	}
	if len(spans) > 0 || total > maxRow {
		if err := s.begin(); err != nil {
			return nil, nil, err
		}
	}
	c.buf = c.buf[:0]
	for from := 0; from < len(c.accepted); {
		to := from
		for size = format.RowHead; to < len(c.accepted); to++ {
			n := format.RecordSize(c.accepted[to], c.places[to].head)
			if to > from && size+n > maxRow {
				break
			}
			size += n
		}
		id := s.x.nextRow + int64(len(rows))
		places := c.places[from:to]
		c.buf = format.AppendRow(slices.Grow(c.buf[:0], size), c.accepted[from:to], func(i int) bool { return places[i].head }, func(i int, off, n uint32) {
			if places[i].e == nil {
				s.feed.Place(places[i].i, id)
				return
			}
			r := &places[i].e.added[places[i].i]
			r.row, r.off, r.n = id, off, n
		})
		if _, err := s.st.insertRow.Exec(id, c.buf); err != nil {
			return nil, nil, err
		}
		rows = append(rows, newRow{id, int64(len(c.buf))})
		from = to
	}
	for _, sp := range spans {
		if _, err := s.st.deleteRows.Exec(sp.from, sp.to); err != nil {
			return nil, nil, err
		}
	}
	return rows, trim, nil
}
