// SPDX-License-Identifier: Apache-2.0

package format

import (
	"errors"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/wire"
)

// A row of the ledger holds the entries that one commit recorded in one account: the
// version u8, then for each entry its key and its bytes, each with its length. The
// numbers of the entries are in the columns of the row.
const entriesVersion = 1

// Entries encodes the entries of a row. Reset makes it ready.
type Entries struct {
	buf   []byte
	entry []byte
	n     int
}

// Reset begins a row.
func (b *Entries) Reset() { b.buf, b.n = append(b.buf[:0], entriesVersion), 0 }

// Add adds an entry.
func (b *Entries) Add(e *ledger.Entry) {
	b.entry = e.Append(b.entry[:0])
	b.add(e.Key, b.entry)
}

func (b *Entries) add(key string, entry []byte) {
	b.buf = wire.AppendString(wire.AppendString(b.buf, key), string(entry))
	b.n++
}

// Data returns the row as far as it has been added. It is valid until Reset.
func (b *Entries) Data() []byte { return b.buf }

// Len returns how many entries the row has.
func (b *Entries) Len() int { return b.n }

// EntryRow is the row of one entry, whose bytes [ledger.Entry.Append] has written.
func EntryRow(key string, entry []byte) []byte {
	var b Entries
	b.Reset()
	b.add(key, entry)
	return b.buf
}

// EachEntry calls fn for the n entries of a row, in order, until it returns an error.
// The error it returns itself says what is wrong with the row.
func EachEntry(data []byte, n int64, fn func(*ledger.Entry) error) error {
	r := wire.Reader{Buf: data}
	if version := r.Byte(); r.Err != nil || version != entriesVersion {
		return errors.New("written in a way that this release does not know")
	}
	for ; n > 0; n-- {
		key, entry := r.Bytes(), r.Bytes()
		if r.Err != nil {
			return r.Err
		}
		e, err := ledger.DecodeEntry(string(key), entry)
		if err == nil {
			err = fn(e)
		}
		if err != nil {
			return err
		}
	}
	if r.Off != len(data) {
		return errors.New("there is more behind its entries")
	}
	return nil
}

// LedgerSum covers a row of the ledger.
func LedgerSum(account string, first, last, at int64, data []byte) int64 {
	return Sum(account, first, last, at, data)
}
