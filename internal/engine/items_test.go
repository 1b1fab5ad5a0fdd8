// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store/memory"
)

const fileLoop = `
name: rows
limits: {max_total_steps: 1000000}
steps:
  - id: each
    loop:
      over: fileHashes[0]
      maxConcurrency: 8
      steps:
        - {id: echo, action: {name: echo, parameters: {item: '{{ item }}', pad: '{{ input.pad }}'}}}
outputs: {list: steps.each.output}
`

func echo() *action.Action {
	return newAction("echo", func(_ context.Context, task *action.Task) (action.Result, error) {
		return action.Result{Output: task.Input}, nil
	})
}

func blobs(t testing.TB) *blob.Store {
	t.Helper()
	b, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// startOverFile starts the loop over a file and returns its run.
func startOverFile(t *testing.T, files *blob.Store, name, mime, content, pad string) (e *Engine, run string) {
	t.Helper()
	info, err := files.Put(t.Context(), acc, strings.NewReader(content), name, mime)
	if err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, echo())
	s, err := e.Start(t.Context(), StartRequest{
		Account: acc, Plan: planOf(t, fileLoop, echo()), Parameters: map[string]any{"pad": pad},
		Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e, s.Run
}

// A loop reads its items from a JSON array, JSON lines or CSV, in windows
// (NeedItems), and sees each of them once and in order.
func TestNeedItems(t *testing.T) {
	files := blobs(t)
	const n = 700 // more than two windows
	var array, lines, table strings.Builder
	array.WriteString("[")
	table.WriteString("n,word\r\n")
	for i := range n {
		if i > 0 {
			array.WriteString(", ")
		}
		fmt.Fprintf(&array, `{"word": "w%d", "n": %d}`, i, i)
		fmt.Fprintf(&lines, "{\"n\":%d,\"word\":\"w%d\"}\n\n", i, i)
		fmt.Fprintf(&table, "%d,\"w%d\"\r\n", i, i)
	}
	array.WriteString("]")
	for _, tt := range []struct{ name, mime, content, item string }{
		{"a.json", "application/json", array.String(), `{"n":%d,"word":"w%d"}`},
		{"a.jsonl", "application/jsonl", "\xef\xbb\xbf" + strings.TrimSpace(lines.String()), `{"n":%d,"word":"w%d"}`},
		{"a.csv", "text/csv", table.String(), `{"n":"%d","word":"w%d"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, run := startOverFile(t, files, tt.name, tt.mime, tt.content, "")
			if head := waitForEnd(t, e, run); head.Status != "completed" {
				t.Fatalf("run is %s: %s %s", head.Status, head.Code, head.Message)
			}
			h, err := e.History(t.Context(), acc, run, 1)
			if err != nil {
				t.Fatal(err)
			}
			var out struct {
				List []struct{ Item json.RawMessage }
			}
			if err := json.Unmarshal(h.Outputs, &out); err != nil || len(out.List) != n {
				t.Fatalf("%d outputs (%v), want %d", len(out.List), err, n)
			}
			for i, o := range out.List {
				if want := fmt.Sprintf(tt.item, i, i); string(o.Item) != want {
					t.Fatalf("item %d is %s, want %s", i, o.Item, want)
				}
			}
		})
	}
}

// A bad file fails the loop with a message that says where and why.
func TestNeedItemsOfBadFiles(t *testing.T) {
	files := blobs(t)
	for _, tt := range []struct {
		name, content string
		code          fault.Code
	}{
		{"a.json", `[1, 2`, fault.FileInvalid},
		{"a.json", `[1, 2, }`, fault.FileInvalid},
		{"a.jsonl", "{\"a\":1}\n{\"a\":", fault.FileInvalid},
		{"a.jsonl", "{\"a\":1,\"a\":2}\n", fault.FileInvalid},
		{"a.csv", "a,a\n1,2\n", fault.FileInvalid},
		{"a.csv", "a,b\n1\n", fault.FileInvalid},
		{"a.jsonl", `"` + strings.Repeat("x", 1<<20) + `"`, fault.ValueTooLarge},
	} {
		e, run := startOverFile(t, files, tt.name, "", tt.content, "")
		if head := waitForEnd(t, e, run); head.Status != "failed" || head.Code != tt.code {
			t.Errorf("%s %.20q: run is %s with %s (%s), want %s", tt.name, tt.content, head.Status, head.Code, head.Message, tt.code)
		}
	}
}

// collected reads the file of the list that a run returned as its output "list".
func collected(t *testing.T, e *Engine, files *blob.Store, run string) []json.RawMessage {
	t.Helper()
	h, err := e.History(t.Context(), acc, run, 1)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonx.Decode(h.Outputs, jsonx.Limits{Large: true})
	if err != nil {
		t.Fatal(err)
	}
	list, ok := v.(map[string]any)["list"].(jsonx.Large)
	if !ok || !list.List || list.Refs {
		t.Fatalf("the output is %s", h.Outputs)
	}
	f, err := files.Open(context.Background(), acc, list.Hash)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if canonical, err := jsonx.CanonicalRaw(data); err != nil || !bytes.Equal(canonical, data) {
		t.Errorf("the list is not written in its canonical form (%v)", err)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		t.Fatal(err)
	}
	if int64(len(items)) != list.Size || int64(len(data)) != list.Bytes {
		t.Errorf("the reference has %d elements in %d bytes, the file has %d in %d", list.Size, list.Bytes, len(items), len(data))
	}
	return items
}

// A loop whose outputs are too large together returns a list in a file, in the order of
// the items, also when an item failed (Collect).
func TestCollect(t *testing.T) {
	files := blobs(t)
	const n = 300
	var lines strings.Builder
	for i := range n {
		fmt.Fprintln(&lines, i)
	}
	e, run := startOverFile(t, files, "a.jsonl", "application/jsonl", lines.String(), strings.Repeat("p", 10_000))
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("run is %s: %s %s", head.Status, head.Code, head.Message)
	}
	items := collected(t, e, files, run)
	if len(items) != n {
		t.Fatalf("%d of %d outputs", len(items), n)
	}
	for i, item := range items {
		var got struct{ Item int }
		if err := json.Unmarshal(item, &got); err != nil || got.Item != i {
			t.Fatalf("element %d holds item %d (%v)", i, got.Item, err)
		}
	}
}

// The output of an iteration whose last step returns that of its inner scope is found
// too, and a failed iteration has its error in its place.
func TestCollectFollowsInnerScopes(t *testing.T) {
	files := blobs(t)
	src := `
name: inner
limits: {max_total_steps: 1000000}
steps:
  - id: each
    loop:
      over: input.items
      failureStrategy: ignore
      steps:
        - id: choose
          condition:
            expression: item % 3 != 2
            then: [{id: echo, action: {name: echo, parameters: {item: '{{ item }}', pad: '{{ input.pad }}'}}}]
            else: [{id: no, fail: {code: NO_LUCK, message: 'item {{ item }}'}}]
outputs: {list: steps.each.output}
`
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, echo())
	items := make([]any, 200)
	for i := range items {
		items[i] = int64(i)
	}
	run := start(t, e, planOf(t, src, echo()), map[string]any{"items": items, "pad": strings.Repeat("p", 10_000)})
	if head := waitForEnd(t, e, run); head.Status != "completed" {
		t.Fatalf("run is %s: %s %s", head.Status, head.Code, head.Message)
	}
	got := collected(t, e, files, run)
	if len(got) != len(items) {
		t.Fatalf("%d outputs of %d items", len(got), len(items))
	}
	for i, raw := range got {
		var got struct {
			Item  *int
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		switch {
		case i%3 == 2 && (got.Error == nil || got.Error.Code != "NO_LUCK" || got.Error.Message != fmt.Sprint("item ", i)),
			i%3 != 2 && (got.Item == nil || *got.Item != i):
			t.Fatalf("element %d is %.80s", i, raw)
		}
	}
}

// The rows of a file are counted before the first of them is processed: a limit that
// the last row exceeds, and a row that cannot be read, are found before any call.
func TestRowsAreCountedFirst(t *testing.T) {
	rows := strings.Repeat("{\"n\":1}\n", 5_000)
	for _, tt := range []struct {
		name, limits, content string
		code                  fault.Code
		says                  string
	}{
		{"steps", "max_total_steps: 1000", rows, fault.StepLimit, "Maximum total steps (1000) exceeded: 5000 items of 1 step would make 5001 steps"},
		{"items", "max_loop_items: 4999", rows, fault.ItemLimit, "the loop has 5000 items, the limit is 4999"},
		{"a bad row at the end", "max_total_steps: 1000000", rows + "{\"n\":", fault.FileInvalid, "item 5000"},
		{"as many as allowed", "max_total_steps: 5001", rows, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := blobs(t)
			info, err := files.Put(t.Context(), acc, strings.NewReader(tt.content), "a.jsonl", "")
			if err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int64
			count := newAction("echo", func(context.Context, *action.Task) (action.Result, error) {
				calls.Add(1)
				return action.Result{}, nil
			})
			e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, count)
			p := planOf(t, strings.Replace(fileLoop, "max_total_steps: 1000000", tt.limits, 1), count)
			s, err := e.Start(t.Context(), StartRequest{
				Account: acc, Plan: p, Parameters: map[string]any{"pad": ""},
				Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
			})
			if err != nil {
				t.Fatal(err)
			}
			head := waitForEnd(t, e, s.Run)
			if head.Code != tt.code || !strings.Contains(head.Message, tt.says) {
				t.Errorf("%s %s, want %s with %q", head.Code, head.Message, tt.code, tt.says)
			}
			if want := map[bool]int64{true: 5_000}[tt.code == ""]; calls.Load() != want {
				t.Errorf("%d calls, want %d", calls.Load(), want)
			}
		})
	}
}
