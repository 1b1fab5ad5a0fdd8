// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bundle"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const treeRecipe = `
name: outer
steps:
  - id: each
    loop:
      over: '[1, 2, 3]'
      as: n
      steps:
        - id: run
          continue_on_error: true
          recipe:
            inline:
              name: inner
              inputSchema: {type: object, properties: {n: {type: integer}, key: {type: string, writeOnly: true}}}
              steps:
                - {id: say, action: {name: echo}, inputBindings: {n: input.n, key: input.key}}
                - {id: deep, recipe: {inline: {name: deepest, steps: [{id: x, transform: {expression: '1', outputBinding: x}}]}}}
                - {id: stop, when: input.n == 2, fail: {message: "{{ input.key }} is too many"}, dependsOn: [deep]}
          inputBindings: {n: n, key: '"hush-" + string(n)'}
`

// runTree runs a recipe in a store of its own, until it completes.
func runTree(t *testing.T, recipe string, parameters map[string]any) (*memory.Store, store.Head) {
	t.Helper()
	echo := &action.Action{Name: "echo", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		return action.Result{Output: task.Input}, nil
	}}
	catalogue := catalogue.New(echo)
	p, _, _, diags := compile.Source("outer.yaml", []byte(recipe), compile.Options{Actions: catalogue})
	if p == nil {
		t.Fatal(diags)
	}
	st := memory.New(memory.Options{})
	e, err := engine.Open(t.Context(), engine.Config{Store: st, Actions: catalogue})
	if err != nil {
		t.Fatal(err)
	}
	var head store.Head
	s, err := e.Start(t.Context(), engine.StartRequest{Account: "acme", Plan: p, Recipe: "carried", Parameters: parameters})
	if err == nil {
		head, err = e.Wait(t.Context(), "acme", s.Run)
	}
	if err == nil {
		_, err = e.Stop(t.Context())
	}
	if err != nil || head.Status != "completed" {
		t.Fatalf("%+v, %v", head, err)
	}
	return st, head
}

// journals returns the events of a run and of those below it, as they are shown.
func journals(t *testing.T, st store.Store, root store.Key) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys := []store.Key{root}
	heads, err := st.List(t.Context(), store.Query{Account: root.Account, Root: root.Run, Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	for i := range heads {
		keys = append(keys, heads[i].Key)
	}
	for _, key := range keys {
		head, err := st.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		p, err := store.LoadPlan(t.Context(), st, head)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		b.WriteString(strings.Join([]string{head.Root, head.Parent, head.Recipe, head.Status, string(head.Code), head.Message}, " ") + "\n")
		err = store.EachEvent(t.Context(), st, key, 0, func(ev *journal.Event) error {
			return json.NewEncoder(&b).Encode(journal.Render(p, key.Run, ev))
		})
		if err != nil {
			t.Fatal(err)
		}
		all[key.Run] = b.String()
	}
	return all
}

// A root is written with the runs below it, and read back as it was. What a recipe marks
// is left out, wherever it is in the tree.
func TestTree(t *testing.T) {
	from, head := runTree(t, treeRecipe, nil)
	var file bytes.Buffer
	m, err := bundle.Write(t.Context(), from, head, &file, false)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != bundle.TreeVersion || m.Runs != 6 {
		t.Errorf("version %d with %d runs below", m.Version, m.Runs)
	}
	b, err := bundle.Read(bytes.NewReader(file.Bytes()), int64(file.Len()), "outer.roux.zip", false)
	if err != nil {
		t.Fatal(err)
	}
	to := memory.New(memory.Options{})
	for _, want := range []string{"imported", "unchanged"} {
		if state, err := b.Commit(t.Context(), to, "other"); err != nil || state != want {
			t.Errorf("commit: %s, %v; want %s", state, err, want)
		}
	}
	was, is := journals(t, from, head.Key), journals(t, to, store.Key{Account: "other", Run: head.Run})
	if len(is) != len(was) {
		t.Errorf("%d runs of %d were imported", len(is), len(was))
	}
	for run, text := range was {
		text = strings.NewReplacer("hush-1", "[masked]", "hush-2", "[masked]", "hush-3", "[masked]").Replace(text)
		if is[run] != text {
			t.Errorf("run %s was\n%s\nand is\n%s", run, text, is[run])
		}
	}
	heads, err := to.List(t.Context(), store.Query{Account: "other", All: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range heads {
		if !heads[i].Imported() {
			t.Errorf("run %s is not marked as imported", heads[i].Run)
		}
	}

	// Written again, it is the same, and a child run alone is a bundle, too.
	copied, err := to.Head(t.Context(), store.Key{Account: "other", Run: head.Run})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := bundle.Write(t.Context(), to, copied, new(bytes.Buffer), true); err != nil || m.Runs != 6 || !m.Imported {
		t.Errorf("written again: %+v, %v", m, err)
	}
	children, err := from.List(t.Context(), store.Query{Account: "acme", Parent: head.Run})
	if err != nil || len(children) != 3 {
		t.Fatal(children, err)
	}
	file.Reset()
	if m, err := bundle.Write(t.Context(), from, children[0], &file, false); err != nil || m.Runs != 1 {
		t.Fatalf("a child run: %+v, %v", m, err)
	}
	if bytes.Contains(file.Bytes(), []byte("hush")) {
		t.Error("the bundle of a child run has what its recipe marks")
	}
	alone, err := bundle.Read(bytes.NewReader(file.Bytes()), int64(file.Len()), "child.roux.zip", false)
	if err != nil {
		t.Fatal(err)
	}
	third := memory.New(memory.Options{})
	if state, err := alone.Commit(t.Context(), third, "other"); err != nil || state != "imported" {
		t.Fatal(state, err)
	}
	if _, err := b.Commit(t.Context(), third, "other"); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "without the run that started it") {
		t.Errorf("a tree, one run of which is here by itself: %v", err)
	}
}

// A bundle of a tree is refused when any byte of it has changed.
func TestChangedTree(t *testing.T) {
	from, head := runTree(t, treeRecipe, nil)
	var file bytes.Buffer
	if _, err := bundle.Write(t.Context(), from, head, &file, false); err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(file.Bytes())
	for i := range changed {
		changed[i] ^= 1 << (i % 8)
		if _, err := bundle.Read(bytes.NewReader(changed), int64(len(changed)), "outer.roux.zip", false); err == nil {
			t.Errorf("byte %d of %d has changed and nobody notices", i, len(changed))
		}
		changed[i] = file.Bytes()[i]
	}
	if _, err := bundle.Read(bytes.NewReader(changed), int64(len(changed)), "outer.roux.zip", false); err != nil {
		t.Error(err)
	}
}

// failing refuses commits after some.
type failing struct {
	*memory.Store
	left int
}

func (f *failing) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if f.left--; f.left < 0 {
		return nil, errors.New("no more")
	}
	return f.Store.Commit(ctx, batch)
}

// An import of a tree that was interrupted anywhere is not taken for a whole one, and is
// completed by another.
func TestInterruptedTree(t *testing.T) {
	from, head := runTree(t, treeRecipe, nil)
	var file bytes.Buffer
	if _, err := bundle.Write(t.Context(), from, head, &file, false); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Read(bytes.NewReader(file.Bytes()), int64(file.Len()), "outer.roux.zip", false)
	if err != nil {
		t.Fatal(err)
	}
	b.Piece = 200
	whole := memory.New(memory.Options{})
	if _, err := b.Commit(t.Context(), whole, "other"); err != nil {
		t.Fatal(err)
	}
	key := store.Key{Account: "other", Run: head.Run}
	want := journals(t, whole, key)
	for n := 0; ; n++ {
		st := &failing{memory.New(memory.Options{}), n}
		_, err := b.Commit(t.Context(), st, "other")
		if err == nil {
			if n < 10 {
				t.Errorf("it took %d commits only", n)
			}
			return
		}
		if root, err := st.Head(t.Context(), key); err == nil && root.Quarantine != bundle.Importing {
			t.Fatalf("after %d commits the root is %q", n, root.Quarantine)
		}
		st.left = 1 << 20
		if state, err := b.Commit(t.Context(), st, "other"); err != nil || state != "imported" {
			t.Fatalf("after %d commits: %s, %v", n, state, err)
		}
		got := journals(t, st, key)
		for run := range want {
			if got[run] != want[run] {
				t.Fatalf("after %d commits run %s is\n%s", n, run, got[run])
			}
		}
		heads, err := st.List(t.Context(), store.Query{Account: "other", All: true})
		if err != nil || slices.ContainsFunc(heads, func(h store.Head) bool { return h.Quarantine == bundle.Importing }) {
			t.Fatalf("after %d commits a run is still said to be imported in part: %v", n, err)
		}
	}
}
