// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A fixture is a store with registered recipes.
type fixture struct {
	*Recipes
	t     *testing.T
	st    store.Store
	epoch uint64
	clock atomic.Int64
	ids   atomic.Int64
	// before, when set, is called once before the next read of a text.
	before func()
	// onList, when set, is called once after a page of recipes was read.
	onList func()
	// failed, when set, is the error of a write that succeeds all the same.
	failed error
}

func newFixture(t *testing.T, st store.Store) *fixture {
	t.Helper()
	s := &fixture{t: t, st: st}
	s.clock.Store(1_800_000_000_000_000)
	var err error
	if s.epoch, err = st.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.open()
	return s
}

func inMemory(t *testing.T) *fixture { return newFixture(t, memory.New(memory.Options{})) }

// open makes Recipes as a process does that starts.
func (s *fixture) open() {
	s.Recipes = NewRecipes(RecipesConfig{
		Records: s, MaxSource: 1 << 20,
		Now:     func() time.Time { return time.UnixMicro(s.clock.Add(1)) },
		NewID:   func() (string, error) { return fmt.Sprintf("recipe_%026d", s.ids.Add(1)), nil },
		Actions: func(string) catalogue.Actions { return catalogue.New() },
	})
}

func (s *fixture) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	if f := s.before; f != nil && key.Kind == kindSource {
		s.before = nil
		f()
	}
	return s.st.Record(ctx, key)
}

func (s *fixture) RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error) {
	return s.st.RecordNamed(ctx, account, kind, name)
}

func (s *fixture) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	page, more, err := s.st.Records(ctx, q)
	if f := s.onList; f != nil && q.Kind == kindRecipe {
		s.onList = nil
		f()
	}
	return page, more, err
}

func (s *fixture) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	stored, err := s.st.PutRecords(ctx, s.epoch, s.clock.Load(), changes)
	if err == nil && s.failed != nil {
		return nil, s.failed
	}
	return stored, err
}

// text is a recipe whose result is n.
func text(name, version string, n int, more ...string) []byte {
	head := "name: " + name + "\n"
	if version != "" {
		head += "version: " + version + "\n"
	}
	return fmt.Appendf(nil, "%s%ssteps: [{id: one, transform: {expression: '%d'}}]\n", head, strings.Join(more, ""), n)
}

func (s *fixture) register(account string, text []byte) *Version {
	s.t.Helper()
	v, existing, _, err := s.Register(s.t.Context(), account, Draft{Text: text, By: "ann"})
	if err != nil || existing {
		s.t.Fatalf("register: existing %t, %v", existing, err)
	}
	return v
}

// find fails the test unless a reference stands for a version.
func (s *fixture) find(account, ref, want string) *Version {
	s.t.Helper()
	v, err := s.Find(s.t.Context(), account, ref)
	if err != nil || v.Version != want {
		s.t.Fatalf("%s of %s is %+v, %v; want version %s", ref, account, v, err, want)
	}
	return v
}

func wantCode(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if !errors.Is(err, code) {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// X2, X187: what is known of a registered recipe; the same text again is no change, and
// another text under the same version is refused.
func TestX187_Register(t *testing.T) {
	s := inMemory(t)
	d := Draft{Text: text("digest", "1.0.0", 1, "description: Digests.\ncategory: documents\n"), By: "ann"}
	v := s.register("acme", d.Text)
	got := *v
	got.Plan, got.Revision = "", 0
	want := Version{
		Recipe: "recipe_00000000000000000000000001", Name: "digest", Version: "1.0.0", Description: "Digests.", Category: "documents", Status: "active", Format: "yaml",
		Size: len(d.Text), Created: v.Created, Updated: v.Created, By: "ann", Uses: []Use{},
	}
	if !reflect.DeepEqual(got, want) || v.Plan == "" || v.Revision == 0 || v.Created == 0 {
		t.Errorf("registered as %+v, want %+v", v, want)
	}
	again, existing, _, err := s.Register(t.Context(), "acme", d)
	if err != nil || !existing || !reflect.DeepEqual(again, v) {
		t.Errorf("the same text again: %+v, existing %t, %v", again, existing, err)
	}
	var problem *fault.Error
	_, _, _, err = s.Register(t.Context(), "acme", Draft{Text: text("digest", "1.0.0", 2)})
	if !errors.Is(err, fault.Conflict) || !errors.As(err, &problem) || !strings.Contains(problem.Remedy, "new version") || !strings.Contains(problem.Remedy, "PUT") {
		t.Errorf("another text of the version: %v", err)
	}
	newer := s.register("acme", text("digest", "1.1.0", 2))
	if newer.Recipe != v.Recipe || newer.ID() != v.Recipe+"@1.1.0" {
		t.Errorf("a new version is of the recipe %s, not %s", newer.Recipe, v.Recipe)
	}
	if source, err := s.Source(t.Context(), "acme", v); err != nil || string(source) != string(d.Text) {
		t.Errorf("the text is %q, %v", source, err)
	}
	if v := s.register("acme", text("plain", "", 1)); v.Version != "0.0.0" || v.Recipe == newer.Recipe {
		t.Errorf("a recipe without a version: %+v", v)
	}
}

// X30, X190: a text is checked with all its problems, and nothing is saved.
func TestX190_Check(t *testing.T) {
	s := inMemory(t)
	if c, diags, err := s.Check(t.Context(), "acme", Draft{Text: text("digest", "1.0.0", 1)}); err != nil || len(diags) != 0 || c.Plan == nil || c.Version.Plan != c.Plan.Key() {
		t.Errorf("a recipe: %+v, %v, %v", c, diags, err)
	}
	bad := []byte("name: digest\nsteps: [{id: a, transform: {expression: 'nothing.x'}}, {id: b, transform: {expresion: '1'}}]\n")
	if _, diags, err := s.Check(t.Context(), "acme", Draft{Text: bad}); err == nil || len(diags) < 1 {
		t.Errorf("a bad recipe: %v, %v", diags, err)
	}
	if list, _, err := s.List(t.Context(), "acme", "", 10, all); err != nil || len(list) != 0 {
		t.Errorf("saved: %v, %v", list, err)
	}
	for what, text := range map[string][]byte{
		"an empty text":       nil,
		"a name with @":       text(`"digest@1"`, "", 1),
		"no name":             []byte("steps: [{transform: {expression: '1'}}]\n"),
		"a long name":         text(strings.Repeat("x", maxName+1), "", 1),
		"a long version":      text("x", "1.0.0-"+strings.Repeat("x", maxVersion), 1),
		"a long category":     text("x", "", 1, "category: "+strings.Repeat("x", maxCategory+1)+"\n"),
		"a long description":  text("x", "", 1, "description: "+strings.Repeat("x", maxDescription+1)+"\n"),
		"more than MaxSource": []byte("name: x\ndescription: " + strings.Repeat("x", 1<<20)),
		"a file":              []byte("name: x\nsteps: [{id: a, recipe: {file: ./y.yaml}}]\n"),
		"something unknown":   []byte("name: x\nsteps: [{id: a, recipe: {ref: nothing}}]\n"),
		"a text that is none": {0xff, 0xfe},
	} {
		_, _, _, err := s.Register(t.Context(), "acme", Draft{Text: text})
		if code := fault.CodeOf(err); code != fault.RecipeInvalid && code != fault.RecipeNotFound {
			t.Errorf("%s: %v (%s)", what, err, code)
		}
	}
	longest := text(strings.Repeat("é", maxName/2), "1.0.0-"+strings.Repeat("x", maxVersion-6), 1, "category: "+strings.Repeat("x", maxCategory)+"\ndescription: "+strings.Repeat("x", maxDescription)+"\n")
	v := s.register("acme", longest)
	if _, err := s.Resolve(t.Context(), "acme", v.ID()); err != nil {
		t.Error(err)
	}
}

// A text is JSON or YAML by its content alone, also if its name looks like that of a file
// in the other language.
func TestFormats(t *testing.T) {
	s := inMemory(t)
	const j = `{"name": %q, "version": %q, "steps": [{"id": "one", "transform": {"expression": "1"}}]}`
	for _, tt := range []struct{ text, format string }{
		{fmt.Sprintf(j, "a.yaml", "1.0.0"), "json"},
		{"\ufeff" + fmt.Sprintf(j, "b", "1.0.0-rc.yaml"), "json"},
		{" \n" + fmt.Sprintf(j, "recipe_c", "1.0.0"), "json"},
		{string(text("d.json", "1.0.0-rc.json", 1)), "yaml"},
		{"{name: e.json, steps: [{id: one, transform: {expression: '1'}}]}", "yaml"},
		{string(text("name with spaces / and more", "", 1)), "yaml"},
	} {
		v := s.register("acme", []byte(tt.text))
		c, err := s.Resolve(t.Context(), "acme", v.Name)
		if err != nil || v.Format != tt.format || !reflect.DeepEqual(&c.Version, v) || c.Plan.Key() != v.Plan {
			t.Errorf("%s: format %s, %v", tt.text, v.Format, err)
		}
		parent := text("uses "+v.Name, "", 1, fmt.Sprintf("outputs: {n: steps.sub.output}\nsteps: [{id: sub, recipe: {ref: %q}}]\n", v.Name+"@"+v.Version))
		parent = []byte(strings.Split(string(parent), "steps: [{id: one")[0])
		p := s.register("acme", parent)
		if c, err := s.Resolve(t.Context(), "acme", p.ID()); err != nil || len(c.Plan.Children) != 1 {
			t.Errorf("a recipe that names %q: %v", v.Name, err)
		}
	}
}

// X189: PUT replaces the text of a version that never ran, or adds a version. It keeps the
// name of the recipe, and what it replaces must be what was read.
func TestX189_Replace(t *testing.T) {
	s := inMemory(t)
	first := s.register("acme", text("digest", "1.0.0", 1))
	put := func(ref string, revision uint64, text []byte) (*Version, bool, error) {
		v, created, _, err := s.Replace(t.Context(), "acme", ref, revision, Draft{Text: text, By: "bob"})
		return v, created, err
	}
	second, created, err := put("digest", first.Revision, text("digest", "1.0.0", 2))
	if err != nil || created || second.Revision <= first.Revision || second.Created != first.Created || second.Updated <= first.Updated || second.By != "bob" || second.Plan == first.Plan {
		t.Fatalf("replaced: %+v, created %t, %v", second, created, err)
	}
	if c, err := s.Resolve(t.Context(), "acme", "digest"); err != nil || c.Plan.Key() != second.Plan {
		t.Errorf("after a replacement: %v", err)
	}
	same, created, err := put(first.Recipe, second.Revision, text("digest", "1.0.0", 2))
	if err != nil || created || !reflect.DeepEqual(same, second) {
		t.Errorf("the same text: %+v, %v", same, err)
	}
	for _, tt := range []struct {
		what, ref string
		revision  uint64
		text      []byte
		code      fault.Code
	}{
		{"a stale revision", "digest", first.Revision, text("digest", "1.0.0", 3), fault.PreconditionFailed},
		{"a stale revision, same text", "digest", first.Revision, text("digest", "1.0.0", 2), fault.PreconditionFailed},
		{"a stale revision, new version", "digest", first.Revision, text("digest", "1.1.0", 3), fault.PreconditionFailed},
		{"another name", "digest", store.AnyRevision, text("other", "1.0.0", 3), fault.InputInvalid},
		{"no recipe", "digests", store.AnyRevision, text("digests", "1.0.0", 3), fault.RecipeNotFound},
		{"no recipe that runs", "digest", store.AnyRevision, []byte("name: digest\n"), fault.RecipeInvalid},
	} {
		_, _, err := put(tt.ref, tt.revision, tt.text)
		wantCode(t, tt.what, err, tt.code)
	}
	added, created, err := put("digest", second.Revision, text("digest", "1.1.0", 3))
	if err != nil || !created || added.Recipe != first.Recipe {
		t.Fatalf("another version: %+v, created %t, %v", added, created, err)
	}
	// X27: once it has run, it stays.
	if err := s.MarkRan(t.Context(), "acme", added); err != nil {
		t.Fatal(err)
	}
	_, _, err = put("digest", store.AnyRevision, text("digest", "1.1.0", 4))
	wantCode(t, "a version that ran", err, fault.Conflict)
	if kept, created, err := put("digest", store.AnyRevision, text("digest", "1.1.0", 3)); err != nil || created || !kept.Ran {
		t.Errorf("the same text of a version that ran: %+v, %v", kept, err)
	}
	if _, _, _, err := s.Register(t.Context(), "acme", Draft{Text: text("digest", "1.1.0", 4)}); !errors.Is(err, fault.Conflict) {
		t.Errorf("another text of a version that ran: %v", err)
	}
}

// A recipe that is deleted while its replacement is compiled is not there any more.
func TestX189_ReplaceAfterDelete(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("part", "1.0.0", 1))
	s.register("acme", text("digest", "1.0.0", 1))
	s.before = func() { // the compilation reads the part
		if err := s.Delete(t.Context(), "acme", "digest"); err != nil {
			t.Error(err)
		}
	}
	_, _, _, err := s.Replace(t.Context(), "acme", "digest", store.AnyRevision, Draft{Text: []byte("name: digest\nversion: 2.0.0\nsteps: [{id: a, recipe: {ref: part}}]\n")})
	wantCode(t, "a deleted recipe", err, fault.RecipeNotFound)
}

// X27: a run has the text that is stored when it is marked. A version that was replaced
// after it was resolved is not run, also if another text had its place in between.
func TestX27_NoRunOfAnotherText(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("digest", "1.0.0", 1))
	replace := func(n int) {
		t.Helper()
		if _, _, _, err := s.Replace(t.Context(), "acme", "digest", store.AnyRevision, Draft{Text: text("digest", "1.0.0", n)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Resolve(t.Context(), "acme", "digest")
	if err != nil {
		t.Fatal(err)
	}
	replace(2)
	wantCode(t, "a version that was replaced", s.MarkRan(t.Context(), "acme", &c.Version), fault.Conflict)
	s.before = func() { replace(3) }
	c, err = s.Resolve(t.Context(), "acme", "digest")
	if err != nil || c.Plan.Key() != c.Version.Plan {
		t.Fatalf("the plan is not that of the version: %v", err)
	}
	if err := s.MarkRan(t.Context(), "acme", &c.Version); err != nil {
		t.Error(err)
	}
	if v := s.find("acme", "digest", "1.0.0"); !v.Ran {
		t.Error("the version has not run")
	}
	if err := s.MarkRan(t.Context(), "acme", &c.Version); err != nil {
		t.Errorf("a second run: %v", err)
	}
	missing := Version{Recipe: "recipe_x", Version: "1.0.0"}
	wantCode(t, "no version", s.MarkRan(t.Context(), "acme", &missing), fault.Conflict)
}

// X189: a deleted recipe is hidden with its versions, and its name is free.
func TestX189_Delete(t *testing.T) {
	s := inMemory(t)
	v := s.register("acme", text("digest", "1.0.0", 1))
	s.register("acme", text("digest", "2.0.0", 1))
	kept := s.register("acme", text("other", "1.0.0", 1))
	if _, err := s.Resolve(t.Context(), "acme", "digest"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "to delete one version", s.Delete(t.Context(), "acme", "digest@1.0.0"), fault.InputInvalid)
	s.find("acme", "digest", "2.0.0")
	if err := s.Delete(t.Context(), "acme", "digest"); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		for _, ref := range []string{v.Recipe, v.ID(), v.Recipe + "@1", ""} {
			for what, call := range map[string]func() error{
				"recipe":   func() error { _, err := s.Recipe(t.Context(), "acme", ref); return err },
				"versions": func() error { _, err := s.Versions(t.Context(), "acme", ref); return err },
				"find":     func() error { _, err := s.Find(t.Context(), "acme", ref); return err },
				"resolve":  func() error { _, err := s.Resolve(t.Context(), "acme", ref); return err },
				"replace": func() error {
					_, _, _, err := s.Replace(t.Context(), "acme", ref, store.AnyRevision, Draft{Text: text("digest", "1.0.0", 2)})
					return err
				},
				"status": func() error {
					_, err := s.SetStatus(t.Context(), "acme", ref, Standing{Status: StatusDeprecated, Note: ""})
					return err
				},
			} {
				wantCode(t, what+" "+ref, call(), fault.RecipeNotFound)
			}
		}
		wantCode(t, "delete", s.Delete(t.Context(), "acme", v.Recipe), fault.RecipeNotFound)
	}
	gone()
	_, err := s.Resolve(t.Context(), "acme", "digest")
	wantCode(t, "its name", err, fault.RecipeNotFound)
	if list, _, err := s.List(t.Context(), "acme", "", 10, all); err != nil || len(list) != 1 || list[0].Recipe != kept.Recipe {
		t.Errorf("the list is %v, %v", list, err)
	}
	again := s.register("acme", text("digest", "1.0.0", 2))
	if again.Recipe == v.Recipe {
		t.Error("the recipe came back under its old id")
	}
	s.find("acme", "digest", "1.0.0")
	gone()
	s.open()
	gone()
}

// I17, A01: two accounts have nothing in common, also under the same names, and a foreign
// id is answered like one that nobody has.
func TestI17_AccountsShareNothing(t *testing.T) {
	s := inMemory(t)
	a := s.register("acme", text("digest", "1.0.0", 1))
	s.register("other", text("digest", "2.0.0", 2))
	s.find("acme", "digest", "1.0.0")
	s.find("other", "digest", "2.0.0")
	_, missing := s.Find(t.Context(), "other", "recipe_00000000000000000000099999")
	for _, ref := range []string{a.Recipe, a.ID(), a.Recipe + "@1"} {
		for what, err := range map[string]error{
			"find":    func() error { _, err := s.Find(t.Context(), "other", ref); return err }(),
			"resolve": func() error { _, err := s.Resolve(t.Context(), "other", ref); return err }(),
			"delete":  s.Delete(t.Context(), "other", a.Recipe),
			"replace": func() error {
				_, _, _, err := s.Replace(t.Context(), "other", ref, store.AnyRevision, Draft{Text: text("digest", "1.0.0", 9)})
				return err
			}(),
		} {
			if !errors.Is(err, fault.RecipeNotFound) || fmt.Sprint(err) != fmt.Sprint(missing) {
				t.Errorf("%s of another account's %s: %v; of one that does not exist: %v", what, ref, err, missing)
			}
		}
	}
	wantCode(t, "a mark", s.MarkRan(t.Context(), "other", a), fault.Conflict)
	if _, err := s.Source(t.Context(), "other", a); !errors.Is(err, fault.RecordNotFound) {
		t.Errorf("the text of another account: %v", err)
	}
	// Steps find the recipes of their account only.
	s.register("acme", text("secret", "1.0.0", 1))
	uses := []byte("name: uses\nsteps: [{id: a, recipe: {ref: secret}}]\n")
	_, _, diags, err := s.Register(t.Context(), "other", Draft{Text: uses})
	if err == nil || strings.Contains(fmt.Sprint(diags), "1.0.0") {
		t.Errorf("a step names another account's recipe: %v, %v", diags, err)
	}
	s.register("acme", uses)
	for account, n := range map[string]int{"acme": 3, "other": 1} {
		if list, _, err := s.List(t.Context(), account, "", 10, all); err != nil || len(list) != n {
			t.Errorf("%s has %d recipes, %v", account, len(list), err)
		}
	}
}

// What is registered is there after a restart, with its marks.
func TestRecipesAreDurable(t *testing.T) {
	dir := t.TempDir()
	open := func() *fixture {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return newFixture(t, st)
	}
	s := open()
	v := s.register("acme", text("digest", "1.0.0", 1))
	s.register("acme", text("digest", "1.1.0", 1))
	s.register("acme", text("gone", "1.0.0", 1))
	err := errors.Join(s.MarkRan(t.Context(), "acme", v), s.Delete(t.Context(), "acme", "gone"))
	if _, e := s.SetStatus(t.Context(), "acme", "digest@1.1.0", Standing{Status: StatusDeprecated, Note: "use 1.0.0"}); errors.Join(err, e, s.st.Close()) != nil {
		t.Fatal(err, e)
	}
	s = open()
	defer s.st.Close()
	s.ids.Store(100)
	if v := s.find("acme", "digest", "1.0.0"); !v.Ran {
		t.Error("the mark is lost")
	}
	if v := s.find("acme", "digest@1.1.0", "1.1.0"); v.Status != StatusDeprecated || v.Note != "use 1.0.0" {
		t.Errorf("the status is lost: %+v", v)
	}
	for _, ref := range []string{"gone", ""} {
		_, err = s.Find(t.Context(), "acme", ref)
		wantCode(t, "deleted "+ref, err, fault.RecipeNotFound)
	}
	if c, err := s.Resolve(t.Context(), "acme", v.Recipe); err != nil || c.Plan.Key() != v.Plan {
		t.Error(err)
	}
	s.register("acme", text("gone", "1.0.0", 1))
	if list, _, err := s.List(t.Context(), "acme", "", 10, all); err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// An error of the store that comes after the write does not leave old recipes in memory.
func TestWriteWithAnError(t *testing.T) {
	s := inMemory(t)
	v := s.register("acme", text("digest", "1.0.0", 1))
	if _, err := s.Resolve(t.Context(), "acme", "digest"); err != nil {
		t.Fatal(err)
	}
	s.failed = errors.New("the connection is lost")
	_, _, _, err := s.Register(t.Context(), "acme", Draft{Text: text("digest", "2.0.0", 2)})
	if !errors.Is(err, s.failed) {
		t.Fatal(err)
	}
	s.failed = nil
	if c, err := s.Resolve(t.Context(), "acme", "digest"); err != nil || c.Version.Version != "2.0.0" || c.Version.Recipe != v.Recipe {
		t.Errorf("%+v, %v", c, err)
	}
}

func all(*Version) bool { return true }

// put stores a record as no program of ours would.
func (s *fixture) put(key store.RecordKey, name string, v any) {
	s.t.Helper()
	data, ok := v.([]byte)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.PutRecords(s.t.Context(), store.RecordChange{Record: store.Record{RecordKey: key, Revision: store.AnyRevision, Name: name, Data: data}}); err != nil {
		s.t.Fatal(err)
	}
}
