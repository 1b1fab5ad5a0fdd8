// SPDX-License-Identifier: Apache-2.0

package importer_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/importer"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A bench runs imported recipes on a real engine, with the actions that they call.
type bench struct {
	*roux.Engine
	mu    sync.Mutex
	calls []string // what the actions were called with, "name input"
	do    map[string]func(input map[string]any) (any, error)
}

func newBench(t *testing.T, names ...string) *bench {
	b := &bench{do: map[string]func(map[string]any) (any, error){}}
	var acts []action.Action
	for _, name := range names {
		acts = append(acts, action.Action{Name: name, Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			var in map[string]any
			if err := json.Unmarshal(task.Input, &in); err != nil {
				return action.Result{}, err
			}
			b.mu.Lock()
			b.calls = append(b.calls, name+" "+string(task.Input))
			do := b.do[name]
			b.mu.Unlock()
			if do == nil {
				return action.Result{Output: in}, nil
			}
			out, err := do(in)
			return action.Result{Output: out}, err
		}})
	}
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: acts, EgressAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	b.Engine = e
	return b
}

// run imports a definition and runs the recipe. path is the steps that completed, in their order.
func (b *bench) run(t *testing.T, file, text string, input map[string]any, actions map[string]string) (res roux.Result, path []string) {
	t.Helper()
	imported, err := importer.Import(file, []byte(text), importer.Options{Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	if imported.Text == nil {
		t.Fatalf("refused: %v", imported.Notes)
	}
	id, err := b.Start(t.Context(), roux.Request{Recipe: imported.Text, Source: "imported.yaml", Input: input})
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) {
			for _, d := range f.Diags {
				t.Log(d)
			}
		}
		t.Fatalf("%v\n%s", err, imported.Text)
	}
	if res, err = b.Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for ev := range b.Watch(t.Context(), id, 0) {
		if ev.Type == "node.completed" || ev.Type == "node.failed" {
			path = append(path, ev.Step)
		}
		if ev.Type == "run."+res.Status {
			break
		}
	}
	return res, path
}

// document returns the document that a run ended with.
func document(t *testing.T, res roux.Result) any {
	t.Helper()
	if res.Status != "completed" {
		t.Fatalf("the run %s: %v", res.Status, res.Err)
	}
	var out struct{ Output any }
	if err := json.Unmarshal(res.Outputs, &out); err != nil {
		t.Fatal(err)
	}
	return out.Output
}

func value(t *testing.T, text string) any {
	t.Helper()
	n, problems := yamlx.Parse([]byte(text), jsonx.Limits{})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	raw, err := jsonx.Marshal(n.Value())
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func object(t *testing.T, text string) map[string]any {
	if strings.TrimSpace(text) == "" {
		return map[string]any{}
	}
	return value(t, text).(map[string]any)
}

func defs(t *testing.T) string {
	dir := filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "data", "defs")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no shared data: %v (set ROUX_SHARED)", err)
	}
	return dir
}

// TestConformance runs the scenarios of the conformance tests of the Serverless Workflow DSL, and expects what they say.
func TestConformance(t *testing.T) {
	pets := httptest.NewServer(http.NotFoundHandler())
	defer pets.Close()
	b := newBench(t)
	files, _ := filepath.Glob(filepath.Join(defs(t), "serverlessworkflow-ctk", "*.feature"))
	if len(files) == 0 {
		t.Fatal("no scenarios")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range importer.Scenarios(string(text)) {
			t.Run(filepath.Base(file)+"/"+s.Name, func(t *testing.T) {
				// The service of the scenario is on the internet; this one also knows no pet.
				definition := strings.ReplaceAll(s.Definition, "https://petstore.swagger.io", pets.URL)
				res, path := b.run(t, "x.yaml", definition, object(t, s.Input), nil)
				if s.Faults {
					if res.Status != "failed" {
						t.Fatalf("the run %s, want failed", res.Status)
					}
					return
				}
				got := document(t, res)
				if s.Output != "" {
					if want := value(t, s.Output); !reflect.DeepEqual(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
				}
				for _, p := range s.Properties {
					if at(got, p) == nil {
						t.Errorf("no property %s in %v", p, got)
					}
				}
				if s.Property != "" {
					if got := at(got, s.Property); got != strings.TrimSpace(s.Value) {
						t.Errorf("%s = %v, want %s", s.Property, got, s.Value)
					}
				}
				if s.First != "" && !leads(path, s.First) {
					t.Errorf("%s has not run first: %v", s.First, path)
				}
				if s.Last != "" && last(path) != s.Last {
					t.Errorf("%s has not run last: %v", s.Last, path)
				}
			})
		}
	}
}

func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// base is the name of a step without the scopes that it is in.
func base(step string) string { return step[strings.LastIndexAny(step, "./")+1:] }

// leads reports whether the first thing that a run has done is that step: it is a condition around all the others, or it ended first.
func leads(path []string, name string) bool {
	return slices.ContainsFunc(path, func(p string) bool { return base(p) == name })
}

// last returns the last step of a run that is no condition around another one, nor one that only yields the output of one.
func last(path []string) string {
	for i := len(path) - 1; i >= 0; i-- {
		name := base(path[i])
		if n, ok := strings.CutSuffix(name, "-output"); ok {
			return n
		}
		if around := strings.HasPrefix(name, "switch") && i > 0; !around {
			return name
		}
	}
	return ""
}

// TestStatesLanguage runs the state machines, with the outputs that the States Language says.
func TestStatesLanguage(t *testing.T) {
	dir := defs(t)
	b := newBench(t, "tbd", "my-function")
	for _, tt := range []struct {
		file, input, want string // want is the output, or ! and the code of the failure
		path              []string
	}{
		{"choice_state_aws_scenario.json5", `{"type": "Public", "value": 1}`, `{"type": "Public", "value": 1}`, []string{"Public"}},
		{"choice_state_aws_scenario.json5", `{"type": "Private", "value": 0}`, `{"type": "Private", "value": 0}`, []string{"ValueIsZero"}},
		{"choice_state_aws_scenario.json5", `{"type": "Private", "value": 22.5}`, `{"type": "Private", "value": 22.5}`, []string{"ValueInTwenties"}},
		{"choice_state_aws_scenario.json5", `{"type": "Private", "value": 30}`, `!STEP_FAILED`, []string{"DefaultState"}},
		{"choice_state_aws_scenario.json5", `{"type": "Private", "value": "22"}`, `!STEP_FAILED`, []string{"DefaultState"}},
		{"choice_state_aws_scenario.json5", `{"type": "Private"}`, `!CONDITION_ERROR`, nil},
		{"map_state.json5", `{"a": 1}`, `{"a": 1, "arr": [1, "Hello", {}, null, 3.3, 3, 4, 5]}`, []string{"StartState", "HandleItem", "Final"}},
		{"map_state_catch.json5", `{}`, `{"Error": "HandleItemFailError", "Cause": "HandleItemFailCause"}`, []string{"FinalCaught"}},
		{"parallel_state.json5", `{}`, `[[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]`, []string{"Branch1", "Branch22", "Branch33"}},
		{"parallel_state_nested.json5", `{"x": 1}`, `[[{"x": 1}]]`, []string{"BranchL2"}},
		{"parallel_state_catch.json5", `{}`, `{"Error": "FailureType", "Cause": "branch 0: Cause description"}`, []string{"FinalCaught"}},
		{"parallel_state_fail.json5", `{}`, `!FailureType`, []string{"Branch1"}},
		{"retry_interval_features.json5", `{"x": 1}`, `{"input": {"x": 1}}`, []string{"LambdaTask"}},
		{"wait_timestamp.json5", `{"x": 1}`, `{"x": 1}`, []string{"WaitUntil"}},
	} {
		t.Run(tt.file+tt.input, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, "asl", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			b.check(t, tt.file, string(text), tt.input, tt.want, tt.path)
		})
	}
}

// check runs a definition, and compares what it yields and which steps have run.
func (b *bench) check(t *testing.T, file, text, input, want string, path []string) {
	t.Helper()
	res, ran := b.run(t, file, text, object(t, input), nil)
	if code, fails := strings.CutPrefix(want, "!"); fails {
		if res.Status != "failed" || string(res.Err.Code) != code {
			t.Errorf("the run %s with %v, want %s", res.Status, res.Err, code)
		}
	} else if got := document(t, res); !reflect.DeepEqual(got, value(t, want)) {
		t.Errorf("got %v, want %s", got, want)
	}
	for _, p := range path {
		if !slices.ContainsFunc(ran, func(r string) bool { return base(r) == p }) {
			t.Errorf("%s has not run: %v", p, ran)
		}
	}
}

// TestStatesLanguageFeatures runs short state machines for what the shared ones do not have.
func TestStatesLanguageFeatures(t *testing.T) {
	b := newBench(t, "charge", "flaky", "broken")
	tries := 0
	b.do["flaky"] = func(map[string]any) (any, error) {
		if tries++; tries%3 != 0 {
			return nil, fault.New("Busy", "try again")
		}
		return tries, nil
	}
	b.do["broken"] = func(map[string]any) (any, error) { return nil, fault.New("Broken", "it is broken") }
	data, err := os.ReadFile("testdata/asl_behaviour.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases(t, string(data), func(t *testing.T, text, input, want string) { b.check(t, "m.json", text, input, want, nil) })
}

// TestServerlessFeatures runs short workflows for what the conformance tests do not have.
func TestServerlessFeatures(t *testing.T) {
	b := newBench(t, "charge", "broken")
	b.do["broken"] = func(map[string]any) (any, error) { return nil, fault.New("Broken", "it is broken") }
	data, err := os.ReadFile("testdata/serverless_behaviour.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases(t, string(data), func(t *testing.T, text, input, want string) {
		b.check(t, "w.yaml", "document: {dsl: 1.0.0, namespace: x, name: x, version: 1.0.0}\n"+text, input, want, nil)
	})
}

// cases runs f for the cases of a text: a name behind ##, a definition, ---- and an input, ---- and what it yields.
func cases(t *testing.T, data string, f func(t *testing.T, text, input, want string)) {
	for part := range strings.SplitSeq("\n"+data, "\n## ") {
		name, rest, _ := strings.Cut(part, "\n")
		parts := strings.Split(rest, "\n----\n")
		if len(parts) != 3 {
			if strings.TrimSpace(part) != "" && !strings.HasPrefix(strings.TrimSpace(part), "#") {
				t.Errorf("%q has %d parts", name, len(parts))
			}
			continue
		}
		t.Run(name, func(t *testing.T) { f(t, parts[0], parts[1], strings.TrimSpace(parts[2])) })
	}
}

// TestArgo runs workflows, with actions in place of their containers.
func TestArgo(t *testing.T) {
	dir := defs(t)
	b := newBench(t, "container", "script")
	flips := []string{"heads", "tails"}
	b.do["container"] = func(in map[string]any) (any, error) {
		said := fmt.Sprint(in["command"], in["args"])
		if strings.Contains(said, "exit 1") {
			return nil, fault.New("EXIT_1", "the container ended with 1")
		}
		return map[string]any{"result": said}, nil
	}
	b.do["script"] = func(map[string]any) (any, error) {
		flips = append(flips[1:], flips[0])
		return map[string]any{"result": flips[1]}, nil
	}
	for _, tt := range []struct {
		file, status string
		calls        int
		path, not    []string
	}{
		{"conditionals-complex.yaml", "completed", 5, []string{"flip-coin", "heads", "flip-again", "complex-condition", "tails-regex"}, []string{"tails", "heads-regex"}},
		{"dag-continue-on-fail.yaml", "failed", 6, []string{"A", "B", "C", "D", "E", "F"}, []string{"G"}},
		{"dag-diamond-steps.yaml", "completed", 12, []string{"A", "D"}, nil},
		{"dag-diamond.yaml", "completed", 4, []string{"A", "B", "C", "D"}, nil},
		{"dag-enhanced-depends.yaml", "completed", 6, []string{"A", "B", "C", "should-execute-1", "should-execute-2", "should-execute-3"}, []string{"should-not-execute"}},
		{"dag-multiroot.yaml", "completed", 4, []string{"A", "B", "C", "D"}, nil},
		{"dag-nested.yaml", "completed", 16, []string{"A", "D"}, nil},
		{"dag-task-level-timeout.yaml", "completed", 3, []string{"A", "B", "C"}, nil},
		{"exit-handlers.yaml", "failed", 3, []string{"started", "exit-handler", "failed"}, nil},
		{"loops-dag.yaml", "completed", 5, []string{"A", "B", "C"}, nil},
		{"retry-backoff.yaml", "completed", 1, []string{"retry-backoff"}, nil},
	} {
		t.Run(tt.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, "argo", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			b.calls = nil
			res, ran := b.run(t, tt.file, string(text), nil, nil)
			if res.Status != tt.status || len(b.calls) != tt.calls {
				t.Errorf("the run %s (%v) with %d calls, want %s with %d\n%s", res.Status, res.Err, len(b.calls), tt.status, tt.calls, strings.Join(b.calls, "\n"))
			}
			has := func(name string) bool {
				return slices.ContainsFunc(ran, func(r string) bool { return base(r) == name })
			}
			for _, p := range tt.path {
				if !has(p) {
					t.Errorf("%s has not run: %v", p, ran)
				}
			}
			for _, p := range tt.not {
				if has(p) {
					t.Errorf("%s has run: %v", p, ran)
				}
			}
		})
	}
}
