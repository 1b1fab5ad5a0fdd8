// SPDX-License-Identifier: Apache-2.0

package loops

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

const acc = "acme"

func blobs(t testing.TB) *blob.Store {
	t.Helper()
	b, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// planOf compiles a recipe of a test, whose steps may call the action "noop".
func planOf(t testing.TB, src string) *plan.Plan {
	t.Helper()
	r, s, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r != nil && !compile.HasErrors(diags) {
		noop := &action.Action{Name: "noop", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }}
		var p *plan.Plan
		if p, diags = compile.Compile(r, s, compile.Options{Actions: catalogue.New(noop)}); p != nil {
			return p
		}
	}
	t.Fatal(diags)
	return nil
}

// A loop over items that contain references reads the journal for them once, not for
// each window: otherwise its work would grow with the square of the run.
func TestReferencesAreReadOnce(t *testing.T) {
	files := blobs(t)
	ref := jsonx.Large{Hash: "sha256_" + strings.Repeat("a", 64), Size: 3, Bytes: 3}
	list := "[" + strings.TrimSuffix(strings.Repeat(string(ref.Append(nil))+",", 100), ",") + "]"
	info, err := files.Put(t.Context(), acc, strings.NewReader(list), "a.json", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	cs, reads := new(Cursors), 0
	defer cs.Close()
	for from := int64(0); from < 100; from += 10 {
		items, _, err := cs.read(t.Context(), files.Files(acc), &Window{File: info.Hash, N: 10, From: from}, func(context.Context, store.Key) (map[jsonx.Large]bool, error) {
			reads++
			return map[jsonx.Large]bool{ref: true}, nil
		})
		if err != nil || len(items) != 10 {
			t.Fatalf("%d items, %v", len(items), err)
		}
	}
	if reads != 1 {
		t.Errorf("the journal was read %d times for 10 windows", reads)
	}
}

// A window in the middle of a file is found again after a restart, when nothing
// is open any more.
func TestNeedItemsAfterARestart(t *testing.T) {
	files := blobs(t)
	info, err := files.Put(t.Context(), acc, strings.NewReader("0\n1\n2\n3\n4\n"), "a.jsonl", "")
	if err != nil {
		t.Fatal(err)
	}
	w := &Window{File: info.Hash, N: 2}
	for _, fresh := range []bool{false, true} {
		cs := new(Cursors)
		for from := int64(0); from < 6; from += 2 {
			if fresh {
				cs.Close()
			}
			w.From = from
			items, more, err := cs.read(t.Context(), files.Files(acc), w, nil) // no item holds a reference
			if err != nil || more != (from < 4) {
				t.Fatalf("window at %d: more=%v, %v", from, more, err)
			}
			for i, item := range items {
				if string(item) != fmt.Sprint(from+int64(i)) {
					t.Errorf("window at %d: item %d is %s", from, i, item)
				}
			}
		}
		cs.Close()
	}
}

// TestCollectHoldsAWindow: outputs that come long before their turn are not all
// buffered; they are read again later. The list is in order whatever the order of the
// events and the size of the buffer.
func TestCollectHoldsAWindow(t *testing.T) {
	p := planOf(t, "name: r\nsteps:\n  - {id: l, loop: {over: 'lists.range(100)', maxConcurrency: 100, steps: [{id: x, action: {name: noop}}]}}\n")
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
		for _, room := range []int{0, 500, maxBuffered} {
			c := newCollector(p, journal.Ref{})
			c.maxBuffered = room
			st := &countingStore{frames: frames, last: n}
			if err := store.EachEvent(t.Context(), st, store.Key{}, 0, c.find); err != nil {
				t.Fatal(err)
			}
			var buf bytes.Buffer
			w := bufio.NewWriter(&buf)
			if err := c.write(t.Context(), st, store.Key{}, w); err != nil {
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
			if passes := st.pages - 1; room == maxBuffered && passes != 1 || room == 500 && passes > n/4+1 {
				t.Errorf("%s, room for %d bytes: the journal was read %d times", name, room, passes)
			}
		}
	}
}

// countingStore is a store of one journal that counts the pages it returns.
type countingStore struct {
	store.Store
	frames []byte
	last   uint64
	pages  int
}

func (s *countingStore) Events(_ context.Context, _ store.Key, after uint64, _ int) (store.Page, error) {
	s.pages++
	if after >= s.last {
		return store.Page{Next: after}, nil
	}
	return store.Page{Frames: s.frames, Next: s.last}, nil
}

// An item may have maxItem bytes. The last line of a file needs no line end.
func TestLongestLine(t *testing.T) {
	for more, want := range []fault.Code{"", fault.ValueTooLarge} {
		line := `"` + strings.Repeat("x", maxItem-2+more) + `"`
		item, err := lineItems(bufio.NewReader(strings.NewReader(line)))()
		if fault.CodeOf(err) != want || err == nil && string(item) != line {
			t.Errorf("%d bytes more: %d bytes, %v", more, len(item), err)
		}
	}
}
