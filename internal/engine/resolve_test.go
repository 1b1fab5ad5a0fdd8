// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// newVersions is a registry that has another version of every recipe each time it is asked.
type newVersions struct {
	mu    sync.Mutex
	asked []string
	fails []error       // of the next lookups
	wait  chan struct{} // a lookup waits for it; nil = none does
	began chan struct{} // and has a value when one has begun
}

func (v *newVersions) find(ctx context.Context, account string, d *machine.Definition) (*program.Resolved, error) {
	v.mu.Lock()
	v.asked = append(v.asked, d.Ref)
	n, wait := len(v.asked), v.wait
	var err error
	if len(v.fails) > 0 {
		err, v.fails = v.fails[0], v.fails[1:]
	}
	v.mu.Unlock()
	if wait != nil {
		select {
		case v.began <- struct{}{}:
		default:
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	return program.ResolveWith(func(context.Context, string) (compile.Options, error) {
		return compile.Options{Actions: catalogue.New(noop()), Recipes: versioned(n)}, nil
	})(ctx, account, d)
}

func (v *newVersions) lookups() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.asked)
}

// versioned finds a recipe of any name in that version: its output is the version, and it runs leaf.
type versioned int

func (n versioned) File(_, name string) (*compile.Text, error) {
	return nil, fault.New(fault.RecipeNotFound, "no file %s", name)
}
func (n versioned) Names() []string { return nil }
func (n versioned) Find(name, _ string) (*compile.Text, error) {
	if name == "gone" {
		return nil, fault.New(fault.RecipeNotFound, "no recipe %q is registered", name)
	}
	below := `{id: b, recipe: {ref: leaf}}`
	if name == "leaf" {
		below = `{id: b, action: {name: noop}}`
	}
	return &compile.Text{File: name, Data: fmt.Appendf(nil, "name: %s\nversion: 1.%d.0\nsteps: [{id: v, transform: {expression: '%d'}}, %s]\noutputs: {v: steps.v.output}\n", name, n, n, below)}, nil
}

const dispatches = `
name: dispatch
inputSchema: {type: object, properties: {kinds: {type: array}}}
steps:
  - id: each
    loop:
      over: input.kinds
      as: kind
      maxConcurrency: 3
      steps:
        - {id: run, recipe: {ref: "{{ kind }}@1"}}
  - id: deep
    recipe: {inputs: {kind: "{{ input.kinds[0] }}"}, inline: {name: deep, steps: [{id: run, recipe: {ref: "{{ input.kind }}@1"}}], outputs: {v: steps.run.output.v}}}
outputs: {each: "steps.each.output.map(o, o.v)", deep: steps.deep.output.v}
`

// pinsOfRun are the references that a run has pinned, each once with all that it refers to.
func pinsOfRun(t testing.TB, st store.Store, run string) (refs []string) {
	t.Helper()
	said := map[string]bool{}
	if err := store.EachEvent(context.Background(), st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvRunPinned {
			refs = append(refs, strings.Clone(ev.Text))
			_, tree, err := ev.Pinned()
			if err != nil {
				return err
			}
			for _, r := range tree.Recipes {
				if said[r.Ref] {
					t.Errorf("run %s pins %s again", run, r.Ref)
				}
				said[r.Ref] = true
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return refs
}

// gives returns the outputs of a run.
func gives(t testing.TB, e *Engine, head store.Head) string {
	t.Helper()
	h, err := e.History(t.Context(), acc, head.Run, 0)
	if err != nil {
		t.Fatal(err)
	}
	return string(h.Outputs)
}

// What an expression names is pinned in the root when a run of the tree first asks for it, and never looked up again
// in that tree (X251, R28): whatever is registered meanwhile, all its runs execute one version of it, and of what
// that runs in turn. Another tree has the newest.
func TestX251_R28_DynamicReferences(t *testing.T) {
	st, v := memory.New(memory.Options{}), &newVersions{}
	e := openEngine(t, st, Config{Resolve: v.find}, noop())
	p := planOf(t, dispatches, noop())
	for try := range 2 {
		run := start(t, e, p, map[string]any{"kinds": []any{"a", "a", "b", "a"}})
		head := waitForEnd(t, e, run)
		if head.Status != "completed" {
			t.Fatalf("%s: %s", head.Status, head.Message)
		}
		if refs := pinsOfRun(t, st, run); len(refs) != 2 || !slices.Contains(refs, "a@1") || !slices.Contains(refs, "b@1") {
			t.Errorf("pinned %v", refs)
		}
		out := gives(t, e, head)
		var a, again, b, third, deep int
		if _, err := fmt.Sscanf(out, `{"deep":%d,"each":[%d,%d,%d,%d]}`, &deep, &a, &again, &b, &third); err != nil || a != again || a != third || a != deep || a == b || try > 0 && a < 3 {
			t.Errorf("try %d gives %s (%v), want one version of a", try, out, err)
		}
		if f := checkTree(t, st, acc, run); len(f.heads) != 1+4+4+1+1+1 {
			t.Errorf("the tree has %d runs", len(f.heads))
		}
	}
}

// A recipe is looked up only when a step runs it (X29): if the step is skipped, it is not.
func TestX29_OnlyWhatIsNeeded(t *testing.T) {
	const recipe = `
name: maybe
inputSchema: {type: object, properties: {kind: {type: string}}}
steps:
  - id: when
    condition:
      expression: input.kind != ""
      then: [{id: run, recipe: {ref: "{{ input.kind }}@1"}}]
`
	v, st := &newVersions{}, memory.New(memory.Options{})
	e := openEngine(t, st, Config{Resolve: v.find}, noop())
	p := planOf(t, recipe, noop())
	for kind, want := range map[string]int{"": 0, "a": 1} {
		before := v.lookups()
		head := waitForEnd(t, e, start(t, e, p, map[string]any{"kind": kind}))
		if head.Status != "completed" || v.lookups()-before != want || len(pinsOfRun(t, st, head.Run)) != want {
			t.Errorf("%q: the run is %s: %s; %d lookups, pinned %v, want %d", kind, head.Status, head.Message, v.lookups()-before, pinsOfRun(t, st, head.Run), want)
		}
	}
}

// A lookup that takes its time holds up nothing but the step that asks.
func TestX251_FoundOutsideOfTheLoop(t *testing.T) {
	st, v := memory.New(memory.Options{}), &newVersions{wait: make(chan struct{}), began: make(chan struct{}, 1)}
	e := openEngine(t, st, Config{Resolve: v.find}, noop())
	slow := start(t, e, planOf(t, dispatches, noop()), map[string]any{"kinds": []any{"a"}})
	<-v.began
	other := start(t, e, planOf(t, "name: other\nsteps: [{id: a, action: {name: noop}}]\n", noop()), nil)
	if head := waitForEnd(t, e, other); head.Status != "completed" {
		t.Errorf("another run is %s while a recipe is looked up", head.Status)
	}
	close(v.wait)
	if head := waitForEnd(t, e, slow); head.Status != "completed" {
		t.Errorf("%s: %s", head.Status, head.Message)
	}
}

// A process that dies at any commit loses no pin, and no tree executes two versions of what one reference names.
func TestX251_R28_PinsAfterCrashes(t *testing.T) {
	req := StartRequest{Account: acc, Plan: planOf(t, dispatches, noop()), Recipe: "dispatch", Parameters: map[string]any{"kinds": []any{"a", "b", "a"}}, IdempotencyKey: "k"}
	crashAtEachCommit(t, 5, req, func() (Config, []*action.Action) {
		return Config{Resolve: (&newVersions{}).find}, []*action.Action{noop()}
	}, func(crash int, st *memory.Store, e *Engine, head store.Head) {
		if refs := pinsOfRun(t, st, head.Run); len(refs) != 2 {
			t.Errorf("crash at commit %d: pinned %v", crash, refs)
		}
		var a, again, b, deep int
		if _, err := fmt.Sscanf(gives(t, e, head), `{"deep":%d,"each":[%d,%d,%d]}`, &deep, &a, &b, &again); err != nil || a != again || a != deep {
			t.Errorf("crash at commit %d: %s: two versions of one name", crash, gives(t, e, head))
		}
		checkTree(t, st, acc, head.Run)
	})
}

// A recipe that a step has made runs as any other: it is compiled when the step runs, without files and secrets.
func TestX251_GeneratedDefinitions(t *testing.T) {
	v := &newVersions{}
	e := openEngine(t, memory.New(memory.Options{}), Config{Resolve: v.find}, noop())
	p := planOf(t, `
name: makes
inputSchema: {type: object, properties: {made: {}}}
steps: [{id: run, recipe: {definition: input.made, inputs: {n: 20}}}]
outputs: {got: steps.run.output}
`, noop())
	for made, want := range map[string]struct{ output, failure string }{
		`steps: [{id: a, transform: {expression: "input.n + 1"}}, {id: b, recipe: {ref: leaf}}]` + "\nresult: steps\noutputs: {m: steps.a.output}\nname: x\n": {`{"got":{"m":21}}`, ""},
		"workflow:\n  steps:\n    - {name: a, type: set_variable, value: '{{ inputs.n * 2 }}'}\n":                                                             {`{"got":{"a":40}}`, ""},
		"name: x\nsteps: [{id: a, recipe: {file: ./x.yaml}}]\n":                                                                                               {"", "is a file"},
		"name: x\nsteps: [{id: a, action: {name: noop, parameters: {key: \"{{ secret('token') }}\"}}}]\n":                                                     {"", "uses no secrets"},
		"name: x\nsteps: [{id: a, action: {name: gone}}]\n":                                                                                                   {"", "gone"},
		"name: x\nstatus: draft\nsteps: [{id: a, transform: {expression: '1'}}]\n":                                                                            {"", "draft"},
		"name: x\nsteps:\n  - {id: a, action: {name: nop}}\n":                                                                                                 {"", `recipe that a step has made: definition:3:28: no action is called "nop"; did you mean "noop"?`},
		"just words": {"", "want a recipe"},
	} {
		head := waitForEnd(t, e, start(t, e, p, map[string]any{"made": made}))
		if want.failure == "" && gives(t, e, head) != want.output || want.failure != "" && (head.Status != "failed" || !strings.Contains(head.Message, want.failure)) {
			t.Errorf("%s\nis %s: %s %s", made, head.Status, gives(t, e, head), head.Message)
		}
	}
	object := map[string]any{"name": "x", "steps": []any{map[string]any{"id": "a", "transform": map[string]any{"expression": "input.n"}}}, "outputs": map[string]any{"n": "steps.a.output"}}
	if head := waitForEnd(t, e, start(t, e, p, map[string]any{"made": object})); gives(t, e, head) != `{"got":{"n":20}}` {
		t.Errorf("an object is %s: %s %s", head.Status, gives(t, e, head), head.Message)
	}
}

// What cannot be found fails its step; what cannot be looked up now is asked for again; the depth ends a recursion
// that only appears at run time, and the number of names in a tree is bounded.
func TestX251_NotFound(t *testing.T) {
	v := &newVersions{fails: []error{fault.New(fault.ServiceUnavailable, "not now"), fault.New(fault.ServiceUnavailable, "not yet")}}
	e := openEngine(t, memory.New(memory.Options{}), Config{Resolve: v.find}, noop())
	p := planOf(t, dispatches, noop())
	if head := waitForEnd(t, e, start(t, e, p, map[string]any{"kinds": []any{"a"}})); head.Status != "completed" || v.lookups() < 3 {
		t.Errorf("%s after %d lookups: %s", head.Status, v.lookups(), head.Message)
	}
	if head := waitForEnd(t, e, start(t, e, p, map[string]any{"kinds": []any{"gone"}})); head.Code != fault.RecipeNotFound || !strings.Contains(head.Message, `recipe gone@1: no recipe "gone"`) {
		t.Errorf("%s: %s", head.Code, head.Message)
	}
	none := openEngine(t, memory.New(memory.Options{}), Config{}, noop())
	if head := waitForEnd(t, none, start(t, none, p, map[string]any{"kinds": []any{"a"}})); head.Code != fault.RecipeNotFound {
		t.Errorf("without a registry: %s: %s", head.Code, head.Message)
	}
	self := "name: self\nsteps: [{id: again, recipe: {definition: input.text, inputs: {text: \"{{ input.text }}\"}}}]\n"
	if head := waitForEnd(t, e, start(t, e, planOf(t, self, noop()), map[string]any{"text": self})); head.Code != fault.DepthExceeded {
		t.Errorf("a text that runs itself: %s: %s", head.Code, head.Message)
	}
}

// TestX251_MostNames: a tree of runs has at most machine.MaxPinned names by expressions.
func TestX251_MostNames(t *testing.T) {
	v := &newVersions{}
	e := openEngine(t, memory.New(memory.Options{}), Config{Resolve: v.find}, noop())
	kinds := make([]any, machine.MaxPinned+1)
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
	}
	p := planOf(t, strings.Replace(dispatches, "maxConcurrency: 3", "maxConcurrency: 20", 1), noop())
	head := waitForEnd(t, e, start(t, e, p, map[string]any{"kinds": kinds}))
	if head.Code != fault.ValueTooLarge || !strings.Contains(head.Message, "1000") {
		t.Errorf("%s %s: %s", head.Status, head.Code, head.Message)
	}
}

// An answer counts only for the generation of the run that asked, and only while the run is not paused: after an edit
// the step is not failed by what it asked for before, and a paused run does not end.
func TestX251_LateAnswers(t *testing.T) {
	v := &newVersions{}
	h := newHarness(t, memory.New(memory.Options{}), Config{Resolve: v.find}, noop())
	resolver := &program.Resolver{Programs: h.c.programs, Resolve: v.find, Actions: h.cfg.Actions}
	answer := func(ef effect) *input {
		r := resolver.Of(t.Context(), acc, ef.definition, func(fn func() error) error { return fn() })
		return &input{kind: inLook, key: ef.id.Key, look: func(c *core) { c.recipeResolved(&ef.id, r) }}
	}
	asked := func(want string) effect {
		t.Helper()
		ef := h.effects[len(h.effects)-1]
		if ef.kind != CmdResolve || ef.definition.Ref != want {
			t.Fatalf("it asks for %+v, want %s", ef.definition, want)
		}
		return ef
	}
	p := planOf(t, "name: outer\ninputSchema: {type: object, properties: {kind: {type: string}}}\nsteps: [{id: run, recipe: {ref: \"{{ input.kind }}\"}}]\n", noop())
	root := h.run(acc, p, map[string]any{"kind": "gone"})
	gone := asked("gone")
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InPause}))
	h.runUntilIdle(answer(gone))
	h.wantStatus(root, "dispatching")
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InUnpause}))
	if n := len(h.effects); asked("gone").id != gone.id || n < 2 {
		t.Fatalf("after the pause it has asked %d times", n)
	}
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InCancel}))
	h.runUntilIdle(request(root, machine.Input{Kind: machine.InEdit, Data: []byte(`{"kind":"a"}`)}))
	a := asked("a")
	h.runUntilIdle(answer(gone))
	h.wantStatus(root, "dispatching")
	h.runUntilIdle(answer(a))
	h.finishTasks()
	h.wantStatus(root, "completed")
	checkTree(t, h.st, acc, root.Run)
}
