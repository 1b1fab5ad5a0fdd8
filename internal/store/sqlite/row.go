// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/roux-engine/roux/internal/store"
)

// A journal row is the events of one group commit:
//
//	head       version u8, records u32, CRC of both
//	directory  per record: length u32, hash of the key u32, first u64, events u32
//	           CRC of the directory
//	records    CRC u32, length of what follows u32,
//	           account, run (length and bytes each), first, last-first (varints), frames
//
// What a record says about itself is said again in the directory, so that any
// one damaged byte leaves either the directory, which names the run that is
// hurt, or the records, which need no directory. Everything is little endian,
// every CRC is CRC-32C.
const (
	rowVersion = 1
	headLen    = 9
	dirEntry   = 20
	recordHead = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// keyHash names a run in four bytes. Collisions are harmless: where it is
// needed, all runs of that hash count as hurt.
func keyHash(k store.Key) uint32 { return sum(appendKey(nil, k)) }

func appendKey(buf []byte, k store.Key) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(k.Account)))
	buf = append(buf, k.Account...)
	buf = binary.AppendUvarint(buf, uint64(len(k.Run)))
	return append(buf, k.Run...)
}

// recordSize is an upper bound on what a transition takes in a row.
func recordSize(t *store.Transition) int {
	return dirEntry + recordHead + len(t.Account) + len(t.Run) + len(t.Frames) + 4*binary.MaxVarintLen32
}

// appendRow encodes the transitions as one row and calls place with where each
// record lies.
func appendRow(buf []byte, batch []*store.Transition, place func(i int, off, n uint32)) []byte {
	le := binary.LittleEndian
	start := len(buf)
	buf = append(buf, rowVersion)
	buf = le.AppendUint32(buf, uint32(len(batch)))
	buf = le.AppendUint32(buf, sum(buf[start:]))
	dir := len(buf)
	buf = append(buf, make([]byte, dirEntry*len(batch)+4)...)
	for i, t := range batch {
		off := len(buf)
		buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0)
		buf = appendKey(buf, t.Key)
		hash := sum(buf[off+recordHead:])
		buf = binary.AppendUvarint(buf, t.First)
		buf = binary.AppendUvarint(buf, t.Last-t.First)
		buf = append(buf, t.Frames...)
		rec := buf[off:]
		le.PutUint32(rec[4:], uint32(len(rec)-recordHead))
		le.PutUint32(rec, sum(rec[4:]))

		e := buf[dir+i*dirEntry:]
		le.PutUint32(e, uint32(len(rec)))
		le.PutUint32(e[4:], hash)
		le.PutUint64(e[8:], t.First)
		le.PutUint32(e[16:], uint32(t.Last-t.First+1))
		place(i, uint32(off-start), uint32(len(rec)))
	}
	end := dir + dirEntry*len(batch)
	le.PutUint32(buf[end:], sum(buf[dir:end]))
	return buf
}

// A record is one run's part of a row. Of a damaged one only hash, first and
// last are known.
type record struct {
	key         store.Key
	hash        uint32
	first, last uint64
	off, n      uint32
	frames      []byte
	damaged     string // why; "" = it is whole
}

// texts holds each account and run once, however many records name it.
type texts map[string]string

func (m texts) of(b []byte) string {
	if m == nil {
		return string(b)
	}
	s, ok := m[string(b)]
	if !ok {
		s = string(b)
		m[s] = s
	}
	return s
}

// parseRecord reads the record at the start of b, which may be longer.
func parseRecord(b []byte, known texts) (record, error) {
	if len(b) < recordHead {
		return record{}, fmt.Errorf("%d bytes are too few for a record", len(b))
	}
	n := uint64(binary.LittleEndian.Uint32(b[4:])) + recordHead
	if n > uint64(len(b)) {
		return record{}, fmt.Errorf("a record of %d bytes is cut to %d", n, len(b))
	}
	body := b[:n]
	if sum(body[4:]) != binary.LittleEndian.Uint32(body) {
		return record{}, fmt.Errorf("a record of %d bytes fails its checksum", n)
	}
	body = body[recordHead:]
	ok := true
	number := func() uint64 {
		v, k := binary.Uvarint(body)
		if ok = ok && k > 0; ok {
			body = body[k:]
		}
		return v
	}
	text := func() string {
		k := number()
		if ok = ok && k <= uint64(len(body)); !ok {
			return ""
		}
		s := known.of(body[:k])
		body = body[k:]
		return s
	}
	r := record{key: store.Key{Account: text(), Run: text()}, n: uint32(n)}
	r.first = number()
	r.last = r.first + number()
	r.frames = body
	if !ok {
		return record{}, fmt.Errorf("a record of %d bytes has a malformed head", n)
	}
	return r, nil
}

// parseRow calls fn for every record of a row, whole or damaged. It returns the
// offset from which nothing can be said, not even whose records were there, or
// -1 when every record is accounted for.
func parseRow(data []byte, known texts, fn func(record)) (lostFrom int) {
	count, dir := rowDirectory(data)
	if count < 0 {
		return 0
	}
	off := headLen + count*dirEntry + 4
	if dir == nil { // the records speak for themselves
		for range count {
			r, err := parseRecord(data[min(off, len(data)):], known)
			if err != nil {
				return off
			}
			r.off = uint32(off)
			fn(r)
			off += int(r.n)
		}
		return -1
	}
	le := binary.LittleEndian
	for ; len(dir) > 0; dir = dir[dirEntry:] {
		n := int(le.Uint32(dir))
		r, err := parseRecord(data[min(off, len(data)):min(off+n, len(data))], known)
		if err != nil {
			first := le.Uint64(dir[8:])
			r = record{
				hash: le.Uint32(dir[4:]), first: first, last: first + uint64(le.Uint32(dir[16:])) - 1,
				damaged: err.Error(),
			}
		}
		r.off = uint32(off)
		fn(r)
		off += n
	}
	return -1
}

// rowDirectory returns the number of records, -1 when that is lost, and the
// directory's entries, nil when they are damaged.
func rowDirectory(data []byte) (count int, dir []byte) {
	le := binary.LittleEndian
	if len(data) < headLen {
		return -1, nil
	}
	fits := func(n int) bool { return headLen+n*dirEntry+4 <= len(data) }
	if sum(data[:5]) == le.Uint32(data[5:]) {
		n := int(le.Uint32(data[1:]))
		if data[0] != rowVersion || !fits(n) {
			return -1, nil
		}
		dir = data[headLen : headLen+n*dirEntry]
		if sum(dir) != le.Uint32(data[headLen+n*dirEntry:]) {
			return n, nil
		}
		return n, dir
	}
	// The head is damaged: the directory is whatever length its CRC fits.
	var crc uint32
	for n := 1; fits(n); n++ {
		end := headLen + n*dirEntry
		crc = crc32.Update(crc, castagnoli, data[end-dirEntry:end])
		if crc == le.Uint32(data[end:]) {
			return n, data[headLen:end]
		}
	}
	return -1, nil
}
