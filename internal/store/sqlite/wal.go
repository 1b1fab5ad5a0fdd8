// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// The write-ahead log of SQLite, as described in sqlite.org/fileformat2.html#walformat: a
// header, and frames of one page each. One checksum runs through all of them. SQLite
// takes everything after the first frame that does not verify for the rest of an
// unfinished commit. A flipped bit looks the same, and every later commit would be lost
// silently. So this package reads the log before SQLite does.
const (
	walHeader   = 32
	frameHeader = 24
	walMagic    = 0x377f0682 // with checksums of little-endian words; one more = big-endian
	walVersion  = 3007000
)

// A walState is what the log of a closed store contains.
type walState struct {
	Frames     int    // of the unbroken chain up to its last commit
	Commits    int    // in them
	Chained    int    // frames of the unbroken chain, with those of a commit that does not end
	Unfinished int    // frames after the last commit, of an unfinished one
	Damage     string // why acknowledged commits cannot be read; "" = nothing is damaged

	size uint32 // pages of the database after the last commit
}

// readWAL reads the log of a database that no process has open. It changes nothing. An
// error means that the log could not be read at all.
func readWAL(database string) (walState, error) {
	f, err := openWAL(database)
	if err != nil || f == nil {
		return walState{}, err
	}
	defer func() { _ = f.Close() }()
	w, err := newWAL(f)
	switch {
	case err != nil || w == nil:
		return walState{}, err
	case !w.valid:
		return w.headless(database)
	}
	st, err := w.scan(nil)
	if err != nil || st.Damage != "" {
		return st, err
	}
	if most, ok := indexed(database, w.salts); ok && most > st.Frames {
		st.Damage = fmt.Sprintf("frame %d of %d that were written does not verify", st.Chained+1, most)
	}
	return st, nil
}

// openWAL opens the log of a database, or returns nil when there is none.
func openWAL(database string) (*os.File, error) {
	f, err := datadir.Open(database+"-wal", os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, dirFault(err, database+"-wal")
	}
	return f, nil
}

// A wal is an open log with the content of its header.
type wal struct {
	f      *os.File
	frames int // that the file has room for
	page   int // bytes of a page
	order  binary.ByteOrder
	salts  [8]byte
	sum    checksum // of the header, with which that of the first frame begins
	valid  bool     // the header verifies
	every  bool     // scan passes all frames, also those that do not verify
}

// newWAL reads the header of a log. It returns nil when there is none, as after a clean
// end.
func newWAL(f *os.File) (*wal, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fault.Wrap(fault.StoreFailed, err, "cannot examine the log: %v", err)
	}
	var head [walHeader]byte
	if _, err := f.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return nil, nil // it was created and not written
	} else if err != nil {
		return nil, readFault(err)
	}
	if head == [walHeader]byte{} {
		return nil, nil
	}
	w := &wal{f: f, order: binary.LittleEndian, page: int(binary.BigEndian.Uint32(head[8:]))}
	magic := binary.BigEndian.Uint32(head[:])
	if magic == walMagic+1 {
		w.order = binary.BigEndian
	}
	copy(w.salts[:], head[16:])
	w.sum = checksum{}.over(w.order, head[:24])
	w.valid = magic&^1 == walMagic && binary.BigEndian.Uint32(head[4:]) == walVersion && validPage(w.page) && w.sum == storedSum(head[24:])
	if w.valid {
		w.frames = int((info.Size() - walHeader) / int64(frameHeader+w.page))
	}
	return w, nil
}

func validPage(n int) bool { return n >= 512 && n <= 65536 && n&(n-1) == 0 }

// A checksum is that of the log: two words, which cover everything before them.
type checksum [2]uint32

func (c checksum) over(order binary.ByteOrder, data []byte) checksum {
	a, b := c[0], c[1]
	if order == binary.LittleEndian {
		for ; len(data) >= 8; data = data[8:] {
			a += binary.LittleEndian.Uint32(data) + b
			b += binary.LittleEndian.Uint32(data[4:]) + a
		}
		return checksum{a, b}
	}
	for ; len(data) >= 8; data = data[8:] {
		a += order.Uint32(data) + b
		b += order.Uint32(data[4:]) + a
	}
	return checksum{a, b}
}

func storedSum(b []byte) checksum {
	return checksum{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

// A frame is one page in the log.
type frame struct {
	n      int // from 1
	page   uint32
	size   uint32 // pages of the database after the commit that it ends; 0 = it ends none
	sum    checksum
	data   []byte
	own    bool // it has the salts of the log
	intact bool // and verifies from the checksum that the frame before it has
	chain  bool // so do all before it
}

// scan reads all frames and judges those after the last commit of the unbroken chain. A
// commit is synced before the next one is written. So valid commits after a broken
// chain are damage, with one exception. When the last commit was torn, SQLite
// overwrites it from its first frame on, with the same salts. The end of the torn
// commit may then follow newer commits and look like a whole commit, but no valid frame
// follows it.
//
// scan calls each, if it is not nil, with every intact frame, or with every frame if
// w.every is set. The data of a frame are valid until each returns.
func (w *wal) scan(each func(frame) error) (st walState, err error) {
	fr := frame{chain: true, sum: w.sum}
	buf := make([]byte, frameHeader+w.page)
	ended := false // the frame before is intact, ends a commit, and lies beyond the chain
	for n := 1; n <= w.frames; n++ {
		if err := w.read(&fr, n, buf); err != nil {
			return st, err
		}
		if fr.chain {
			st.Chained = n
		}
		switch {
		case fr.chain && fr.size > 0:
			st.Frames, st.Unfinished, st.size = n, 0, fr.size
			st.Commits++
		case fr.own:
			st.Unfinished++
		}
		if ended && fr.intact && st.Damage == "" {
			st.Damage = fmt.Sprintf("frame %d does not verify, and commits after it do", st.Chained+1)
		}
		ended = fr.intact && fr.size > 0 && !fr.chain
		if each != nil && (fr.intact || w.every) {
			if err := each(fr); err != nil {
				return st, err
			}
		}
	}
	return st, nil
}

// read reads frame n into buf; fr is the frame before it. Where the header is damaged,
// only its successor shows whether the first frame verifies.
func (w *wal) read(fr *frame, n int, buf []byte) error {
	at := walHeader + int64(n-1)*int64(len(buf))
	if _, err := w.f.ReadAt(buf[:frameHeader], at); err != nil {
		return readFault(err)
	}
	before := fr.sum
	fr.n, fr.page, fr.size = n, binary.BigEndian.Uint32(buf), binary.BigEndian.Uint32(buf[4:])
	fr.sum, fr.data, fr.intact = storedSum(buf[16:]), buf[frameHeader:], false
	if fr.own = bytes.Equal(buf[8:16], w.salts[:]) && fr.page != 0; fr.own || w.every { // others need not be read
		if _, err := w.f.ReadAt(fr.data, at+frameHeader); err != nil {
			return readFault(err)
		}
		fr.intact = fr.own && (n == 1 && !w.valid || before.over(w.order, buf[:8]).over(w.order, fr.data) == fr.sum)
	}
	fr.chain = fr.chain && fr.intact
	return nil
}

// headless judges a log whose header is neither zero nor valid. It is harmless if the
// database has everything that is in the log: then the header was being rewritten.
func (w *wal) headless(database string) (walState, error) {
	st := walState{}
	db, err := datadir.Open(database, os.O_RDONLY)
	if err == nil {
		defer func() { _ = db.Close() }()
		var stored bool
		if st, stored, err = w.stored(db); err != nil || stored && st.Damage == "" {
			return walState{}, err
		}
	} // without a database nothing else has the content of the log
	st.Damage = "its header does not verify"
	return st, nil
}

// stored reports whether the database has everything that is in a log without a header.
func (w *wal) stored(db *os.File) (st walState, is bool, err error) {
	if known, err := w.guess(db); err != nil || !known {
		return st, false, err
	}
	newest, st, err := w.newest()
	if err != nil {
		return st, false, err
	}
	for page, n := range newest {
		if same, err := w.equals(db, page, n); err != nil || !same {
			return st, false, err
		}
	}
	return st, true, nil
}

// guess takes the page size from the database and the salts from the first frame, for a
// log without a valid header. known is false when the database has no valid page size.
func (w *wal) guess(db *os.File) (known bool, err error) {
	info, err := w.f.Stat()
	if err != nil {
		return false, readFault(err)
	}
	var head [18]byte
	if _, err := db.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, readFault(err)
	}
	if w.page = int(binary.BigEndian.Uint16(head[16:])); w.page == 1 {
		w.page = 65536
	}
	if !validPage(w.page) {
		return false, nil
	}
	w.frames = int((info.Size() - walHeader) / int64(frameHeader+w.page))
	if w.frames > 0 {
		if _, err := w.f.ReadAt(w.salts[:], walHeader+8); err != nil {
			return false, readFault(err)
		}
	}
	return true, nil
}

// newest returns the last frame of each page in the commits of the chain that begins
// with the first frame. Chained frames after those belong to an unfinished commit,
// which no checkpoint copied. newest also detects the byte order.
func (w *wal) newest() (newest map[uint32]int, st walState, err error) {
	for _, w.order = range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		newest = map[uint32]int{}
		open := map[uint32]int{} // of the commit being read
		st, err = w.scan(func(fr frame) error {
			if !fr.chain {
				return nil
			}
			open[fr.page] = fr.n
			if fr.size > 0 || fr.n == 1 {
				maps.Copy(newest, open)
				clear(open)
			}
			return nil
		})
		if err != nil || st.Chained > 1 {
			break
		}
	}
	return newest, st, err
}

// equals reports whether a page of the database equals frame n.
func (w *wal) equals(db *os.File, page uint32, n int) (bool, error) {
	if page == 0 {
		return true, nil
	}
	logged, stored := make([]byte, w.page), make([]byte, w.page)
	if _, err := w.f.ReadAt(logged, walHeader+int64(n-1)*int64(frameHeader+w.page)+frameHeader); err != nil {
		return false, readFault(err)
	}
	if _, err := db.ReadAt(stored, int64(page-1)*int64(w.page)); err != nil && !errors.Is(err, io.EOF) {
		return false, readFault(err)
	}
	return bytes.Equal(logged, stored), nil
}

// indexed returns the number of frames that the index of the log records; SQLite writes
// it after it has synced them. ok is false when the index belongs to another log or
// does not verify.
func indexed(database string, salts [8]byte) (frames int, ok bool) {
	f, err := datadir.Open(database+"-shm", os.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	const size = 48
	var head [2 * size]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || !bytes.Equal(head[:size], head[size:]) {
		return 0, false
	}
	native := binary.NativeEndian
	sum := checksum{native.Uint32(head[40:]), native.Uint32(head[44:])}
	order := binary.ByteOrder(binary.LittleEndian)
	if native.Uint16([]byte{0, 1}) == 1 {
		order = binary.BigEndian
	}
	if native.Uint32(head[:]) != walVersion || (checksum{}).over(order, head[:40]) != sum || !bytes.Equal(head[32:40], salts[:]) {
		return 0, false
	}
	return int(native.Uint32(head[16:])), true
}

// examineLog refuses a store whose log has lost acknowledged commits.
func (s *Store) examineLog() error {
	st, err := readWAL(s.path)
	if err != nil {
		return err
	}
	if st.Damage != "" {
		return damagedLog(s.path, st)
	}
	s.examined, s.unfinished = true, st.Unfinished
	return nil
}

// Unfinished returns how many pages were dropped from the log when the store was
// opened, because they belong to a commit that was never acknowledged, as after a power
// cut.
func (s *Store) Unfinished() int { return s.unfinished }

// emptyLog copies the log into the database. It reports whether all of it is copied and
// synced and no connection reads the log; only then may closing clear it. While another
// process reads the log, it cannot restart, and the next store appends to it; an empty
// header would hide that. The caller holds w.
func (s *Store) emptyLog() bool {
	if !s.examined || s.failed != nil || s.up.restart == nil {
		return false
	}
	busy, _, err := runCheckpoint(s.up.restart)
	return err == nil && !busy
}

// clearWAL zeroes the header of a log whose frames are all in the database and synced,
// so that the next start need not read it. The log keeps its length.
func clearWAL(database string) error {
	f, err := datadir.Open(database+"-wal", os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return dirFault(err, database+"-wal")
	}
	_, err = f.WriteAt(make([]byte, walHeader), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fault.Wrap(fault.StoreFailed, err, "the log could not be ended: %v", err)
	}
	return nil
}

func readFault(err error) error {
	return fault.Wrap(fault.StoreFailed, err, "the log of the store cannot be read: %v", err)
}

// damagedLog is the error of a store whose log has lost acknowledged commits.
func damagedLog(database string, st walState) error {
	readable := "the database"
	if st.Commits > 0 {
		readable = fmt.Sprintf("the database and the first %d commits in the log", st.Commits)
	}
	refusal := fault.New(fault.StoreCorrupt, "the log %s-wal is damaged: %s. Commits that were acknowledged cannot be read; nothing was changed. "+
		"What can be read is %s: `roux doctor --salvage DIR` saves every run that verifies into a new directory", database, st.Damage, readable)
	refusal.Remedy = "`roux doctor --salvage DIR` makes a new data directory of what can be read; keep this one until you have seen what it names as lost."
	return refusal
}
