// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A pack is an encoded blob with the compactions of many runs:
//
//	version u8
//	pieces   length of what follows (varint),
//	         account, run (length and bytes each), first, last-first, format,
//	         length of the state + 1 or 0 for none (varints), state, frames
//
// Small compactions share packs because a row each, compressed for itself, costs ten
// times as much to write and three times the space. The price is that damage to
// a pack hurts all its runs, so a pack is small.
const (
	packVersion = 1
	maxPiece    = 16 << 10 // a larger compaction has rows of its own
	packSize    = 32 << 10 // a pack that has reached it takes no more pieces
	cachedPacks = 16       // of which a reader has just had a run
	somePieces  = 64       // that a reader of events looks up at once
)

// A piece is the compaction of one run in a pack, into which it points: whoever looks
// for one passes hundreds of others.
type piece struct {
	account, run []byte
	first, last  uint64
	format       uint32
	state        []byte // nil = none
	frames       []byte
}

func (p *piece) of(key store.Key) bool {
	return string(p.run) == key.Run && string(p.account) == key.Account
}

// A pieceRef says which events a piece has and where it is.
type pieceRef struct {
	first, last uint64
	pack        int64
}

// small says that a compaction goes into a pack.
func small(f *store.Compaction) bool { return len(f.Chunk)+len(f.State) <= maxPiece }

func appendPiece(buf []byte, key store.Key, f *store.Compaction) []byte {
	var head [4 * binary.MaxVarintLen64]byte
	h := binary.AppendUvarint(head[:0], f.First)
	h = binary.AppendUvarint(h, f.Last-f.First)
	h = binary.AppendUvarint(h, uint64(f.Format))
	state := uint64(0)
	if f.State != nil {
		state = uint64(len(f.State)) + 1
	}
	h = binary.AppendUvarint(h, state)
	n := uvarintLen(len(key.Account)) + len(key.Account) + uvarintLen(len(key.Run)) + len(key.Run)
	buf = binary.AppendUvarint(buf, uint64(n+len(h)+len(f.State)+len(f.Chunk)))
	buf = appendKey(buf, key)
	buf = append(buf, h...)
	buf = append(buf, f.State...)
	return append(buf, f.Chunk...)
}

func uvarintLen(n int) int {
	k := 1
	for ; n >= 0x80; n >>= 7 {
		k++
	}
	return k
}

// eachPiece calls fn for every piece and the bytes it takes, until it says no.
// The piece is fn's until it returns.
func eachPiece(data []byte, fn func(p *piece, raw []byte) bool) error {
	if len(data) == 0 || data[0] != packVersion {
		return errors.New("it is no pack of this release")
	}
	var p piece
	for data = data[1:]; len(data) > 0; {
		n, k := binary.Uvarint(data)
		if k <= 0 || n > uint64(len(data)-k) {
			return fmt.Errorf("a piece of %d bytes is cut to %d", n, len(data))
		}
		raw := data[:k+int(n)]
		data = data[len(raw):]
		body, ok := raw[k:], true
		number := func() uint64 {
			v, k := binary.Uvarint(body)
			if ok = ok && k > 0; ok {
				body = body[k:]
			}
			return v
		}
		take := func(n uint64) []byte {
			if ok = ok && n <= uint64(len(body)); !ok {
				return nil
			}
			b := body[:n:n]
			body = body[n:]
			return b
		}
		p = piece{account: take(number()), run: take(number())}
		p.first = number()
		p.last = p.first + number()
		p.format = uint32(number())
		if n := number(); n > 0 {
			p.state = take(n - 1)
		}
		p.frames = body
		if !ok {
			return errors.New("a piece has a malformed head")
		}
		if !fn(&p, raw) {
			return nil
		}
	}
	return nil
}

// packing is the pack that the commit under way fills.
type packing struct {
	next int64  // number of the pack that is open, or will be
	open []byte // it, after room for the head of an encoded blob
	room []byte // for it in fewer bytes
}

// reset forgets what a commit has packed. Numbers are not given twice.
func (p *packing) reset() {
	if len(p.open) > 0 {
		p.next++
	}
	p.open = p.open[:0]
}

// add puts a compaction into the pack and returns its number. full says that it takes no
// more and is to be written.
func (p *packing) add(key store.Key, f *store.Compaction) (id int64, full bool) {
	if len(p.open) == 0 {
		p.open = append(p.open, make([]byte, blobHead)...)
		p.open = append(p.open, packVersion)
	}
	p.open = appendPiece(p.open, key, f)
	return p.next, len(p.open) >= blobHead+packSize
}

// encoded is the open pack as it is stored, until the next one is.
func (p *packing) encoded() []byte {
	data := p.open[blobHead:]
	var ok bool
	if p.room, ok = squeeze(p.room, data); ok {
		return p.room
	}
	putHead(p.open, asIs, len(data))
	return p.open
}

// writePack writes what the commit has packed since the last time.
func (s *Store) writePack() error {
	p := &s.c.packing
	if len(p.open) == 0 {
		return nil
	}
	data := p.encoded()
	if err := s.write(s.st.putPack, p.next, data); err != nil {
		return err
	}
	s.c.bytes += int64(len(data))
	p.next++
	p.open = p.open[:0]
	return nil
}

// packCache holds a few packs as they were before compression: whoever reads
// many runs in a row finds neighbours in one pack.
type packCache struct {
	mu    sync.Mutex
	packs map[int64][]byte
	ring  [cachedPacks]int64
	at    int
}

func (c *packCache) get(id int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.packs[id]
}

func (c *packCache) put(id int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.packs == nil {
		c.packs = map[int64][]byte{}
	}
	delete(c.packs, c.ring[c.at])
	c.packs[id], c.ring[c.at] = data, id
	c.at = (c.at + 1) % cachedPacks
}

func (c *packCache) forget(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.packs, id)
}

// packAt returns the pieces of a pack, or errMoved when it is not there: then its
// runs were deleted.
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
	data, err := decodeBlob(encoded)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "pack %d is damaged: %v", id, err)
	}
	return data, nil
}

// piece reads the piece of a run.
func (s *Store) piece(ctx context.Context, key store.Key, r pieceRef) (piece, error) {
	data, err := s.packAt(ctx, r.pack)
	if errors.Is(err, fault.StoreCorrupt) {
		return piece{}, fault.Wrap(fault.StoreCorrupt, err, "run %s: events %d to %d (offset: event %d): %v", key.Run, r.first, r.last, r.first, err)
	}
	if err != nil {
		return piece{}, err
	}
	var found piece
	err = eachPiece(data, func(p *piece, _ []byte) bool {
		if p.last == r.last && p.of(key) {
			found = *p
		}
		return found.last == 0
	})
	if err != nil {
		return piece{}, fault.Wrap(fault.StoreCorrupt, err, "run %s: pack %d: %v (offset: event %d)", key.Run, r.pack, err, r.first)
	}
	if found.last == 0 || found.first != r.first {
		return piece{}, errMoved
	}
	return found, nil
}

// pieces lists where the compactions of a run are that are in packs and end after an
// event, in order: the first of them, or all with a negative limit.
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
	err = eachRow(rows, func() error {
		var r pieceRef
		var stored int64
		if err := rows.Scan(&r.first, &r.last, &r.pack, &stored); err != nil {
			return err
		}
		if stored != pieceSum(key, r.first, r.last, r.pack) {
			return damagedHead(key, fmt.Sprintf("place of the events up to %d", r.last))
		}
		refs = append(refs, r)
		return nil
	})
	return refs, err
}

// packedState gives out the newest state in a piece, when that is newer than
// what out has. It is in the last piece of a run that goes on: a run that rests
// often has many, and looks at no other.
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
			if p.state != nil {
				out.State, out.StateLast, out.Format = slices.Clone(p.state), p.last, p.format
				return nil
			}
		}
	}
	return nil
}

// without returns a pack without some runs; nil when none is left.
func without(data []byte, gone map[store.Key]struct{}) ([]byte, error) {
	left := []byte{packVersion}
	err := eachPiece(data, func(p *piece, raw []byte) bool {
		if _, ok := gone[store.Key{Account: string(p.account), Run: string(p.run)}]; !ok {
			left = append(left, raw...)
		}
		return true
	})
	if err != nil || len(left) == 1 {
		return nil, err
	}
	return left, nil
}

// removePieces takes deleted runs out of their packs, some packs in one
// transaction: commits wait for it.
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
	s.wrote(pages)
	return nil
}

// rewritePack takes runs out of a pack and returns its new size. A damaged one
// stays as it is, as evidence for the runs that are still there.
func (s *Store) rewritePack(ctx context.Context, id int64, gone map[store.Key]struct{}) (size int, err error) {
	data, err := s.readPack(ctx, id) // not from the cache: it may be older
	if err == nil {
		var left []byte
		switch left, err = without(data, gone); {
		case err != nil:
			err = fault.Wrap(fault.StoreCorrupt, err, "pack %d: %v", id, err)
		case left == nil:
			_, err = s.st.dropPack.exec(id)
		default:
			encoded := encodeBlob(left, true)
			size = len(encoded)
			_, err = s.st.replacePack.exec(id, encoded)
		}
	}
	if err != nil && !errors.Is(err, errMoved) && !errors.Is(err, fault.StoreCorrupt) {
		return 0, err
	}
	for key := range gone {
		if _, err := s.st.dropPiece.exec(key.Account, key.Run, id); err != nil {
			return 0, err
		}
	}
	return size, nil
}
