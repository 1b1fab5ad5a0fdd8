// SPDX-License-Identifier: Apache-2.0

// Package wal reads the write-ahead log of a SQLite database that nobody has open.
//
// It decides which frames verify, which of them belong to whole commits, and whether
// commits that were acknowledged are lost, and makes databases of what a damaged log
// still has. It never changes a log, except that Clear ends one whose frames are all in
// the database, and Warm adds room behind the last frame.
package wal

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
	HeaderSize  = 32         // bytes of the header of a log
	FrameHeader = 24         // and of that of a frame
	Magic       = 0x377f0682 // begins a log with checksums of little-endian words; one more = big-endian
	version     = 3007000
)

// A State is what the log of a closed store contains.
type State struct {
	Frames     int    // of the unbroken chain up to its last commit
	Commits    int    // in them
	Chained    int    // frames of the unbroken chain, with those of a commit that does not end
	Unfinished int    // frames after the last commit, of an unfinished one
	Damage     string // why acknowledged commits cannot be read; "" = nothing is damaged

	Size uint32 // pages of the database after the last commit
}

// Read reads the log of a database that no process has open. It changes nothing. An
// error means that the log could not be read at all.
func Read(database string) (State, error) {
	w, err := Open(database)
	if err != nil || w == nil {
		return State{}, err
	}
	defer w.Close()
	if !w.Valid {
		return w.headless(database)
	}
	st, err := w.Scan(nil)
	if err != nil || st.Damage != "" {
		return st, err
	}
	if most, ok := indexed(database, w.salts); ok && most > st.Frames {
		st.Damage = fmt.Sprintf("frame %d of %d that were written does not verify", st.Chained+1, most)
	}
	return st, nil
}

// Open opens the log of a database and reads its header. It returns nil when there is no
// log, or an empty one as after a clean end.
func Open(database string) (*Log, error) {
	f, err := datadir.Open(database+"-wal", os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w, err := newLog(f)
	if w == nil {
		_ = f.Close()
	}
	return w, err
}

// Close closes the log.
func (w *Log) Close() { _ = w.f.Close() }

// A Log is an open log with the content of its header.
type Log struct {
	f      *os.File
	Frames int // that the file has room for
	Page   int // bytes of a page
	order  binary.ByteOrder
	salts  [8]byte
	sum    checksum // of the header, with which that of the first frame begins
	Valid  bool     // the header verifies
	Every  bool     // Scan passes all frames, also those that do not verify
}

// newLog reads the header of a log, and returns nil when there is none.
func newLog(f *os.File) (*Log, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fault.Wrap(fault.StoreFailed, err, "cannot examine the log: %v", err)
	}
	var head [HeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); errors.Is(err, io.EOF) {
		return nil, nil // it was created and not written
	} else if err != nil {
		return nil, readFault(err)
	}
	if head == [HeaderSize]byte{} {
		return nil, nil
	}
	w := &Log{f: f, order: binary.LittleEndian, Page: int(binary.BigEndian.Uint32(head[8:]))}
	magic := binary.BigEndian.Uint32(head[:])
	if magic == Magic+1 {
		w.order = binary.BigEndian
	}
	copy(w.salts[:], head[16:])
	w.sum = checksum{}.over(w.order, head[:24])
	w.Valid = magic&^1 == Magic && binary.BigEndian.Uint32(head[4:]) == version && validPage(w.Page) && w.sum == storedSum(head[24:])
	if w.Valid {
		w.Frames = int((info.Size() - HeaderSize) / int64(FrameHeader+w.Page))
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

// A Frame is one page in the log.
type Frame struct {
	N      int // from 1
	Page   uint32
	Size   uint32 // pages of the database after the commit that it ends; 0 = it ends none
	sum    checksum
	Data   []byte
	Own    bool // it has the salts of the log
	Intact bool // and verifies from the checksum that the frame before it has
	Chain  bool // so do all before it
}

// Scan reads all frames and judges those after the last commit of the unbroken chain. A
// commit is synced before the next one is written. So valid commits after a broken
// chain are damage, with one exception. When the last commit was torn, SQLite
// overwrites it from its first frame on, with the same salts. The end of the torn
// commit may then follow newer commits and look like a whole commit, but no valid frame
// follows it.
//
// Scan calls each, if it is not nil, with every intact frame, or with every frame if
// w.Every is set. The data of a frame are valid until each returns.
func (w *Log) Scan(each func(Frame) error) (st State, err error) {
	fr := Frame{Chain: true, sum: w.sum}
	buf := make([]byte, FrameHeader+w.Page)
	ended := false // the frame before is intact, ends a commit, and lies beyond the chain
	for n := 1; n <= w.Frames; n++ {
		if err := w.read(&fr, n, buf); err != nil {
			return st, err
		}
		if fr.Chain {
			st.Chained = n
		}
		switch {
		case fr.Chain && fr.Size > 0:
			st.Frames, st.Unfinished, st.Size = n, 0, fr.Size
			st.Commits++
		case fr.Own:
			st.Unfinished++
		}
		if ended && fr.Intact && st.Damage == "" {
			st.Damage = fmt.Sprintf("frame %d does not verify, and commits after it do", st.Chained+1)
		}
		ended = fr.Intact && fr.Size > 0 && !fr.Chain
		if each != nil && (fr.Intact || w.Every) {
			if err := each(fr); err != nil {
				return st, err
			}
		}
	}
	return st, nil
}

// read reads frame n into buf; fr is the frame before it. Where the header is damaged,
// only its successor shows whether the first frame verifies.
func (w *Log) read(fr *Frame, n int, buf []byte) error {
	at := HeaderSize + int64(n-1)*int64(len(buf))
	if _, err := w.f.ReadAt(buf[:FrameHeader], at); err != nil {
		return readFault(err)
	}
	before := fr.sum
	fr.N, fr.Page, fr.Size = n, binary.BigEndian.Uint32(buf), binary.BigEndian.Uint32(buf[4:])
	fr.sum, fr.Data, fr.Intact = storedSum(buf[16:]), buf[FrameHeader:], false
	if fr.Own = bytes.Equal(buf[8:16], w.salts[:]) && fr.Page != 0; fr.Own || w.Every { // others need not be read
		if _, err := w.f.ReadAt(fr.Data, at+FrameHeader); err != nil {
			return readFault(err)
		}
		fr.Intact = fr.Own && (n == 1 && !w.Valid || before.over(w.order, buf[:8]).over(w.order, fr.Data) == fr.sum)
	}
	fr.Chain = fr.Chain && fr.Intact
	return nil
}

// headless judges a log whose header is neither zero nor valid. It is harmless if the
// database has everything that is in the log: then the header was being rewritten.
func (w *Log) headless(database string) (State, error) {
	st := State{}
	db, err := datadir.Open(database, os.O_RDONLY)
	if err == nil {
		defer func() { _ = db.Close() }()
		var stored bool
		if st, stored, err = w.stored(db); err != nil || stored && st.Damage == "" {
			return State{}, err
		}
	} // without a database nothing else has the content of the log
	st.Damage = "its header does not verify"
	return st, nil
}

// stored reports whether the database has everything that is in a log without a header.
func (w *Log) stored(db *os.File) (st State, is bool, err error) {
	if known, err := w.Guess(db); err != nil || !known {
		return st, false, err
	}
	newest, st, err := w.Newest()
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

// Guess takes the page size from the database and the salts from the first frame, for a
// log without a valid header. known is false when the database has no valid page size.
func (w *Log) Guess(db *os.File) (known bool, err error) {
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
	if w.Page = int(binary.BigEndian.Uint16(head[16:])); w.Page == 1 {
		w.Page = 65536
	}
	if !validPage(w.Page) {
		return false, nil
	}
	w.Frames = int((info.Size() - HeaderSize) / int64(FrameHeader+w.Page))
	if w.Frames > 0 {
		if _, err := w.f.ReadAt(w.salts[:], HeaderSize+8); err != nil {
			return false, readFault(err)
		}
	}
	return true, nil
}

// Newest returns the last frame of each page in the commits of the chain that begins
// with the first frame. Chained frames after those belong to an unfinished commit,
// which no checkpoint copied. Newest also detects the byte order.
func (w *Log) Newest() (newest map[uint32]int, st State, err error) {
	for _, w.order = range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		newest = map[uint32]int{}
		open := map[uint32]int{} // of the commit being read
		st, err = w.Scan(func(fr Frame) error {
			if !fr.Chain {
				return nil
			}
			open[fr.Page] = fr.N
			if fr.Size > 0 || fr.N == 1 {
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
func (w *Log) equals(db *os.File, page uint32, n int) (bool, error) {
	if page == 0 {
		return true, nil
	}
	logged, stored := make([]byte, w.Page), make([]byte, w.Page)
	if _, err := w.f.ReadAt(logged, HeaderSize+int64(n-1)*int64(FrameHeader+w.Page)+FrameHeader); err != nil {
		return false, readFault(err)
	}
	if _, err := db.ReadAt(stored, int64(page-1)*int64(w.Page)); err != nil && !errors.Is(err, io.EOF) {
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
	if native.Uint32(head[:]) != version || (checksum{}).over(order, head[:40]) != sum || !bytes.Equal(head[32:40], salts[:]) {
		return 0, false
	}
	return int(native.Uint32(head[16:])), true
}

// Clear zeroes the header of a log whose frames are all in the database and synced,
// so that the next start need not read it. The log keeps its length.
func Clear(database string) error {
	f, err := datadir.Open(database+"-wal", os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, HeaderSize), 0)
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
