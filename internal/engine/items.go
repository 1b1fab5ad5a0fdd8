// SPDX-License-Identifier: Apache-2.0

package engine

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
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// maxItem bounds one item of a loop over a file: an inline value.
const maxItem = 1 << 20

// readItems answers CmdNeedItems: the next items of the file a loop runs over.
func (e *Engine) readItems(ask *effect) {
	var items [][]byte
	var more bool
	var total int64
	err := e.contain(ask.id.key.Run, "reading the items of a loop", func() (err error) {
		if ask.from == 0 {
			if total, err = countItems(e.ctx, e.files(ask.id.key.Account), ask); err != nil {
				return err
			}
		}
		items, more, err = e.cursors.read(e.ctx, e.files(ask.id.key.Account), ask, e.references)
		return err
	})
	in := &input{kind: inRun, key: ask.id.key}
	in.m = machine.Input{Kind: machine.InItems, Ref: ask.id.ref, From: ask.from, Items: items, More: more, Total: total}
	if err != nil {
		if e.ctx.Err() != nil {
			return
		}
		in.m = failed(ask, err)
	}
	_ = e.post(in)
}

func failed(ask *effect, err error) machine.Input {
	return machine.Input{Kind: machine.InResult, Ref: ask.id.ref, Fence: ask.id.fence, Outcome: machine.Failed,
		Err: &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}}
}

// cursors keep the files of running loops open between two windows, so that
// reading a file of n items costs n and not n². They are bounded: what was not
// used lately is closed, and opened again from its start when it is needed.
type cursors struct {
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
	own map[jsonx.Large]bool
}

// take removes the cursor that stands where ask wants to read.
func (cs *cursors) take(ask *effect) *cursor {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i, c := range cs.open {
		if c.key == ask.id.key && c.ref == ask.id.ref && c.hash == ask.file && c.next <= ask.from {
			cs.open = append(cs.open[:i], cs.open[i+1:]...)
			return c
		}
	}
	return nil
}

func (cs *cursors) put(c *cursor) {
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

func (cs *cursors) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.open {
		c.file.Close()
	}
	cs.open = nil
}

// read gives the next items. references gives those that the run made.
func (cs *cursors) read(ctx context.Context, files action.Files, ask *effect, references readReferences) (items [][]byte, more bool, err error) {
	c := cs.take(ask)
	if c == nil {
		if c, err = openItems(ctx, files, ask); err != nil {
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
	for ; c.next < ask.from+ask.n && size < maxItem; c.next++ {
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
		if err := c.checkReferences(ctx, item, references); err != nil {
			return nil, false, err
		}
		if c.next >= ask.from {
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

// countItems is how many items a file has, as far as a loop may have any. The file is
// read to its end before the first item is worked on: a limit that is passed by its
// last row, or a row that cannot be read, is known before anything was done.
func countItems(ctx context.Context, files action.Files, ask *effect) (int64, error) {
	c, err := openItems(ctx, files, ask)
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

func openItems(ctx context.Context, files action.Files, ask *effect) (*cursor, error) {
	f, err := files.Open(ctx, ask.file)
	if err != nil {
		return nil, err
	}
	c := &cursor{key: ask.id.key, ref: ask.id.ref, hash: ask.file, file: f}
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
		return nil, fault.Wrap(fault.FileInvalid, err, "file %s cannot be looped over: %v; want a JSON array, JSON lines or CSV with a header", ask.file, err)
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

// collect answers CmdCollect: the outputs of a loop's iterations, in order, as the
// reference to a list in a file. They are read back from the journal, where they
// already are; nothing else holds them all.
func (e *Engine) collect(ask *effect) {
	var list jsonx.Large
	err := e.contain(ask.id.key.Run, "collecting the outputs of a loop", func() (err error) {
		list, err = e.collectList(e.ctx, ask)
		return err
	})
	if e.ctx.Err() != nil {
		return
	}
	in := &input{kind: inRun, key: ask.id.key, m: machine.Input{
		Kind: machine.InResult, Ref: ask.id.ref, Fence: ask.id.fence, Outcome: machine.Success}}
	if err == nil {
		in.m.Output = list.Append(nil)
	} else {
		in.m = failed(ask, err)
	}
	_ = e.post(in)
}

// noFiles is what actions see where no files are configured.
type noFiles struct{}

func (noFiles) Open(context.Context, string) (action.File, error) {
	return nil, fault.New(fault.FileNotFound, "this engine keeps no files")
}

func (noFiles) Put(context.Context, io.Reader, string, string) (action.FileInfo, error) {
	return action.FileInfo{}, fault.New(fault.StoreReadOnly, "this engine keeps no files")
}
