// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
)

// sharedDir is the directory of definitions that others wrote, which may not be here.
func sharedDir() string {
	return filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "data", "defs")
}

// shared returns that directory.
func shared(t testing.TB) string {
	dir := sharedDir()
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no shared data: %v (set ROUX_SHARED)", err)
	}
	return dir
}

// definitions are the texts of the shared definitions by a name that says where they are.
func definitions(t testing.TB) map[string][]byte {
	dir := shared(t)
	texts := map[string][]byte{}
	for _, pattern := range []string{"asl/*.json5", "argo/*.yaml", "serverlessworkflow-ctk/*.feature", "conductor/*.json", "kestra/*.yaml"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(files) == 0 {
			t.Fatalf("no files %s in %s", pattern, dir)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(dir, file)
			if !strings.HasSuffix(file, ".feature") {
				texts[rel] = data
				continue
			}
			for _, s := range Scenarios(string(data)) {
				texts[rel+": "+s.Name] = []byte(s.Definition)
			}
		}
	}
	return texts
}

// A Scenario is one of a Gherkin text about a workflow.
type Scenario struct {
	Name, Definition, Input, Output string
	Faults                          bool
	Properties                      []string
	Property, Value                 string
	First, Last                     string
}

// Scenarios reads the scenarios of a Gherkin text, as far as the conformance tests of the Serverless Workflow DSL use it.
func Scenarios(text string) (list []Scenario) {
	var s *Scenario
	into := (*string)(nil)
	block := false
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, `"""`):
			block = !block
		case block:
			if into != nil {
				*into += line + "\n"
			}
		case strings.HasPrefix(trimmed, "Scenario: "):
			list = append(list, Scenario{Name: strings.TrimPrefix(trimmed, "Scenario: ")})
			s = &list[len(list)-1]
		case s == nil:
		case strings.Contains(trimmed, "workflow with definition"):
			into = &s.Definition
		case strings.Contains(trimmed, "workflow input is"):
			into = &s.Input
		case strings.Contains(trimmed, "complete with output"):
			into = &s.Output
		case strings.Contains(trimmed, "should fault"):
			s.Faults = true
		case strings.Contains(trimmed, "should have properties"):
			for i, p := range strings.Split(trimmed, "'") {
				if i%2 == 1 {
					s.Properties = append(s.Properties, p)
				}
			}
		case strings.Contains(trimmed, "property with value"):
			s.Property, into = strings.Split(trimmed, "'")[1], &s.Value
		case strings.Contains(trimmed, "should run first"):
			s.First = strings.Fields(trimmed)[1]
		case strings.Contains(trimmed, "should run last"):
			s.Last = strings.Fields(trimmed)[1]
		}
	}
	return list
}

// count counts the names of the objects in a tree, without the bookkeeping of the package.
func count(n *jsonx.Node) (names int) {
	for _, c := range n.Children {
		if n.Kind == jsonx.Object {
			names++
		}
		names += count(c)
	}
	return names
}

// declared returns the actions of Roux, and those that a definition names.
func declared(res *Result) catalogue.Actions {
	var list []*action.Action
	have := map[string]bool{}
	for _, a := range builtin.Actions(builtin.Config{}) {
		have[a.Name] = true
		list = append(list, &a)
	}
	for _, a := range res.Actions {
		if !have[a.Name] {
			have[a.Name] = true
			list = append(list, &action.Action{Name: a.Name, Version: "1.0.0"})
		}
	}
	return catalogue.New(list...)
}

func compiled(t *testing.T, res *Result) {
	t.Helper()
	p, _, src, diags := compile.Source("imported.yaml", res.Text, compile.Options{Actions: declared(res)})
	for _, d := range diags {
		if d.Severity == fault.SeverityError {
			t.Errorf("%s", src.Format(d))
		}
	}
	if p == nil {
		t.Errorf("this does not compile:\n%s", res.Text)
	}
}

func notes(res *Result) string {
	var b strings.Builder
	for _, n := range res.Notes {
		b.WriteString(n.String() + "\n")
	}
	return b.String()
}

// TestSharedDefinitions: each definition becomes a recipe that compiles, or is refused with the reason, and every name in
// it is accounted for.
func TestSharedDefinitions(t *testing.T) {
	imported, refused := 0, 0
	for name, text := range definitions(t) {
		t.Run(name, func(t *testing.T) {
			file := strings.ReplaceAll(filepath.Base(name), " ", "-")
			res, err := Import(file, text, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if looksLikeJSON(text) {
				text = withoutComments(text)
			}
			tree, _ := form.Read(file, text, form.Options{})
			if tree == nil {
				tree, _ = form.Read("x", text, form.Options{})
			}
			if k := res.Keys; k.All != count(tree) || k.Mapped+k.Dropped+k.Refused != k.All {
				t.Errorf("%d names in, %+v out", count(tree), k)
			}
			if res.Text == nil {
				refused++
				t.Logf("refused:\n%s", notes(res))
				for _, n := range res.Notes {
					if n.Kind == Refused {
						return
					}
				}
				t.Error("no reason")
				return
			}
			imported++
			if testing.Verbose() {
				t.Logf("%s\n%s", res.Text, notes(res))
			}
			compiled(t, res)
		})
	}
	t.Logf("%d imported, %d refused", imported, refused)
}
