// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/wire"
)

// A row of the feed holds consecutive changes of one account, of one commit or more: the version
// u8, then for each change
//
//	what it is and its flags u8
//	time           uvarint, since the change before it
//	run or key     the length that it shares with the one before it, then the rest
//	of a head      status and recipe (texts); root and code (texts) and end (varint, since
//	               the change), if the flags say so
//	of an entry    number uvarint, since the entry before it; kind u8
//	of a notice    level and amount (varints); its name is what the level limits
//
// A text is 0 and the text, or the number of an earlier one in this row. The first is "".
// Commits repeat a few texts, and the ids of runs that start together begin alike, so a
// change takes 20 to 30 bytes. Writing these bytes is most of what the feed costs.
//
// The numbers of the changes are in the columns of the row.
const changesVersion = 1

// What a change is, and its flags.
const (
	changedHead    = 0
	changedDeleted = 1
	changedEntry   = 2
	changedNotice  = 3
	changedMask    = 3

	changeQuarantined = 1 << 2
	changeImported    = 1 << 3
	changeEnded       = 1 << 4
	changeCode        = 1 << 5
	changeChild       = 1 << 6
	changeHidden      = 1 << 7
)

// maxTexts bounds how many texts of a row are remembered, because each is searched for.
const maxTexts = 64

// Changes encodes the changes of a row. Reset makes it ready.
type Changes struct {
	buf   []byte
	at    int64
	entry uint64
	name  string
	texts []string
	n     int
}

// Reset begins a row.
func (c *Changes) Reset() {
	clear(c.texts) // they belong to the caller of the last row
	*c = Changes{buf: append(c.buf[:0], changesVersion), texts: append(c.texts[:0], "")}
}

// Data returns the row as far as it has been added. It is valid until Reset.
func (c *Changes) Data() []byte { return c.buf }

// Len returns how many changes the row has.
func (c *Changes) Len() int { return c.n }

// Add adds a change. Times never go back.
func (c *Changes) Add(ch *store.Change) {
	flags, name := byte(changedHead), ch.Run
	switch {
	case ch.Notice.Source != "":
		flags, name = changedNotice, ch.Notice.Source
	case ch.Run == "":
		flags, name = changedEntry, ch.Key
	case ch.Deleted:
		flags = changedDeleted
	default:
		flags |= byte(Flag(ch.Quarantined))*changeQuarantined | byte(Flag(ch.Imported))*changeImported |
			byte(Flag(ch.Ended != 0))*changeEnded | byte(Flag(ch.Code != ""))*changeCode |
			byte(Flag(ch.Root != ""))*changeChild | byte(Flag(ch.Hidden))*changeHidden
	}
	c.buf = binary.AppendUvarint(append(c.buf, flags), uint64(ch.At-c.at))
	c.at = ch.At
	shared := 0
	for shared < min(len(name), len(c.name)) && name[shared] == c.name[shared] {
		shared++
	}
	c.buf = wire.AppendString(binary.AppendUvarint(c.buf, uint64(shared)), name[shared:])
	c.name = name
	switch flags & changedMask {
	case changedHead:
		c.text(ch.Status)
		c.text(ch.Recipe)
		if flags&changeChild != 0 {
			c.text(ch.Root)
		}
		if flags&changeCode != 0 {
			c.text(string(ch.Code))
		}
		if flags&changeEnded != 0 {
			c.buf = binary.AppendVarint(c.buf, ch.Ended-ch.At)
		}
	case changedEntry:
		c.buf = append(binary.AppendUvarint(c.buf, ch.Entry-c.entry), byte(ch.Kind))
		c.entry = ch.Entry
	case changedNotice:
		c.buf = binary.AppendVarint(binary.AppendVarint(c.buf, ch.Notice.Limit), ch.Notice.Amount)
	}
	c.n++
}

func (c *Changes) text(s string) {
	for i, known := range c.texts {
		if s == known {
			c.buf = binary.AppendUvarint(c.buf, uint64(i)+1)
			return
		}
	}
	c.buf = wire.AppendString(append(c.buf, 0), s)
	if len(c.texts) < maxTexts {
		c.texts = append(c.texts, s)
	}
}

// DecodeChanges returns the changes of a row, which are numbered first to last.
func DecodeChanges(data []byte, first, last uint64) ([]store.Change, error) {
	if len(data) == 0 || data[0] != changesVersion {
		return nil, errors.New("written in a way that this release does not know")
	}
	if n := last - first + 1; n > uint64(len(data)) { // each takes several bytes
		return nil, fmt.Errorf("%d bytes are too few for the changes %d to %d", len(data), first, last)
	}
	d := changeReader{Reader: wire.Reader{Buf: data, Off: 1}, texts: []string{""}}
	changes := make([]store.Change, 0, last-first+1)
	for n := first; n != last+1 && d.Err == nil; n++ {
		changes = append(changes, store.Change{N: n})
		d.change(&changes[len(changes)-1])
	}
	if d.Err == nil && d.Off != len(data) {
		d.Err = fmt.Errorf("%d bytes after change %d", len(data)-d.Off, last)
	}
	return changes, d.Err
}

type changeReader struct {
	wire.Reader
	at    int64
	entry uint64
	name  string
	texts []string
}

func (d *changeReader) change(ch *store.Change) {
	flags := d.Byte()
	d.at += int64(d.Uvarint())
	ch.At = d.at
	shared := d.Uvarint()
	rest := d.Bytes()
	if shared > uint64(len(d.name)) {
		d.fail("a name that shares more than there is")
		return
	}
	d.name = d.name[:shared] + string(rest)
	switch flags & changedMask {
	case changedHead:
		ch.Run, ch.Status, ch.Recipe = d.name, d.text(), d.text()
		ch.Quarantined, ch.Imported, ch.Hidden = flags&changeQuarantined != 0, flags&changeImported != 0, flags&changeHidden != 0
		if flags&changeChild != 0 {
			ch.Root = d.text()
		}
		if flags&changeCode != 0 {
			ch.Code = fault.Code(d.text())
		}
		if flags&changeEnded != 0 {
			ch.Ended = ch.At + d.Varint()
		}
	case changedDeleted:
		ch.Run, ch.Deleted = d.name, true
	case changedEntry:
		d.entry += d.Uvarint()
		ch.Entry, ch.Key, ch.Kind = d.entry, d.name, ledger.Kind(d.Byte())
	case changedNotice:
		ch.Notice = ledger.Notice{Source: d.name, Limit: d.Varint(), Amount: d.Varint()}
	}
}

func (d *changeReader) text() string {
	switch k := d.Uvarint(); {
	case d.Err != nil:
		return ""
	case k > uint64(len(d.texts)):
		d.fail("a text that is not there")
		return ""
	case k > 0:
		return d.texts[k-1]
	}
	s := string(d.Bytes())
	if len(d.texts) < maxTexts {
		d.texts = append(d.texts, s)
	}
	return s
}

func (d *changeReader) fail(why string) {
	if d.Err == nil {
		d.Err = errors.New(why)
	}
}

// FeedFrames is what a record of the journal has instead of frames if it is of changes: the
// time of the last one (u64) and the row. Its key has no run, and First and Last are the
// numbers of the changes.
func FeedFrames(at int64, row []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(row)), uint64(at)), row...)
}

// ParseFeedFrames is the inverse of FeedFrames. The row shares the memory of frames; it is
// nil if they are too short.
func ParseFeedFrames(frames []byte) (at int64, row []byte) {
	if len(frames) < 8 {
		return 0, nil
	}
	return int64(binary.LittleEndian.Uint64(frames)), frames[8:]
}

// FeedSum covers a row of the feed.
func FeedSum(account string, first, last uint64, at int64, data []byte) int64 {
	return Sum(account, int64(first), int64(last), at, data)
}
