// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/roux-engine/roux/internal/store"
)

// Journal rows and blobs carry a checksum of their own bytes. Other columns have
// checksum columns beside them, one for each set of columns that is written together,
// so that no write needs to read the columns it leaves alone:
//
//	runs           start_sum  key, recipe, version, plan_hash, created; of a child run
//	                          also root, parent
//	               head_sum   key and all that a new head replaces
//	               park_sum   key, parked, wake_at; -1 = both are 0 since the row was made
//	               reach_sum  key, last
//	               place_sum  key, pack, packed; -1 likewise
//	idempotency    sum        the whole row
//	plans          sum        the whole row
//	notes          sum        the whole row
//	pieces         sum        the whole row
//	file_released  sum        the whole row
//	deleted        sum        the whole row
//	owner          sum        the whole row
//	ledger         sum        the whole row
//	ledger_keys    sum        the whole row
//	ledger_states  sum        the whole row
//	feed           sum        the whole row
//	record_revisions sum  the whole row
//	run_marks                 a blob
//	records        sum        the row except its data, which is a blob
//	snapshots      sum        the row except its state, which is a blob
//	chunks         sum        the row except its data, which is a blob; -1 = written
//	                          before chunks had a checksum
//
// A checksum is CRC-32C over the columns in that order. A number is written as a 1 and
// its eight bytes; text and bytes are written as a 2, the length and the bytes.

// keptRoom is the largest buffer that is kept for the next checksum.
const keptRoom = 256 << 10

// sumRoom holds buffers for Sum.
var sumRoom = sync.Pool{New: func() any { return new([]byte) }}

// Sum returns the checksum of columns of the types that SQLite returns: int64, string,
// []byte or nil.
func Sum(columns ...any) int64 { return SumAll(columns) }

// SumAll is Sum for a slice of any interface type, which need not be copied.
func SumAll[T any](columns []T) int64 {
	room := sumRoom.Get().(*[]byte)
	buf := (*room)[:0]
	for _, c := range columns {
		switch c := any(c).(type) {
		case int64:
			buf = binary.LittleEndian.AppendUint64(append(buf, 1), uint64(c))
		case string:
			buf = append(binary.AppendUvarint(append(buf, 2), uint64(len(c))), c...)
		case []byte:
			buf = append(binary.AppendUvarint(append(buf, 2), uint64(len(c))), c...)
		default: // NULL, which is how an empty blob may come
			buf = append(buf, 2, 0)
		}
	}
	crc := sum(buf)
	if cap(buf) <= keptRoom {
		*room = buf
		sumRoom.Put(room)
	}
	return int64(crc)
}

// A RowSum computes several checksums that begin with the same run's key, as [Sum]
// does, and sums the key only once.
type RowSum struct {
	prefix uint32 // the sum of the key
	buf    []byte // columns of the sum being made
}

var rowSums = sync.Pool{New: func() any { return new(RowSum) }}

// NewRowSum returns a RowSum of a run. Call Done after use.
func NewRowSum(key store.Key) *RowSum {
	k := rowSums.Get().(*RowSum)
	k.buf = k.buf[:0]
	k.text(key.Account).text(key.Run)
	k.prefix = sum(k.buf)
	k.buf = k.buf[:0]
	return k
}

// Done lets the RowSum be used again by another caller.
func (k *RowSum) Done() {
	if cap(k.buf) <= keptRoom {
		rowSums.Put(k)
	}
}

func (k *RowSum) number(n int64) *RowSum {
	k.buf = binary.LittleEndian.AppendUint64(append(k.buf, 1), uint64(n))
	return k
}

func (k *RowSum) text(s string) *RowSum {
	k.buf = append(binary.AppendUvarint(append(k.buf, 2), uint64(len(s))), s...)
	return k
}

func (k *RowSum) sum() int64 {
	crc := crc32.Update(k.prefix, castagnoli, k.buf)
	k.buf = k.buf[:0]
	return int64(crc)
}

// Reach returns the reach_sum of a run whose last event is last.
func (k *RowSum) Reach(last int64) int64 { return k.number(last).sum() }

// Start returns the start_sum of a head.
func (k *RowSum) Start(h *store.Head) int64 {
	k.text(h.Recipe).text(h.Version).text(h.PlanHash).number(h.Created)
	if h.Root != "" || h.Parent != "" {
		k.text(h.Root).text(h.Parent)
	}
	return k.sum()
}

// Head returns the head_sum of a head.
func (k *RowSum) Head(h *store.Head) int64 {
	return k.text(h.Status).number(h.Updated).number(h.Ended).text(string(h.Code)).text(h.Message).number(h.Used).
		number(Flag(h.Failures)).text(h.Quarantine).number(Flag(h.Owes)).sum()
}

// Flag returns b as it is stored.
func Flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// StartSum returns the start_sum of a head.
func StartSum(key store.Key, h *store.Head) int64 {
	k := NewRowSum(key)
	defer k.Done()
	return k.Start(h)
}

// HeadSum returns the head_sum of a head.
func HeadSum(key store.Key, h *store.Head) int64 {
	k := NewRowSum(key)
	defer k.Done()
	return k.Head(h)
}

// SumFits reports whether the stored checksum of the numbers a and b is the wanted
// one. Two zeros may have none: then nothing was written since the row was inserted.
func SumFits(stored, want, a, b int64) bool {
	return stored == want || stored == NoSum && a == 0 && b == 0
}

// SuspendSum covers whether a run is suspended and when it wakes.
func SuspendSum(key store.Key, suspended, wakeAt int64) int64 {
	return Sum(key.Account, key.Run, suspended, wakeAt)
}

// StateSum covers the row of a snapshot.
func StateSum(key store.Key, last uint64, format uint32) int64 {
	return Sum(key.Account, key.Run, int64(last), int64(format))
}

// ReachSum covers the number of the last event of a run.
func ReachSum(key store.Key, last int64) int64 { return Sum(key.Account, key.Run, last) }

// PlaceSum covers in which pack the first events of a run are.
func PlaceSum(key store.Key, pack, packed int64) int64 {
	return Sum(key.Account, key.Run, pack, packed)
}

// PieceSum covers the row of a piece.
func PieceSum(key store.Key, first, last uint64, pack int64) int64 {
	return Sum(key.Account, key.Run, int64(last), int64(first), pack)
}

// NoSum is the default of the checksum columns: a chunk from before chunks had
// checksums has it, and two columns that are 0 since the row was inserted.
const NoSum = -1

// ChunkSum covers the row of a chunk.
func ChunkSum(key store.Key, first, last uint64) int64 {
	return Sum(key.Account, key.Run, int64(first), int64(last))
}

// DeletedSum covers the mark of a deleted run.
func DeletedSum(key store.Key, before int64) int64 { return Sum(key.Account, key.Run, before) }
