// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// collectList writes the outputs of a loop's iterations into a file, as the JSON array
// that they are, and returns the reference to it.
//
// The journal is read twice. The first reading finds for each item the event
// that holds its output in the end: a retry may have replaced earlier ones. The
// second writes them in order and keeps only what came before its turn.
func (e *Engine) collectList(ctx context.Context, ask *effect) (jsonx.Large, error) {
	g := newGather(ask.prog.machine.Plan(), ask.id.ref)
	if err := eachStored(ctx, e.cfg.Store, ask.id.key, 0, g.find); err != nil {
		return jsonx.Large{}, err
	}
	g.pad(ask.n)
	r, w := io.Pipe()
	defer r.Close() // ends the writer when Put stopped early
	go func() {
		w.CloseWithError(e.contain(ask.id.key.Run, "reading the outputs of a loop", func() error {
			buf := bufio.NewWriterSize(w, 64<<10)
			if err := g.write(ctx, e.cfg.Store, ask.id.key, buf); err != nil {
				return err
			}
			return buf.Flush()
		}))
	}()
	name := g.plan.Steps[ask.id.ref.Step].ID + ".json"
	info, err := e.files(ask.id.key.Account).Put(ctx, r, name, "application/json")
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
	inner map[machine.Ref]source
	outs  []source // by ordinal
	refs  bool     // one of the outputs holds a reference
}

// A source names the event whose Data is an output, or an error to be shown in
// its place; the zero source is null.
type source struct {
	seq  uint64
	fail bool
}

func newGather(p *plan.Plan, loop machine.Ref) *gather {
	g := &gather{plan: p, body: p.Steps[loop.Step].Body, inner: map[machine.Ref]source{}}
	g.prefix = string(binary.AppendUvarint([]byte(loop.Path), uint64(g.body)))
	return g
}

// find notes where the outputs are.
func (g *gather) find(ev *machine.Event) error {
	rest, ok := strings.CutPrefix(string(ev.Path), g.prefix)
	if !ok || ev.Step < 0 {
		return nil
	}
	ordinal, n := binary.Uvarint([]byte(rest))
	if n <= 0 || ordinal > 1<<30 {
		return nil
	}
	graph := &g.plan.Graphs[g.plan.Steps[ev.Step].Graph]
	src := source{seq: ev.Seq}
	switch ev.Kind {
	case machine.EvNodeCompleted:
		if ev.Flag&1 != 0 {
			src = g.inner[ev.Ref()]
			delete(g.inner, ev.Ref())
		}
		if graph.Out != ev.Step {
			return nil
		}
	case machine.EvNodeFailed:
		if src.fail = true; ev.Flag&1 != 0 || len(rest) != n {
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
	if owner, ok := machine.Owner(g.plan, ev.Path); ok {
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
func (g *gather) write(ctx context.Context, st store.Store, key store.Key, w *bufio.Writer) error {
	wanted := make(map[uint64]int, len(g.outs))
	for i, src := range g.outs {
		if src.seq != 0 {
			wanted[src.seq] = i
		}
	}
	next, early := 0, map[int][]byte{}
	advance := func() error {
		for next < len(g.outs) {
			item := []byte("null")
			if g.outs[next].seq != 0 {
				var ok bool
				if item, ok = early[next]; !ok {
					return nil
				}
				delete(early, next)
			}
			before := byte(',')
			if next == 0 {
				before = '['
			}
			next++
			if err := w.WriteByte(before); err != nil {
				return err
			}
			if _, err := w.Write(item); err != nil {
				return err
			}
		}
		return nil
	}
	err := eachStored(ctx, st, key, 0, func(ev *machine.Event) error {
		i, ok := wanted[ev.Seq]
		if !ok {
			return nil
		}
		item := append([]byte(nil), ev.Data...)
		if g.outs[i].fail {
			var err error
			if item, err = jsonx.Canonical(map[string]any{"error": map[string]any{"code": string(ev.Code), "message": ev.Text}}); err != nil {
				return err
			}
		}
		if len(item) == 0 {
			item = []byte("null")
		}
		g.refs = g.refs || jsonx.Reserved(item)
		early[i] = item
		return advance()
	})
	if err == nil {
		err = advance()
	}
	if err == nil && next < len(g.outs) {
		err = fault.New(fault.StoreCorrupt, "run %s: event %d holds an output and is not stored", key.Run, g.outs[next].seq)
	}
	if err == nil {
		err = w.WriteByte(']')
	}
	return err
}
