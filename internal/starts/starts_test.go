// SPDX-License-Identifier: Apache-2.0

package starts_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const acme = "acme"

type records struct {
	*memory.Store
	e *engine.Engine
}

func (r records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return r.e.PutRecords(ctx, changes...)
}

// A run gets the files, the parameters and the labels of its request, under one key once; what
// a recipe or an account does not allow is refused, before and at the start.
func TestStart(t *testing.T) {
	ctx := t.Context()
	st := memory.New(memory.Options{})
	files, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	rules := func(string) engine.AccountRules { return engine.AccountRules{Unmetered: true} }
	actions := catalogue.New([]*action.Action{}...)
	e, err := engine.Open(ctx, engine.Config{Store: st, Actions: actions, Blobs: files, Accounts: rules})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = e.Stop(context.Background()) }()
	recipes := registry.NewRecipes(registry.RecipesConfig{
		Records: records{st, e}, Now: time.Now, NewID: func() (string, error) { return "recipe_1", nil }, Actions: func(string) catalogue.Actions { return actions }, MaxSource: 1 << 20,
	})
	register := func(version, status string) {
		t.Helper()
		text := "name: work\nversion: " + version + "\nstatus: " + status + "\ninputSchema: {type: object, required: [n], properties: {n: {type: integer}}}\nsteps:\n  - {id: one, transform: {expression: input.n}}\n"
		if _, _, diags, err := recipes.Register(ctx, acme, registry.Draft{Text: []byte(text)}); err != nil {
			t.Fatal(diags, err)
		}
	}
	register("1.0.0", "active")
	register("2.0.0", "draft")
	info, err := files.Put(ctx, acme, strings.NewReader("text"), "a.txt", "")
	if err != nil {
		t.Fatal(err)
	}
	var denied error
	s := starts.New(starts.Config{
		Recipes: recipes, Files: files, Actions: func(string) catalogue.Actions { return actions }, Rules: rules, Admit: func(string) error { return denied },
	}, e)
	good := starts.Request{Recipe: "work@1", Parameters: json.RawMessage(`{"n":9007199254740993}`), Files: []string{info.Hash}, Labels: map[string]string{"a": "1"}}
	if err := s.Check(ctx, acme, &good); err != nil {
		t.Fatal(err)
	}
	run, err := s.Start(ctx, acme, &good, "key", map[string]string{"b": "2"})
	if err != nil || run.Version != "1.0.0" || run.Existing {
		t.Fatal(run, err)
	}
	again, err := s.Start(ctx, acme, &good, "key", map[string]string{"b": "2"})
	if err != nil || again.ID != run.ID || !again.Existing {
		t.Errorf("%+v, %v", again, err)
	}
	state, err := e.State(ctx, acme, run.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(state.Start().Parameters); err != nil || string(text) != `{"n":9007199254740993}` {
		t.Errorf("parameters %s, %v", text, err)
	}
	if in := state.Start(); len(in.Files) != 1 || in.Files[0].Name != "a.txt" || in.Labels["a"] != "1" || in.Labels["b"] != "2" || len(good.Labels) != 1 {
		t.Errorf("%+v", in)
	}
	for want, r := range map[string]starts.Request{
		"RECIPE_NOT_FOUND": {Recipe: "nothing"},
		"CONFLICT":         {Recipe: "work@2", Parameters: good.Parameters},
		"INPUT_INVALID":    {Recipe: "work"},
		"FILE_NOT_FOUND":   {Recipe: "work", Parameters: good.Parameters, Files: []string{"sha256_" + strings.Repeat("0", 64)}},
		"REQUEST_INVALID":  {Recipe: "work", Parameters: json.RawMessage(`"` + strings.Repeat("x", starts.MaxParameters) + `"`)},
	} {
		if err := s.Check(ctx, acme, &r); string(fault.CodeOf(err)) != want {
			t.Errorf("check: %v, want %s", err, want)
		}
		if _, err := s.Start(ctx, acme, &r, "other", nil); string(fault.CodeOf(err)) != want {
			t.Errorf("start: %v, want %s", err, want)
		}
	}
	if _, err := s.Start(ctx, "rival", &good, "key", nil); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("of another account: %v", err)
	}
	testPolicies(t, e, s, recipes)
	denied = fault.New(fault.AccountDisabled, "no")
	if _, err := s.Start(ctx, acme, &good, "key", nil); fault.CodeOf(err) != fault.AccountDisabled {
		t.Error(err)
	}
}

// A run begins with what its policy and its defaults make of the input; two requests with one key are compared as they
// were sent (X171, R26, I13).
func testPolicies(t *testing.T, e *engine.Engine, s *starts.Starter, recipes *registry.Recipes) {
	ctx := t.Context()
	text := "name: work\nversion: 3.0.0\ninputPolicy: strip\ninputSchema: {properties: {who: {type: string}, n: {type: integer, default: 7}}}\nsteps:\n  - {id: one, transform: {expression: input.who + string(input.n)}}\n"
	if _, _, diags, err := recipes.Register(ctx, acme, registry.Draft{Text: []byte(text)}); err != nil {
		t.Fatal(diags, err)
	}
	send := func(parameters string) (starts.Run, error) {
		return s.Start(ctx, acme, &starts.Request{Recipe: "work@3", Parameters: json.RawMessage(parameters)}, "careful", nil)
	}
	run, err := send(`{"who":"a$(b)c"}`)
	if err != nil {
		t.Fatal(err)
	}
	state, err := e.State(ctx, acme, run.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(state.Start().Parameters); err != nil || string(text) != `{"n":7,"who":"ac"}` {
		t.Errorf("the input is %s, %v", text, err)
	}
	if got := state.Start().Stripped; got == nil || got.Count != 1 || len(got.Fields) != 1 || got.Fields[0] != "/who" {
		t.Errorf("it says %+v", got)
	}
	if again, err := send(`{"who":"a$(b)c"}`); err != nil || again.ID != run.ID || !again.Existing {
		t.Errorf("the same request: %+v, %v", again, err)
	}
	if _, err := send(`{"who":"ac"}`); fault.CodeOf(err) != fault.IdempotencyMismatch {
		t.Errorf("a request that means the same and is another: %v", err)
	}
}
