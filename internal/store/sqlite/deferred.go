// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// The row of a child run is deferred: the commits that start, change and end the run write
// only its events, with a new head in their record, which costs as much as a step of another
// run. The row, its entries in the indexes and the pack of the events are written later: by
// upkeep, many at once; when the run changes in another way; and before rows are listed.
//
// All events of a deferred run are in the journal, so the run is in the index.

const (
	// flushAfter is how many deferred runs that have ended wake upkeep. It also writes them,
	// as long as they fill a transaction, when it is awake for something else.
	flushAfter = 4096
	// flushRows is how many rows one transaction writes, because commits wait for it.
	flushRows = 256
	// knownAccounts bounds starts.last.
	knownAccounts = 1024
)

// An endedRun is a deferred run that has ended: it is as settled and compacted as if it had
// been written.
type endedRun struct {
	head   store.Head
	frames []byte // all events
}

// mayDefer reports whether the row of a run that begins can be deferred.
func mayDefer(t *store.Transition) bool {
	h := t.Head
	return h.Parent != "" && t.Last != 0 && t.Compaction == nil && t.Suspension == nil && len(t.Entries) == 0 && t.Idempotency == nil &&
		h.Ended == 0 && !h.Owes && h.Quarantine == "" && h.Labels == ""
}

// checkDeferred finds out whether one of the runs that begin without a row has one: then
// it has begun already. Ids ascend, so that almost all are behind the last row.
func (s *Store) checkDeferred() error {
	q := &s.c.starts
	for _, t := range q.deferred {
		last, known := q.last[t.Account]
		if !known {
			var v [1]driver.Value
			if _, err := s.st.lastRun.Row(v[:], t.Account); err != nil {
				return err
			}
			if last, _ = v[0].(string); len(q.last) >= knownAccounts {
				clear(q.last)
			}
			q.last[t.Account] = last
		}
		if t.Run <= last && !q.taken {
			var r foundRun
			var err error
			if q.taken, err = r.find(s.st.findRun, t.Key); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeDeferred writes a transition of a run whose row is deferred, and which has not
// ended.
func (s *Store) writeDeferred(t *store.Transition, e *entry, compaction encodedCompaction) error {
	switch {
	case !e.deferred: // it has begun in this commit
		s.c.starts.taken = true
		return nil
	case t.Head == nil && t.Compaction == nil && t.Suspension == nil:
		return s.writeRest(t, e, compaction, location{}, false)
	case s.deferEnd(t, e), s.deferHead(t, e):
		e.setHead(t.Head)
		return s.writeRest(t, e, compaction, location{}, false)
	}
	if t.Head == nil && e.newHeadAt != e.headAt { // its head is in a record of this commit
		s.c.starts.taken = true
		return nil
	}
	at, err := s.pack(t)
	if err != nil {
		return err
	}
	row := newRun{key: e.key, head: t.Head, last: max(e.newLast, t.Last), at: at}
	if t.Head == nil || format.StartSum(e.key, t.Head) != e.startSum {
		head, err := s.deferredHead(context.Background(), e.key, e.refs, e.headAt)
		if err != nil {
			return err
		}
		row.keepStart(&head)
	}
	if t.Head == nil {
		row.last, row.at = e.newLast, location{}
	} else {
		e.setHead(t.Head)
	}
	if err := s.writeNow(e, row); err != nil {
		return err
	}
	return s.writeRest(t, e, compaction, at, t.Head == nil)
}

// deferEnd notes that a run whose row is deferred has ended, if the row can go on being
// deferred.
func (s *Store) deferEnd(t *store.Transition, e *entry) bool {
	h, f := t.Head, t.Compaction
	if s.c.starts.alone || h == nil || !h.Settled() || h.Quarantine != "" || t.Suspension != nil || t.Last == 0 || e.damage != nil ||
		f == nil || f.First != 1 || f.Last != t.Last || f.State != nil || !format.Small(f) || format.StartSum(e.key, h) != e.startSum {
		return false
	}
	e.newEnd = &endedRun{*h, bytes.Clone(f.Chunk)}
	return true
}

// deferHead reports whether the new head of a run whose row is deferred can be in the
// record of its events.
func (s *Store) deferHead(t *store.Transition, e *entry) bool {
	h := t.Head
	return !s.c.starts.alone && h != nil && t.Last != 0 && t.Compaction == nil && t.Suspension == nil && e.damage == nil &&
		h.Ended == 0 && !h.Owes && h.Quarantine == "" && format.StartSum(e.key, h) == e.startSum
}

// writeNow writes the row of a deferred run before something else of it is written.
func (s *Store) writeNow(e *entry, row newRun) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.c.rows++
	e.newDeferred, e.newEnd = false, nil
	written, err := s.writeRow(row)
	if err == nil && written == 0 {
		err = damagedHead(e.key, "head")
	}
	return err
}

// deferredRun returns the row of a deferred run. If the run has ended its events are packed.
func (s *Store) deferredRun(e *entry) (row newRun, err error) {
	if !e.settled {
		head, err := s.deferredHead(context.Background(), e.key, e.refs, e.headAt)
		return newRun{key: e.key, head: &head, last: e.last}, err
	}
	end := e.end
	if end == nil { // it had ended when the store was opened
		if end, err = s.readEnded(e); err != nil {
			return row, err
		}
	}
	at, err := s.pack(&store.Transition{Key: e.key, Compaction: &store.Compaction{First: 1, Last: e.last, Chunk: end.frames}})
	e.newChunked = e.last
	return newRun{key: e.key, head: &end.head, last: e.last, at: at}, err
}

// readEnded reads a deferred run that has ended from the journal.
func (s *Store) readEnded(e *entry) (*endedRun, error) {
	head, err := s.deferredHead(context.Background(), e.key, e.refs, e.headAt)
	if err != nil {
		return nil, err
	}
	t := tail{s: s, key: e.key}
	if err := t.journal(context.Background(), e.refs); err != nil {
		return nil, err
	}
	return &endedRun{head, t.frames}, nil
}

// flush writes the rows of the first deferred runs of a list and takes them out of it. The
// caller holds w.
func (s *Store) flush(list *[]*entry) error {
	c := &s.c
	c.reset()
	defer c.forget()
	some, seen := make([]*entry, 0, flushRows), 0
	for ; seen < len(*list) && len(some) < flushRows; seen++ {
		if e := (*list)[seen]; e.deferred && !e.unreadable {
			some = append(some, e)
		}
	}
	if len(some) == 0 {
		*list = nil
		return nil
	}
	err := failpoint.Hit(failpoint.DeferredWrite)
	if err == nil {
		err = s.inTx(func() error { return s.insertDeferred(some) })
	}
	c.inTx = false
	if err != nil {
		for _, e := range some {
			e.unreadable = false
		}
		return s.fail(err)
	}
	*list = (*list)[seen:]
	s.x.Lock()
	for _, e := range some {
		if e.unreadable {
			s.x.uncount(e)
		} else {
			s.x.settle(e)
		}
	}
	s.x.Unlock()
	s.countPages(int64(len(some)/8 + 4))
	return nil
}

func (s *Store) insertDeferred(some []*entry) error {
	c := &s.c
	c.inTx = true
	for _, e := range some {
		s.touch(e)
		e.newDeferred, e.newEnd = false, nil
		row, err := s.deferredRun(e)
		switch {
		case errors.Is(err, fault.StoreCorrupt): // a check names it; the others have rows
			e.unreadable = true
			continue
		case err == nil:
			err = s.queueRow(row)
		}
		if err != nil {
			return err
		}
	}
	c.packing.encodePack()
	if err := s.writeStarts(); err != nil {
		return err
	}
	if c.starts.taken {
		return fault.New(fault.StoreCorrupt, "a run of account %q has a row that was not written", some[0].key.Account)
	}
	return s.writePack()
}

// keepStart takes what the start of a run has fixed from its first head.
func (r *newRun) keepStart(first *store.Head) {
	if r.head == nil {
		r.head = first
		return
	}
	h := *r.head
	h.Recipe, h.Version, h.PlanHash, h.Created, h.Root, h.Parent = first.Recipe, first.Version, first.PlanHash, first.Created, first.Root, first.Parent
	r.head = &h
}

// deferredHead reads the head of a run whose row is deferred. It is in the record that
// begins with event at.
func (s *Store) deferredHead(ctx context.Context, key store.Key, refs []ref, at uint64) (store.Head, error) {
	n, found := slices.BinarySearchFunc(refs, at, func(r ref, at uint64) int { return cmp.Compare(r.first, at) })
	if !found {
		return store.Head{}, errMoved
	}
	rec, err := s.record(ctx, key, refs[n])
	if err != nil {
		return store.Head{}, err
	}
	if !rec.HasHead() {
		return store.Head{}, damagedAt(key, refs[n].row, int(refs[n].off), "it does not hold the head of the run")
	}
	return rec.Head()
}

// headOfDeferred returns the head of a run if its row is deferred.
func (s *Store) headOfDeferred(ctx context.Context, key store.Key) (head store.Head, deferred bool, err error) {
	err = s.stable(ctx, key, func() (err error) {
		v := s.view(key)
		if deferred = v.deferred; deferred {
			head, err = s.headOf(ctx, &v)
		}
		return err
	})
	return head, deferred, err
}

// headOf returns the head of a view of a deferred run.
func (s *Store) headOf(ctx context.Context, v *view) (store.Head, error) {
	if v.end != nil {
		return v.end.head, nil
	}
	return s.deferredHead(ctx, v.e.key, v.refs, v.headAt)
}

// deferredRow is the row of a run as it would be if it were not deferred.
func (s *Store) deferredRow(ctx context.Context, v *view) (*savedRow, error) {
	head, err := s.headOf(ctx, v)
	if err != nil {
		return nil, err
	}
	k := format.NewRowSum(head.Key)
	defer k.Done()
	r := &savedRow{head: headRow{Head: head, failures: format.Flag(head.Failures), startSum: k.Start(&head), headSum: k.Head(&head)}}
	r.suspendSum, r.compacted.placeSum, r.compacted.reachSum = format.NoSum, format.NoSum, k.Reach(0)
	return r, nil
}

// deferRow notes that the row of a run is deferred.
func (x *index) deferRow(e *entry) {
	e.deferred = true
	x.deferredCount++
	x.deferredRuns = prune(x.deferredRuns, x.deferredCount)
	x.deferredRuns = append(x.deferredRuns, e)
}

// uncount notes that the row of a run is deferred no longer, or for ever.
func (x *index) uncount(e *entry) {
	x.deferredCount--
	if e.settled {
		x.endedCount--
	}
}

// noteEnded notes that a deferred run has ended.
func (x *index) noteEnded(e *entry) {
	x.endedCount++
	x.endedRuns = prune(x.endedRuns, x.endedCount)
	x.endedRuns = append(x.endedRuns, e)
}

// prune removes entries that are deferred no longer from a list, once they are most of it.
func prune(list []*entry, deferred int) []*entry {
	if len(list) <= keptRuns+2*deferred {
		return list
	}
	return slices.DeleteFunc(list, func(e *entry) bool { return !e.deferred })
}

// flushDeferred writes the rows that are deferred, before rows are listed.
func (s *Store) flushDeferred(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	s.x.RLock()
	n := s.x.deferredCount
	s.x.RUnlock()
	if n == 0 {
		return nil
	}
	// Commits go on meanwhile: what is deferred later stays behind.
	for ; n > 0; n -= flushRows {
		if err := s.lockToWrite(ctx); err != nil {
			return err
		}
		err := s.flush(&s.x.deferredRuns)
		s.w.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// flushLast is flushDeferred when the store is closed. After a full disk the next store
// finds the runs in the journal, and an earlier failure was reported.
func (s *Store) flushLast() error {
	s.w.Lock()
	over := s.failed != nil || !s.scanned.Load() || s.closed.Load()
	s.w.Unlock()
	if over {
		return nil
	}
	err := s.flushDeferred(context.Background())
	if err == nil {
		err = s.flushChanges(context.Background())
	}
	if errors.Is(err, fault.StoreFull) {
		return nil
	}
	return err
}
