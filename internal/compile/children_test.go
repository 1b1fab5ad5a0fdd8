// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// textFiles are recipes by the names of their files. Those below registry/ are registered.
type textFiles map[string]string

func (f textFiles) File(from, name string) (*Text, error) {
	at := path.Join(path.Dir(from), name)
	if text, ok := f[at]; ok {
		return &Text{File: at, Data: []byte(text)}, nil
	}
	return nil, fault.New(fault.RecipeNotFound, "%s: no such file", at)
}

func (f textFiles) Find(name, version string) (*Text, error) {
	var best *Text
	newest := ""
	for file, text := range f {
		r, _, _ := dialect.Parse(file, []byte(text), form.Options{})
		switch {
		case !strings.HasPrefix(file, "registry/"):
		case r == nil && strings.Contains(text, "name: "+name+"\n"):
			return &Text{File: file, Data: []byte(text)}, nil
		case r != nil && r.Name == name && catalogue.Admits(version, r.Version) && (best == nil || catalogue.CompareVersions(r.Version, newest) > 0):
			best, newest = &Text{File: file, Data: []byte(text)}, r.Version
		}
	}
	if best == nil {
		return nil, fault.New(fault.RecipeNotFound, "no recipe %s@%s is registered", name, version)
	}
	return best, nil
}

func (f textFiles) Names() (names []string) {
	for file, text := range f {
		if r, _, _ := dialect.Parse(file, []byte(text), form.Options{}); r != nil && strings.HasPrefix(file, "registry/") {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names
}

// splitFiles splits a text at lines of the form "-- name --"; the text above the first
// one is a comment.
func splitFiles(text string) (comment, first string, files textFiles) {
	files = textFiles{}
	name := ""
	for line := range strings.Lines(text) {
		if mark := strings.TrimSpace(line); strings.HasPrefix(mark, "-- ") && strings.HasSuffix(mark, " --") {
			name = strings.TrimSuffix(strings.TrimPrefix(mark, "-- "), " --")
			if first == "" {
				first = name
			}
			files[name] = ""
		} else if name == "" {
			comment += line
		} else {
			files[name] += line
		}
	}
	return comment, first, files
}

// dumpChildren formats a plan with the plans of its children. Keys depend on everything in
// a plan, so the dump has their numbers instead.
func dumpChildren(p *plan.Plan) string {
	var b strings.Builder
	number := map[string]int{}
	for i, e := range p.Embedded {
		number[e.Key()] = i
	}
	one := func(title string, p *plan.Plan) {
		fmt.Fprintf(&b, "---- %s\n%s", title, dump(p))
		for i, r := range p.Children {
			kind := "registered"
			if !r.Registered() {
				kind = fmt.Sprintf("embedded %d", number[r.Key])
			}
			fmt.Fprintf(&b, "child %d: %s, %s\n", i, &r, kind)
		}
	}
	one("root", p)
	for i, e := range p.Embedded {
		one(fmt.Sprintf("embedded %d", i), e)
	}
	for _, r := range p.Registered {
		fmt.Fprintf(&b, "---- registered %s is %s@%s, %d steps\n", &r.Ref, r.Name, r.Version, len(r.Plan.Steps))
	}
	return b.String()
}

// TestGoldenChildren is TestGolden for recipes that run others: the first file of each
// text is compiled.
func TestGoldenChildren(t *testing.T) {
	files, err := filepath.Glob("testdata/children/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, _, _ := strings.Cut(string(data), diagMark)
			_, first, recipes := splitFiles(text + "\n")
			p, _, _, diags := Source(first, []byte(recipes[first]), Options{Actions: testActions(), Recipes: recipes})
			got := text + diagMark + dumpDiagnostics(diags)
			if p != nil {
				got += planMark + dumpChildren(p)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(data), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", file, diff)
			}
		})
	}
}

// counted counts the questions to Recipes.
type counted struct {
	textFiles
	asked int
}

func (f *counted) File(from, name string) (*Text, error) {
	f.asked++
	return f.textFiles.File(from, name)
}

func (f *counted) Find(name, version string) (*Text, error) {
	f.asked++
	return f.textFiles.Find(name, version)
}

// repeated returns a recipe with n steps, each made by step.
func repeated(name string, n int, step func(i int) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: 1.0.0\nsteps:\n", name)
	for i := range n {
		fmt.Fprintf(&b, "  - %s\n", step(i))
	}
	return b.String()
}

// TestHostileChildren: the number, depth and size of included recipes is limited before
// they cost much, and each is read and compiled once.
func TestHostileChildren(t *testing.T) {
	tooMany := ledger.Amount(math.MaxInt64).Ceil()
	leaf := "name: leaf\nversion: 1.0.0\nsteps: [{action: {name: cheap}}]\n"
	inline := func(levels int) string {
		return strings.Repeat("{inline: {name: x, steps: [{recipe: ", levels) + "{inline: {name: end, steps: [{transform: {expression: '1'}}]}}" + strings.Repeat("}]}}", levels)
	}
	tree := textFiles{"main.yaml": repeated("main", 100, func(int) string { return "{recipe: {file: l0.yaml}}" })}
	for i := range 8 {
		tree[fmt.Sprintf("l%d.yaml", i)] = repeated("l", 100, func(int) string { return fmt.Sprintf("{recipe: {file: l%d.yaml}}", i+1) })
	}
	tree["l8.yaml"] = leaf
	ladder := textFiles{"30.yaml": leaf} // 2^30 ways lead to its end, each step with a limit of its own
	for i := range 30 {
		ladder[fmt.Sprintf("%d.yaml", i)] = repeated("l", 2, func(k int) string {
			return fmt.Sprintf("{recipe: {file: %d.yaml, limits: {max_depth: %d}}}", i+1, 31+k)
		})
	}
	ladder["0.yaml"] += "limits: {max_depth: 32}\n"
	chain := textFiles{}
	for i := range 500 {
		chain[fmt.Sprintf("%d.yaml", i)] = repeated("c", 1, func(int) string { return fmt.Sprintf("{recipe: {file: %d.yaml}}", i+1) })
	}
	many := textFiles{"main.yaml": repeated("main", 1500, func(i int) string { return fmt.Sprintf("{recipe: {file: %d.yaml}}", i) })}
	for i := range 1500 {
		many[fmt.Sprintf("%d.yaml", i)] = leaf
	}
	// Each of ten recipes costs 1 and runs all of them, down to a depth.
	allNames := func(depth int) textFiles {
		files := textFiles{"main.yaml": "limits: {max_depth: 32}\n" + repeated("main", 300, func(i int) string { return fmt.Sprintf("{recipe: {ref: n%d}}", i%10) })}
		for i := range 10 {
			files[fmt.Sprintf("registry/n%d.yaml", i)] = repeated(fmt.Sprintf("n%d", i), 50, func(k int) string {
				if k == 0 {
					return "{action: {name: cheap}}"
				}
				return fmt.Sprintf("{recipe: {ref: n%d, limits: {max_depth: %d}}}", k%10, depth)
			})
		}
		return files
	}
	names, deepNames := allNames(2), allNames(32)
	big := textFiles{"main.yaml": repeated("main", 40, func(i int) string { return fmt.Sprintf("{recipe: {file: %d.yaml}}", i) })}
	for i := range 40 {
		big[fmt.Sprintf("%d.yaml", i)] = leaf + "# " + strings.Repeat("x", 900_000) + "\n"
	}
	broken := textFiles{"main.yaml": repeated("main", 200, func(i int) string {
		return fmt.Sprintf("{recipe: {inline: {name: x, steps: [{recipe: {file: %d.yaml}}]}}}", i)
	})}
	for i := range 200 {
		broken[fmt.Sprintf("%d.yaml", i)] = repeated("b", 100, func(int) string { return "{transform: {expression: nothing}}" })
	}
	inputs := repeated("main", 1, func(int) string {
		var b strings.Builder
		b.WriteString("{recipe: {ref: child, inputs: {")
		for i := range 20_000 {
			fmt.Fprintf(&b, "k%d: '{{ input.a }}', ", i)
		}
		return b.String() + "z: 1}}}"
	})
	for _, tt := range []struct {
		name  string
		files textFiles
		main  string
		want  fault.Code // "" = it compiles
		rule  string
		asked int   // at most
		most  int64 // credits
	}{
		{"inline, 10 deep", nil, "name: m\nsteps: [{recipe: " + inline(9) + "}]", "", "", 0, 0},
		{"inline, 11 deep", nil, "name: m\nsteps: [{recipe: " + inline(10) + "}]", fault.DepthExceeded, "child-too-deep", 0, 0},
		{"a tower of 25 levels", nil, "name: m\nsteps: [{recipe: " + inline(24) + "}]", fault.DepthExceeded, "child-too-deep", 0, 0},
		{"inline, 55 deep", nil, "name: m\nsteps: [{recipe: " + inline(55) + "}]", fault.DepthExceeded, "child-too-deep", 0, 0},
		{"inline, 200 deep", nil, "name: m\nsteps: [{recipe: " + inline(200) + "}]", fault.RecipeInvalid, "limit", 0, 0},
		{"8,000 inline", nil, repeated("m", 8_000, func(int) string { return "{recipe: {inline: {name: x, steps: [{transform: {expression: '1'}}]}}}" }), fault.RecipeInvalid, "unusable-recipe", 0, 0},
		{"a tree of 100^9 runs", tree, tree["main.yaml"], "", "", 9, tooMany},
		{"a chain of files", chain, chain["0.yaml"], fault.DepthExceeded, "child-too-deep", 33, 0},
		{"1,500 files", many, many["main.yaml"], fault.RecipeInvalid, "unusable-recipe", 1001, 0},
		{"36 MB of files", big, big["main.yaml"], fault.RecipeInvalid, "unusable-recipe", 19, 0},
		{"200 inline recipes that run broken files", broken, broken["main.yaml"], fault.RecipeInvalid, invalidRecipe, 200, 0},
		{"names in all directions", names, names["main.yaml"], "", "", 10, 15_000},
		{"names in all directions, 32 deep", deepNames, deepNames["main.yaml"], "", "", 10, tooMany},
		{"20,000 inputs", nil, inputs, fault.RecipeNotFound, "unknown-recipe", 1, 0},
		{"limits on 2^30 ways", ladder, ladder["0.yaml"], "", "", 31, 1 << 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := &counted{textFiles: tt.files}
			p, _, _, diags := Source("main.yaml", []byte(tt.main), Options{Actions: priced(), Recipes: files})
			if (p != nil) != (tt.want == "") {
				t.Fatalf("plan %v, diagnostics %.2000s", p != nil, dumpDiagnostics(diags))
			}
			found := tt.want == ""
			for _, d := range diags {
				found = found || d.Code == tt.want && d.Rule == tt.rule
			}
			if !found || len(diags) > 3*form.MaxDiagnostics {
				t.Errorf("%d diagnostics, want one of %s/%s:\n%.2000s", len(diags), tt.want, tt.rule, dumpDiagnostics(diags))
			}
			if p != nil { // estimating it does not cost more than reading each recipe a few times
				if most := estimateMost(p, priced()); most != tt.most {
					t.Errorf("at most %d credits, want %d", most, tt.most)
				}
			}
			if files.asked > tt.asked {
				t.Errorf("%d texts were asked for, want at most %d", files.asked, tt.asked)
			}
		})
	}
}

// TestEmbeddedPlans: a plan carries the plans of its embedded children, each once, and
// what is stored of each leads to the others by key.
func TestEmbeddedPlans(t *testing.T) {
	files := textFiles{
		"b.yaml": "name: b\nsteps: [{recipe: {file: c.yaml}}, {recipe: {file: c.yaml, inputs: {n: 2}}}]\n",
		"c.yaml": "name: c\nsteps: [{name: The inner, transform: {expression: '1'}}]\n",
	}
	compileMain := func(files textFiles) *plan.Plan {
		p, _, _, diags := Source("a.yaml", []byte("name: a\nsteps: [{recipe: {file: b.yaml}}, {recipe: {file: c.yaml}}]\n"), Options{Recipes: files})
		if p == nil {
			t.Fatal(dumpDiagnostics(diags))
		}
		return p
	}
	p := compileMain(files)
	if len(p.Embedded) != 2 || len(p.Children) != 2 {
		t.Fatalf("%d embedded plans and %d children, want 2 and 2", len(p.Embedded), len(p.Children))
	}
	stored := map[string]*plan.Plan{}
	for _, e := range append([]*plan.Plan{p}, p.Embedded...) {
		data, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := plan.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if again.Key() != e.Key() || again.Hash() != e.Hash() || again.Check() != nil {
			t.Errorf("stored and read again, %s is %s: %v", e.Key(), again.Key(), again.Check())
		}
		stored[e.Key()] = again
	}
	for _, q := range stored {
		for _, r := range q.Children {
			if stored[r.Key] == nil {
				t.Errorf("the child %s is not among the embedded plans", &r)
			}
		}
	}
	// What the innermost recipe means is part of the hash of the outermost; how its steps
	// are called is part of the key.
	files["c.yaml"] = strings.Replace(files["c.yaml"], "'1'", "'2'", 1)
	if compileMain(files).Hash() == p.Hash() {
		t.Error("another child gives the same plan")
	}
	files["c.yaml"] = "name: c\nsteps: [{name: The innermost, transform: {expression: '1'}}]\n"
	if q := compileMain(files); q.Hash() != p.Hash() || q.Key() == p.Key() {
		t.Errorf("another name of a step of a child: hash %s, key %s; before %s, %s", q.Hash(), q.Key(), p.Hash(), p.Key())
	}
}

// TestChildrenWithoutRecipes: a caller that cannot look up recipes gets what is known
// without that.
func TestChildrenWithoutRecipes(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\nsteps: [{recipe: {ref: b, inputs: {x: 1}, outputs: [y]}}]\n":                       "",
		"name: a\nsteps: [{recipe: {file: b.yaml}}]\n":                                               "unknown-recipe",
		"name: a\nversion: 1.2.0\nsteps: [{recipe: {ref: a@1}}]\n":                                   "recipe-cycle",
		"name: a\nversion: 1.2.0\nsteps: [{recipe: {ref: a@2}}]\n":                                   "",
		"name: a\nversion: 1.2.0\nsteps: [{recipe: {ref: a, limits: {max_depth: 3}}}]\n":             "",
		"name: a\nsteps: [{recipe: {inline: {name: b, steps: [{recipe: {ref: a, inputs: {}}}]}}}]\n": "recipe-cycle",
		"name: a\nsteps: [{recipe: {inline: {name: b, steps: [{recipe: {ref: b}}]}}}]\n":             "",
	} {
		p, _, _, diags := Source("a.yaml", []byte(text), Options{})
		if rules(diags) != want || (p != nil) != (want == "") {
			t.Errorf("%s: rules %q, want %q", text, rules(diags), want)
		}
		// Nothing is looked up; a text that names itself means itself.
		itself := strings.Contains(text, "ref: a, limits")
		if p != nil && (len(p.Registered) == 1) != itself || itself && p.Registered[0].Plan != p {
			t.Errorf("%s: found %+v", text, p.Registered)
		}
	}
}
