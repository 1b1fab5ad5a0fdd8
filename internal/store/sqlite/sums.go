// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sync"

	"modernc.org/sqlite"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// Rows of the journal, chunks, packs and states carry a checksum of their bytes.
// The tables with columns have checksums beside them, one for each set of columns
// that is written at once, so that no write has to read what it leaves alone:
//
//	runs           start_sum  key, recipe, version, plan_hash, created
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
//	snapshots      sum        the row but its state, which is encoded
//	chunks         sum        the row but its data, which are encoded; -1 = written
//	                          before there was one
//
// A checksum is CRC-32C over the columns in that order: a number is a 1 and its
// eight bytes, text and bytes are a 2, their length and themselves.

// Two of the sums in SQL.
const (
	startSumOf = `roux_sum(r.account, r.run, r.recipe, r.version, r.plan_hash, r.created)`
	headSumOf  = `roux_sum(r.account, r.run, r.status, r.updated, r.ended, r.code, r.message, r.used, r.failures, r.quarantine, r.owes)`
)

// sumRoom is room for columns while they are summed.
var sumRoom = sync.Pool{New: func() any { return new([]byte) }}

// sumOf is the checksum of some columns, given as SQLite gives them.
func sumOf(columns ...driver.Value) int64 {
	room := sumRoom.Get().(*[]byte)
	buf := (*room)[:0]
	for _, c := range columns {
		switch c := c.(type) {
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
	if cap(buf) <= keptBytes {
		*room = buf
		sumRoom.Put(room)
	}
	return int64(crc)
}

// A rowSum makes the checksums of columns that follow a run's key, as sumOf does; the
// key is summed once.
type rowSum struct {
	key uint32
	buf []byte // columns of the sum being made
}

var rowSums = sync.Pool{New: func() any { return new(rowSum) }}

// sumsOf returns a rowSum of a run, for done to give back.
func sumsOf(key store.Key) *rowSum {
	k := rowSums.Get().(*rowSum)
	k.buf = k.buf[:0]
	k.text(key.Account).text(key.Run)
	k.key = sum(k.buf)
	k.buf = k.buf[:0]
	return k
}

func (k *rowSum) done() {
	if cap(k.buf) <= keptBytes {
		rowSums.Put(k)
	}
}

func (k *rowSum) number(n int64) *rowSum {
	k.buf = binary.LittleEndian.AppendUint64(append(k.buf, 1), uint64(n))
	return k
}

func (k *rowSum) text(s string) *rowSum {
	k.buf = append(binary.AppendUvarint(append(k.buf, 2), uint64(len(s))), s...)
	return k
}

func (k *rowSum) sum() int64 {
	crc := crc32.Update(k.key, castagnoli, k.buf)
	k.buf = k.buf[:0]
	return int64(crc)
}

func (k *rowSum) start(h *store.Head) int64 {
	return k.text(h.Recipe).text(h.Version).text(h.PlanHash).number(h.Created).sum()
}

func (k *rowSum) head(h *store.Head) int64 {
	return k.text(h.Status).number(h.Updated).number(h.Ended).text(string(h.Code)).text(h.Message).number(h.Used).
		number(flag(h.Failures)).text(h.Quarantine).number(flag(h.Owes)).sum()
}

// registerSum makes sumOf a function of SQL, for the migration that fills in the
// checksums of rows that are there.
var registerSum = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction("roux_sum", -1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		return sumOf(args...), nil
	})
})

// writeStart makes the row of a new run, with its sums. It is not suspended and has no
// place, which needs none.
func (s *Store) writeStart(key store.Key, h *store.Head, last uint64) (int64, error) {
	k := sumsOf(key)
	defer k.done()
	args := [...]driver.Value{
		key.Account, key.Run, h.Recipe, h.Version, h.PlanHash, h.Status, h.Created, h.Updated, h.Ended,
		string(h.Code), h.Message, h.Used, flag(h.Failures), h.Quarantine, flag(h.Owes), int64(last),
		k.start(h), k.head(h), k.number(int64(last)).sum(),
	}
	return s.st.startRun.exec(args[:]...)
}

// writeHead replaces the columns that a new head does: beside it how far the events
// reach, and where the first of them are when that is new. Of a damaged run, which
// gets no events, what it says of them stays.
func (s *Store) writeHead(e *entry, h *store.Head, last uint64, at location) error {
	k := sumsOf(e.key)
	defer k.done()
	args := [...]driver.Value{
		e.key.Account, e.key.Run, h.Status, h.Updated, h.Ended, string(h.Code), h.Message, h.Used,
		flag(h.Failures), h.Quarantine, flag(h.Owes), k.head(h),
		int64(last), k.number(int64(last)).sum(), at.first, at.reach, at.sum,
	}
	switch {
	case e.damage != nil:
		return s.write(s.st.putHeadAlone, args[:12]...)
	case at.first != nil:
		return s.write(s.st.putHeadPlace, args[:]...)
	case e.newOpen && h.Ended == 0 && !h.Owes:
		return s.write(s.st.putOpenHead, args[:14]...)
	}
	return s.write(s.st.putHead, args[:14]...)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func startSum(key store.Key, h *store.Head) int64 {
	k := sumsOf(key)
	defer k.done()
	return k.start(h)
}

func headSum(key store.Key, h *store.Head) int64 {
	k := sumsOf(key)
	defer k.done()
	return k.head(h)
}

// sumFits compares the sum of two numbers with the one that was stored. Two zeros
// have none when nothing was written since the row was made.
func sumFits(stored, want, a, b int64) bool {
	return stored == want || stored == noSum && a == 0 && b == 0
}

func suspendSum(key store.Key, suspended, wakeAt int64) int64 {
	return sumOf(key.Account, key.Run, suspended, wakeAt)
}

func stateSum(key store.Key, last uint64, format uint32) int64 {
	return sumOf(key.Account, key.Run, int64(last), int64(format))
}

// reachSum covers how far the events of a run reach.
func reachSum(key store.Key, last int64) int64 { return sumOf(key.Account, key.Run, last) }

// placeSum covers in which pack the first events of a run are.
func placeSum(key store.Key, pack, packed int64) int64 {
	return sumOf(key.Account, key.Run, pack, packed)
}

func pieceSum(key store.Key, first, last uint64, pack int64) int64 {
	return sumOf(key.Account, key.Run, int64(last), int64(first), pack)
}

// noSum is the default of sums: that of a chunk which was written before it had one,
// and that of two columns which are 0 since the row was made.
const noSum = -1

func chunkSum(key store.Key, first, last uint64) int64 {
	return sumOf(key.Account, key.Run, int64(first), int64(last))
}

// A headRow is a head as the table has it.
type headRow struct {
	store.Head
	failures, owes    int64 // as stored, where only 0 and 1 are right
	startSum, headSum int64
}

// check completes a head and refuses one that is not the one that was written.
func (r *headRow) check() error {
	r.Failures, r.Owes = r.failures != 0, r.owes != 0
	switch {
	case r.startSum != startSum(r.Key, &r.Head):
		return damagedHead(r.Key, "recipe, version, plan or time of creation")
	case r.headSum != headSum(r.Key, &r.Head), r.failures != flag(r.Failures), r.owes != flag(r.Owes):
		return damagedHead(r.Key, "status, times or outcome")
	}
	return nil
}

// orDamage is the head, or what may be said of one that is damaged.
func (r *headRow) orDamage() store.Head {
	if err := r.check(); err != nil {
		return store.Head{Key: r.Key, Damage: fault.Message(err)}
	}
	return r.Head
}

func damagedHead(key store.Key, what string) error {
	return damagedRow(fmt.Sprintf("run %q (account %q)", key.Run, key.Account), what)
}

func damagedRow(row, what string) error {
	return fault.New(fault.StoreCorrupt, "%s: the stored %s failed the checksum: `roux doctor` checks the rest, and a backup has the whole", row, what)
}
