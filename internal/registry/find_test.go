// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// R36, X3: which version a name, an id and a range stand for.
func TestR36_Find(t *testing.T) {
	s := inMemory(t)
	status := func(s string) string { return "status: " + s + "\n" }
	v := s.register("acme", text("a", "1.2.0", 1))
	s.register("acme", text("a", "1.10.0", 2))
	s.register("acme", text("a", "2.0.0", 3, status("deprecated")))
	s.register("acme", text("a", "3.0.0", 4, status("draft")))
	s.register("acme", text("a", "4.0.0-rc.1", 5))
	s.register("acme", text("old", "1.0.0", 1, status("deprecated")))
	s.register("acme", text("old", "2.0.0", 2, status("draft")))
	s.register("acme", text("new", "1.0.0-beta.1", 1))
	s.register("acme", text("new", "1.0.0-beta.2", 1))
	id := s.register("acme", text(v.Recipe[:20], "7.0.0", 1)).Recipe // a name like an id
	for ref, want := range map[string]string{
		"a": "1.10.0", "a@": "1.10.0", "a@1": "1.10.0", "a@1.2": "1.2.0", "a@1.2.0": "1.2.0", v.Recipe: "1.10.0", v.Recipe + "@1.2": "1.2.0",
		"a@2": "2.0.0", "a@3": "3.0.0", "a@3.0.0": "3.0.0", "a@4.0.0-rc.1": "4.0.0-rc.1",
		"old": "1.0.0", "old@2": "2.0.0", "new": "1.0.0-beta.2", "new@1.0.0-beta.1": "1.0.0-beta.1",
		v.Recipe[:20]: "7.0.0", id: "7.0.0",
	} {
		s.find("acme", ref, want)
	}
	for _, ref := range []string{"a@4", "a@1.2.1", "a@5", "a@x", "a@1@2", "new@1", "b", "", "@", "@1", v.Recipe + "0", strings.Repeat("x", 5000), "a\x00"} {
		if v, err := s.Find(t.Context(), "acme", ref); !errors.Is(err, fault.RecipeNotFound) {
			t.Errorf("%.50q is %+v, %v", ref, v, err)
		}
	}
	if _, err := s.Find(t.Context(), "acme", "odl"); !strings.Contains(fmt.Sprint(err), `"old"`) {
		t.Errorf("no suggestion: %v", err)
	}
	if _, err := s.Find(t.Context(), "acme", "a@5"); !strings.Contains(fmt.Sprint(err), "4.0.0-rc.1, 3.0.0, 2.0.0, 1.10.0, 1.2.0") {
		t.Errorf("no list of versions: %v", err)
	}
	versions, err := s.Versions(t.Context(), "acme", "a")
	if err != nil || len(versions) != 5 || versions[0].Version != "4.0.0-rc.1" || versions[4].Version != "1.2.0" || versions[4].Revision != v.Revision {
		t.Errorf("the versions are %v, %v", versions, err)
	}
	// What a step names is never a draft.
	for ref, ok := range map[string]bool{"a": true, "a@2": true, "a@3": false, "old": true, "old@2": false, "new": true} {
		_, _, err := s.Check(t.Context(), "acme", Draft{Text: fmt.Appendf(nil, "name: uses\nsteps: [{id: x, recipe: {ref: %q}}]\n", ref)})
		if (err == nil) != ok {
			t.Errorf("a step names %s: %v", ref, err)
		}
	}
}

// A run shows the id of its recipe, which is another one once the recipe was deleted and
// registered again.
func TestIDOfAName(t *testing.T) {
	s := inMemory(t)
	want := func(account, want string) {
		t.Helper()
		for range 2 { // read, and remembered
			if id, err := s.ID(t.Context(), account, "a"); err != nil || id != want {
				t.Errorf("the id for %s is %q, %v; want %q", account, id, err, want)
			}
		}
	}
	want("acme", "a")
	first := s.register("acme", text("a", "1.0.0", 1)).Recipe
	want("acme", first)
	want("rival", "a")
	if err := s.Delete(t.Context(), "acme", "a"); err != nil {
		t.Fatal(err)
	}
	want("acme", "a")
	second := s.register("acme", text("a", "1.0.0", 1)).Recipe
	if second == first {
		t.Errorf("the recipe is %s again", second)
	}
	want("acme", second)
	want("rival", "a")
}

// X3: a version becomes deprecated and active again; a draft changes by its text only.
func TestSetStatus(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("a", "1.0.0", 1))
	s.register("acme", text("a", "2.0.0", 1))
	s.register("acme", text("a", "3.0.0", 1, "status: draft\n"))
	v, err := s.SetStatus(t.Context(), "acme", "a@2.0.0", Standing{Status: StatusDeprecated, Note: "use 1.0.0"})
	if err != nil || v.Status != StatusDeprecated || v.Note != "use 1.0.0" || v.Updated <= v.Created {
		t.Fatal(v, err)
	}
	if v.Deprecated != v.Updated {
		t.Errorf("it is deprecated since %d", v.Deprecated)
	}
	since := v.Deprecated
	for what, to := range map[string]Standing{
		"a sunset that is over": {Status: StatusDeprecated, Sunset: v.Updated}, "of an active version": {Status: StatusActive, Sunset: 1 << 60},
	} {
		_, err := s.SetStatus(t.Context(), "acme", "a@2.0.0", to)
		wantCode(t, what, err, fault.InputInvalid)
	}
	v, err = s.SetStatus(t.Context(), "acme", "a@2.0.0", Standing{StatusDeprecated, "use 1.0.0", 1 << 60})
	if err != nil || v.Sunset != 1<<60 || v.Deprecated != since || v.Updated <= since {
		t.Fatal(v, err)
	}
	v, err = s.SetStatus(t.Context(), "acme", "a@2.0.0", Standing{Status: StatusDeprecated, Note: "use 1.0.0"})
	if err != nil || v.Sunset != 0 {
		t.Fatal(v, err)
	}
	s.find("acme", "a", "1.0.0")
	if same, err := s.SetStatus(t.Context(), "acme", "a@2.0.0", Standing{Status: StatusDeprecated, Note: "use 1.0.0"}); err != nil || !reflect.DeepEqual(same, v) {
		t.Errorf("the same status: %+v, %v", same, err)
	}
	if v, err := s.SetStatus(t.Context(), "acme", "a@2.0.0", Standing{Status: StatusActive, Note: ""}); err != nil || v.Note != "" || v.Deprecated != 0 {
		t.Error(v, err)
	}
	s.find("acme", "a", "2.0.0")
	_, err = s.SetStatus(t.Context(), "acme", "a@3.0.0", Standing{Status: StatusActive, Note: ""})
	wantCode(t, "a draft", err, fault.Conflict)
	_, err = s.SetStatus(t.Context(), "acme", "a@1.0.0", Standing{Status: StatusDraft, Note: ""})
	wantCode(t, "back to a draft", err, fault.InputInvalid)
	if v, _, _, err := s.Replace(t.Context(), "acme", "a", store.AnyRevision, Draft{Text: text("a", "3.0.0", 1)}); err != nil || v.Status != StatusActive {
		t.Errorf("a draft with the text of an active version: %+v, %v", v, err)
	}
	s.find("acme", "a", "3.0.0")
}

// X248: the next run takes a new version of a recipe that a step names; what was resolved
// before keeps its plan.
func TestX248_NewVersionsOfWhatStepsName(t *testing.T) {
	s := inMemory(t)
	s.register("acme", text("part", "1.0.0", 1))
	v := s.register("acme", []byte("name: whole\nsteps: [{id: a, recipe: {ref: part@1}}]\n"))
	resolve := func() *Compiled {
		t.Helper()
		c, err := s.Resolve(t.Context(), "acme", "whole")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := resolve()
	if again := resolve(); again.Plan != before.Plan {
		t.Error("a recipe is compiled twice although nothing has changed")
	}
	part := func(c *Compiled) string {
		t.Helper()
		if len(c.Plan.Registered) != 1 {
			t.Fatalf("the parts are %+v", c.Plan.Registered)
		}
		return c.Plan.Registered[0].Plan.Key()
	}
	key := part(before)
	s.register("acme", text("part", "1.1.0", 2))
	after := resolve()
	if part(after) == key || part(before) != key || !reflect.DeepEqual(&after.Version, v) {
		t.Errorf("the part is %s, before %s; the version is %+v", part(after), key, after.Version)
	}
	s.register("acme", text("part", "2.0.0", 3))
	if got := resolve(); part(got) != part(after) {
		t.Error("a version outside of the range was taken")
	}
	if err := s.MarkRan(t.Context(), "acme", &after.Version); err != nil {
		t.Errorf("a run with a newer part: %v", err)
	}
	if err := s.Delete(t.Context(), "acme", "part"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), "acme", "whole"); err == nil {
		t.Error("the part is gone, and the whole is run")
	}
}

// X188: pages of a list have each recipe once, the newest first, whatever is registered
// meanwhile; one that cannot be read, and one with pre-releases only, hide no other.
func TestX188_List(t *testing.T) {
	s := inMemory(t)
	for i := range 250 {
		s.register("acme", text(fmt.Sprint("r", i), "1.0.0", 1))
	}
	s.register("acme", text("r7", "1.1.0", 1))
	seen := map[string]int{}
	var place string
	last := 250
	for pages := 0; ; pages++ {
		list, next, err := s.List(t.Context(), "acme", place, 7, all)
		if err != nil || pages > 40 {
			t.Fatal(pages, err)
		}
		for _, v := range list {
			seen[v.Name]++
			var n int
			if _, err := fmt.Sscanf(v.Name, "r%d", &n); err != nil || n >= last {
				t.Fatalf("%s comes after r%d", v.Name, last)
			}
			last = n
		}
		s.register("acme", text(fmt.Sprint("s", pages), "1.0.0", 1))
		if place = next; next == "" {
			break
		}
	}
	if len(seen) != 250 || seen["r0"] != 1 {
		t.Errorf("%d recipes are in the list", len(seen))
	}
	list, next, err := s.List(t.Context(), "acme", "", 5, func(v *Version) bool { return v.Version == "1.1.0" })
	if err != nil || len(list) != 1 || next != "" || list[0].Name != "r7" {
		t.Errorf("selected: %v, %q, %v", list, next, err)
	}
	count := func() int {
		t.Helper()
		list, _, err := s.List(t.Context(), "acme", "", 1000, all)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	n := count()
	gone := s.register("acme", text("gone", "1.0.0", 1))
	s.onList = func() {
		if err := s.Delete(t.Context(), "acme", gone.Recipe); err != nil {
			t.Error(err)
		}
	}
	if got := count(); got != n || s.onList != nil {
		t.Errorf("%d recipes, want %d without one that is deleted meanwhile", got, n)
	}
	s.register("acme", text("pre", "1.0.0-rc.1", 1))
	if got := count(); got != n+1 {
		t.Errorf("%d recipes, want %d", got, n+1)
	}
	v := s.register("acme", text("bad", "1.0.0", 1))
	s.register("acme", text("bad", "1.1.0", 1))
	s.put(store.RecordKey{Account: "acme", Kind: kindVersion, ID: v.Recipe + "@1.1.0"}, "", []byte("{"))
	s.put(store.RecordKey{Account: "acme", Kind: kindRecipe, ID: s.find("acme", "r1", "1.0.0").Recipe}, "r1", []byte("{"))
	if got := count(); got != n {
		t.Errorf("%d recipes, want %d without two that are damaged", got, n)
	}
	// A damaged version is an error where it could be the one that is meant, and only there.
	s.find("acme", "bad@1.0.0", "1.0.0")
	for _, ref := range []string{"bad", "bad@1", "bad@1.1.0", "r1"} {
		_, err := s.Find(t.Context(), "acme", ref)
		wantCode(t, ref, err, fault.StoreCorrupt)
	}
}

// A25: the last recipe of an account and the last version of a recipe that are admitted.
// Deleted recipes do not count.
func TestA25_Quotas(t *testing.T) {
	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	s := newFixture(t, st)
	first := s.register("acme", text("r", "1.0.0", 1))
	fill := func(n int, record func(i int) store.Record) {
		t.Helper()
		var changes []store.RecordChange
		for i := range n {
			changes = append(changes, store.RecordChange{Record: record(i)})
			if len(changes) == store.MaxRecordChanges || i == n-1 {
				if _, err := s.PutRecords(t.Context(), changes...); err != nil {
					t.Fatal(err)
				}
				changes = nil
			}
		}
	}
	fill(MaxVersions-2, func(i int) store.Record {
		return store.Record{RecordKey: store.RecordKey{Account: "acme", Kind: kindVersion, ID: fmt.Sprintf("%s@0.0.%d", first.Recipe, i)}, Data: fmt.Appendf(nil, `{"version":"0.0.%d"}`, i)}
	})
	s.register("acme", text("r", "2.0.0", 1))
	_, _, _, err = s.Register(t.Context(), "acme", Draft{Text: text("r", "3.0.0", 1)})
	wantCode(t, "a version too many", err, fault.QuotaExceeded)
	_, _, _, err = s.Replace(t.Context(), "acme", "r", store.AnyRevision, Draft{Text: text("r", "3.0.0", 1)})
	wantCode(t, "a version too many by PUT", err, fault.QuotaExceeded)
	if _, _, _, err = s.Replace(t.Context(), "acme", "r", store.AnyRevision, Draft{Text: text("r", "2.0.0", 2)}); err != nil {
		t.Errorf("another text of a version: %v", err)
	}

	fill(MaxRecipes-2, func(i int) store.Record {
		id := fmt.Sprintf("recipe_1%025d", i)
		return store.Record{RecordKey: store.RecordKey{Account: "acme", Kind: kindRecipe, ID: id}, Name: "filler " + id, Data: fmt.Appendf(nil, `{"id":%q,"name":"filler %s"}`, id, id)}
	})
	s.register("acme", text("last", "1.0.0", 1))
	_, _, _, err = s.Register(t.Context(), "acme", Draft{Text: text("more", "1.0.0", 1)})
	wantCode(t, "a recipe too many", err, fault.QuotaExceeded)
	s.register("acme", text("last", "1.1.0", 1))
	s.register("other", text("more", "1.0.0", 1))
	if err := s.Delete(t.Context(), "acme", "last"); err != nil {
		t.Fatal(err)
	}
	s.register("acme", text("more", "1.0.0", 1))
}

// F42, X27: recipes are replaced and extended while others resolve and run them. Every run
// has the text that is stored once all is over.
func TestF42_EditedWhileInUse(t *testing.T) {
	s := inMemory(t)
	const recipes = 12
	for i := range recipes {
		s.register("acme", text(fmt.Sprint("r", i), "1.0.0", 0))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	ran := map[string]map[string]bool{} // plans that ran, by the id of the version
	for i := range recipes {
		name := fmt.Sprint("r", i)
		for edit := range 2 {
			all.Go(func() {
				for n := range 30 {
					_, _, _, err := s.Replace(t.Context(), "acme", name, store.AnyRevision, Draft{Text: text(name, "1.0.0", 100*edit+n)})
					if err != nil && !errors.Is(err, fault.Conflict) {
						t.Error(err)
					}
					if n%10 == 0 && edit == 0 {
						if _, _, _, err := s.Register(t.Context(), "acme", Draft{Text: text(name, fmt.Sprintf("0.0.%d", n), n)}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for range 2 {
			all.Go(func() {
				for n := range 4 * i {
					c, err := s.Resolve(t.Context(), "acme", name)
					if err != nil {
						t.Error(err)
						continue
					}
					if n < i { // let edits come first
						continue
					}
					if err := s.MarkRan(t.Context(), "acme", &c.Version); err != nil {
						if !errors.Is(err, fault.Conflict) {
							t.Error(err)
						}
						continue
					}
					mu.Lock()
					if ran[c.Version.ID()] == nil {
						ran[c.Version.ID()] = map[string]bool{}
					}
					ran[c.Version.ID()][c.Plan.Key()] = true
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	s.open()
	if len(ran) == 0 {
		t.Error("nothing ran")
	}
	for id, plans := range ran {
		c, err := s.Resolve(t.Context(), "acme", id)
		if err != nil || len(plans) != 1 || !plans[c.Plan.Key()] || !c.Version.Ran {
			t.Errorf("%s: plans %v ran, %+v is stored, %v", id, plans, c, err)
		}
	}
}
