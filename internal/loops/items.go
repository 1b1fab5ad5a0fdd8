// SPDX-License-Identifier: Apache-2.0

// Package loops reads the items that a loop runs over from a file, and writes the
// outputs of its iterations into one.
//
// It decides what an item of a JSON array, of JSON lines or of CSV is, how much is read
// at once, and where an iteration's output lies in a journal. It never decides which
// iteration runs; and it refuses items that hold references which their run did not
// make.
package loops

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
)

// A Window is what a loop wants to read: N items of a file, from number From on.
type Window struct {
	Key     store.Key
	Loop    journal.Ref
	File    string // its hash
	From, N int64
}

// Items are what was read.
type Items struct {
	Items [][]byte // canonical JSON
	More  bool     // others may follow
	Total int64    // of a window that begins with the first item: how many the file has
}

// maxItem bounds one item of a loop over a file: an inline value.
const maxItem = 1 << 20

// Cursors keep the files of running loops open between two windows, so that reading a
// file of n items costs n and not n². They are bounded: the one that was not used for
// longest is closed, and opened again from its start when it is needed. The zero value
// is ready; goroutines may share it.
type Cursors struct {
	mu   sync.Mutex
	open []*cursor // least recently used first
}

const maxCursors = 64

type cursor struct {
	key  store.Key
	ref  journal.Ref
	hash string
	file action.File
	next int64 // index of the item that follows
	read func() ([]byte, error)
	// own are the references that items may hold: those of the run's journal. nil
	// until an item holds one.
	ownRefs map[jsonx.Large]bool
}

// take removes and returns a cursor that stands at the window or before it; nil when
// there is none.
func (cs *Cursors) take(w *Window) *cursor {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i, c := range cs.open {
		if c.key == w.Key && c.ref == w.Loop && c.hash == w.File && c.next <= w.From {
			cs.open = append(cs.open[:i], cs.open[i+1:]...)
			return c
		}
	}
	return nil
}

func (cs *Cursors) put(c *cursor) {
	cs.mu.Lock()
	cs.open = append(cs.open, c)
	var old *cursor
	if len(cs.open) > maxCursors {
		old, cs.open = cs.open[0], cs.open[1:]
	}
	cs.mu.Unlock()
	if old != nil {
		old.file.Close()
	}
}

// Close closes every file.
func (cs *Cursors) Close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.open {
		c.file.Close()
	}
	cs.open = nil
}

// Read reads a window. The first window of a file is read after the file has been read
// to its end: a limit that its last item passes, or an item that cannot be read, is
// known before anything is done. made returns the references in the values of the run's
// journal; it is called once for a file at most, when an item holds one.
func (cs *Cursors) Read(ctx context.Context, files action.Files, w *Window, runReferences func(context.Context, store.Key) (map[jsonx.Large]bool, error)) (items Items, err error) {
	if w.From == 0 {
		if items.Total, err = countItems(ctx, files, w); err != nil {
			return Items{}, err
		}
	}
	items.Items, items.More, err = cs.read(ctx, files, w, runReferences)
	return items, err
}

func (cs *Cursors) read(ctx context.Context, files action.Files, w *Window, runReferences func(context.Context, store.Key) (map[jsonx.Large]bool, error)) (items [][]byte, more bool, err error) {
	c := cs.take(w)
	if c == nil {
		if c, err = openItems(ctx, files, w); err != nil {
			return nil, false, err
		}
	}
	kept := false
	defer func() {
		if !kept {
			c.file.Close()
		}
	}()
	size := 0
	for ; c.next < w.From+w.N && size < maxItem; c.next++ {
		item, err := c.read()
		if errors.Is(err, io.EOF) {
			return items, false, nil
		}
		if err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, false, c.fault(err)
		}
		if err := c.checkReferences(ctx, item, runReferences); err != nil {
			return nil, false, err
		}
		if c.next >= w.From {
			items = append(items, item)
			size += len(item)
		}
	}
	kept = true
	cs.put(c)
	return items, true, nil
}

// maxCounted bounds the counting of items: no server allows a loop of more.
const maxCounted = 1_000_001

// countItems is how many items a file has, up to maxCounted.
func countItems(ctx context.Context, files action.Files, w *Window) (int64, error) {
	c, err := openItems(ctx, files, w)
	if err != nil {
		return 0, err
	}
	defer c.file.Close()
	for ; c.next < maxCounted; c.next++ {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if _, err := c.read(); errors.Is(err, io.EOF) {
			return c.next, nil
		} else if err != nil {
			return 0, c.fault(err)
		}
	}
	return c.next, nil
}

// fault says which item of a file could not be read.
func (c *cursor) fault(err error) error {
	return fault.Wrap(fault.CodeOf(itemFault(err)), err, "item %d of file %s: %s", c.next, c.hash, fault.Message(err))
}

// itemFault gives errors of reading a code: the file is not what it should be.
func itemFault(err error) error {
	if fault.CodeOf(err) == fault.InternalError {
		return fault.FileInvalid
	}
	return err
}

func openItems(ctx context.Context, files action.Files, w *Window) (*cursor, error) {
	f, err := files.Open(ctx, w.File)
	if err != nil {
		return nil, err
	}
	c := &cursor{key: w.Key, ref: w.Loop, hash: w.File, file: f}
	info := f.Info()
	br := bufio.NewReaderSize(f, 64<<10)
	if bom, _ := br.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		_, _ = br.Discard(3)
	}
	switch first := firstByte(br); {
	case info.MimeType == "text/csv" || hasSuffix(info.Name, ".csv"):
		c.read, err = csvItems(br)
	case first == '[':
		c.read, err = arrayItems(br)
	default:
		c.read = lineItems(br)
	}
	if err != nil {
		f.Close()
		return nil, fault.Wrap(fault.FileInvalid, err, "file %s cannot be looped over: %v; want a JSON array, JSON lines or CSV with a header", w.File, err)
	}
	return c, nil
}

func hasSuffix(name, suffix string) bool {
	return len(name) >= len(suffix) && bytes.EqualFold([]byte(name[len(name)-len(suffix):]), []byte(suffix))
}

// firstByte looks at the first byte that is no white space.
func firstByte(br *bufio.Reader) byte {
	for n := 1; n <= br.Size(); n++ {
		b, err := br.Peek(n)
		if err != nil {
			return 0
		}
		switch b[n-1] {
		case ' ', '\t', '\r', '\n':
		default:
			return b[n-1]
		}
	}
	return 0
}

// arrayItems reads the elements of one JSON array.
func arrayItems(r io.Reader) (func() ([]byte, error), error) {
	dec := json.NewDecoder(r)
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return func() ([]byte, error) {
		if !dec.More() {
			if _, err := dec.Token(); err != nil {
				return nil, fault.New(fault.FileInvalid, "the JSON array does not end: %v", err)
			}
			return nil, io.EOF
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fault.New(fault.FileInvalid, "not JSON: %v", err) // EOF in it is no end
		}
		return canonicalItem(raw)
	}, nil
}

// lineItems reads one JSON value a line; empty lines are passed over.
func lineItems(br *bufio.Reader) func() ([]byte, error) {
	return func() ([]byte, error) {
		for {
			line, err := readLine(br)
			if line = bytes.TrimSpace(line); len(line) > 0 {
				return canonicalItem(line)
			}
			if err != nil {
				return nil, err
			}
		}
	}
}

// readLine reads a line of at most maxItem bytes.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxItem {
			return nil, errItemTooLarge()
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// csvItems reads rows as objects of text, named by the header.
func csvItems(r io.Reader) (func() ([]byte, error), error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	first, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return func() ([]byte, error) { return nil, io.EOF }, nil
	}
	if err != nil {
		return nil, err
	}
	header := append([]string(nil), first...)
	seen := map[string]bool{}
	for i, name := range header {
		if name == "" || seen[name] {
			return nil, fmt.Errorf("column %d of the header is %q: want names that are there and differ", i+1, name)
		}
		seen[name] = true
	}
	return func() ([]byte, error) {
		row, err := rows.Read()
		if err != nil {
			return nil, err
		}
		obj := make(map[string]any, len(row))
		for i, v := range row {
			obj[header[i]] = v
		}
		item, err := jsonx.Canonical(obj)
		if err == nil && len(item) > maxItem {
			err = errItemTooLarge()
		}
		return item, err
	}, nil
}

func canonicalItem(raw []byte) ([]byte, error) {
	if len(raw) > maxItem {
		return nil, errItemTooLarge()
	}
	item, err := jsonx.CanonicalRaw(raw)
	if err != nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "not JSON: %v", err)
	}
	return item, nil
}

func errItemTooLarge() error {
	return fault.New(fault.ValueTooLarge, "the item has more than %d bytes", maxItem)
}
