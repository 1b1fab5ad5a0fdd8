// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/internal/store"
)

// A pack holds the compactions of many runs and is stored as a blob. Its data are
//
//	version u8
//	pieces   length of what follows (varint),
//	         account, run (length and bytes each), first, last-first, format,
//	         length of the state + 1 or 0 for none (varints), state, frames
//
// Small compactions share packs because one row each, compressed alone, costs ten
// times as much to write and three times the space. The price is that damage to a
// pack hurts all its runs, so packs are small.
const (
	packVersion = 1

	// MaxPiece is how many bytes a compaction in a pack holds at most. A larger one
	// has rows of its own.
	MaxPiece = 16 << 10
	// PackSize is the size at which a pack is full.
	PackSize = 32 << 10
)

// A Piece is the compaction of one run in a pack. Its bytes are those of the pack and
// no copies, because a search for one piece passes hundreds of others.
type Piece struct {
	Account, Run []byte
	First, Last  uint64
	Format       uint32
	State        []byte // nil = none
	Frames       []byte
}

// Of reports whether the piece belongs to the run.
func (p *Piece) Of(key store.Key) bool {
	return string(p.Run) == key.Run && string(p.Account) == key.Account
}

// Small reports whether a compaction goes into a pack.
func Small(f *store.Compaction) bool { return len(f.Chunk)+len(f.State) <= MaxPiece }

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

// EachPiece calls fn with every piece of a pack and the bytes of it, until fn returns
// false. The piece is valid until fn returns.
func EachPiece(data []byte, fn func(p *Piece, raw []byte) bool) error {
	if len(data) == 0 || data[0] != packVersion {
		return errors.New("it is no pack of this release")
	}
	var p Piece
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
		p = Piece{Account: take(number()), Run: take(number())}
		p.First = number()
		p.Last = p.First + number()
		p.Format = uint32(number())
		if n := number(); n > 0 {
			p.State = take(n - 1)
		}
		p.Frames = body
		if !ok {
			return errors.New("a piece has a malformed head")
		}
		if !fn(&p, raw) {
			return nil
		}
	}
	return nil
}

// A Pack is a pack that is being filled. It keeps its memory for the next one.
type Pack struct {
	open []byte // the data so far, after room for the head of a blob
	room []byte // for the compressed blob
}

// Empty reports whether the pack has no piece.
func (p *Pack) Empty() bool { return len(p.open) == 0 }

// Len returns how many bytes the pack has.
func (p *Pack) Len() int { return len(p.open) }

// Reset empties the pack.
func (p *Pack) Reset() { p.open = p.open[:0] }

// Add appends the compaction of a run and reports whether the pack is full.
func (p *Pack) Add(key store.Key, c *store.Compaction) (full bool) {
	if len(p.open) == 0 {
		p.open = append(p.open, make([]byte, BlobHead)...)
		p.open = append(p.open, packVersion)
	}
	p.open = appendPiece(p.open, key, c)
	return len(p.open) >= BlobHead+PackSize
}

// Encode returns the pack as a blob. The blob is valid until the pack changes. A small pack,
// such as that of one small run, is not compressed: that would take longer than to write it,
// and would save no page.
func (p *Pack) Encode() []byte {
	const small = 1 << 10
	data := p.open[BlobHead:]
	if len(data) >= small {
		var ok bool
		if p.room, ok = squeeze(p.room, data); ok {
			return p.room
		}
	}
	putHead(p.open, asIs, len(data))
	return p.open
}

// Without returns the data of a pack without some runs, or nil when no piece is left.
func Without(data []byte, gone map[store.Key]struct{}) ([]byte, error) {
	left := []byte{packVersion}
	err := EachPiece(data, func(p *Piece, raw []byte) bool {
		if _, ok := gone[store.Key{Account: string(p.Account), Run: string(p.Run)}]; !ok {
			left = append(left, raw...)
		}
		return true
	})
	if err != nil || len(left) == 1 {
		return nil, err
	}
	return left, nil
}
