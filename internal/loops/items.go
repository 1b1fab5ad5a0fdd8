// SPDX-License-Identifier: Apache-2.0

// Package loops reads the items of a loop from a file, and writes the outputs of its
// iterations to one.
//
// It decides what an item of a JSON array, of JSON lines or of CSV is, how much is read
// at once, and which event of a journal holds an iteration's output. It never decides
// which iteration runs. It refuses items that contain references which their run did
// not make.
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

// A Window is a range of items that a loop wants to read: N items of a file, from
// number From on.
type Window struct {
	Key     store.Key
	Loop    journal.Ref
	File    string // its hash
	From, N int64
}

// Items are the items that were read.
type Items struct {
	Items [][]byte // canonical JSON
	More  bool     // more items may follow
	Total int64    // how many items the file has; set only if the window starts with the first
}

// maxItem bounds one item of a loop over a file, because an item is an inline value.
const maxItem = 1 << 20

// Cursors keep the files of running loops open between two windows, so that reading a
// file of n items takes n steps and not n². Their number is bounded: the least recently
// used one is closed, and reopened from its start when it is needed. The zero value is
// ready to use; goroutines may share it.
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
	next int64 // index of the next item
	read func() ([]byte, error)
	// ownRefs are the references that items may contain: those in the run's journal. It
	// is nil until an item contains one.
	ownRefs map[jsonx.Large]bool
	// collected is set with it: the file is what Roux has collected of a loop.
	collected bool
}

// take removes and returns a cursor whose position is not after the window's start, or
// nil if there is none.
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

// Read reads a window. Before the first window of a file it reads the file to its end,
// so that an item that cannot be read, or more items than allowed, are found before any
// work is done. runReferences returns the references in the values of the run's
// journal; it is called at most once for a file, when an item contains a reference.
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

// maxCounted bounds the counting of items: no server allows a loop over more.
const maxCounted = 1_000_001

// countItems returns how many items a file has, up to maxCounted.
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

// fault returns an error that names the item that could not be read.
func (c *cursor) fault(err error) error {
	return fault.Wrap(fault.CodeOf(itemFault(err)), err, "item %d of file %s: %s", c.next, c.hash, fault.Message(err))
}

// itemFault gives an error without a code the code FILE_INVALID.
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

// firstByte returns the first byte that is not white space, without consuming it.
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
			return nil, fault.New(fault.FileInvalid, "not JSON: %v", err) // an EOF inside an item is an error
		}
		return canonicalItem(raw)
	}, nil
}

// lineItems reads one JSON value a line and skips empty lines.
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

// csvItems reads rows as objects whose values are strings and whose names come from the
// header.
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
			return nil, fmt.Errorf("column %d of the header is %q: want names that are not empty and differ", i+1, name)
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
