// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/roux-engine/roux/internal/store"
)

// The index knows, for every run that is in the engine's hands or has events
// only in the journal, where those events are. It makes guards, reads and
// trimming independent of the journal's length: nothing ever scans it but the
// first use after opening.
type index struct {
	runs map[store.Key]*entry
	rows map[int64]*rowInfo
	// How much each has held at once.
	mostRuns, mostRows int
	// dead are rows without uncovered events, to be deleted.
	dead      []int64
	deadBytes int64

	uncoveredBytes, uncoveredEvents int64
	// queue holds the runs with uncovered events, oldest first, and beside them
	// places that no longer hold, so many that are stale.
	queue []queued
	stale int
	// flying are the runs without an entry in a commit under way; see entry.flying.
	flying map[store.Key]struct{}
	// dropped counts the entries that left, so that a reader who found none can
	// tell that none came and went.
	dropped uint64

	// kept are rows as the scan read them, until Recover ends.
	kept map[int64][]byte
	// recent are the rows written last, while they have uncovered records: whoever
	// watches a run from its start reads what has just been written, and a row is
	// long, so SQLite would fetch all of it for a few bytes.
	recent [2]recentRow

	nextRow              int64
	rowCount, rowBytes   int64 // of the table, dead rows included
	commits, transitions int64
}

// An entry is what is known of one run. Only the writer changes it, holding the
// index's lock; fields of the commit under way are the writer's alone.
type entry struct {
	key           store.Key
	last, chunked uint64
	refs          []ref // events after chunked, in order
	suspended     bool
	settled       bool
	open          bool  // its row is known to say that it has neither ended nor owes anything
	damage        error // of a stored record that no chunk covers
	version       uint64
	indexed       bool // it is in the index
	// flying says that a commit that changes the run's rows is under way: tables
	// may be ahead of the index, so whoever reads the run waits for it.
	flying bool

	// What the commit under way makes of it; valid when mark is that commit's.
	mark         uint64
	newLast      uint64
	newChunked   uint64
	newSuspended bool
	newSettled   bool
	newOpen      bool
	added        []ref
}

// A ref says where a record is.
type ref struct {
	row         int64
	off, n      uint32
	first, last uint64
}

type rowInfo struct {
	size int64
	live int // uncovered records, and damaged ones for ever
}

const longestRecent = 1 << 20

type recentRow struct {
	id   int64 // 0 = none
	data []byte
}

// A queued run's place holds as long as its oldest uncovered record is in row.
type queued struct {
	e   *entry
	row int64
}

func (x *index) init() {
	x.runs = map[store.Key]*entry{}
	x.rows = map[int64]*rowInfo{}
	x.flying = map[store.Key]struct{}{}
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

// addRef notes an uncovered record of e.
func (x *index) addRef(e *entry, r ref) {
	x.rows[r.row].live++
	x.uncoveredBytes += int64(r.n)
	x.uncoveredEvents += int64(r.last - r.first + 1)
	if len(e.refs) == 0 {
		x.queue = append(x.queue, queued{e, r.row})
	}
	e.refs = append(e.refs, r)
}

// cover drops the refs up to event last.
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
	x.stale++ // the place of the run
	defer x.weed()
	// Readers may hold the old slice: cut its front, never write into it.
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
		x.bury(row, info)
		x.lapse(row)
	}
}

// bury notes a row that nobody needs any more.
func (x *index) bury(row int64, info *rowInfo) {
	x.dead = append(x.dead, row)
	x.deadBytes += info.size
}

// remember keeps the newest row, unless it is very long, and returns room for
// another.
func (x *index) remember(id int64, data []byte) (room []byte) {
	if x.rows[id].live == 0 || len(data) > longestRecent {
		return data
	}
	if roomy(data) {
		data = bytes.Clone(data)
	}
	room = x.recent[1].data
	x.recent[1], x.recent[0] = x.recent[0], recentRow{id, data}
	return room
}

// lapse lets go of a row that was remembered.
func (x *index) lapse(id int64) {
	for i := range x.recent {
		if x.recent[i].id == id {
			x.recent[i] = recentRow{}
		}
	}
}

// recall returns a copy of a record that was written lately, or nil.
func (x *index) recall(r ref) []byte {
	for i := range x.recent {
		if x.recent[i].id == r.row {
			return bytes.Clone(x.recent[i].data[r.off : r.off+r.n])
		}
	}
	return nil
}

// publishBegin and publishEnd enclose the moment at which a commit becomes visible.
func (x *index) publishBegin(touched []*entry) {
	for _, e := range touched {
		if e.indexed {
			e.flying = true
		} else {
			x.flying[e.key] = struct{}{}
		}
	}
}

func (x *index) publishEnd(touched []*entry) {
	for _, e := range touched {
		e.flying = false
	}
	clear(x.flying)
}

// settle makes what the commit did to e permanent.
func (x *index) settle(e *entry) {
	e.version++
	e.last, e.chunked = e.newLast, e.newChunked
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

// add puts e into the index unless it is there. Of many runs, most lookups miss
// the processor's caches, so an entry says it itself.
func (x *index) add(e *entry) {
	if !e.indexed {
		x.runs[e.key], e.indexed = e, true
	}
}

// took notes what a head says that was written for e.
func (e *entry) took(h *store.Head) {
	e.newSettled, e.newOpen = h.Settled(), h.Ended == 0 && !h.Owes
}

func (q queued) holds() bool { return len(q.e.refs) > 0 && q.e.refs[0].row == q.row }

// weed drops the stale places of the queue once they are most of it: they hold
// the entries of runs that have left.
func (x *index) weed() {
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

// oldest returns the runs with uncovered events, at most limit.
func (x *index) oldest(limit int) []store.Key {
	var keys []store.Key
	for _, q := range x.queue {
		if len(keys) == limit {
			break
		}
		if q.holds() {
			keys = append(keys, q.e.key)
		}
	}
	return keys
}

// A span is consecutive rows.
type span struct{ from, to int64 }

// trimmable takes dead rows of at most so many bytes (and always one) as spans.
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

// trimmed forgets rows that were deleted: the first ones of dead.
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
