// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// inheriting is a Source of recipes whose child runs inherit, and of which newer versions are registered meanwhile.
type inheriting struct{}

func (inheriting) Case(n uint64) (*Case, error) { return Drawn{}.Case(14*n + 11) }

// TestR24_R28_X237_BrokenTreesAreNoticed: each way in which a run may have something else than was found when its
// tree began, or something else of its parent than its text reads, is reported.
func TestR24_R28_X237_BrokenTreesAreNoticed(t *testing.T) {
	type broken func(w *World, parent, child *runRecord, l *link)
	again := func(w *World, parent, child *runRecord, l *link) { w.checker.checkInherited(child, parent, l) }
	for want, spoil := range map[string]broken{
		"": func(w *World, parent, child *runRecord, l *link) {
			again(w, parent, child, l)
			w.checker.checkAsked(child, parent, w.checker.rootOf(child), refOf(parent, child))
		},
		"which its text does not read": func(w *World, parent, child *runRecord, l *link) { // it has more
			if child.tree.inherited != nil {
				child.tree.inherited["input"] = map[string]any{"more": true}
			}
			again(w, parent, child, l)
		},
		"inherited workflow.v: false, and its parent had it: true": func(w *World, parent, child *runRecord, l *link) { // it has nothing
			child.tree.inherited = nil
			again(w, parent, child, l)
		},
		"inherited another workflow.v": func(w *World, parent, child *runRecord, l *link) {
			if v := child.tree.inherited["workflow"]; v != nil {
				v["v"] = "another"
			}
			again(w, parent, child, l)
		},
		"inherited another names.early": func(w *World, parent, child *runRecord, l *link) {
			if v := child.tree.inherited["names"]; v["early"] != nil {
				v["early"] = "another"
			}
			again(w, parent, child, l)
		},
		"inherited another steps.first": func(w *World, parent, child *runRecord, l *link) {
			if v := child.tree.inherited["steps"]; v["first"] != nil {
				v["first"] = map[string]any{"status": "completed", "output": "another"}
			}
			again(w, parent, child, l)
		},
		"R28: child run": func(w *World, parent, child *runRecord, l *link) { // the root was asked for with other versions
			root := w.checker.rootOf(child)
			if later := w.c.Later; root.tree.asked.plan == w.c.Plan {
				root.tree.asked.plan = later.Plan
			}
			w.checker.checkAsked(child, parent, root, refOf(parent, child))
		},
		"nobody asked for it": func(w *World, _, child *runRecord, _ *link) {
			clear(w.registry.asked)
			w.checker.checkRoot(w.checker.rootOf(child))
		},
		"was asked for": func(w *World, _, child *runRecord, _ *link) {
			root := w.checker.rootOf(child)
			w.registry.asked[root.key] = asked{plan: child.prog.Plan()}
			w.checker.checkRoot(root)
		},
		"has a prompt of the newer lens": func(w *World, _, _ *runRecord, _ *link) {
			for _, r := range w.checker.all {
				for i := range r.prog.Plan().Steps {
					if p := r.prog.Plan().Steps[i].Prompt; p != nil && !r.deleted {
						w.checkPrompt(r, int32(i), []byte(`{"prompt":"`+revisedPrompt+`x of y"}`))
					}
				}
			}
		},
		"X237: run": func(w *World, parent, _ *runRecord, _ *link) { // what an attempt reads is not what the journal gives
			for _, p := range w.procs {
				for _, k := range p.tasks {
					k.input = []byte(`{"changed":true}`)
					p.checkParent(k)
				}
			}
		},
	} {
		pl := NewPlayer(Options{Source: inheriting{}, noFaults: true, spoil: func(w *World) {
			for _, child := range w.checker.all {
				if child.tree.self == nil || child.deleted {
					continue
				}
				parent := w.checker.runs[keyOfParent(child)]
				for _, l := range parent.tree.links {
					if l.key == child.key {
						spoil(w, parent, child, l)
					}
				}
			}
		}})
		found, last := false, error(nil)
		for seed := uint64(0); seed < 96 && !found; seed++ {
			res, err := pl.Play(seed)
			if err != nil {
				t.Fatal(err)
			}
			if res.Err != nil {
				last = res.Err
			}
			found = res.Err != nil && strings.Contains(res.Err.Error(), want)
		}
		if found != (want != "") {
			t.Errorf("%q was reported: %v (%v)", want, found, last)
		}
	}
}

func refOf(parent, child *runRecord) *plan.ChildRef {
	up := parent.prog.Plan()
	return &up.Children[up.Steps[child.tree.self.Step].Child.Ref]
}

// TestTreesAreMixed: child runs are written in all dialects below all dialects, inherit from all contexts, and go on
// with what was pinned when newer versions are registered.
func TestTreesAreMixed(t *testing.T) {
	if len(dialects) != numDialects || dialects[0].Name != dialect.All()[0].Name {
		t.Fatalf("there are %d dialects, and %d are counted", len(dialects), numDialects)
	}
	if testing.Short() {
		t.Skip("plays some hundred worlds: -short leaves that out")
	}
	var all Stats
	for k := range uint64(14) { // two worlds of many recipes
		stats, _ := playOn(t, Options{Source: inheriting{}}, k*SeedsPerCase, 10)
		all.Add(&stats)
	}
	stats, _ := playOn(t, Options{Source: Drawn{}}, 27*SeedsPerCase, 10) // expressions name recipes
	all.Add(&stats)
	missing := all.Trees.Missing()
	for _, name := range missing {
		if !strings.Contains(name, " below ") {
			t.Errorf("%s never occurred", name)
		}
	}
	if len(missing) > 20 {
		t.Errorf("these never occurred: %s", strings.Join(missing, ", "))
	}
}

// TestMissingCounts: each count that is 0 is named, and none that is added.
func TestMissingCounts(t *testing.T) {
	var a, b Trees
	names := a.Missing()
	seen := map[string]bool{}
	for _, name := range names {
		seen[name] = true
	}
	if len(names) != len(a.counts()) || len(seen) != len(names) {
		t.Errorf("%d of %d counts are named, %d of them differ", len(names), len(a.counts()), len(seen))
	}
	for _, c := range b.counts() {
		*c.n = 2
	}
	a.Add(&b)
	a.Add(&b)
	if left := a.Missing(); len(left) > 0 || a.Revisions != 4 || a.Below[InFile][1][2] != 4 {
		t.Errorf("missing %v of %+v", left, a)
	}
	if text := a.String(); !strings.Contains(text, "at least 4") || !strings.Contains(text, "root runs in dag 4") {
		t.Errorf("it says %s", text)
	}
}

// TestNamedBeforeARestart: a recipe that an expression has named counts as pinned before a restart only if there
// was a restart after the pin, whether the start of the root has pinned it or a later event.
func TestNamedBeforeARestart(t *testing.T) {
	for _, tt := range []struct{ pinned, boot, late uint64 }{
		{pinned: 0, boot: 0, late: 0}, {pinned: 0, boot: 3, late: 1},
		{pinned: 4, boot: 0, late: 0}, {pinned: 4, boot: 3, late: 0}, {pinned: 4, boot: 4, late: 1},
	} {
		for by, want := range map[plan.By]Trees{plan.ByName: {Named: 1}, plan.ByText: {Texts: 1}} {
			w := &World{}
			c := checker{w: w}
			root := &runRecord{bootEvent: tt.boot, tree: treeRecord{pinnedAt: map[string]uint64{}}}
			if tt.pinned > 0 {
				root.tree.pinnedAt["part"] = tt.pinned
			}
			want.NamedLate = int64(tt.late)
			if c.countNamed(root, &journal.TreeRecipe{Ref: "part", By: by}); w.stats.Trees != want {
				t.Errorf("%+v by %s: %+v, want %+v", tt, by, w.stats.Trees, want)
			}
		}
	}
}

// TestGivenTextsAreInline: a recipe whose text an expression gives does not count as one in a file.
func TestGivenTextsAreInline(t *testing.T) {
	given := 0
	for n := uint64(27); n < 27+28*6; n += 28 {
		c, err := Drawn{}.Case(n)
		if err != nil {
			t.Fatal(err)
		}
		given += strings.Count(string(c.Recipe), "definition")
		for name, from := range c.sources.origins {
			in := func(f *compile.Text) bool { return strings.Contains(string(f.Data), name) }
			if from.way == InFile && !slices.ContainsFunc(slices.Collect(maps.Values(c.Later.sources.files)), in) {
				t.Errorf("case %d: %s counts as a recipe in a file, and no file has it", n, name)
			}
		}
	}
	if given == 0 {
		t.Error("no expression gives a text")
	}
}
