// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/lint"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the generated part of docs/lint.md")

var actions = func() *catalogue.Catalogue {
	var list []*action.Action
	for _, a := range builtin.Actions(builtin.Config{}) {
		list = append(list, &a)
	}
	return catalogue.New(append(list, &action.Action{Name: "@approval", Version: "1.0.0"})...)
}()

func check(t *testing.T, file, text string, opt lint.Options) []fault.Diagnostic {
	t.Helper()
	opt.Actions = actions
	p, r, src, diags := compile.Source(file, []byte(text), compile.Options{Actions: actions})
	if p == nil {
		t.Fatalf("%s does not compile: %v\n%s", file, diags, text)
	}
	return lint.Check(lint.Text{Bytes: []byte(text), Recipe: r, Plan: p, Source: src, Diags: diags}, opt)
}

func rules(diags []fault.Diagnostic) (names []string) {
	for _, d := range diags {
		names = append(names, d.Rule)
	}
	return names
}

const headOfExample = "name: example\ndescription: An example.\n"

// TestX211_EveryRuleHasAnExample: the example of each rule has its remark at a place in the text, and the text
// that mends it has no remark at all.
func TestX211_EveryRuleHasAnExample(t *testing.T) {
	for _, r := range lint.Rules() {
		t.Run(r.Name, func(t *testing.T) {
			if r.What == "" || r.Why == "" {
				t.Error("what or why is not said")
			}
			if r.Bad == "" {
				return // it depends on more than a short text
			}
			bad := check(t, "bad.yaml", headOfExample+r.Bad, lint.Options{})
			k := slices.Index(rules(bad), r.Name)
			if k < 0 {
				t.Fatalf("the example has only %v", bad)
			}
			if bad[k].Pos.Line < 3 {
				t.Errorf("the place is %v", bad[k].Pos)
			}
			if good := check(t, "good.yaml", headOfExample+r.Good, lint.Options{}); len(good) > 0 {
				t.Errorf("what mends it has %v", good)
			}
		})
	}
}

// The rules without an example in the table.
func TestX211_OtherRules(t *testing.T) {
	for rule, text := range map[string]string{
		"missing-description": "name: x\nsteps: [{id: one, transform: {expression: '1'}}]\n",
		"too-many-steps": "name: x\ndescription: D.\nsteps:\n" + func() (s string) {
			for i := range 51 {
				s += fmt.Sprintf("  - {id: s%d, transform: {expression: '%d', outputBinding: b%d}}\n", i, i, i)
			}
			return s
		}(),
		"long-expression": "name: x\ndescription: D.\nsteps: [{id: one, transform: {expression: '" + strings.Repeat("1 + ", 300) + "1'}}]\n",
	} {
		if got := rules(check(t, rule+".yaml", text, lint.Options{})); !slices.Equal(got, []string{rule}) {
			t.Errorf("%s: got %v", rule, got)
		}
	}
}

// Each value that a step passes on is looked at, but not the schema of a form, whose names are not connected to.
func TestX211_LiteralsInValues(t *testing.T) {
	const head = "name: x\ndescription: D.\nsteps:\n  - "
	for step, want := range map[string][]string{
		"{id: one, transform: {value: {password: open-sesame}}}":                                      {"plain-secret"},
		"{id: one, transform: {value: [{url: 'http://example.com/'}]}}":                               {"plain-http"},
		"{id: one, wait: {timeout: 1h, approval: {title: Go?, value: {password: open-sesame}}}}":      {"plain-secret"},
		"{id: one, wait: {timeout: 1h, approval: {title: Go?, form: {$id: 'http://example.com/x'}}}}": nil,
	} {
		if got := rules(check(t, "x.yaml", head+step+"\n", lint.Options{})); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", step, got, want)
		}
	}
}

// TestX211_WarningsOfCompileAreListed: each warning of compile is in the table, and each in the table is one.
func TestX211_WarningsOfCompileAreListed(t *testing.T) {
	found := map[string]bool{}
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../approvals/approvals.go")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`c\.[wW]arn\("([a-z-]+)"`).FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
	}
	for _, r := range lint.Rules() {
		if r.Also && !found[r.Name] {
			t.Errorf("compile never warns of %s", r.Name)
		}
		if r.Also {
			delete(found, r.Name)
		}
	}
	for name := range found {
		t.Errorf("%s is not in the table", name)
	}
}

// TestX211_Ignore: a comment ignores the rules that it names at its line or the next, or in the file; errors
// cannot be ignored, and an ignore that matches nothing is reported.
func TestX211_Ignore(t *testing.T) {
	const wait = "name: x\ndescription: D.\nsteps:\n"
	for _, tt := range []struct {
		name, text string
		opt        lint.Options
		want       []string
	}{
		{"nothing", wait + "  - id: a\n    wait: {signal: go}\n", lint.Options{}, []string{"missing-wait-timeout"}},
		{"on the line", wait + "  - id: a\n    wait: {signal: go} # roux:ignore missing-wait-timeout the ttl is short\n", lint.Options{}, nil},
		{"above", wait + "  - id: a\n    # roux:ignore missing-wait-timeout\n\n    # and more\n    wait: {signal: go}\n", lint.Options{}, nil},
		{"too far above", wait + "  # roux:ignore missing-wait-timeout\n  - id: a\n    wait: {signal: go}\n", lint.Options{}, []string{"unused-ignore", "missing-wait-timeout"}},
		{"in the file", "# roux:ignore-file missing-wait-timeout\n" + wait + "  - id: a\n    wait: {signal: go}\n", lint.Options{}, nil},
		{"several", wait + "  - wait: {signal: go} # roux:ignore missing-wait-timeout, missing-step-id\n", lint.Options{}, nil},
		{"by the caller", wait + "  - id: a\n    wait: {signal: go}\n", lint.Options{Ignore: []string{"missing-wait-timeout"}}, nil},
		{"unknown", wait + "  - {id: a, transform: {expression: '1'}} # roux:ignore missing-wait-timeouts\n", lint.Options{}, []string{"unknown-ignore"}},
		{"no rule", wait + "  - {id: a, transform: {expression: '1'}} # roux:ignore\n", lint.Options{}, []string{"unknown-ignore"}},
		{"unused by a line that has another", wait + "  - wait: {signal: go, timeout: 1h} # roux:ignore missing-wait-timeout, missing-step-id\n", lint.Options{}, []string{"unused-ignore"}},
		{"no comment", wait + "  - {id: a, transform: {expression: '\"# roux:ignore missing-step-id\"'}}\n", lint.Options{}, nil},
	} {
		if got := rules(check(t, "x.yaml", tt.text, tt.opt)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
	text := "# roux:ignore-file undefined-name\nname: x\nsteps: [{id: a, transform: {expression: nothing}}]\n"
	_, r, src, diags := compile.Source("x.yaml", []byte(text), compile.Options{})
	got := lint.Check(lint.Text{Bytes: []byte(text), Recipe: r, Source: src, Diags: diags}, lint.Options{Ignore: []string{"undefined-name"}})
	if !slices.Equal(rules(got), []string{"undefined-name"}) {
		t.Errorf("an error was ignored: %v", got)
	}
}

// TestX211_ExamplesAreClean: there is no remark on the examples of the project.
func TestX211_ExamplesAreClean(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range check(t, filepath.Base(file), string(text), lint.Options{}) {
			t.Error(d)
		}
	}
}

// TestX211_Page: docs/lint.md has what the table says.
func TestX211_Page(t *testing.T) {
	const path, mark = "../../../docs/lint.md", "## The rules\n"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(strings.ReplaceAll(string(page), "\r\n", "\n"), mark)
	if !ok {
		t.Fatal("the page has no list of rules")
	}
	var b strings.Builder
	b.WriteString(head + mark + "\nThis part is generated from the table in package `lint` by `make rewrite`. Each example is a recipe without its name and description.\n")
	for _, r := range lint.Rules() {
		fmt.Fprintf(&b, "\n### %s\n\n%s %s", r.Name, r.What, r.Why)
		if r.Also {
			b.WriteString(" `roux validate` warns of it, too.")
		}
		b.WriteByte('\n')
		if r.Bad != "" {
			fmt.Fprintf(&b, "\n~~~yaml\n%s~~~\n\nbecomes\n\n~~~yaml\n%s~~~\n", r.Bad, r.Good)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if strings.ReplaceAll(string(page), "\r\n", "\n") != b.String() {
		t.Error("docs/lint.md is not current: run `make rewrite` and read the diff")
	}
}

// TestX239_BestPracticesNameRules: the page of best practices names rules that there are, and all advice is on it.
func TestX239_BestPracticesNameRules(t *testing.T) {
	page, err := os.ReadFile("../../../docs/best-practices.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile(`\[([a-z-]+)\]\(lint\.md#([a-z-]+)\)`).FindAllSubmatch(page, -1) {
		if name := string(m[1]); lint.Find(name) == nil || name != string(m[2]) {
			t.Errorf("%s: there is no such rule, or the link leads to another", m[0])
		} else {
			named[name] = true
		}
	}
	for _, r := range lint.Rules() {
		if !r.Also && !named[r.Name] && !strings.HasSuffix(r.Name, "-ignore") {
			t.Errorf("%s is not on the page", r.Name)
		}
	}
}
