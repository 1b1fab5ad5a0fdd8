// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// listOf stores a list in a file; the elements may contain references.
func listOf(t *testing.T, files action.Files, content string) jsonx.Large {
	t.Helper()
	info, err := files.Put(t.Context(), strings.NewReader(content), "list.json", "application/json")
	if err != nil {
		t.Fatal(err)
	}
	var items []json.RawMessage
	_ = json.Unmarshal([]byte(content), &items) // some are broken on purpose
	return jsonx.Large{Hash: info.Hash, List: true, Size: int64(len(items)), Bytes: info.Size, Refs: strings.Contains(content, jsonx.LargeName)}
}

// streamed runs an action that reads "rows" as a stream and returns what it
// read.
func streamed(t *testing.T, files action.Files, input string, contract func(any) error) Result {
	t.Helper()
	w := &recorder{}
	p := New(w.config())
	defer p.Stop(context.Background())
	tk := task("streams", func(ctx context.Context, task *action.Task) (action.Result, error) {
		out := map[string]any{"has": task.Has("rows"), "file": task.Lists["rows"] != nil, "input": task.Input}
		for range 2 { // a list may be read again
			n, sum := 0, 0
			for item, err := range task.Items(ctx, "rows") {
				if err != nil {
					return action.Result{}, err
				}
				n, sum = n+1, sum+len(item)
			}
			out["n"], out["bytes"] = n, sum
		}
		return action.Result{Output: out}, nil
	})
	tk.Action.Streams = []string{"rows", "others"}
	tk.Task.Files, tk.Task.Input, tk.CheckInput = files, []byte(input), contract
	return run(t, p, w, tk)
}

func TestListsAreStreamed(t *testing.T) {
	files := newFiles(t)
	many := listOf(t, files, "["+strings.Repeat(`"`+text(1_000)+`",`, 70_000)+"1]") // larger than an input may be
	word := listOf(t, files, `["x"]`)
	nested := listOf(t, files, `[1,{"a":`+string(word.Append(nil))+`},[`+string(word.Append(nil))+`]]`)
	deep := listOf(t, files, "["+string(nested.Append(nil))+"]")
	for input, want := range map[string]string{
		`{"a":1,"b":2}`:                     `{"bytes":0,"file":false,"has":false,"input":{"a":1,"b":2},"n":0}`,
		`{"rows":[1,"ab",[]]}`:              `{"bytes":7,"file":false,"has":true,"input":{"rows":[1,"ab",[]]},"n":3}`,
		`{"rows":{"a":1}}`:                  `{"bytes":0,"file":false,"has":true,"input":{"rows":{"a":1}},"n":0}`,
		`{"a":1,"rows":%many,"z":"\u0001"}`: fmt.Sprintf(`{"bytes":%d,"file":true,"has":true,"input":{"a":1,"z":"\u0001"},"n":%d}`, 1_002*70_000+1, 70_001),
		`{"a":%word,"rows":%word}`:          `{"bytes":3,"file":true,"has":true,"input":{"a":["x"]},"n":1}`,
		`{"rows":%nested}`:                  `{"bytes":19,"file":true,"has":true,"input":{},"n":3}`,
		`{"rows":%deep}`:                    `{"bytes":23,"file":true,"has":true,"input":{},"n":1}`,
		`{"rows":[%nested]}`:                `{"bytes":23,"file":false,"has":true,"input":{"rows":[[1,{"a":["x"]},[["x"]]]]},"n":1}`,
		`{"\ue000":1,"rows":%word,"😀":2}`:   `{"bytes":3,"file":true,"has":true,"input":{"😀":2,"\ue000":1},"n":1}`,
	} {
		for name, ref := range map[string]jsonx.Large{"%many": many, "%word": word, "%nested": nested, "%deep": deep} {
			input = strings.ReplaceAll(input, name, string(ref.Append(nil)))
		}
		canonical, err := jsonx.CanonicalRaw([]byte(input))
		if err != nil {
			t.Fatal(err)
		}
		r := streamed(t, files, string(canonical), nil)
		expected, _ := jsonx.CanonicalRaw([]byte(want))
		if r.Err != nil || string(r.Output) != string(expected) {
			t.Errorf("%.200s: %v\ngot  %.300s\nwant %s", input, r.Err, r.Output, expected)
		}
	}
}

// A contract sees a whole streamed list if it fits into memory, and otherwise
// its type.
func TestContractsOfStreamedLists(t *testing.T) {
	files := newFiles(t)
	small := listOf(t, files, `["x","y"]`)
	large := listOf(t, files, "["+strings.Repeat(`"`+text(1_000)+`",`, 70_000)+"1]")
	seen := any(nil)
	see := func(v any) error {
		if seen == nil {
			seen = v.(map[string]any)["rows"]
		}
		return nil
	}
	for ref, want := range map[jsonx.Large]string{small: "[x y]", large: fmt.Sprint(large)} {
		seen = nil
		if r := streamed(t, files, `{"rows":`+string(ref.Append(nil))+`}`, see); r.Err != nil || fmt.Sprint(seen) != want {
			t.Errorf("%v, the contract saw %.100v", r.Err, seen)
		}
	}
	no := func(v any) error { return errors.New("no") }
	if r := streamed(t, files, `{"rows":`+string(small.Append(nil))+`}`, no); !errors.Is(r.Err, fault.InputContractViolation) {
		t.Errorf("%v", r.Err)
	}
}

// A list whose file has changed fails the attempt; it is never read as a
// shorter list.
func TestStreamedListsThatBroke(t *testing.T) {
	files := newFiles(t)
	for _, content := range []string{`[1,2`, `[1,`, `[`, ``, `[1,2}`, `{"a":1}`, `[1 2]`, `{}`, `1`} {
		ref := listOf(t, files, content)
		if r := streamed(t, files, `{"rows":`+string(ref.Append(nil))+`}`, nil); !errors.Is(r.Err, fault.FileInvalid) {
			t.Errorf("%q: %v, %s", content, r.Err, r.Output)
		}
	}
	for content, size := range map[string]int64{`[1,2]`: 3, `[1,2,3,4]`: 3, `[]`: 1} {
		ref := listOf(t, files, content)
		ref.Size = size
		if r := streamed(t, files, `{"rows":`+string(ref.Append(nil))+`}`, nil); !errors.Is(r.Err, fault.FileInvalid) {
			t.Errorf("%s of %d elements: %v, %s", content, size, r.Err, r.Output)
		}
	}
	gone := jsonx.Large{Hash: "sha256_" + strings.Repeat("0", 64), List: true, Size: 1, Bytes: 3}
	if r := streamed(t, files, `{"rows":`+string(gone.Append(nil))+`}`, nil); !errors.Is(r.Err, fault.FileNotFound) {
		t.Errorf("%v", r.Err)
	}
	inside := listOf(t, files, "["+string(gone.Append(nil))+"]")
	if r := streamed(t, files, `{"rows":`+string(inside.Append(nil))+`}`, nil); !errors.Is(r.Err, fault.FileNotFound) {
		t.Errorf("%v", r.Err)
	}
}
