// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// errMoved means that a commit changed the run between two reads: read again.
var errMoved = errors.New("the run moved on while it was read")

// A view is what the index knows of a run at one moment. Its refs are never changed.
type view struct {
	e             *entry // nil: not in the index
	version       uint64 // of e, or of the index when there is no e
	last, chunked uint64
	refs          []ref
	damage        error
	committing    bool
	deferred      bool      // the run has no row; see deferred.go
	headAt        uint64    // of a deferred run
	settled       bool      // likewise
	end           *endedRun // likewise
}

func (s *Store) view(key store.Key) view {
	s.x.RLock()
	defer s.x.RUnlock()
	e := s.x.runs[key]
	if e == nil {
		_, committing := s.x.committing[key]
		return view{version: s.x.dropped, committing: committing}
	}
	return view{e: e, version: e.version, last: e.last, chunked: e.chunked, refs: e.refs, damage: e.damage, committing: e.committing, deferred: e.deferred, headAt: e.headAt, settled: e.settled, end: e.end}
}

// same reports whether the run has not changed since v was taken.
func (s *Store) same(key store.Key, v *view) bool {
	now := s.view(key)
	return now.e == v.e && now.version == v.version && !now.committing && !v.committing
}

// stable runs a read that needs several queries of a run. Commits do not wait for
// readers, so the queries may see different commits. After some tries the read waits
// for the commit under way and blocks the next one.
func (s *Store) stable(ctx context.Context, key store.Key, read func() error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := errMoved
	for try := 0; try < 4 && errors.Is(err, errMoved); try++ {
		err = read()
	}
	if errors.Is(err, errMoved) {
		s.w.Lock()
		err = read()
		s.w.Unlock()
		if errors.Is(err, errMoved) { // no commit can have caused it
			err = fault.New(fault.StoreCorrupt, "run %s: a row that holds its events is missing", key.Run)
		}
	}
	_, err = s.explain(err)
	return err
}

// ready reports whether reads are possible, and builds the index for them if needed.
// Reads are possible after a failed write, and do not wait for a commit under way.
func (s *Store) ready(ctx context.Context) error {
	if err := s.isOpen(ctx); err != nil || s.scanned.Load() {
		return err
	}
	s.w.Lock()
	defer s.w.Unlock()
	return s.scan()
}

// isOpen is ready for reads that need no index.
func (s *Store) isOpen(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// compacted is where the compacted events of a run are: the columns of the text
// compactedColumns.
type compacted struct {
	reach  uint64 // the last event that the run's row records
	chunks uint64 // the last event in a chunk
	pack   int64  // of the first compaction; 0 = it is in none
	packed uint64
	pieces uint64

	reachSum, placeSum int64
}

// columns are the destinations of the columns.
func (f *compacted) columns() []any {
	return []any{&f.reach, &f.chunks, &f.pack, &f.packed, &f.pieces, &f.reachSum, &f.placeSum}
}

// check reports damage of these columns in the run's row.
func (f *compacted) check(key store.Key) error {
	if f.reachSum != format.ReachSum(key, int64(f.reach)) || !format.SumFits(f.placeSum, format.PlaceSum(key, f.pack, int64(f.packed)), f.pack, int64(f.packed)) {
		return damagedHead(key, "place of its events")
	}
	return nil
}

// A foundRun is what a commit needs to know of a run that is not in the index.
type foundRun struct {
	suspended, owes bool
	ended           int64
	compacted       compacted
}

// find reads a run's row and returns false when there is none. A value that is no
// number counts as 0, which fails the checksum.
func (r *foundRun) find(st *conn.Stmt, key store.Key) (bool, error) {
	var v [10]driver.Value // the columns of findRun
	found, err := st.Row(v[:], key.Account, key.Run)
	if err != nil || !found {
		return false, err
	}
	var n [len(v)]int64
	for i := range v {
		n[i], _ = v[i].(int64)
	}
	r.suspended, r.ended, r.owes = n[0] != 0, n[1], n[2] != 0
	r.compacted = compacted{uint64(n[3]), uint64(n[4]), n[5], uint64(n[6]), uint64(n[7]), n[8], n[9]}
	return true, nil
}

func (f *compacted) last() uint64 { return max(f.chunks, f.packs()) }

// packs returns the last event in a pack.
func (f *compacted) packs() uint64 { return max(f.packed, f.pieces) }

// A savedRow is a run's head and snapshot.
type savedRow struct {
	head       headRow
	suspended  int64
	wakeAt     int64
	suspendSum int64
	compacted  compacted
	stateLast  uint64
	format     uint32
	state      []byte
	stateSum   int64
}

func (r *savedRow) scan(row interface{ Scan(...any) error }) error {
	places := append(headPlaces(&r.head), &r.suspended, &r.wakeAt, &r.suspendSum)
	places = append(places, r.compacted.columns()...)
	return row.Scan(append(places, &r.stateLast, &r.format, &r.state, &r.stateSum)...)
}

// check reports damage of the row. A damaged snapshot is only left out, because the run
// is whole without it.
func (r *savedRow) check() error {
	if err := r.head.check(); err != nil {
		return err
	}
	if !format.SumFits(r.suspendSum, format.SuspendSum(r.head.Key, r.suspended, r.wakeAt), r.suspended, r.wakeAt) {
		return damagedHead(r.head.Key, "mark of a suspended run")
	}
	if err := r.compacted.check(r.head.Key); err != nil {
		return err
	}
	if r.state != nil && r.stateSum != format.StateSum(r.head.Key, r.stateLast, r.format) {
		r.state = nil
	}
	return nil
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, key store.Key) (saved *store.Saved, err error) {
	err = s.stable(ctx, key, func() error {
		v := s.view(key)
		if v.damage != nil {
			return v.damage
		}
		if v.deferred {
			row, err := s.deferredRow(ctx, &v)
			if err == nil {
				saved, err = s.complete(ctx, row, v)
			}
			return err
		}
		var row savedRow
		err := row.scan(s.q.saved.QueryRowContext(brief(ctx), key.Account, key.Run))
		if errors.Is(err, sql.ErrNoRows) {
			return notFound(key)
		}
		if err != nil {
			return err
		}
		saved, err = s.complete(ctx, &row, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return saved, nil
}

// complete adds the tail to a head and snapshot. It returns errMoved when v, taken
// before or after the row was read, does not fit the row.
func (s *Store) complete(ctx context.Context, row *savedRow, v view) (*store.Saved, error) {
	key := row.head.Key
	if v.damage != nil {
		return nil, v.damage
	}
	if err := row.check(); err != nil {
		return nil, err
	}
	out := &store.Saved{Head: row.head.Head, Chunked: row.compacted.last()}
	out.Last = out.Chunked
	if v.e != nil {
		out.Chunked, out.Last = v.chunked, v.last
	}
	if row.suspended != 0 {
		out.Suspension = &store.Suspension{WakeAt: row.wakeAt}
	}
	if row.state != nil {
		// A damaged snapshot loses nothing, because the events before it are all
		// stored.
		if state, err := format.DecodeBlob(row.state); err == nil {
			out.State, out.StateLast, out.Format = state, row.stateLast, row.format
		}
	}
	if err := s.packedState(ctx, out, &row.compacted); err != nil {
		return nil, err
	}
	t := tail{s: s, key: key, at: out.StateLast}
	if err := t.compacted(ctx, out.Chunked, &row.compacted); err != nil {
		return nil, err
	}
	if err := t.journal(ctx, v.refs); err != nil {
		return nil, err
	}
	if !s.same(key, &v) {
		return nil, errMoved
	}
	if want := max(out.Last, row.compacted.reach); t.at != want {
		return nil, lostEvents(key, t.at+1, want)
	}
	out.Tail = t.frames
	if v.deferred && v.settled { // as it will be once it is written
		out.Chunked = out.Last
	}
	return out, nil
}

// A tail collects frames in the order of their events.
type tail struct {
	s        *Store
	key      store.Key
	at       uint64 // the last event that is in frames
	frames   []byte
	maxBytes int // stop before this many; 0 = never
	full     bool
	strict   bool // each compaction must begin where the one before it ended
}

// add appends frames of the events first to last. It returns false when the tail is
// full.
func (t *tail) add(first, last uint64, frames []byte) (bool, error) {
	if first > t.at+1 {
		return false, errMoved // the events between them are now in a chunk
	}
	if t.strict && first != t.at+1 {
		return false, damagedHead(t.key, fmt.Sprintf("place of the events from %d to %d", first, last))
	}
	if t.maxBytes > 0 && len(t.frames) > 0 && len(t.frames)+len(frames) > t.maxBytes {
		t.full = true
		return false, nil
	}
	t.frames = append(t.frames, frames...)
	t.at = last
	t.full = t.maxBytes > 0 && len(t.frames) >= t.maxBytes // or the next chunk would be decoded for nothing
	return !t.full, nil
}

// compacted adds the pieces and chunks after t.at.
func (t *tail) compacted(ctx context.Context, until uint64, f *compacted) (err error) {
	var refs []pieceRef
	for t.at < until && !t.full {
		for len(refs) > 0 && refs[0].last <= t.at {
			refs = refs[1:]
		}
		if len(refs) == 0 && f.packs() > t.at {
			if refs, err = t.s.pieces(ctx, t.key, f, t.at, somePieces); err != nil {
				return err
			}
		}
		if len(refs) == 0 || refs[0].first > t.at+1 {
			if err := t.chunk(ctx); err != nil {
				return err
			}
			continue
		}
		p, err := t.s.piece(ctx, t.key, refs[0])
		if err != nil {
			return err
		}
		if _, err := t.add(p.First, p.Last, p.Frames); err != nil {
			return err
		}
	}
	return nil
}

// chunk adds the chunk with the event after t.at.
func (t *tail) chunk(ctx context.Context) error {
	var first, last uint64
	var data []byte
	var stored int64
	err := t.s.q.chunk.QueryRowContext(brief(ctx), t.key.Account, t.key.Run, int64(t.at)).Scan(&first, &last, &data, &stored)
	if errors.Is(err, sql.ErrNoRows) {
		return errMoved
	}
	if err != nil {
		return err
	}
	if stored != format.NoSum && stored != format.ChunkSum(t.key, first, last) {
		return damagedHead(t.key, fmt.Sprintf("place of the chunk after event %d", t.at))
	}
	if first > t.at+1 {
		return lostEvents(t.key, t.at+1, first-1)
	}
	frames, err := format.DecodeBlob(data)
	if err != nil {
		return fault.Wrap(fault.StoreCorrupt, err, "run %s: the chunk of events %d to %d is damaged (offset: event %d): %v", t.key.Run, first, last, first, err)
	}
	_, err = t.add(first, last, frames)
	return err
}

// journal adds the records after t.at.
func (t *tail) journal(ctx context.Context, refs []ref) error {
	if t.full {
		return nil
	}
	from, _ := slices.BinarySearchFunc(refs, t.at+1, func(r ref, n uint64) int { return cmp.Compare(r.last, n) })
	for _, r := range refs[from:] {
		rec, err := t.s.record(ctx, t.key, r)
		if err != nil {
			return err
		}
		if more, err := t.add(rec.First, rec.Last, rec.Frames); !more {
			return err
		}
	}
	return nil
}

// record reads one record of the journal.
func (s *Store) record(ctx context.Context, key store.Key, r ref) (format.Record, error) {
	data := s.kept(r)
	if data == nil {
		err := s.q.record.QueryRowContext(brief(ctx), r.row, int64(r.off)+1, int64(r.n)).Scan(&data)
		if errors.Is(err, sql.ErrNoRows) {
			return format.Record{}, errMoved // trimmed: a chunk has it
		}
		if err != nil {
			return format.Record{}, err
		}
	}
	rec, err := format.ParseRecord(data, nil)
	if err == nil && (rec.Key != key || rec.First != r.first || rec.Last != r.last) {
		err = fmt.Errorf("it holds events %d to %d of run %s", rec.First, rec.Last, rec.Key.Run)
	}
	if err != nil {
		return format.Record{}, damagedAt(key, r.row, int(r.off), err.Error())
	}
	return rec, nil
}

// keep and kept serve records from the rows that the scan has just read, so that
// Recover reads the journal only once; forget ends that. kept also serves records from
// the rows that were written last.
func (s *Store) keep(id int64, data []byte) {
	if s.x.kept == nil {
		s.x.kept = map[int64][]byte{}
	}
	s.x.kept[id] = data
}

func (s *Store) kept(r ref) []byte {
	s.x.RLock()
	defer s.x.RUnlock()
	if data := s.x.kept[r.row]; int(r.off)+int(r.n) <= len(data) {
		return data[r.off : r.off+r.n]
	}
	return s.x.recentRecord(r)
}

func (s *Store) forget() {
	s.x.Lock()
	defer s.x.Unlock()
	s.x.kept = nil
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	return s.page(ctx, key, after, maxBytes, false)
}

// page reads events. With strict set, `after` must be where a chunk, a piece or a
// transition ends, and the next one must begin there.
func (s *Store) page(ctx context.Context, key store.Key, after uint64, maxBytes int, strict bool) (page store.Page, err error) {
	err = s.stable(ctx, key, func() error {
		v := s.view(key)
		var f compacted
		if v.e == nil || after < v.chunked {
			err := s.q.reach.QueryRowContext(brief(ctx), key.Account, key.Run).Scan(f.columns()...)
			if errors.Is(err, sql.ErrNoRows) {
				return notFound(key)
			}
			if err != nil {
				return err
			}
			if !s.same(key, &v) {
				return errMoved
			}
			if v.e == nil {
				v.last, v.chunked = f.last(), f.last()
				if f.reach > v.last {
					v.damage = lostEvents(key, v.last+1, f.reach)
				}
			}
			if err := f.check(key); err != nil {
				return err
			}
		}
		if v.committing {
			return errMoved
		}
		page = store.Page{Next: after, Last: v.last}
		if after >= v.last {
			return v.damage // the pages of a damaged run end with its error
		}
		t := tail{s: s, key: key, at: after, maxBytes: max(maxBytes, 1), strict: strict}
		if err := t.compacted(ctx, v.chunked, &f); err != nil {
			return err
		}
		if err := t.journal(ctx, v.refs); err != nil {
			return err
		}
		page.Frames, page.Next = t.frames, t.at
		return nil
	})
	return page, err
}

func notFound(key store.Key) error { return fault.New(fault.RunNotFound, "no run %q", key.Run) }
