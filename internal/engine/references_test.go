// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// makeAction returns an action that returns what its input describes: strings of given
// lengths.
func makeAction() *action.Action {
	return newAction("make", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct{ Text, List, Each, Item int }
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		out := map[string]any{"item": in.Item}
		if in.Text > 0 {
			out["text"] = strings.Repeat("t", in.Text)
		}
		if in.List > 0 {
			list := make([]any, in.List)
			for i := range list {
				list[i] = fmt.Sprintf("%d %s", i, strings.Repeat("e", in.Each))
			}
			out["list"] = list
		}
		return action.Result{Output: out}, nil
	})
}

// measureAction returns an action that returns the sizes of its input values, as the
// action sees them.
func measureAction() *action.Action {
	return newAction("measure", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in map[string]json.RawMessage
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		out := map[string]any{}
		for k, v := range in {
			out[k] = len(v)
		}
		return action.Result{Output: out}, nil
	})
}

// outputsOf runs a recipe to its end and returns its outputs.
func outputsOf(t *testing.T, e *Engine, recipe string, files ...journal.File) (string, store.Head) {
	t.Helper()
	p := planOf(t, recipe, makeAction(), measureAction())
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test", Files: files})
	if err != nil {
		t.Fatal(err)
	}
	head := waitForEnd(t, e, s.Run)
	h, err := e.History(t.Context(), acc, s.Run, 1)
	if err != nil {
		t.Fatal(err)
	}
	return string(h.Outputs), head
}

// Design section 7: a large text and a large list of one output go to files, a
// loop runs over the list, an action gets both whole, and the contract of the step
// that made them saw the whole.
func TestLargeOutputsTravelAsReferences(t *testing.T) {
	files := blobs(t)
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, makeAction(), measureAction())
	out, head := outputsOf(t, e, `
name: large
steps:
  - id: made
    action: {name: make, parameters: {text: 3000000, list: 400, each: 9000}}
    contracts: {output: {type: object, properties: {text: {type: string, minLength: 3000000}, list: {type: array, minItems: 400, items: {type: string}}}}}
    outputBinding: doc
  - {id: whole, action: {name: measure, parameters: {text: "{{ doc.text }}", all: "{{ doc }}"}}, outputBinding: sizes}
  - id: each
    loop:
      over: doc.list
      maxConcurrency: 8
      steps: [{id: one, action: {name: measure, parameters: {item: "{{ item }}", also: "{{ index == 0 ? doc.text : '' }}"}}}]
    outputBinding: items
outputs: {text: doc.text.size, list: doc.list.size, sizes: sizes, n: items.size(), first: "items[0]", last: "items[399]"}
`)
	const want = `{"first":{"also":3000002,"item":9004},"last":{"also":2,"item":9006},"list":400,"n":400,"sizes":{"all":6602719,"text":3000002},"text":3000000}`
	if head.Status != "completed" || out != want {
		t.Errorf("%s %s %s\ngot  %s\nwant %s", head.Status, head.Code, head.Message, out, want)
	}
}

// F21: outputs of iterations that are in files are collected as references, a loop runs
// over the collected list, and an action gets it whole.
func TestCollectedReferences(t *testing.T) {
	files := blobs(t)
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{Files: files.Files}, makeAction(), measureAction())
	recipe := `
name: collected
limits: {max_total_steps: 10000}
steps:
  - id: each
    loop:
      over: "[1, 2, 3, 4]"
      maxConcurrency: 4
      steps: [{id: one, action: {name: make, parameters: {text: 1100000, list: 300, each: 1000, item: "{{ item }}"}}}]
    outputBinding: made
  - id: again
    loop:
      over: made
      steps: [{id: two, action: {name: measure, parameters: {text: "{{ item.text }}", list: "{{ item.list.size }}"}}}]
    outputBinding: sizes
  - {id: whole, action: {name: measure, parameters: {made: "{{ made }}", all: "{{ {'a': [made, made]} }}"}}, outputBinding: whole}
outputs: {collected: size(made), sizes: sizes, whole: whole}
`
	out, head := outputsOf(t, e, recipe)
	const each = 1_402_019 // bytes of what one iteration gives, whole
	want := `{"collected":4,"sizes":[` + strings.TrimSuffix(strings.Repeat(`{"list":3,"text":1100002},`, 4), ",") + `],` +
		fmt.Sprintf(`"whole":{"all":%d,"made":%d}}`, 2*(4*each+5)+9, 4*each+5)
	if head.Status != "completed" || out != want {
		t.Errorf("%s %s %s\ngot  %s\nwant %s", head.Status, head.Code, head.Message, out, want)
	}
}

// forgery returns an engine with files, and a reference to one of them that no run has made.
func forgery(t *testing.T) (e *Engine, files *blob.Store, forged string) {
	t.Helper()
	files = blobs(t)
	secret, err := files.Put(t.Context(), acc, strings.NewReader("a secret"), "s.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, makeAction(), measureAction())
	return e, files, string(jsonx.Large{Hash: secret.Hash, Size: 8, Bytes: 8}.Append(nil))
}

// A13: a file from outside cannot name another file of the account: an item that uses
// the reserved name is refused, unless this run made the reference.
func TestA13_ItemsCannotForgeReferences(t *testing.T) {
	e, files, forged := forgery(t)
	for name, content := range map[string]string{
		"a.jsonl": "1\n" + forged + "\n",
		"b.json":  `[{"a":[` + forged + `]}]`,
		"c.json":  `[{"$roux":"anything"}]`,
		"d.json":  `[{"\u0024roux":{"x":1}}]`,
		"e.csv":   "a,$roux\n1,ref\n",
	} {
		info, err := files.Put(t.Context(), acc, strings.NewReader(content), name, "")
		if err != nil {
			t.Fatal(err)
		}
		_, head := outputsOf(t, e, `
name: forged
steps:
  - {id: l, loop: {over: "fileHashes[0]", steps: [{id: x, action: {name: measure, parameters: {v: "{{ item }}"}}}]}}
`, journal.File{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size})
		if head.Code != fault.InputInvalid || !strings.Contains(head.Message, `uses the name "$roux"`) {
			t.Errorf("%s: %s %s %s", name, head.Status, head.Code, head.Message)
		}
	}
	for _, params := range []map[string]any{{"a": map[string]any{"$roux": "ref"}}, {"$roux": 1}} {
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: make}}\n", makeAction())
		if _, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Parameters: params}); fault.CodeOf(err) != fault.InputInvalid {
			t.Errorf("input %v: %v", params, err)
		}
	}
}

// The file of a reference is missing: the attempt fails with a clear message and
// nothing else is lost.
func TestReferenceToAMissingFile(t *testing.T) {
	files := blobs(t)
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: func(account string) action.Files { return missingFiles{files.Files(account)} }}, makeAction(), measureAction())
	_, head := outputsOf(t, e, `
name: gone
steps:
  - {id: made, action: {name: make, parameters: {text: 2000000}}, outputBinding: doc}
  - {id: whole, action: {name: measure, parameters: {text: "{{ doc.text }}"}}}
`)
	if head.Code != fault.FileNotFound || !strings.Contains(head.Message, "a string of the input cannot be read") {
		t.Errorf("%s %s %s", head.Status, head.Code, head.Message)
	}
}

// missingFiles stores what is put and finds nothing.
type missingFiles struct{ action.Files }

func (missingFiles) Open(_ context.Context, hash string) (action.File, error) {
	return nil, fault.New(fault.FileNotFound, "no file %s", hash)
}

// Runs whose values are in files are suspended and continued after a crash; they render
// the same input and write the same journal. In memory they hold only the reference
// (R38).
func TestReferencesSurviveSuspensionAndCrashes(t *testing.T) {
	const recipe = `
name: parked
steps:
  - {id: made, action: {name: make}, outputBinding: doc}
  - {id: asked, wait: {signal: go}}
  - {id: long, transform: {expression: "{'t': doc.text, 'n': doc.text.size}"}}
  - {id: whole, action: {name: measure, parameters: {text: "{{ steps.long.output.t }}"}}}
outputs: {doc: doc, whole: steps.whole.output}
`
	ref := string(jsonx.Large{Hash: "sha256_" + strings.Repeat("a", 64), Size: 3_000_000, Bytes: 3_000_000}.Append(nil))
	var journals []string
	for _, crash := range []bool{false, true} {
		st := memory.New(memory.Options{})
		p := planOf(t, recipe, makeAction(), measureAction())
		h := newHarness(t, st, Config{MaxLoaded: 1}, makeAction(), measureAction())
		var keys []store.Key
		for range 3 {
			keys = append(keys, h.run(acc, p, nil))
			h.runUntilIdle(success(h.takeTask(), `{"text":`+ref+`,"title":"T"}`))
		}
		if crash {
			st = st.Crash(0)
			h = h.reopen(st)
			h.runUntilIdle()
		}
		for _, key := range keys {
			h.runUntilIdle(request(key, machine.Input{Kind: machine.InSignal, Name: "go"}))
			ef := h.takeTask()
			if got, _, fail := ef.task.Render(); fail != nil || string(got) != `{"text":`+ref+`}` {
				t.Errorf("crash %t: the input is %s, %+v", crash, got, fail)
			}
			h.runUntilIdle(success(ef, `{"ok":true}`))
			h.wantStatus(key, "completed")
		}
		verify(t, st, keys[0])
		journals = append(journals, rendered(t, st, p, keys[2]))
		if n := strings.Count(journals[0], ref); n != 3 {
			t.Errorf("%d references in the journal:\n%s", n, journals[0])
		}
		if crash && !slices.Equal(journals[:1], journals[1:]) {
			t.Errorf("without a crash:\n%s\nwith one:\n%s", journals[0], journals[1])
		}
	}
}
