// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// The index holds, for every run that is not suspended or settled or that has events
// only in the journal, where those events are. With it the cost of guards, reads and
// trimming does not depend on the journal's length: only the first use after opening
// scans the journal.
type index struct {
	runs map[store.Key]*entry
	rows map[int64]*rowInfo
	// The most entries that each map has held; see store.ShrinkMap.
	mostRuns, mostRows int
	// dead are rows without uncompacted events, to be deleted.
	dead      []int64
	deadBytes int64

	uncoveredBytes, uncoveredEvents int64
	// queue holds the runs with uncompacted events, oldest first, and stale entries
	// between them.
	queue []queued
	stale int
	// committing are runs without an entry that a commit under way changes; see
	// entry.committing.
	committing map[store.Key]struct{}
	// deferredRuns are those whose rows are deferred, oldest first, and some that were;
	// deferredCount is how many they are. endedRuns are those that have ended, likewise.
	deferredRuns, endedRuns   []*entry
	deferredCount, endedCount int
	// dropped counts the entries that were removed. A reader that found no entry can so
	// detect that one was added and removed meanwhile.
	dropped uint64

	// kept are rows that the scan has read, until Recover ends.
	kept map[int64][]byte
	// recent are the rows written last, as long as they have uncompacted records. Readers
	// that follow a run from its start read what has just been written; SQLite would
	// read the whole long row for a few bytes of it.
	recent [2]recentRow

	nextRow              int64
	rowCount, rowBytes   int64 // of the table, dead rows included
	commits, transitions int64
}

// An entry is what is known of one run. Only the writer changes it, holding the index's
// lock. The fields of the commit under way are used by the writer only.
type entry struct {
	key           store.Key
	last, chunked uint64
	refs          []ref // events after chunked, in order
	suspended     bool
	settled       bool
	open          bool   // its row is known to have ended = 0 and owes = 0
	deferred      bool   // it has no row yet
	headAt        uint64 // of a deferred run: the first event of the record with its head
	startSum      int64  // likewise, if its start is known: of what that has fixed
	unreadable    bool   // it is deferred, and stays so
	// end is that of a deferred run that has ended, unless it had when the store was opened.
	end     *endedRun
	damage  error // of a stored record that no chunk covers
	version uint64
	indexed bool // it is in the index
	// committing is set while a commit that changes the run's rows is under way. The tables
	// may then be ahead of the index, so readers of the run wait for the commit.
	committing bool

	// The values after the commit under way; valid when mark is that commit's.
	mark         uint64
	newLast      uint64
	newChunked   uint64
	newSuspended bool
	newSettled   bool
	newOpen      bool
	newDeferred  bool
	newHeadAt    uint64
	newEnd       *endedRun
	added        []ref
}

// A ref is the location of a record.
type ref struct {
	row         int64
	off, n      uint32
	first, last uint64
}

type rowInfo struct {
	size int64
	live int  // uncompacted records, and damaged ones, which stay
	kept bool // its changes are not in the table yet
}

const longestRecent = 1 << 20

type recentRow struct {
	id   int64 // 0 = none
	data []byte
}

// A queued entry is stale once the oldest uncompacted record of its run is no longer in
// row.
type queued struct {
	e   *entry
	row int64
}

func (x *index) init() {
	x.runs = map[store.Key]*entry{}
	x.rows = map[int64]*rowInfo{}
	x.committing = map[store.Key]struct{}{}
	x.nextRow = 1
}

func (x *index) addRow(id, size int64) *rowInfo {
	info := &rowInfo{size: size}
	x.rows[id] = info
	x.nextRow = max(x.nextRow, id+1)
	x.rowCount++
	x.rowBytes += size
	return info
}

// addRef records an uncompacted record of e.
func (x *index) addRef(e *entry, r ref) {
	x.rows[r.row].live++
	x.uncoveredBytes += int64(r.n)
	x.uncoveredEvents += int64(r.last - r.first + 1)
	if len(e.refs) == 0 {
		x.queue = append(x.queue, queued{e, r.row})
	}
	e.refs = append(e.refs, r)
}

// cover removes the refs up to event last.
func (x *index) cover(e *entry, last uint64) {
	n := 0
	for ; n < len(e.refs) && e.refs[n].last <= last; n++ {
		r := &e.refs[n]
		x.uncoveredBytes -= int64(r.n)
		x.uncoveredEvents -= int64(r.last - r.first + 1)
		x.release(r.row)
	}
	if n == 0 {
		return
	}
	x.stale++ // the run's entry in the queue
	defer x.dropStale()
	// Readers may hold the old slice, so cut its front and never write into it.
	e.refs = e.refs[n:]
	if len(e.refs) == 0 {
		e.refs = nil
		return
	}
	x.queue = append(x.queue, queued{e, e.refs[0].row})
}

func (x *index) release(row int64) {
	info := x.rows[row]
	info.live--
	if info.live == 0 {
		x.forgetRecent(row)
		x.markDead(row, info)
	}
}

// releaseChanges is release for the changes in a row.
func (x *index) releaseChanges(row int64) {
	info := x.rows[row]
	info.kept = false
	if info.live == 0 {
		x.markDead(row, info)
	}
}

// markDead records a row that is no longer needed, unless its changes are.
func (x *index) markDead(row int64, info *rowInfo) {
	if info.kept {
		return
	}
	x.dead = append(x.dead, row)
	x.deadBytes += info.size
}

// keepRecent keeps the newest row, unless it is very long, and returns a buffer for the
// next one.
func (x *index) keepRecent(id int64, data []byte) (room []byte) {
	if x.rows[id].live == 0 || len(data) > longestRecent {
		return data
	}
	if format.Roomy(data) {
		data = bytes.Clone(data)
	}
	room = x.recent[1].data
	x.recent[1], x.recent[0] = x.recent[0], recentRow{id, data}
	return room
}

// forgetRecent releases a row that keepRecent kept.
func (x *index) forgetRecent(id int64) {
	for i := range x.recent {
		if x.recent[i].id == id {
			x.recent[i] = recentRow{}
		}
	}
}

// recentRecord returns a copy of a record in a row that keepRecent kept, or nil.
func (x *index) recentRecord(r ref) []byte {
	for i := range x.recent {
		if x.recent[i].id == r.row {
			return bytes.Clone(x.recent[i].data[r.off : r.off+r.n])
		}
	}
	return nil
}

// publishBegin and publishEnd enclose the moment when a commit becomes visible.
func (x *index) publishBegin(touched []*entry) {
	for _, e := range touched {
		if e.indexed {
			e.committing = true
		} else {
			x.committing[e.key] = struct{}{}
		}
	}
}

func (x *index) publishEnd(touched []*entry) {
	for _, e := range touched {
		e.committing = false
	}
	clear(x.committing)
}

// settle makes permanent what the commit did to e.
func (x *index) settle(e *entry) {
	e.version++
	e.last, e.chunked = e.newLast, e.newChunked
	x.settleDeferred(e)
	e.suspended, e.settled, e.open = e.newSuspended, e.newSettled, e.newOpen
	for _, r := range e.added {
		if r.row != 0 {
			x.addRef(e, r)
		}
	}
	e.added = e.added[:0]
	x.cover(e, e.chunked)
	if (e.suspended || e.settled) && len(e.refs) == 0 && e.damage == nil {
		delete(x.runs, e.key)
		x.runs, x.mostRuns = store.ShrinkMap(x.runs, x.mostRuns)
		x.dropped++
		e.indexed = false
		return
	}
	x.add(e)
}

// settleDeferred is settle for what a deferred run has beside others.
func (x *index) settleDeferred(e *entry) {
	switch {
	case e.newDeferred && !e.deferred:
		x.deferRow(e)
	case e.deferred && !e.newDeferred:
		if e.deferred = false; !e.unreadable {
			x.uncount(e)
		}
	case e.deferred && e.newSettled && !e.settled && !e.unreadable:
		x.noteEnded(e)
	}
	e.end, e.headAt = e.newEnd, e.newHeadAt
}

// add puts e into the index unless it is there. The entry records that itself, because
// with many runs most lookups in the map miss the processor's caches.
func (x *index) add(e *entry) {
	if !e.indexed {
		x.runs[e.key], e.indexed = e, true
	}
}

// setHead records a head that was written for e.
func (e *entry) setHead(h *store.Head) {
	e.newSettled, e.newOpen = h.Settled(), h.Ended == 0 && !h.Owes
}

func (q queued) holds() bool { return len(q.e.refs) > 0 && q.e.refs[0].row == q.row }

// dropStale removes the stale entries of the queue once they are most of it, because
// they keep the entries of removed runs in memory.
func (x *index) dropStale() {
	if x.stale < keptRuns || x.stale < len(x.queue)/2 {
		return
	}
	left := make([]queued, 0, len(x.queue)-x.stale)
	for _, q := range x.queue {
		if q.holds() {
			left = append(left, q)
		}
	}
	x.queue, x.stale = left, 0
}

// oldest returns the runs with uncompacted events, at most limit.
func (x *index) oldest(limit int) []store.Key {
	var keys []store.Key
	for _, q := range x.queue {
		if len(keys) == limit {
			break
		}
		if q.holds() && (!q.e.deferred || !q.e.settled) {
			keys = append(keys, q.e.key)
		}
	}
	return keys
}

// A span is consecutive rows.
type span struct{ from, to int64 }

// trimmable returns dead rows of at most maxBytes, and at least one, as spans.
func (x *index) trimmable(maxRows int, maxBytes int64) (spans []span, ids []int64) {
	n, size := 0, int64(0)
	for n < len(x.dead) && n < maxRows && (n == 0 || size < maxBytes) {
		size += x.rows[x.dead[n]].size
		n++
	}
	ids = x.dead[:n:n]
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, cmp.Compare[int64])
	for _, id := range sorted {
		if k := len(spans); k > 0 && spans[k-1].to+1 == id {
			spans[k-1].to = id
		} else {
			spans = append(spans, span{id, id})
		}
	}
	return spans, ids
}

// trimmed forgets deleted rows, which are the first ones of dead.
func (x *index) trimmed(ids []int64) {
	for _, id := range ids {
		x.rowCount--
		x.rowBytes -= x.rows[id].size
		x.deadBytes -= x.rows[id].size
		delete(x.rows, id)
	}
	if len(ids) > 0 {
		x.rows, x.mostRows = store.ShrinkMap(x.rows, x.mostRows)
	}
	x.dead = x.dead[len(ids):]
	if len(x.dead) == 0 {
		x.dead = nil
	}
}

func sortQueue(q []queued) {
	slices.SortFunc(q, func(a, b queued) int { return cmp.Compare(a.row, b.row) })
}

func sortRefs(refs []foundRef) {
	slices.SortFunc(refs, func(a, b foundRef) int {
		return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.off, b.off))
	})
}
