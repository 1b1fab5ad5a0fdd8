// SPDX-License-Identifier: Apache-2.0

package loops

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Loop is one that has ended.
type Loop struct {
	Plan *plan.Plan
	Key  store.Key
	Ref  journal.Ref
	N    int64 // its iterations
}

// Collect writes the outputs of a loop's iterations into a file, as the JSON array that
// they are, and returns the reference to it. Outputs are read back from the journal,
// where they already are; nothing else holds them all.
//
// The journal is read twice. The first reading finds for each item the event that holds
// its output in the end: a retry may have replaced earlier ones. The second writes them
// in order and keeps what came before its turn, as much as maxEarly allows; what was
// left out is read again after that. contain calls a function that a second goroutine
// runs and returns a panic in it as an error.
func Collect(ctx context.Context, st store.Reader, files action.Files, loop *Loop, contain func(fn func() error) error) (jsonx.Large, error) {
	g := newGather(loop.Plan, loop.Ref)
	if err := store.EachEvent(ctx, st, loop.Key, 0, g.find); err != nil {
		return jsonx.Large{}, err
	}
	g.pad(loop.N)
	r, w := io.Pipe()
	defer r.Close() // ends the writer when Put stopped early
	go func() {
		w.CloseWithError(contain(func() error {
			buf := bufio.NewWriterSize(w, 64<<10)
			if err := g.write(ctx, st, loop.Key, buf); err != nil {
				return err
			}
			return buf.Flush()
		}))
	}()
	name := g.plan.Steps[loop.Ref.Step].ID + ".json"
	info, err := files.Put(ctx, r, name, "application/json")
	if err != nil {
		return jsonx.Large{}, err
	}
	// Put has read all that was written, and its end.
	return jsonx.Large{Hash: info.Hash, List: true, Size: int64(len(g.outs)), Bytes: info.Size, Refs: g.refs}, nil
}

// gather follows one loop through a journal.
type gather struct {
	plan   *plan.Plan
	body   int32
	prefix string // scope paths of the iterations begin with it
	// inner holds, for step instances that show the output of a scope they own,
	// the event of that output.
	inner map[journal.Ref]source
	outs  []source // by ordinal
	refs  bool     // one of the outputs holds a reference
	early int      // bytes of outputs that may be held because others come first
}

// maxEarly is how many bytes of outputs wait for those of items before them.
const maxEarly = 16 << 20

// A source names the event whose Data is an output, or an error to be shown in
// its place; the zero source is null.
type source struct {
	seq  uint64
	size int // about
	fail bool
}

func newGather(p *plan.Plan, loop journal.Ref) *gather {
	g := &gather{plan: p, body: p.Steps[loop.Step].Body, inner: map[journal.Ref]source{}, early: maxEarly}
	g.prefix = string(binary.AppendUvarint([]byte(loop.Path), uint64(g.body)))
	return g
}

// find notes where the outputs are.
func (g *gather) find(ev *journal.Event) error {
	rest, ok := strings.CutPrefix(string(ev.Path), g.prefix)
	if !ok || ev.Step < 0 {
		return nil
	}
	ordinal, n := binary.Uvarint([]byte(rest))
	if n <= 0 || ordinal > 1<<30 {
		return nil
	}
	graph := &g.plan.Graphs[g.plan.Steps[ev.Step].Graph]
	src := source{seq: ev.Seq, size: len(ev.Data) + len(ev.Text)}
	switch ev.Kind {
	case journal.EvNodeCompleted:
		if ev.FromInner() {
			src = g.inner[ev.Ref()]
			delete(g.inner, ev.Ref())
		}
		if graph.Out != ev.Step {
			return nil
		}
	case journal.EvNodeFailed:
		if src.fail = true; ev.Handled() || len(rest) != n {
			return nil
		}
	default:
		return nil
	}
	if len(rest) == n { // the iteration itself
		for uint64(len(g.outs)) <= ordinal {
			g.outs = append(g.outs, source{})
		}
		g.outs[ordinal] = src
		return nil
	}
	if owner, ok := journal.Owner(g.plan, ev.Path); ok {
		g.inner[owner] = src
	}
	return nil
}

// pad makes the list as long as the loop was: iterations at its end may have no output.
func (g *gather) pad(n int64) {
	for int64(len(g.outs)) < n {
		g.outs = append(g.outs, source{})
	}
}

// write writes the list, in order.
func (g *gather) write(ctx context.Context, st store.Reader, key store.Key, w *bufio.Writer) error {
	ls := &ordered{outs: g.outs, room: g.early, early: map[int][]byte{}, w: w}
	wanted := make(map[uint64]int, len(g.outs))
	for i, src := range g.outs {
		if src.seq != 0 {
			wanted[src.seq] = i
		}
	}
	err := w.WriteByte('[')
	if err == nil {
		err = ls.advance()
	}
	for err == nil && ls.next < len(ls.outs) {
		from := ls.next
		err = store.EachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
			if i, ok := wanted[ev.Seq]; ok {
				return ls.put(i, ev)
			}
			return nil
		})
		if err == nil && ls.next == from {
			err = fault.New(fault.StoreCorrupt, "run %s: event %d holds an output and is not stored", key.Run, g.outs[from].seq)
		}
	}
	g.refs = ls.refs
	if err == nil {
		err = w.WriteByte(']')
	}
	return err
}

// ordered puts outputs in order. It holds those of a window of items that begins
// with the one whose turn it is: those after the window are left for the next
// reading, so that a slow first item does not bring all others into memory.
type ordered struct {
	outs      []source
	next, end int // the window
	room      int // bytes that may still be added to it
	early     map[int][]byte
	refs      bool // one of the outputs holds a reference
	w         *bufio.Writer
}

// put takes the output of item i, when that is in the window and not known yet.
func (ls *ordered) put(i int, ev *journal.Event) error {
	if i < ls.next || i >= ls.end || ls.early[i] != nil {
		return nil
	}
	item := append([]byte(nil), ev.Data...)
	if ls.outs[i].fail {
		var err error
		if item, err = jsonx.Canonical(map[string]any{"error": map[string]any{"code": string(ev.Code), "message": ev.Text}}); err != nil {
			return err
		}
	}
	if len(item) == 0 {
		item = []byte("null")
	}
	ls.refs = ls.refs || jsonx.Reserved(item)
	ls.early[i] = item
	return ls.advance()
}

// advance writes what is in turn and moves the window.
func (ls *ordered) advance() error {
	for {
		for ls.end < len(ls.outs) && (ls.end == ls.next || ls.outs[ls.end].size <= ls.room) {
			ls.room -= ls.outs[ls.end].size
			ls.end++
		}
		if ls.next == len(ls.outs) {
			return nil
		}
		item := []byte("null")
		if ls.outs[ls.next].seq != 0 {
			var ok bool
			if item, ok = ls.early[ls.next]; !ok {
				return nil
			}
			delete(ls.early, ls.next)
		}
		if ls.next > 0 {
			if err := ls.w.WriteByte(','); err != nil {
				return err
			}
		}
		ls.room += ls.outs[ls.next].size
		ls.next++
		if _, err := ls.w.Write(item); err != nil {
			return err
		}
	}
}
