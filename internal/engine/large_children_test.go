// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// handedDown passes a text of 8 MiB three levels down, as an input and in an inherited context, and back up. The lowest
// run waits for a signal, then gives the text to an action, and loops over a list that it was given.
const handedDown = `
name: outer
ttl: P30D
steps:
  - {id: made, action: {name: make, parameters: {text: 8388608, list: 400, each: 9000}}, outputBinding: doc}
  - id: below
    recipe:
      inherit: [context]
      inputs: {text: "{{ steps.made.output.text }}", list: "{{ steps.made.output.list }}"}
      inline:
        name: middle
        ttl: P30D
        inputSchema: {type: object, required: [text, list], properties: {text: {type: string, minLength: 5}, list: {type: array}}}
        steps:
          - id: deeper
            recipe:
              inherit: [context]
              inputs: {text: "{{ input.text }}", list: "{{ input.list }}"}
              inline:
                name: inner
                ttl: P30D
                steps:
                  - {id: asked, wait: {signal: go}}
                  - {id: given, action: {name: measure, parameters: {text: "{{ input.text }}"}}}
                  - {id: inherited, action: {name: measure, parameters: {text: "{{ doc.text }}", again: "{{ steps.made.output.text }}"}}}
                  - {id: each, loop: {over: input.list, steps: [{id: one, action: {name: measure, parameters: {item: "{{ item }}"}}}]}}
                outputs: {text: input.text, same: doc.text, given: steps.given.output.text, inherited: steps.inherited.output, n: size(steps.each.output), chars: size(input.text)}
        outputs: {deeper: steps.deeper.output, text: steps.deeper.output.same}
outputs: {text: steps.below.output.text, deeper: steps.below.output.deeper}
`

// A large value passes between runs as a reference to its file: as an input, in an inherited context and in a result. No
// journal has its bytes, the store has them once, and neither a restart nor retention loses them while one of the
// runs waits (X163).
func TestX163_LargeValuesPassThreeLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, files := memory.New(memory.Options{}), blobsOf(t)
		cfg := Config{Blobs: files, Files: files.Files}
		e := openEngine(t, st, cfg, makeAction(), measureAction())
		run := start(t, e, planOf(t, handedDown, makeAction(), measureAction()), nil)
		time.Sleep(10 * 24 * time.Hour)
		synctest.Wait()
		if _, err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		cfg.Blobs, cfg.Files = files, files.Files
		e = openEngine(t, st.Crash(0), cfg, makeAction(), measureAction())
		st2 := e.cfg.Store
		tree := treeOf(t, st2, run)
		if len(tree) != 3 {
			t.Fatalf("%d runs, want 3", len(tree))
		}
		if err := e.Signal(t.Context(), acc, tree[2], "go", nil); err != nil {
			t.Fatal(err)
		}
		head := waitForEnd(t, e, run)
		h, err := e.History(t.Context(), acc, run, 1)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := files.List(t.Context(), acc, blob.Query{})
		if err != nil {
			t.Fatal(err)
		}
		var ref, names string
		for _, f := range stored {
			names += fmt.Sprintf("%s %d; ", f.Info.Name, f.Info.Size)
			if f.Info.Size == 8<<20 {
				ref = string(jsonx.Large{Hash: f.Info.Hash, Size: 8 << 20, Bytes: 8 << 20}.Append(nil))
			}
		}
		if len(stored) != 2 || ref == "" {
			t.Errorf("the store has %d files, want the text and the list: %s", len(stored), names)
		}
		want := `{"deeper":{"chars":8388608,"given":8388610,"inherited":{"again":8388610,"text":8388610},"n":400,"same":` + ref + `,"text":` + ref + `},"text":` + ref + `}`
		if head.Status != "completed" || string(h.Outputs) != want {
			t.Errorf("%s %s %s\ngot  %.2000s\nwant %s", head.Status, head.Code, head.Message, h.Outputs, want)
		}
		for _, id := range tree[:2] { // the third has the 400 items of its loop
			if n := journalSize(t, st2, id); n > 16<<10 {
				t.Errorf("the journal of run %s has %d bytes", id, n)
			}
		}
		checkTree(t, st2, acc, run)
	})
}

// treeOf are a run and those below it, the highest first.
func treeOf(t testing.TB, st store.Store, run string) []string {
	t.Helper()
	tree := []string{run}
	err := store.EachEvent(context.Background(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvChildStarted {
			tree = append(tree, treeOf(t, st, ev.Text)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func journalSize(t testing.TB, st store.Store, run string) (n int) {
	t.Helper()
	err := store.EachEvent(context.Background(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		n += len(ev.Data) + len(ev.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The outputs of a long loop in a child run are in a file with references. Its parent loops over them, gives them to
// an action, and hands them to another child run, which does the same (X163).
func TestX163_CollectedReferencesBetweenRuns(t *testing.T) {
	files := blobs(t)
	e := openEngine(t, memory.New(memory.Options{}), Config{Files: files.Files}, makeAction(), measureAction())
	const below = `
      inline:
        name: reader
        steps:
          - id: again
            loop: {over: input.made, steps: [{id: two, action: {name: measure, parameters: {text: "{{ item.text }}"}}}]}
          - {id: whole, action: {name: measure, parameters: {made: "{{ input.made }}"}}}
        outputs: {sizes: steps.again.output, whole: steps.whole.output}
`
	out, head := outputsOf(t, e, `
name: collected
limits: {max_total_steps: 10000}
steps:
  - id: maker
    recipe:
      inline:
        name: maker
        steps:
          - id: each
            loop:
              over: "[1, 2, 3, 4]"
              steps: [{id: one, action: {name: make, parameters: {text: 1100000, list: 300, each: 1000, item: "{{ item }}"}}}]
        outputs: {made: steps.each.output}
  - id: here
    loop: {over: steps.maker.output.made, steps: [{id: two, action: {name: measure, parameters: {text: "{{ item.text }}"}}}]}
  - id: reader
    recipe:`+below+`      inputs: {made: "{{ steps.maker.output.made }}"}
outputs: {here: steps.here.output, there: steps.reader.output}
`)
	const each = 1_402_019
	sizes := strings.TrimSuffix(strings.Repeat(`{"text":1100002},`, 4), ",")
	want := fmt.Sprintf(`{"here":[%s],"there":{"sizes":[%s],"whole":{"made":%d}}}`, sizes, sizes, 4*each+5)
	if head.Status != "completed" || out != want {
		t.Errorf("%s %s %s\ngot  %.2000s\nwant %s", head.Status, head.Code, head.Message, out, want)
	}
}

// A13: what a recipe says never becomes a reference in a child run: neither a default of its inputSchema, nor a value
// that it inherits, nor a fixed input.
func TestA13_RecipesCannotForgeReferences(t *testing.T) {
	e, _, forged := forgery(t)
	for name, child := range map[string]string{
		"a default": `{inline: {name: in, inputSchema: {type: object, properties: {v: {default: ` + forged + `}}},
          steps: [{id: x, action: {name: measure, parameters: {v: "{{ input.v }}"}}}]}}`,
		"a value":  `{inherit: [context], inline: {name: in, steps: [{id: x, action: {name: measure, parameters: {v: "{{ workflow.v }}"}}}]}}`,
		"an input": `{inputs: {v: ` + forged + `}, inline: {name: in, steps: [{id: x, action: {name: measure, parameters: {v: "{{ input.v }}"}}}]}}`,
	} {
		_, head := outputsOf(t, e, "name: forged\nvalues: {v: "+forged+"}\nsteps:\n  - {id: l, recipe: "+child+"}\n")
		if head.Status != "failed" || head.Code != fault.InputInvalid && head.Code != fault.TemplateError || !strings.Contains(head.Message, `$roux`) {
			t.Errorf("%s: %s %s %s", name, head.Status, head.Code, head.Message)
		}
	}
}
