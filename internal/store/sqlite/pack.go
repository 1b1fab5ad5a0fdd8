// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

const (
	cachedPacks = 16 // kept decoded for the next reads
	somePieces  = 64 // looked up by one query of a reader of events
)

// A pieceRef is the location of a piece and the events in it.
type pieceRef struct {
	first, last uint64
	pack        int64
}

// packing is the pack that the commit under way fills.
type packing struct {
	next    int64       // number of the pack that is open, or will be
	encoded chan []byte // nil = it is not being encoded
	format.Pack
}

// nextPack forgets what a commit has packed. The number of a pack is never used twice.
func (p *packing) nextPack() {
	if p.encoded != nil {
		<-p.encoded
		p.encoded = nil
	}
	if !p.Empty() {
		p.next++
	}
	p.Pack.Reset()
}

// A location is where a transition's compaction is stored. pack is the number of its
// pack, or 0 if it is in no pack. The other fields are the columns of the run's row to
// write: the pack, and the last event of the compaction's first piece. A nil column keeps
// its value.
type location struct {
	pack         int64
	first, reach driver.Value
	sum          driver.Value // of both
}

// pack adds a small compaction to the commit's pack.
func (s *Store) pack(t *store.Transition) (at location, err error) {
	f := t.Compaction
	if f == nil || !format.Small(f) {
		return at, nil
	}
	at.pack = s.c.packing.next
	full := s.c.packing.Add(t.Key, f)
	if f.First == 1 {
		at.first, at.reach, at.sum = at.pack, int64(f.Last), format.PlaceSum(t.Key, at.pack, int64(f.Last))
	}
	if full {
		err = s.writePack()
	}
	return at, err
}

// encodePack begins to encode what the commit has packed, while rows are written, unless it
// is so little that a goroutine would cost more. Nothing may be packed until writePack.
func (p *packing) encodePack() {
	const few = 8 << 10
	if p.Len() < few {
		return
	}
	p.encoded = make(chan []byte, 1)
	go func() { p.encoded <- p.Encode() }()
}

// writePack writes what the commit has packed since the last call.
func (s *Store) writePack() error {
	p := &s.c.packing
	if p.Empty() {
		return nil
	}
	var data []byte
	if p.encoded != nil {
		data, p.encoded = <-p.encoded, nil
	} else {
		data = p.Encode()
	}
	if err := s.write(s.st.putPack, p.next, data); err != nil {
		return err
	}
	s.c.bytes += int64(len(data))
	p.nextPack()
	return nil
}

// dropCompacted leaves out events that a chunk of the same commit holds: a run that is
// compacted at its end has no journal row for its last transition.
func (s *Store) dropCompacted() {
	c := &s.c
	n := 0
	for i, t := range c.accepted {
		if t.Last > c.places[i].e.newChunked {
			c.accepted[n], c.places[n] = t, c.places[i]
			n++
		}
	}
	c.accepted, c.places = c.accepted[:n], c.places[:n]
}

// An encodedCompaction is a compaction with rows of its own, ready to be written. It is
// encoded before the store is locked, because compression takes longer than the commit.
type encodedCompaction struct {
	chunk, state []byte
}

func encodeCompactions(batch []store.Transition) []encodedCompaction {
	var encoded []encodedCompaction
	for i := range batch {
		if f := batch[i].Compaction; f != nil && !format.Small(f) {
			if encoded == nil {
				encoded = make([]encodedCompaction, len(batch))
			}
			encoded[i].chunk = format.EncodeBlob(f.Chunk, true)
			if f.State != nil {
				encoded[i].state = format.EncodeBlob(f.State, false)
			}
		}
	}
	return encoded
}

// packCache holds a few decoded packs, because runs that are read one after the other
// are often in the same pack.
type packCache struct {
	mu   sync.Mutex
	ring [cachedPacks]cachedPack
	at   int
}

type cachedPack struct {
	id   int64
	data []byte
}

func (c *packCache) get(id int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.ring {
		if c.ring[i].id == id {
			return c.ring[i].data
		}
	}
	return nil
}

func (c *packCache) put(id int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring[c.at] = cachedPack{id, data}
	c.at = (c.at + 1) % cachedPacks
}

func (c *packCache) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.ring {
		if c.ring[i].id == id {
			c.ring[i] = cachedPack{}
		}
	}
}

// packAt returns the data of a pack, or errMoved when there is none: its runs have been
// deleted.
func (s *Store) packAt(ctx context.Context, id int64) ([]byte, error) {
	if data := s.packs.get(id); data != nil {
		return data, nil
	}
	data, err := s.readPack(ctx, id)
	if err == nil {
		s.packs.put(id, data)
	}
	return data, err
}

func (s *Store) readPack(ctx context.Context, id int64) ([]byte, error) {
	var encoded []byte
	err := s.q.pack.QueryRowContext(brief(ctx), id).Scan(&encoded)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, errMoved
	}
	if err != nil {
		return nil, err
	}
	data, err := format.DecodeBlob(encoded)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "pack %d is damaged: %v", id, err)
	}
	return data, nil
}

// piece reads the piece of a run.
func (s *Store) piece(ctx context.Context, key store.Key, r pieceRef) (format.Piece, error) {
	data, err := s.packAt(ctx, r.pack)
	if errors.Is(err, fault.StoreCorrupt) {
		return format.Piece{}, fault.Wrap(fault.StoreCorrupt, err, "run %s: events %d to %d (offset: event %d): %v", key.Run, r.first, r.last, r.first, err)
	}
	if err != nil {
		return format.Piece{}, err
	}
	var found format.Piece
	err = format.EachPiece(data, func(p *format.Piece, _ []byte) bool {
		if p.Last == r.last && p.Of(key) {
			found = *p
		}
		return found.Last == 0
	})
	if err != nil {
		return format.Piece{}, fault.Wrap(fault.StoreCorrupt, err, "run %s: pack %d: %v (offset: event %d)", key.Run, r.pack, err, r.first)
	}
	if found.Last == 0 || found.First != r.first {
		return format.Piece{}, errMoved
	}
	return found, nil
}

// pieces lists the pieces of a run that end after an event, in order: at most limit of
// those in the table, or all when limit is negative.
func (s *Store) pieces(ctx context.Context, key store.Key, f *compacted, after uint64, limit int) (refs []pieceRef, err error) {
	if f.packed > after {
		refs = append(refs, pieceRef{1, f.packed, f.pack})
	}
	if f.pieces <= after {
		return refs, nil
	}
	rows, err := s.q.pieces.QueryContext(brief(ctx), key.Account, key.Run, int64(after), limit)
	if err != nil {
		return nil, err
	}
	err = conn.EachRow(rows, func() error {
		var r pieceRef
		var stored int64
		if err := rows.Scan(&r.first, &r.last, &r.pack, &stored); err != nil {
			return err
		}
		if stored != format.PieceSum(key, r.first, r.last, r.pack) {
			return damagedHead(key, fmt.Sprintf("place of the events up to %d", r.last))
		}
		refs = append(refs, r)
		return nil
	})
	return refs, err
}

// packedState puts the newest snapshot in a piece into out if it is newer than that of
// out. A run that is not settled has it in its last piece. Such a run may have many
// pieces, so the last one is tried alone first.
func (s *Store) packedState(ctx context.Context, out *store.Saved, f *compacted) error {
	newest := f.packs()
	if newest <= out.StateLast {
		return nil
	}
	for _, after := range []uint64{newest - 1, out.StateLast} {
		refs, err := s.pieces(ctx, out.Head.Key, f, after, -1)
		if err != nil {
			return err
		}
		for _, r := range slices.Backward(refs) {
			p, err := s.piece(ctx, out.Head.Key, r)
			if err != nil {
				return err
			}
			if p.State != nil {
				out.State, out.StateLast, out.Format = slices.Clone(p.State), p.Last, p.Format
				return nil
			}
		}
	}
	return nil
}

// removePieces removes deleted runs from their packs, a few packs in one transaction,
// because commits wait for it.
func (s *Store) removePieces(ctx context.Context, keys []store.Key) error {
	packs := map[int64]map[store.Key]struct{}{}
	var order []int64
	for _, key := range keys {
		refs, err := s.pieces(ctx, key, &compacted{pieces: 1}, 0, -1)
		if errors.Is(err, fault.StoreCorrupt) {
			continue // it stays, for doctor to name
		}
		if err != nil {
			return err
		}
		for _, r := range refs {
			if packs[r.pack] == nil {
				packs[r.pack] = map[store.Key]struct{}{}
				order = append(order, r.pack)
			}
			packs[r.pack][key] = struct{}{}
		}
	}
	for some := range slices.Chunk(order, purgePacks) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.rewritePacks(ctx, some, packs); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) rewritePacks(ctx context.Context, ids []int64, gone map[int64]map[store.Key]struct{}) error {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	pages := int64(0)
	err := s.inTx(func() error {
		for _, id := range ids {
			size, err := s.rewritePack(ctx, id, gone[id])
			if err != nil {
				return err
			}
			pages += int64(size/pageSize) + 2
		}
		return nil
	})
	for _, id := range ids {
		s.packs.forget(id)
	}
	if err != nil {
		return s.fail(err)
	}
	s.countPages(pages)
	return nil
}

// rewritePack removes runs from a pack and returns its new size. A damaged pack stays
// as it is, because its other runs may still need it.
func (s *Store) rewritePack(ctx context.Context, id int64, gone map[store.Key]struct{}) (size int, err error) {
	data, err := s.readPack(ctx, id) // not from the cache: it may be older
	if err == nil {
		var left []byte
		switch left, err = format.Without(data, gone); {
		case err != nil:
			err = fault.Wrap(fault.StoreCorrupt, err, "pack %d: %v", id, err)
		case left == nil:
			_, err = s.st.dropPack.Exec(id)
		default:
			encoded := format.EncodeBlob(left, true)
			size = len(encoded)
			_, err = s.st.replacePack.Exec(id, encoded)
		}
	}
	if err != nil && !errors.Is(err, errMoved) && !errors.Is(err, fault.StoreCorrupt) {
		return 0, err
	}
	for key := range gone {
		if _, err := s.st.dropPiece.Exec(key.Account, key.Run, id); err != nil {
			return 0, err
		}
	}
	return size, nil
}
