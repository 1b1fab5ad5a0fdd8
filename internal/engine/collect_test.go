// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// crowded files count how many are opened or written at once; each takes a second.
type crowded struct {
	action.Files
	now, most atomic.Int64
}

func (c *crowded) enter() func() {
	c.most.Store(max(c.most.Load(), c.now.Add(1)))
	time.Sleep(time.Second)
	return func() { c.now.Add(-1) }
}

func (c *crowded) Put(ctx context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	defer c.enter()()
	n, err := io.Copy(io.Discard, r)
	return action.FileInfo{Hash: "sha256_" + strings.Repeat("a", 64), Name: name, MimeType: mime, Size: n}, err
}

func (c *crowded) Open(ctx context.Context, hash string) (action.File, error) {
	defer c.enter()()
	return c.Files.Open(ctx, hash)
}

// TestI15_LoopsAreServedInTurn: many loops that collect their outputs, or read
// their items, at the same time do not each hold a part of the journal or a window
// of items.
func TestI15_LoopsAreServedInTurn(t *testing.T) {
	const wide = 40
	for name, tt := range map[string]struct {
		body string
		most int64
	}{
		"collecting": {"{id: inner, loop: {over: '[1, 2]', steps: [{id: x, transform: {expression: input.pad}}]}}", maxCollecting},
		"reading":    {"{id: inner, loop: {over: 'files[0].hash', steps: [{id: x, transform: {expression: '1'}}]}}", maxReading},
	} {
		t.Run(name, func(t *testing.T) {
			files := blobs(t)
			info, err := files.Put(t.Context(), acc, strings.NewReader("1\n2\n"), "rows.jsonl", "application/jsonl")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				c := &crowded{Files: files.Files(acc)}
				e := open(t, memory.New(memory.Options{}), Config{Files: func(string) action.Files { return c }})
				p := planOf(t, fmt.Sprintf("name: wide\nsteps:\n  - {id: outer, loop: {over: 'lists.range(%d)', maxConcurrency: %d, steps: [%s]}}\n", wide, wide, tt.body))
				s, err := e.Start(t.Context(), StartRequest{
					Account: acc, Plan: p, Parameters: map[string]any{"pad": strings.Repeat("x", 600_000)},
					Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if head := end(t, e, s.Run); head.Status != "completed" {
					t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
				}
				if got := c.most.Load(); got != tt.most {
					t.Errorf("%d loops were served at once, want %d", got, tt.most)
				}
			})
		})
	}
}

// TestCollectHoldsAWindow: outputs that come long before their turn are not all
// held; each is read again when it is near. Whatever the order of the events and
// the room there is, the list is in order.
func TestCollectHoldsAWindow(t *testing.T) {
	p := planOf(t, "name: r\nsteps:\n  - {id: l, loop: {over: 'lists.range(100)', maxConcurrency: 100, steps: [{id: x, action: {name: noop}}]}}\n", noop())
	const n = 100
	for name, order := range map[string]func(int) int{
		"in order": func(i int) int { return i }, "backwards": func(i int) int { return n - 1 - i },
		"the first last": func(i int) int { return (i + 1) % n }, "mixed": func(i int) int { return i * 37 % n },
	} {
		var frames []byte
		for k := range n {
			i := order(k)
			ev := journal.Event{Seq: uint64(k + 1), Kind: journal.EvNodeCompleted, Step: p.Steps[0].Body, Data: fmt.Appendf(nil, `"%0100d"`, i)}
			ev.Path, ev.Step = journal.Iteration{Loop: journal.Ref{}, N: int64(i)}.Scope(p), p.Graphs[p.Steps[0].Body].First
			frames = journal.AppendFrame(frames, []journal.Event{ev})
		}
		for _, room := range []int{0, 500, maxEarly} {
			g := newGather(p, journal.Ref{})
			g.early = room
			st := &rereading{frames: frames, last: n}
			if err := store.EachEvent(t.Context(), st, store.Key{}, 0, g.find); err != nil {
				t.Fatal(err)
			}
			var buf bytes.Buffer
			w := bufio.NewWriter(&buf)
			if err := g.write(t.Context(), st, store.Key{}, w); err != nil {
				t.Fatal(err)
			}
			w.Flush()
			items := strings.Split(strings.Trim(buf.String(), "[]"), ",")
			if len(items) != n {
				t.Fatalf("%s, room for %d bytes: the list has %d items", name, room, len(items))
			}
			for i, item := range items {
				if want := fmt.Sprintf(`"%0100d"`, i); item != want {
					t.Fatalf("%s, room for %d bytes: item %d is %s", name, room, i, item)
				}
			}
			if passes := st.pages - 1; room == maxEarly && passes != 1 || room == 500 && passes > n/4+1 {
				t.Errorf("%s, room for %d bytes: the journal was read %d times", name, room, passes)
			}
		}
	}
}

// rereading is a store of one journal that counts the pages it gives.
type rereading struct {
	store.Store
	frames []byte
	last   uint64
	pages  int
}

func (s *rereading) Events(_ context.Context, _ store.Key, after uint64, _ int) (store.Page, error) {
	s.pages++
	if after >= s.last {
		return store.Page{Next: after}, nil
	}
	return store.Page{Frames: s.frames, Next: s.last}, nil
}
