// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
)

// priced returns actions with different costs and durations.
func priced() *catalogue.Catalogue {
	one := func(name string, cost int64, least, most string) *action.Action {
		return &action.Action{Name: name, Version: "1.0.0", Cost: cost, Metadata: action.Metadata{
			DurationRange: &action.DurationRange{Min: least, Max: most}}}
	}
	cents := one("cents", 0, "1s", "1s")
	cents.Price = "0.3"
	return catalogue.New(cents, one("cheap", 1, "1s", "2s"), one("dear", 10, "10s", "1m"), one("file-inspect", 1, "1ms", "1s"))
}

// X202: durations are those of the longest chain by the actions' durationRange; credits
// are those of the cheapest and the most expensive path.
func TestX202_Estimate(t *testing.T) {
	for _, tt := range []struct {
		name, steps     string
		least, most     int64
		leastMS, mostMS int64
		open            string
		input           map[string]any
	}{
		{"a sequence adds up", `
  - {id: a, action: {name: cheap}}
  - {id: b, action: {name: dear}}`, 11, 11, 11_000, 62_000, "", nil},
		{"prices are rounded up once", `
  - {id: a, action: {name: cheap}}
  - id: l
    loop: {over: input.list, as: x, maxConcurrency: 9, steps: [{id: b, action: {name: cents}}]}`, 3, 3, 2_000, 3_000, "",
			map[string]any{"list": []any{int64(1), int64(2), int64(3), int64(4)}}},
		{"beside each other the longest counts", `
  - {id: a, action: {name: cheap}}
  - {id: b, action: {name: dear}, dependsOn: []}`, 11, 11, 10_000, 60_000, "", nil},
		{"one side of a condition", `
  - id: c
    condition:
      expression: "true"
      then: [{id: a, action: {name: cheap}}]
      else: [{id: b, action: {name: dear}}]`, 1, 10, 1_000, 60_000, "", nil},
		{"a condition without else may cost nothing", `
  - id: c
    condition:
      expression: "true"
      then: [{id: a, action: {name: dear}}]`, 0, 10, 0, 60_000, "", nil},
		{"when may cost nothing", `
  - {id: a, when: "true", action: {name: dear}}`, 0, 10, 0, 60_000, "", nil},
		{"all branches", `
  - id: p
    parallel:
      branches:
        - [{id: a, action: {name: cheap}}]
        - [{id: b, action: {name: dear}}]`, 11, 11, 10_000, 60_000, "", nil},
		{"any branch", `
  - id: p
    parallel:
      waitFor: any
      branches:
        - [{id: a, action: {name: dear}}]
        - [{id: b, action: {name: cheap}}]`, 1, 11, 1_000, 60_000, "", nil},
		{"a loop over what is known", `
  - id: l
    loop: {over: input.list, as: x, maxConcurrency: 2, steps: [{id: a, action: {name: dear}}]}`, 30, 30, 20_000, 120_000, "",
			map[string]any{"list": []any{int64(1), int64(2), int64(3)}}},
		{"a loop over what is not", `
  - id: l
    loop: {over: input.list, as: x, steps: [{id: a, action: {name: dear}}]}`, 0, 10, 0, 60_000, `l runs once for each item of "input.list"`, nil},
		{"a loop with a condition", `
  - id: l
    loop: {while: index < 2, maxIterations: 4, steps: [{id: a, action: {name: dear}}]}`, 0, 40, 0, 240_000, "", nil},
		{"a loop that may stop early", `
  - id: l
    loop: {over: input.list, until: "item == 2", steps: [{id: a, action: {name: dear}}]}`, 10, 30, 10_000, 180_000, "",
			map[string]any{"list": []any{int64(1), int64(2), int64(3)}}},
		{"a fallback may be paid for too", `
  - id: a
    action: {name: cheap}
    onError: {strategy: fallback, fallbackStep: {id: b, action: {name: dear}}}`, 1, 11, 1_000, 62_000, "", nil},
		{"a timeout bounds the time", `
  - {id: a, action: {name: dear}, timeout: 20s}`, 10, 10, 10_000, 20_000, "", nil},
		{"a wait takes its time", `
  - {id: w, wait: {duration: 5s}}
  - {id: s, wait: {signal: go, timeout: 1m}}`, 0, 0, 5_000, 65_000, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _, _, diags := compile.Source("r.yaml", []byte("name: r\ninputSchema: {type: object, properties: {list: {type: array}}}\nsteps:"+tt.steps+"\n"), compile.Options{Actions: priced()})
			if p == nil {
				t.Fatal(diags)
			}
			b := Of(p, priced(), Known{Input: tt.input})
			if b.Least != tt.least || b.Most != tt.most || b.LeastMS != tt.leastMS || b.MostMS != tt.mostMS {
				t.Errorf("%d to %d credits, %d to %d ms; want %d to %d, %d to %d", b.Least, b.Most, b.LeastMS, b.MostMS, tt.least, tt.most, tt.leastMS, tt.mostMS)
			}
			if !strings.HasPrefix(strings.Join(b.Open, ";"), tt.open) || tt.open == "" && len(b.Open) > 0 {
				t.Errorf("open: %q, want %q", b.Open, tt.open)
			}
		})
	}
}

// X147, X148, R15, R17: the strategies, a formula over the files, the cap when a name has
// no value yet, and the additional quarter.
func TestX147_X148_R15_EstimateStrategies(t *testing.T) {
	pdf := map[string]any{"hash": "sha256_x", "mimeType": "application/pdf", "sizeBytes": int64(3 << 20),
		"extended": map[string]any{"pageCount": int64(12)}}
	unknown := map[string]any{"mimeType": "application/pdf", "sizeBytes": int64(1), "extended": map[string]any{}}
	for _, tt := range []struct {
		name, estimation   string
		known              Known
		expected, reserved int64
		cap                int64
		missing            []string
		problem            string
	}{
		{"none: what the steps cost", "", Known{}, 2, 3, 0, nil, ""},
		{"fixed", "{strategy: fixed, fixedCredits: 50}", Known{}, 50, 50, 50, nil, ""},
		{"fixed below its cap", "{strategy: fixed, fixedCredits: 50, maxCredits: 100}", Known{}, 50, 63, 100, nil, ""},
		{"per file", "{strategy: per_file, perFileCredits: 25}", Known{Files: []map[string]any{pdf, pdf}}, 50, 50, 50, nil, ""},
		{"the source's formula", "{strategy: calculated, formula: 10 + (pageCount*5) + (sizeBytes/1048576*2), maxCredits: 1000}",
			Known{Files: []map[string]any{pdf}}, 76, 95, 1000, nil, ""},
		{"sums over files", "{strategy: calculated, formula: pageCount + fileCount, maxCredits: 1000}", Known{Files: []map[string]any{pdf, pdf}}, 26, 33, 1000, nil, ""},
		{"what inspection will find", "{strategy: calculated, formula: inspection.extended.pageCount * 0.5, maxCredits: 1000}",
			Known{Files: []map[string]any{pdf}}, 6, 8, 1000, nil, ""},
		{"input fields", "{strategy: calculated, formula: base_cost + size_mb * input.rate, maxCredits: 30}",
			Known{Input: map[string]any{"base_cost": int64(10), "rate": 5.0}, Files: []map[string]any{pdf}}, 25, 30, 30, nil, ""},
		{"part of a credit counts whole", "{strategy: calculated, formula: 1.01 * 2.0, maxCredits: 1000}", Known{}, 3, 4, 1000, nil, ""},
		{"an unknown name reserves the cap", "{strategy: calculated, formula: pageCount * 5 + pageCount, maxCredits: 400}",
			Known{Files: []map[string]any{unknown}}, 400, 400, 400, []string{"pageCount"}, ""},
		{"a formula that gives text", "{strategy: calculated, formula: '\"much\"', maxCredits: 400}", Known{}, 400, 400, 400, nil, "the formula gave much"},
		{"a formula below zero", "{strategy: calculated, formula: 0 - 5, maxCredits: 400}", Known{}, 400, 400, 400, nil, "the formula gave -5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "name: r\n"
			if tt.estimation != "" {
				text += "creditEstimation: " + tt.estimation + "\n"
			}
			text += "steps:\n  - {id: inspect, action: {name: file-inspect, parameters: {}}, outputBinding: inspection}\n  - {id: a, action: {name: cheap}}\n"
			actions := priced()
			actions.Find("file-inspect", "").Input = []byte(`{"type":"object","properties":{"file":{"type":"string","format":"file"}}}`)
			p, _, _, diags := compile.Source("r.yaml", []byte(text), compile.Options{Actions: actions})
			if p == nil {
				t.Fatal(diags)
			}
			b := Of(p, actions, tt.known)
			if b.Expected != tt.expected || b.Reserved != tt.reserved || b.Cap != tt.cap || !slices.Equal(b.Missing, tt.missing) {
				t.Errorf("expected %d, reserved %d, cap %d, missing %q; want %d, %d, %d, %q", b.Expected, b.Reserved, b.Cap, b.Missing, tt.expected, tt.reserved, tt.cap, tt.missing)
			}
			if !strings.HasPrefix(b.Problem, tt.problem) || tt.problem == "" && b.Problem != "" {
				t.Errorf("problem %q, want %q", b.Problem, tt.problem)
			}
		})
	}
}

// X60: child runs count like steps: embedded and registered, in loops, limited and
// recursive ones.
func TestEstimateChildren(t *testing.T) {
	files := textFiles{
		"pair.yaml":             "name: pair\nsteps: [{action: {name: cheap}}, {action: {name: dear}}]\n",
		"wide.yaml":             "name: wide\nsteps: [{recipe: {file: pair.yaml}}, {recipe: {file: pair.yaml}}]\n",
		"list.yaml":             "name: list\nsteps: [{id: l, loop: {over: input.list, steps: [{action: {name: cheap}}]}}]\n",
		"registry/self.yaml":    "name: self\nversion: 1.0.0\nsteps: [{action: {name: cheap}}, {id: again, recipe: {ref: self, limits: {max_depth: 3}}}]\n",
		"registry/shallow.yaml": "name: shallow\nversion: 1.0.0\nlimits: {max_depth: 1}\nsteps: [{action: {name: cheap}}, {recipe: {ref: shallow, limits: {max_depth: 8}}}]\n",
		"registry/a.yaml":       "name: a\nversion: 1.0.0\nsteps: [{action: {name: cheap}}, {recipe: {ref: b, limits: {max_depth: 4}}}]\n",
		"registry/b.yaml":       "name: b\nversion: 1.0.0\nsteps: [{action: {name: dear}}, {recipe: {ref: a, limits: {max_depth: 4}}}]\n",
		"registry/via.yaml":     "name: via\nversion: 1.0.0\nsteps: [{recipe: {inline: {name: x, steps: [{recipe: {ref: self}}]}}}]\n",
	}
	for _, tt := range []struct {
		name, steps   string
		least, most   int64
		mostMS        int64
		open          string
		withoutLookup bool
	}{
		{"in a file", "{recipe: {file: pair.yaml}}", 11, 11, 62_000, "", false},
		{"inline", "{recipe: {inline: {name: x, steps: [{action: {name: dear}}]}}}", 10, 10, 60_000, "", false},
		{"two levels", "{recipe: {file: wide.yaml}}", 22, 22, 124_000, "", false},
		{"in a loop", "{loop: {over: input.n, maxConcurrency: 3, steps: [{recipe: {file: wide.yaml}}]}}", 66, 66, 124_000, "", false},
		{"maxCredits", "{recipe: {file: wide.yaml, maxCredits: 5}}", 5, 5, 124_000, "", false},
		{"a timeout", "{recipe: {file: wide.yaml}, timeout: 90s}", 22, 22, 90_000, "", false},
		{"perhaps", "{when: size(input.n) == 1, recipe: {file: pair.yaml}}", 0, 11, 62_000, "", false},
		{"a known input", "{id: k, recipe: {file: list.yaml, inputs: {list: [1, 2, 3]}}}", 3, 3, 6_000, "", false},
		{"an unknown input", "{id: k, recipe: {file: list.yaml, inputs: {list: '{{ input.n }}'}}}", 0, 1, 2_000, `k: l runs once for each item of "input.list"`, false},
		{"registered, recursive down to its limit", "{id: r, recipe: {ref: via}}", 1, 1, 2_000, "", false},
		{"three levels of recursion", "{id: r, recipe: {ref: self}}", 3, 3, 6_000, "", false},
		{"the own limit of a recursive recipe", "{id: r, recipe: {ref: shallow}}", 2, 2, 4_000, "", false},
		{"recursion of two, the cheap one first", "{loop: {over: '[1]', steps: [{recipe: {ref: a}}, {recipe: {ref: b}}]}}", 44, 44, 248_000, "", false},
		{"recursion of two, the dear one first", "{loop: {over: '[1]', steps: [{recipe: {ref: b}}, {recipe: {ref: a}}]}}", 44, 44, 248_000, "", false},
		{"registered, not known", "{id: r, recipe: {ref: via@1}}", 0, 0, 0, "r runs the recipe via@1, whose cost is unknown", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := compile.Options{Actions: priced(), Recipes: files}
			if tt.withoutLookup {
				opt.Recipes = nil
			}
			p, _, _, diags := compile.Source("r.yaml", []byte("name: r\ninputSchema: {type: object, properties: {n: {type: array}}}\nsteps: ["+tt.steps+"]\n"), opt)
			if p == nil {
				t.Fatal(diags)
			}
			b := Of(p, priced(), Known{Input: map[string]any{"n": []any{int64(1), int64(2), int64(3)}}})
			if b.Least != tt.least || b.Most != tt.most || b.MostMS != tt.mostMS {
				t.Errorf("%d to %d credits, at most %d ms; want %d to %d, %d", b.Least, b.Most, b.MostMS, tt.least, tt.most, tt.mostMS)
			}
			if !strings.HasPrefix(strings.Join(b.Open, ";"), tt.open) || (tt.open == "") != (len(b.Open) == 0) {
				t.Errorf("open: %q, want %q", b.Open, tt.open)
			}
		})
	}
}

// textFiles are recipes by the names of their files. Those below registry/ are registered.
type textFiles map[string]string

func (f textFiles) File(from, name string) (*compile.Text, error) {
	at := path.Join(path.Dir(from), name)
	if text, ok := f[at]; ok {
		return &compile.Text{File: at, Data: []byte(text)}, nil
	}
	return nil, fault.New(fault.RecipeNotFound, "%s: no such file", at)
}

func (f textFiles) Find(name, version string) (*compile.Text, error) {
	var best *compile.Text
	newest := ""
	for file, text := range f {
		r, _, _ := dialect.Parse(file, []byte(text), form.Options{})
		switch {
		case !strings.HasPrefix(file, "registry/"):
		case r == nil && strings.Contains(text, "name: "+name+"\n"):
			return &compile.Text{File: file, Data: []byte(text)}, nil
		case r != nil && r.Name == name && catalogue.Admits(version, r.Version) && (best == nil || catalogue.CompareVersions(r.Version, newest) > 0):
			best, newest = &compile.Text{File: file, Data: []byte(text)}, r.Version
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
