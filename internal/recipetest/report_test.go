// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// project writes the archives of testdata to one directory, each into its own below it.
func project(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	archives, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range archives {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(dir, strings.TrimSuffix(filepath.Base(name), ".txtar"))
		for _, f := range a.Files {
			path := filepath.Join(below, f.Name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// The results of tests do not depend on how many run at once, nor on what ran before.
func TestSameEachTime(t *testing.T) {
	dir := project(t)
	files, err := Find([]string{dir})
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	run := func(parallel int) string {
		var b strings.Builder
		err := Run(t.Context(), files, Config{Actions: actions(), Options: options(filepath.Join(dir, "parts", "recipes")), Parallel: parallel}, func(f *File) {
			for _, r := range f.Results {
				fmt.Fprintf(&b, "%s %s %v %s\n", r.Test, r.Outcome, r.VirtualMS, r.Report())
				if o := r.outcome; o != nil && o.side != nil {
					fmt.Fprintln(&b, o.side.ID, string(o.outputs), o.seq.Ended)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	want := run(1)
	for _, parallel := range []int{1, 8, 64} {
		if got := run(parallel); got != want {
			t.Errorf("%d at once give\n%s\nand one after the other\n%s", parallel, got, want)
		}
	}
}

// A cancelled context ends the tests, and leaves no files behind.
func TestCancelled(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := project(t)
	files, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	list := []*action.Action{{Name: "charge-card", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		cancel()
		return action.Result{}, nil
	}}}
	for _, name := range actions().Names() {
		if name != "charge-card" {
			list = append(list, actions().Find(name, ""))
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "gates", "gates.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "  actions: {charge-card: [{output: {text: fine}}]}\n", "allow: [charge-card]\n", 1))
	if err := os.WriteFile(files[0], text, 0o600); err != nil {
		t.Fatal(err)
	}
	err = Run(ctx, files, Config{Actions: catalogue.New(list...), Options: options(filepath.Join(dir, "parts", "recipes")), Parallel: 2}, func(*File) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled tests end with %v", err)
	}
	if left, _ := os.ReadDir(temp); slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "roux-test-") }) {
		t.Errorf("%v are left", left)
	}
}

// What services read of results is well formed, whatever names and texts contain.
func TestReports(t *testing.T) {
	dir := write(t, `-- r.yaml --
name: r
steps: [{id: a, transform: {expression: '"<&\u0007>"'}}, {id: b, when: 'false', transform: {expression: '1'}}]
outputs: {x: steps.a.output}
-- a.test.yaml --
recipe: r.yaml
tests:
  - {name: 'a <name> & # "more"', expect: {exactly: {x: 1}}}
  - {name: fine}
  - {name: not now, skip: because}
-- b.test.yaml --
recipe: none.yaml
tests: [{name: x}]
`)
	var files []*File
	found, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), found, Config{Actions: actions(), Options: options("")}, func(f *File) { files = append(files, f) }); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteJUnit(&b, files); err != nil {
		t.Fatal(err)
	}
	var suites junitSuites
	if err := xml.Unmarshal(b.Bytes(), &suites); err != nil || suites.Tests != 4 || suites.Failures != 1 || suites.Errors != 1 || suites.Skipped != 1 {
		t.Errorf("%v: %+v\n%s", err, suites, b.String())
	}
	b.Reset()
	if err := WriteTAP(&b, files); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TAP version 14\n1..4\nnot ok 1 - ", `a <name> & \# "more"`, "ok 2 - ", "ok 3 - ", " # SKIP because\n", "not ok 4 - "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if passed, failed, skipped, broken := Counts(files); passed != 1 || failed != 1 || skipped != 1 || broken != 1 {
		t.Errorf("%d passed, %d failed, %d skipped, %d broken", passed, failed, skipped, broken)
	}
	list := Coverages(files)
	if len(list) != 1 || list[0].Percent() != 100*2.0/3 || fmt.Sprint(list[0].Missed) != "[step b]" {
		t.Errorf("coverage %+v", list[0])
	}
}

// Coverage adds up over tests and files: each side of a condition, each branch.
func TestCoverage(t *testing.T) {
	dir := write(t, `-- r.yaml --
name: r
inputSchema: {type: object, properties: {n: {type: integer}}}
steps:
  - id: c
    condition:
      expression: input.n > 1
      then: [{id: t, transform: {expression: '1'}}]
  - {id: w, when: input.n > 1, transform: {expression: '2'}}
  - id: l
    loop: {over: '[1, 2].filter(i, i > input.n)', as: i, steps: [{id: in, transform: {expression: i}}]}
-- a.test.yaml --
recipe: r.yaml
tests: [{name: two, input: {n: 2}}]
-- b.test.yaml --
recipe: r.yaml
tests: [{name: one, input: {n: 1}}]
`)
	run := func(names ...string) *Coverage {
		var files []*File
		for _, name := range names {
			f, err := RunFile(t.Context(), filepath.Join(dir, name), Config{Actions: actions(), Options: options("")})
			if err != nil || len(f.Diags) > 0 {
				t.Fatal(err, f.Format())
			}
			files = append(files, f)
		}
		return Coverages(files)[0]
	}
	for _, tt := range []struct {
		files []string
		want  string
	}{
		{[]string{"a.test.yaml"}, "[else of c, which has no steps step w skipped by its condition an iteration of l step in]"},
		{[]string{"b.test.yaml"}, "[then of c step t step w]"},
		{[]string{"a.test.yaml", "b.test.yaml"}, "[]"},
	} {
		got := run(tt.files...)
		slices.Sort(got.Missed)
		want := strings.Split(strings.Trim(tt.want, "[]"), " ")
		text := strings.Fields(strings.Join(got.Missed, " "))
		slices.Sort(want)
		slices.Sort(text)
		if strings.Join(text, " ") != strings.TrimSpace(strings.Join(want, " ")) {
			t.Errorf("%v: missed %q, want %s", tt.files, got.Missed, tt.want)
		}
	}
}

// The schema accepts the test files of this package, and refuses what Parse refuses.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.Compile(Schema())
	if err != nil {
		t.Fatal(err)
	}
	dir := project(t)
	files, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := readTest(file)
		if err != nil {
			t.Fatal(err)
		}
		d := newDraft(file, text)
		if bad := schema.Validate(d.tree.Value()); len(bad) > 0 {
			t.Errorf("%s: %v", file, bad)
		}
	}
	for _, text := range []string{`{}`, `{"recipe":"x","tests":[]}`, `{"recipe":"x","tests":[{"name":"a","expect":{"status":"done"}}]}`, `{"recipe":"x","tests":[{"name":"a","cancel":"soon"}]}`} {
		v, err := jsonx.Decode([]byte(text), jsonx.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		s, _, _ := Parse("a.test.json", []byte(text))
		if s != nil || len(schema.Validate(v)) == 0 {
			t.Errorf("%s is accepted", text)
		}
	}
}

// Each thing that is wrong with a test file is told at its place.
func TestParseProblems(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"recipe":"x","tests":[{"name":"a"},{"name":"a"}]}`, `two tests of the name`},
		{`{"recipe":"x","tests":[{"name":"a","now":"2026-13-01T00:00:00Z"}]}`, "no point in time"},
		{`{"recipe":"x","tests":[{"name":"a","mocks":{"steps":{"s":[{"when":"inptu.x"}]}}}]}`, `did you mean \"input\"`},
		{`{"recipe":"x","tests":[{"name":"a","mocks":{"steps":{"s":[{"output":1,"error":{"code":"STEP_FAILED"}}]}}}]}`, "and this one has both"},
		{`{"recipe":"x","tests":[{"name":"a","mocks":{"steps":{"s":[{"error":{}}]}}}]}`, "either a code or a cause"},
		{`{"recipe":"x","tests":[{"name":"a","mocks":{"steps":{"s":[{"error":{"code":"STEP_FALED"}}]}}}]}`, `did you mean \"STEP_FAILED\"`},
		{`{"recipe":"x","tests":[{"name":"a","mocks":{"approvals":{"s":[{"decision":"approved","values":1}]}}}]}`, "values are an object"},
		{`{"recipe":"x","tests":[{"name":"a","expect":{"output":{},"exactly":{}}}]}`, "want one of the two"},
		{`{"recipe":"x","tests":[{"name":"a","expect":{"assert":["output.x +"]}}]}`, "syntax"},
		{`{"recipe":"x","tests":[{"name":"a","expect":{"assert":["1 + 1"]}}]}`, "bool"},
	} {
		s, _, diags := Parse("a.test.json", []byte(tt.text))
		text, err := json.Marshal(diags)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil || len(diags) != 1 || !strings.Contains(string(text), tt.want) || diags[0].Pos.Col == 0 {
			t.Errorf("%s: %s, want %q", tt.text, text, tt.want)
		}
	}
}
