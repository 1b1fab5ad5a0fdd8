// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/sanitize"
	"github.com/roux-engine/roux/internal/store"
)

func noop() *action.Action {
	return &action.Action{Name: "noop", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
}

func planOf(t testing.TB, src string) *plan.Plan {
	t.Helper()
	r, s, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r != nil && !compile.HasErrors(diags) {
		var p *plan.Plan
		if p, diags = compile.Compile(r, s, compile.Options{Actions: catalogue.New(noop())}); p != nil {
			return p
		}
	}
	t.Fatal(diags)
	return nil
}

func programOf(t testing.TB, src string) *Program {
	t.Helper()
	prog, err := New(planOf(t, src))
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// stored is a store that has plans only.
type stored struct {
	store.Reader
	plans map[string][]byte
}

func (s stored) Plan(_ context.Context, key string) ([]byte, error) {
	if data := s.plans[key]; data != nil {
		return data, nil
	}
	return nil, fault.New(fault.StoreCorrupt, "there is no plan %s", key)
}

const oneStep = "steps: [{id: a, action: {name: noop}}]\n"

// The error about a missing action names the version that was requested.
func TestMissingActionIsNamed(t *testing.T) {
	for version, want := range map[string]string{"": "no action noop is registered here", "^1.0": "no action noop@^1.0 is registered here"} {
		prog := programOf(t, "name: n\n"+oneStep)
		prog.Plan().Actions[0].Version = version
		if _, _, err := prog.Pin(catalogue.New()); fault.CodeOf(err) != fault.ActionNotFound || fault.Message(err) != want {
			t.Errorf("version %q: %v, want %s", version, err, want)
		}
	}
}

// A plan starts only if every recipe that a step of its tree names is registered, and every
// action of the tree exists.
func TestA26_PinTree(t *testing.T) {
	p := planOf(t, "name: outer\nsteps:\n  - {id: a, recipe: {ref: inner}}\n")
	prog, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	actions := catalogue.New(noop())
	if _, _, err := prog.Pin(actions); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("a recipe that is not registered: %v", err)
	}
	inner := planOf(t, "name: inner\n"+oneStep)
	p.Registered = []plan.Registered{{Ref: p.Children[0], Name: "inner", Version: "1.2.0", Plan: inner}}
	pins, tree, err := prog.Pin(actions)
	if err != nil || len(pins) != 0 {
		t.Fatalf("%d pins, %v", len(pins), err)
	}
	if r := tree.Recipe("inner"); r == nil || r.Version != "1.2.0" || r.Key != inner.Key() {
		t.Errorf("the recipe is pinned as %+v", r)
	}
	if a := tree.Action("noop"); a == nil || a.Version != "1.0.0" {
		t.Errorf("the action is pinned as %+v", a)
	}
	if _, _, err := prog.Pin(catalogue.New()); fault.CodeOf(err) != fault.ActionNotFound {
		t.Errorf("an action of a child run that is missing: %v", err)
	}
}

func TestCheckInput(t *testing.T) {
	file := []journal.File{{Hash: "sha256_" + strings.Repeat("0", 64)}}
	for _, tt := range []struct {
		name, schema string
		params       map[string]any
		files        []journal.File
		bad          bool
	}{
		{"no schema", "", map[string]any{"x": 1}, file, false},
		{"a required value is missing", "{type: object, required: [n]}", nil, nil, true},
		{"a value of another type", "{type: object, properties: {n: {type: integer}}}", map[string]any{"n": "1"}, nil, true},
		{"a value that fits", "{type: object, properties: {n: {type: integer}}}", map[string]any{"n": int64(1)}, nil, false},
		{"a closed schema takes files that it does not mention", "{type: object, additionalProperties: false}", nil, file, false},
		{"files are missing", "{type: object, required: [fileHashes]}", nil, nil, true},
		{"files are given", "{type: object, required: [fileHashes]}", nil, file, false},
		{"too many files", "{type: object, properties: {fileHashes: {type: array, maxItems: 1}}}", nil, append(file, file...), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := "name: x\n" + oneStep
			if tt.schema != "" {
				src += "inputSchema: " + tt.schema + "\n"
			}
			prog := programOf(t, src)
			for range 2 { // the schema is compiled once
				if _, err := prog.Input(tt.params, tt.files, ""); (fault.CodeOf(err) == fault.InputInvalid) != tt.bad || err != nil && !tt.bad {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

// An error about an input does not show a value that the schema marks as writeOnly.
func TestCheckInputHidesWriteOnlyValues(t *testing.T) {
	prog := programOf(t, "name: x\n"+oneStep+"inputSchema: {type: object, properties: {pin: {type: string, writeOnly: true, enum: [a]}, n: {type: string, enum: [a]}}}\n")
	refused := func(params map[string]any) string {
		_, err := prog.Input(params, nil, "")
		return fault.Message(err)
	}
	if msg := refused(map[string]any{"pin": "hunter2"}); !strings.Contains(msg, "not shown") {
		t.Errorf("the hidden value: %s", msg)
	}
	if msg := refused(map[string]any{"n": "b"}); strings.Contains(msg, "not shown") || msg == "" {
		t.Errorf("a value that may be shown: %s", msg)
	}
}

// A default of the inputSchema is there before the input is checked; what was given stays as it is.
func TestDefaultsOfTheInputSchema(t *testing.T) {
	prog := programOf(t, "name: x\n"+oneStep+"inputSchema: {type: object, required: [n, o], properties: {n: {type: integer, default: 3}, o: {required: [x], properties: {x: {default: y}}}, fileHashes: {default: []}}}\n")
	given := map[string]any{"o": map[string]any{}}
	in, err := prog.Input(given, nil, "")
	if err != nil || !reflect.DeepEqual(in.Parameters, map[string]any{"n": int64(3), "o": map[string]any{"x": "y"}}) {
		t.Errorf("%v, %v", in.Parameters, err)
	}
	if !reflect.DeepEqual(given, map[string]any{"o": map[string]any{}}) {
		t.Errorf("what was given is now %v", given)
	}
	if _, err := prog.Input(nil, nil, ""); !strings.Contains(fault.Message(err), "o") || fault.CodeOf(err) != fault.InputInvalid {
		t.Error(err)
	}
	large := programOf(t, "name: x\n"+oneStep+"inputSchema: {properties: {l: {items: {properties: {x: {default: "+strings.Repeat("a", 9000)+"}}}}}}\n")
	list := make([]any, 1000)
	for i := range list {
		list[i] = map[string]any{}
	}
	if _, err := large.Input(map[string]any{"l": list}, nil, ""); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("A11: %v", err)
	}
}

// The policies of the recipe and of the step apply before defaults, which are the author's, and before the check.
func TestX171_R26_InputPolicy(t *testing.T) {
	text := "name: x\n" + oneStep + "inputSchema: {properties: {a: {type: string, minLength: 1}, d: {default: '$(x)'}}}\n"
	keep, strip, reject := programOf(t, text), programOf(t, text+"inputPolicy: strip\n"), programOf(t, text+"inputPolicy: reject\n")
	given := map[string]any{"a": "x`id`"}
	for name, tt := range map[string]struct {
		prog *Program
		step sanitize.Policy
		want string
	}{
		"by default":         {keep, "", "x`id`"},
		"strip":              {strip, "", "x"},
		"strip by the step":  {keep, sanitize.Strip, "x"},
		"reject":             {reject, "", ""},
		"reject by the step": {strip, sanitize.Reject, ""},
		"both":               {reject, sanitize.Strip, ""},
	} {
		in, err := tt.prog.Input(given, nil, tt.step)
		switch {
		case tt.want == "":
			if fault.CodeOf(err) != fault.InputInvalid || !strings.Contains(fault.Message(err), "input/a:") || strings.Contains(fault.Message(err), "id`") {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || in.Parameters["a"] != tt.want || in.Parameters["d"] != "$(x)":
			t.Errorf("%s: %v, %v", name, in.Parameters, err)
		case (in.Stripped != nil) != (tt.want == "x") || in.Stripped != nil && !reflect.DeepEqual(in.Stripped, &journal.Stripped{Count: 1, Fields: []string{"/a"}}):
			t.Errorf("%s: it says %+v", name, in.Stripped)
		}
	}
	if _, err := strip.Input(map[string]any{"a": "`id`"}, nil, ""); !strings.Contains(fault.Message(err), "minLength") && !strings.Contains(fault.Message(err), "input/a") {
		t.Errorf("what is left is checked: %v", err)
	}
}

// A run may use no more than the least of what the account, the recipe and the request say.
func TestX157_Terms(t *testing.T) {
	prog := programOf(t, "name: x\n"+oneStep+"creditEstimation: {strategy: fixed, fixedCredits: 5, maxCredits: 20}\n")
	b := prog.Budget(catalogue.New(noop()), nil, nil)
	if prog.Budget(catalogue.New(noop()), map[string]any{"n": 1}, nil) != b {
		t.Error("a cost that does not depend on the input is computed again")
	}
	for _, tt := range []struct{ most, limit, want int64 }{{100, 0, 20}, {10, 0, 10}, {100, 7, 7}} {
		if c, err := Terms(b, tt.most, tt.limit); err != nil || c.Most != tt.want || c.Estimated != 5 {
			t.Errorf("most %d, limit %d: %+v, %v", tt.most, tt.limit, c, err)
		}
	}
	b.Problem = "no number"
	if _, err := Terms(b, 1); fault.CodeOf(err) != fault.PriceUnknown {
		t.Errorf("without an estimate: %v", err)
	}
}

// A program that was read from the store has no family; the one that a caller gives
// replaces it. The cache keeps the newest.
func TestCache(t *testing.T) {
	p := planOf(t, "name: outer\nsteps:\n  - {id: a, recipe: {inline: {name: inner, "+strings.TrimSpace(oneStep)+"}}}\n")
	given, err := New(p)
	if err != nil || len(given.Stored()) != 2 {
		t.Fatalf("%d plans are stored, %v", len(given.Stored()), err)
	}
	st := stored{plans: map[string][]byte{}}
	for _, s := range given.Stored() {
		st.plans[s.Key] = s.Data
	}
	c := NewCache(1)
	read, err := c.Load(t.Context(), st, p.Key())
	if err != nil || read.Hash() != p.Hash().String() {
		t.Fatal(err)
	}
	if again, _ := c.Load(t.Context(), nil, p.Key()); again != read {
		t.Error("a cached program is read again")
	}
	made, err := c.Of(p)
	if err != nil || made == read || len(made.Stored()) != 2 {
		t.Errorf("a plan with child runs: %d plans to store, %v", len(made.Stored()), err)
	}
	if again, _ := c.Of(p); again != made {
		t.Error("a cached program is prepared again")
	}
	other, err := c.Of(planOf(t, "name: other\n"+oneStep))
	if err != nil || c.find(p.Key()) != nil || c.find(other.Key()) != other {
		t.Error("the cache is not bounded")
	}
	st.plans[p.Key()] = []byte("?")
	if _, err := c.Load(t.Context(), st, p.Key()); fault.CodeOf(err) != fault.StoreCorrupt {
		t.Errorf("a damaged plan: %v", err)
	}
}

// A child run gets the recipe and the actions that were pinned at the start of its root,
// from memory or from the store.
func TestR28_Child(t *testing.T) {
	actions := catalogue.New(noop())
	p := planOf(t, "name: outer\nsteps:\n  - {id: a, recipe: {ref: inner}}\n")
	inner := planOf(t, "name: inner\nlimits: {max_depth: 2}\ninputSchema: {type: object, required: [n]}\n"+oneStep)
	p.Registered = []plan.Registered{{Ref: p.Children[0], Name: "inner", Version: "1.2.0", Plan: inner}}
	c := NewCache(10)
	prog, err := c.Of(p)
	if err != nil {
		t.Fatal(err)
	}
	_, tree, err := prog.Pin(actions)
	if err != nil {
		t.Fatal(err)
	}
	start := &journal.Start{Run: "run_1", Account: "acme", Seed: 1, Tree: tree, Credits: &journal.Credits{Most: 9}}
	task := &machine.ChildTask{Ref: p.Children[0], Child: p.Steps[0].Child, Input: []byte(`{"n":1}`), Depth: 1, MaxDepth: 8}
	st := stored{plans: map[string][]byte{}}
	for _, s := range prog.Stored() {
		st.plans[s.Key] = s.Data
	}
	bare, err := NewCache(1).Load(t.Context(), st, p.Key())
	if err != nil {
		t.Fatal(err)
	}
	for name, parent := range map[string]*Program{"in memory": prog, "stored": bare} {
		child, err := c.Child(t.Context(), st, actions, parent, start, tree, nil, task)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		share := child.Share()
		s := child.Start("run_2", journal.Ref{Step: 0}, journal.Fence{Gen: 1, Attempt: 2}, share)
		if s.PlanHash != inner.Hash().String() || s.Version != "1.2.0" || len(s.Pins) != 1 || s.Seed == start.Seed || s.Correlation != "run_1" || s.Credits.Most != 9 {
			t.Errorf("%s: the child run starts with %+v", name, s)
		}
		if at := s.Child; at.Root != "run_1" || at.Parent != "run_1" || at.Attempt != 2 || at.Depth != 1 || at.MaxDepth != 3 || at.Share != share || share.Steps != shareSteps {
			t.Errorf("%s: the place of the child run is %+v", name, at)
		}
	}
	// The machine takes a start as it is made here, so decoding its event must give the same.
	start.Labels = map[string]string{"team": "a"}
	for _, input := range []string{`{"n":1}`, `{"n":0.1,"list":[1,"ü",null,{"deep":1234567890123456789}]}`, `{"n":-0.5e-7,"text":"a \"b\" <c>"}`} {
		for _, path := range []journal.Path{"", "all[3]"} {
			one := *task
			one.Input, one.Files = []byte(input), []journal.File{{Hash: "sha256_1", Name: "n", Size: 3}}
			child, err := c.Child(t.Context(), st, actions, prog, start, tree, nil, &one)
			if err != nil {
				t.Fatal(err)
			}
			made := child.Start("run_2", journal.Ref{Path: path}, journal.Fence{Gen: 1, Attempt: 2}, child.Share())
			data, err := journal.EncodeStart(made)
			if err != nil {
				t.Fatal(err)
			}
			if decoded, err := journal.DecodeStart(data); err != nil || !reflect.DeepEqual(decoded, made) {
				t.Errorf("the start of a child run is %+v, its event says %+v, %v", made, decoded, err)
			}
		}
	}
	// The policy of the step applies, and the event says so (X171).
	careful := *task
	careful.Child = &plan.Child{InputPolicy: "strip"}
	careful.Input = []byte(`{"n":"a$(b)"}`)
	child, err := c.Child(t.Context(), st, actions, prog, start, tree, nil, &careful)
	if err != nil {
		t.Fatal(err)
	}
	made := child.Start("run_2", journal.Ref{}, journal.Fence{Gen: 1, Attempt: 2}, child.Share())
	data, err := journal.EncodeStart(made)
	if decoded, e := journal.DecodeStart(data); err != nil || e != nil || decoded.Parameters["n"] != "a" || decoded.Stripped == nil || decoded.Stripped.Fields[0] != "/n" {
		t.Errorf("%s, %v, %v", data, err, e)
	}
	careful.Child = &plan.Child{InputPolicy: "reject"}
	if _, err := c.Child(t.Context(), st, actions, prog, start, tree, nil, &careful); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("an input that the step refuses: %v", err)
	}
	bad := *task
	bad.Input = []byte(`{}`)
	if _, err := c.Child(t.Context(), st, actions, prog, start, tree, nil, &bad); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("an input that does not fit: %v", err)
	}
	if _, err := c.Child(t.Context(), st, actions, prog, start, &journal.Tree{Recipes: tree.Recipes}, nil, task); fault.CodeOf(err) != fault.ActionNotFound {
		t.Errorf("an action that was not pinned: %v", err)
	}
	if _, err := c.Child(t.Context(), st, actions, prog, start, &journal.Tree{}, nil, task); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("a recipe that was not pinned: %v", err)
	}
}

// The action of a step is looked up once for each engine and version.
func TestCall(t *testing.T) {
	prog := programOf(t, "name: n\n"+oneStep)
	strict := noop()
	strict.Output = []byte(`{"type":"object","required":["x"]}`)
	actions, others := &Actions{catalogue.New(strict)}, &Actions{catalogue.New()}
	task := &machine.Task{Pin: &journal.Pin{Name: "noop", Version: "1.0.0"}}
	call, fail := prog.Call(actions, task)
	if fail != nil || call.CheckInput != nil {
		t.Fatal(fail)
	}
	if again, _ := prog.Call(actions, task); again != call {
		t.Error("the action is looked up again")
	}
	if _, fail := prog.Call(others, task); fail == nil || fail.Code != fault.ActionNotFound {
		t.Errorf("the action of another engine: %+v", fail)
	}
	var v *Violation
	if err := call.CheckOutput(map[string]any{}); !errors.As(err, &v) || v.Phase != "output" || len(v.List) != 1 {
		t.Errorf("an output that does not fit: %+v", v)
	}
	task.OutputC = []byte(`{`)
	task.Pin.Version = "1"
	if _, fail := prog.Call(actions, task); fail == nil || fail.Code != fault.RecipeInvalid {
		t.Errorf("a contract that cannot be used: %+v", fail)
	}
}

// A plan that is given again after a recipe that it names was registered anew gets the
// programs of the recipes that are registered now: their plans must be stored with it.
func TestR28_RegisteredAnew(t *testing.T) {
	const outer = "name: outer\nsteps:\n  - {id: a, recipe: {ref: inner}}\n"
	c := NewCache(10)
	var before *Program
	for n, src := range []string{"name: inner\n" + oneStep, "name: inner\nsteps: [{id: b, action: {name: noop}}]\n"} {
		inner, p := planOf(t, src), planOf(t, outer)
		p.Registered = []plan.Registered{{Ref: p.Children[0], Name: "inner", Plan: inner}}
		prog, err := c.Of(p)
		if err != nil {
			t.Fatal(err)
		}
		if stored := prog.Stored(); len(stored) != 2 || stored[1].Key != inner.Key() || prog == before {
			t.Errorf("start %d stores %d plans; want that of the recipe that is registered", n+1, len(stored))
		}
		if again, _ := c.Of(p); again != prog {
			t.Errorf("start %d: the program is prepared again", n+1)
		}
		before = prog
	}
}

// X168: a program that was read back, for a run from before a restart, demands its moderators of the
// next start as well.
func TestX168_GatesOfALoadedProgram(t *testing.T) {
	p := planOf(t, "name: x\nsteps: [{id: a, action: {name: noop}, moderation: output}]\n")
	data, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(1)
	if _, err := c.Load(t.Context(), stored{plans: map[string][]byte{p.Key(): data}}, p.Key()); err != nil {
		t.Fatal(err)
	}
	prog, err := c.Of(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := prog.CheckGates(nil); fault.CodeOf(err) != fault.ProviderNotConfigured {
		t.Errorf("%v, want %s", err, fault.ProviderNotConfigured)
	}
}

// X251: a step that cannot run a recipe says what is wrong in it and where: the first error, and not a warning before it.
func TestX251_FailureHasThePlace(t *testing.T) {
	diag := func(line int, severity fault.Severity, msg, hint string) fault.Diagnostic {
		return fault.Diagnostic{Severity: severity, Msg: msg, Hint: hint, Pos: fault.Pos{File: made, Line: line, Col: 7}}
	}
	for want, err := range map[string]error{
		`recipe that a step has made: definition:4:7: no step "x"; did you mean "y"?`: fault.Invalid(fault.RecipeInvalid, []fault.Diagnostic{
			diag(2, fault.SeverityWarning, "odd", ""), diag(4, fault.SeverityError, `no step "x"`, `did you mean "y"?`), diag(5, fault.SeverityError, "more", ""),
		}),
		"recipe that a step has made: odd":     fault.Invalid(fault.RecipeInvalid, []fault.Diagnostic{diag(2, fault.SeverityWarning, "odd", "")}),
		"recipe that a step has made: a draft": fault.New(fault.RecipeInvalid, "a draft"),
	} {
		r := Resolution{Definition: &Definition{By: plan.ByText}, Err: err}
		if got := r.Failure(nil); got == nil || got.Msg != want || got.Code != fault.RecipeInvalid || r.Later() {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}
