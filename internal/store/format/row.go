// SPDX-License-Identifier: Apache-2.0

package format

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
// A record that holds the head of its run has a 0, the length of the head (u32) and the
// head before first, which is never 0.
//
// A record without a run holds changes of its account; see [FeedFrames].
//
// The directory repeats what each record says about itself. So any one damaged byte
// leaves either the directory, which names the damaged run, or the records, which can
// be read without it. Numbers are little endian, every CRC is CRC-32C.
const (
	rowVersion = 1
	// RowHead is the length of the head.
	RowHead    = 9
	dirEntry   = 20
	recordHead = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// KeyHash is a hash of a run's key. Collisions are harmless: after damage, all runs of
// a hash count as damaged.
func KeyHash(k store.Key) uint32 { return sum(appendKey(nil, k)) }

func appendKey(buf []byte, k store.Key) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(k.Account)))
	buf = append(buf, k.Account...)
	buf = binary.AppendUvarint(buf, uint64(len(k.Run)))
	return append(buf, k.Run...)
}

// RecordSize returns an upper bound of the bytes that a transition takes in a row, with its
// head or without.
func RecordSize(t *store.Transition, withHead bool) int {
	n := dirEntry + recordHead + len(t.Account) + len(t.Run) + len(t.Frames) + 4*binary.MaxVarintLen32
	if withHead {
		n += 5 + headSize(t.Head)
	}
	return n
}

// AppendRow appends the transitions as one row and calls place with the offset in the
// row and the length of each record. withHead reports whether the record of a transition
// holds its head.
func AppendRow(buf []byte, batch []*store.Transition, withHead func(i int) bool, place func(i int, off, n uint32)) []byte {
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
		if withHead(i) {
			buf = append(buf, 0, 0, 0, 0, 0)
			at := len(buf)
			buf = appendHead(buf, t.Head)
			le.PutUint32(buf[at-4:], uint32(len(buf)-at))
		}
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

// A Record is one run's part of a row. Of a damaged one only Hash, First, Last and Off
// are known.
type Record struct {
	Key         store.Key
	Hash        uint32
	First, Last uint64
	Off, N      uint32
	Frames      []byte
	Damaged     string // why it cannot be read; "" = it can
	head        []byte // nil = it holds none
}

// Texts keeps one copy of each account and run, however many records name it.
type Texts map[string]string

func (m Texts) of(b []byte) string {
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

// ParseRecord reads the record at the start of b, which may be longer.
func ParseRecord(b []byte, known Texts) (Record, error) {
	if len(b) < recordHead {
		return Record{}, fmt.Errorf("%d bytes are too few for a record", len(b))
	}
	n := uint64(binary.LittleEndian.Uint32(b[4:])) + recordHead
	if n > uint64(len(b)) {
		return Record{}, fmt.Errorf("a record of %d bytes is cut to %d", n, len(b))
	}
	body := b[:n]
	if sum(body[4:]) != binary.LittleEndian.Uint32(body) {
		return Record{}, fmt.Errorf("a record of %d bytes fails its checksum", n)
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
	r := Record{Key: store.Key{Account: text(), Run: text()}, N: uint32(n)}
	if r.First = number(); ok && r.First == 0 {
		var err error
		if r.head, body, err = cutHead(body); err != nil {
			return Record{}, fmt.Errorf("a record of %d bytes: %w", n, err)
		}
		r.First = number()
	}
	r.Last = r.First + number()
	r.Frames = body
	if !ok {
		return Record{}, fmt.Errorf("a record of %d bytes has a malformed head", n)
	}
	return r, nil
}

// ParseRow calls fn with every record of a row, whole or damaged. It returns the
// offset from which not even the owners of the records are known, or -1 when every
// record is accounted for.
func ParseRow(data []byte, known Texts, fn func(Record)) (lostFrom int) {
	count, dir := rowDirectory(data)
	if count < 0 {
		return 0
	}
	off := RowHead + count*dirEntry + 4
	if dir == nil { // read the records without it
		for range count {
			r, err := ParseRecord(data[min(off, len(data)):], known)
			if err != nil {
				return off
			}
			r.Off = uint32(off)
			fn(r)
			off += int(r.N)
		}
		return -1
	}
	le := binary.LittleEndian
	for ; len(dir) > 0; dir = dir[dirEntry:] {
		n := int(le.Uint32(dir))
		r, err := ParseRecord(data[min(off, len(data)):min(off+n, len(data))], known)
		if err != nil {
			first := le.Uint64(dir[8:])
			r = Record{
				Hash: le.Uint32(dir[4:]), First: first, Last: first + uint64(le.Uint32(dir[16:])) - 1,
				Damaged: err.Error(),
			}
		}
		r.Off = uint32(off)
		fn(r)
		off += n
	}
	return -1
}

// IntactDirectory reports whether the head and the directory of a row are whole.
func IntactDirectory(data []byte) bool {
	count, dir := rowDirectory(data)
	return count >= 0 && dir != nil && sum(data[:5]) == binary.LittleEndian.Uint32(data[5:])
}

// rowDirectory returns the number of records, or -1 when that is lost, and the
// entries of the directory, or nil when they are damaged.
func rowDirectory(data []byte) (count int, dir []byte) {
	le := binary.LittleEndian
	if len(data) < RowHead {
		return -1, nil
	}
	fits := func(n int) bool { return RowHead+n*dirEntry+4 <= len(data) }
	if sum(data[:5]) == le.Uint32(data[5:]) {
		n := int(le.Uint32(data[1:]))
		if data[0] != rowVersion || !fits(n) {
			return -1, nil
		}
		dir = data[RowHead : RowHead+n*dirEntry]
		if sum(dir) != le.Uint32(data[RowHead+n*dirEntry:]) {
			return n, nil
		}
		return n, dir
	}
	// The head is damaged: find the length of the directory by its CRC.
	var crc uint32
	for n := 1; fits(n); n++ {
		end := RowHead + n*dirEntry
		crc = crc32.Update(crc, castagnoli, data[end-dirEntry:end])
		if crc == le.Uint32(data[end:]) {
			return n, data[RowHead:end]
		}
	}
	return -1, nil
}
