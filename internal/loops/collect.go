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

// A Loop is a loop whose iterations have ended.
type Loop struct {
	Plan *plan.Plan
	Key  store.Key
	Ref  journal.Ref
	N    int64 // the number of its iterations
}

// Collect writes the outputs of a loop's iterations to a file, as a JSON array, and
// returns the reference to it. It reads the outputs from the journal, so that they need
// not all be in memory.
//
// The journal is read twice. The first pass finds the event that holds the final output
// of each item: a retry may have replaced earlier ones. The second pass writes the
// outputs in order and buffers those that come before their turn, up to maxBuffered
// bytes; further passes read what did not fit. contain calls a function that a second
// goroutine runs and returns a panic in it as an error.
func Collect(ctx context.Context, st store.Reader, files action.Files, loop *Loop, contain func(fn func() error) error) (jsonx.Large, error) {
	c := newCollector(loop.Plan, loop.Ref)
	if err := store.EachEvent(ctx, st, loop.Key, 0, c.find); err != nil {
		return jsonx.Large{}, err
	}
	c.pad(loop.N)
	r, w := io.Pipe()
	defer r.Close() // stops the writer when Put has stopped early
	go func() {
		w.CloseWithError(contain(func() error {
			buf := bufio.NewWriterSize(w, 64<<10)
			if err := c.write(ctx, st, loop.Key, buf); err != nil {
				return err
			}
			return buf.Flush()
		}))
	}()
	name := c.plan.Steps[loop.Ref.Step].ID + ".json"
	info, err := files.Put(ctx, r, name, "application/json")
	if err != nil {
		return jsonx.Large{}, err
	}
	// Put has read to the end, which the writer signals only after it has set c.refs.
	return jsonx.Large{Hash: info.Hash, List: true, Size: int64(len(c.outputs)), Bytes: info.Size, Refs: c.refs}, nil
}

// A collector finds the outputs of one loop in a journal.
type collector struct {
	plan   *plan.Plan
	body   int32
	prefix string // of the scope paths of the iterations
	// inner maps a step instance to the source of the output of a scope that it owns, in
	// case that output becomes the output of the step.
	inner       map[journal.Ref]source
	outputs     []source // by ordinal
	refs        bool     // one of the outputs holds a reference
	maxBuffered int      // bytes of outputs that may wait for earlier ones
}

// maxBuffered is how many bytes of outputs may wait for those of earlier items.
const maxBuffered = 16 << 20

// A source names the event whose Data is an output, or an error to be shown in its
// place. The zero source stands for null.
type source struct {
	seq  uint64
	size int // approximate
	fail bool
}

func newCollector(p *plan.Plan, loop journal.Ref) *collector {
	c := &collector{plan: p, body: p.Steps[loop.Step].Body, inner: map[journal.Ref]source{}, maxBuffered: maxBuffered}
	c.prefix = string(binary.AppendUvarint([]byte(loop.Path), uint64(c.body)))
	return c
}

// find records which events hold the outputs.
func (c *collector) find(ev *journal.Event) error {
	rest, ok := strings.CutPrefix(string(ev.Path), c.prefix)
	if !ok || ev.Step < 0 {
		return nil
	}
	ordinal, n := binary.Uvarint([]byte(rest))
	if n <= 0 || ordinal > 1<<30 {
		return nil
	}
	graph := &c.plan.Graphs[c.plan.Steps[ev.Step].Graph]
	src := source{seq: ev.Seq, size: len(ev.Data) + len(ev.Text)}
	switch ev.Kind {
	case journal.EvNodeCompleted:
		if ev.FromInner() {
			src = c.inner[ev.Ref()]
			delete(c.inner, ev.Ref())
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
		for uint64(len(c.outputs)) <= ordinal {
			c.outputs = append(c.outputs, source{})
		}
		c.outputs[ordinal] = src
		return nil
	}
	if owner, ok := journal.Owner(c.plan, ev.Path); ok {
		c.inner[owner] = src
	}
	return nil
}

// pad extends the list to the number of iterations: the last ones may have no output.
func (c *collector) pad(n int64) {
	for int64(len(c.outputs)) < n {
		c.outputs = append(c.outputs, source{})
	}
}

// write writes the list, in order.
func (c *collector) write(ctx context.Context, st store.Reader, key store.Key, w *bufio.Writer) error {
	list := &orderedWriter{outputs: c.outputs, free: c.maxBuffered, buffered: map[int][]byte{}, w: w}
	indexOf := make(map[uint64]int, len(c.outputs))
	for i, src := range c.outputs {
		if src.seq != 0 {
			indexOf[src.seq] = i
		}
	}
	err := w.WriteByte('[')
	if err == nil {
		err = list.advance()
	}
	for err == nil && list.next < len(list.outputs) {
		from := list.next
		err = store.EachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
			if i, ok := indexOf[ev.Seq]; ok {
				return list.put(i, ev)
			}
			return nil
		})
		if err == nil && list.next == from {
			err = fault.New(fault.StoreCorrupt, "run %s: event %d holds an output and is not stored", key.Run, c.outputs[from].seq)
		}
	}
	c.refs = list.refs
	if err == nil {
		err = w.WriteByte(']')
	}
	return err
}

// An orderedWriter writes outputs in order. It buffers those of a window of items that
// starts with the next one to be written. Outputs beyond the window are left to the
// next pass, so that a slow first item does not bring all others into memory.
type orderedWriter struct {
	outputs   []source
	next, end int // the window
	free      int // bytes by which it may still grow
	buffered  map[int][]byte
	refs      bool // one of the outputs holds a reference
	w         *bufio.Writer
}

// put adds the output of item i if it is in the window and not yet known.
func (w *orderedWriter) put(i int, ev *journal.Event) error {
	if i < w.next || i >= w.end || w.buffered[i] != nil {
		return nil
	}
	item := append([]byte(nil), ev.Data...)
	if w.outputs[i].fail {
		var err error
		if item, err = jsonx.Canonical(map[string]any{"error": map[string]any{"code": string(ev.Code), "message": ev.Text}}); err != nil {
			return err
		}
	}
	if len(item) == 0 {
		item = []byte("null")
	}
	w.refs = w.refs || jsonx.Reserved(item)
	w.buffered[i] = item
	return w.advance()
}

// advance writes the outputs that are next in order and moves the window.
func (w *orderedWriter) advance() error {
	for {
		for w.end < len(w.outputs) && (w.end == w.next || w.outputs[w.end].size <= w.free) {
			w.free -= w.outputs[w.end].size
			w.end++
		}
		if w.next == len(w.outputs) {
			return nil
		}
		item := []byte("null")
		if w.outputs[w.next].seq != 0 {
			var ok bool
			if item, ok = w.buffered[w.next]; !ok {
				return nil
			}
			delete(w.buffered, w.next)
		}
		if w.next > 0 {
			if err := w.w.WriteByte(','); err != nil {
				return err
			}
		}
		w.free += w.outputs[w.next].size
		w.next++
		if _, err := w.w.Write(item); err != nil {
			return err
		}
	}
}
