// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

const shout = `
name: shout
steps:
  - {id: read, action: {name: upper}}
  - {id: ok, wait: {signal: go}}
  - {id: again, action: {name: upper}}
outputs: {text: again.output.text}
`

// upper returns the text of the run's only file in capitals.
var upper = action.Action{
	Name: "upper", Version: "1.0.0",
	Input: []byte(`{"type":"object","properties":{"file":{"type":"string","format":"file"}},"required":["file"]}`),
	Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
		var in struct{ File string }
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		f, err := task.Files.Open(ctx, in.File)
		if err != nil {
			return action.Result{}, err
		}
		defer f.Close()
		var b bytes.Buffer
		if _, err := b.ReadFrom(f); err != nil {
			return action.Result{}, err
		}
		return action.Result{Output: map[string]any{"text": string(bytes.ToUpper(b.Bytes()))}}, nil
	},
}

func open(t *testing.T, dir string) *roux.Engine {
	t.Helper()
	e, err := roux.Open(t.Context(), roux.Options{Dir: dir, Actions: []action.Action{upper}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A run survives the process: recorded steps are not done again.
func TestRunOutlivesTheEngine(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	e := open(t, dir)
	file, err := e.Put(ctx, bytes.NewReader([]byte("quiet")), "note.txt", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	req := roux.Request{Recipe: []byte(shout), Files: []action.FileInfo{file}, IdempotencyKey: "once"}
	run, err := e.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(ctx, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "node.waiting" {
			break
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	e = open(t, dir)
	defer e.Close()
	if again, err := e.Start(ctx, req); err != nil || again != run {
		t.Errorf("the same request gave run %s (%v), want %s", again, err, run)
	}
	if err := e.Signal(ctx, run, "go", map[string]any{"by": "test"}); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(ctx, run)
	if err != nil || res.Status != "completed" || string(res.Outputs) != `{"text":"QUIET"}` {
		t.Errorf("the run ended %+v (%v)", res, err)
	}
	var types []string
	for ev, err := range e.Watch(ctx, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, ev.Type+" "+ev.Step)
		if ev.ID != uint64(len(types)) {
			t.Errorf("event %d comes as number %d", ev.ID, len(types))
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(types), func(s string) bool { return s != "node.completed read" })); n != 1 {
		t.Errorf("the step before the stop completed %d times: %v", n, types)
	}
	if err := e.Cancel(ctx, run, "too late"); !errors.Is(err, fault.TooLate) {
		t.Errorf("cancelling the ended run: %v", err)
	}
	if _, err := e.Get(ctx, "run_nosuch"); !errors.Is(err, fault.RunNotFound) {
		t.Errorf("a run that does not exist: %v", err)
	}
}

// All mistakes of a recipe are reported at once, with their positions.
func TestStartTellsWhatIsWrong(t *testing.T) {
	e := open(t, t.TempDir())
	defer e.Close()
	_, err := e.Start(t.Context(), roux.Request{Source: "bad.yaml", Recipe: []byte("name: x\nsteps:\n  - {id: a, action: {name: uper}}\n  - {id: a, transfrm: {}}\n")})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.RecipeInvalid || len(f.Diags) == 0 || f.Diags[0].Pos.Line == 0 {
		t.Errorf("got %v", err)
	}
}

// A second process on the same directory is refused.
func TestF35_SecondEngineOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir)
	defer e.Close()
	if _, err := roux.Open(t.Context(), roux.Options{Dir: dir}); !errors.Is(err, fault.StoreLocked) {
		t.Errorf("the second engine: %v", err)
	}
}

// X1: a run continues in the background: Start returns while the first step still works
// on its file, and the result holds the bindings of all steps. X32: an expression sees
// the input, the parameters, the files and the account of the run.
func TestX1_X32_RunsBesideTheCaller(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	slow := upper
	slow.Run = func(ctx context.Context, task *action.Task) (action.Result, error) {
		close(begun)
		select {
		case <-release:
			return upper.Run(ctx, task)
		case <-ctx.Done():
			return action.Result{}, ctx.Err()
		}
	}
	ctx := t.Context()
	e, err := roux.Open(ctx, roux.Options{Dir: t.TempDir(), Account: "acme", Actions: []action.Action{slow}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	file, err := e.Put(ctx, bytes.NewReader([]byte("quiet")), "note.txt", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	const recipe = `
name: values
steps:
  - {id: read, action: {name: upper}, outputBinding: loud}
  - id: see
    transform:
      expression: "[_context.accountId, _context.correlationId, parameters.n + input.n, fileHashes, loud.text]"
      outputBinding: seen
`
	for _, correlation := range []string{"ticket-7", ""} {
		begun, release = make(chan struct{}), make(chan struct{})
		run, err := e.Start(ctx, roux.Request{Recipe: []byte(recipe), Input: map[string]any{"n": 2}, Files: []action.FileInfo{file}, Correlation: correlation})
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		if res, err := e.Get(ctx, run); err != nil || res.Status != "running" {
			t.Errorf("the run that was begun: %+v, %v", res, err)
		}
		close(release)
		res, err := e.Wait(ctx, run)
		want := `{"loud":{"text":"QUIET"},"seen":["acme","` + cmp.Or(correlation, run) + `",4,["` + file.Hash + `"],"QUIET"]}`
		if err != nil || string(res.Outputs) != want {
			t.Errorf("%v\ngot  %s\nwant %s", err, res.Outputs, want)
		}
	}
}

// Design section 7: an output of 3 MiB is recorded once, survives a restart, is whole in
// the next step, and is a file in the run's outputs.
func TestLargeOutputOutlivesTheEngine(t *testing.T) {
	text := strings.Repeat("drei Wörter mehr ", 3<<20/18)
	calls := 0
	write := action.Action{Name: "write", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		calls++
		return action.Result{Output: map[string]any{"text": text, "by": "test"}}, nil
	}}
	const recipe = `
name: large
steps:
  - {id: write, action: {name: write}, outputBinding: doc}
  - {id: ok, wait: {signal: go}}
  - {id: count, action: {name: word-count, parameters: {text: "{{ doc.text }}"}}, outputBinding: counted}
outputs: {text: doc.text, by: doc.by, words: counted.words, size: doc.text.size}
`
	dir, ctx := t.TempDir(), t.Context()
	open := func() *roux.Engine {
		e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: []action.Action{write}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	run, err := e.Start(ctx, roux.Request{Recipe: []byte(recipe)})
	if err != nil {
		t.Fatal(err)
	}
	for ev, err := range e.Watch(ctx, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "node.waiting" {
			break
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open()
	defer e.Close()
	if err := e.Signal(ctx, run, "go", nil); err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(ctx, run)
	if err != nil || res.Status != "completed" || calls != 1 {
		t.Fatalf("%+v, %v, written %d times", res, err, calls)
	}
	var out struct {
		Text struct {
			Hash, Type  string
			Bytes, Size int
		}
		By          string
		Words, Size int
	}
	if err := json.Unmarshal(res.Outputs, &out); err != nil {
		t.Fatal(err)
	}
	if n := utf8.RuneCountInString(text); out.By != "test" || out.Words != 3*(3<<20/18) || out.Size != n || out.Text.Size != n || out.Text.Bytes != len(text) || out.Text.Type != "string" {
		t.Errorf("outputs %s", res.Outputs)
	}
	f, err := e.File(ctx, out.Text.Hash)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != text || f.Info().Name != "write.text.txt" {
		t.Errorf("the file %+v has %d bytes, %v", f.Info(), len(got), err)
	}
}

// Files are kept as long as Options say. The files of a run exist as long as the run, and
// a missing file is refused before the run starts (X158).
func TestX158_RunsNameTheirFiles(t *testing.T) {
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: []action.Action{upper}, Retention: roux.Retention{Uploads: -1}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	info, err := e.Put(t.Context(), strings.NewReader("\x89PNG\r\n\x1a\nand nothing"), "a.png", "")
	if err != nil {
		t.Fatal(err)
	}
	var facts struct {
		Problem struct{ Code fault.Code }
	}
	if err := json.Unmarshal(info.Extended, &facts); err != nil || facts.Problem.Code != fault.FileInvalid {
		t.Errorf("a broken image is recorded with %s (%v)", info.Extended, err)
	}
	const recipe = "name: r\nsteps:\n  - {id: a, transform: {expression: \"files[0].extended.problem.code\", outputBinding: code}}\noutputs: {code: code}\n"
	run, err := e.Start(t.Context(), roux.Request{Recipe: []byte(recipe), Files: []action.FileInfo{info}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(t.Context(), run); err != nil || string(res.Outputs) != `{"code":"FILE_INVALID"}` {
		t.Errorf("the run saw %s, %v (%v)", res.Outputs, res.Err, err)
	}
	info.Hash = "sha256_" + strings.Repeat("0", 64)
	if _, err := e.Start(t.Context(), roux.Request{Recipe: []byte(recipe), Files: []action.FileInfo{info}}); !errors.Is(err, fault.FileNotFound) {
		t.Errorf("a run on a missing file: %v", err)
	}
}

// A result shows that a run came in a bundle, and such a run is not retried.
func TestImportedResult(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	e := open(t, dir)
	run, err := e.Start(ctx, roux.Request{Recipe: []byte("name: r\nsteps: [{id: a, fail: {code: STEP_FAILED, message: no}}]")})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx, run); err != nil || res.Imported {
		t.Errorf("%+v, %v", res, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	// This is the mark that an import writes.
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	epoch, err := st.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	key := store.Key{Account: "local", Run: run}
	head, err := st.Head(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	head.Quarantine = store.ImportedReason
	if v, err := st.Commit(ctx, []store.Transition{{Key: key, Epoch: epoch, Head: &head}}); err != nil || v[0].Err != nil {
		t.Fatal(v, err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, dir)
	defer e.Close()
	if res, err := e.Get(ctx, run); err != nil || !res.Imported || res.Status != "failed" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := e.Retry(ctx, run, ""); !errors.Is(err, fault.Quarantined) || !strings.Contains(err.Error(), "adopt") {
		t.Errorf("retry: %v", err)
	}
}

// TestRetryWith: a retry raises limits and replaces input, within the bounds for
// recipes; a refused retry changes nothing.
func TestRetryWith(t *testing.T) {
	ctx := t.Context()
	e := open(t, t.TempDir())
	defer e.Close()
	run, err := e.Start(ctx, roux.Request{Input: map[string]any{"n": 4}, Recipe: []byte(`
name: limits
inputSchema: {type: object, properties: {n: {type: integer}}}
limits: {max_total_steps: 4, max_loop_items: 4, memory_limit_mb: 2, max_expression_cost: 50}
steps:
  - id: each
    loop: {over: lists.range(input.n), steps: [{id: x, transform: {expression: item}}]}
outputs: {many: size(each.output)}
`)})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx, run); err != nil || res.Status != "failed" || !errors.Is(res.Err, fault.StepLimit) {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, tt := range []struct {
		limits roux.Limits
		want   string
	}{
		{roux.Limits{MaxTotalSteps: 3}, "max_total_steps cannot be lowered"},
		{roux.Limits{MaxTotalSteps: 1_000_001}, "at most 1000000"},
		{roux.Limits{MaxLoopItems: -1}, "max_loop_items is -1: want at least 1"},
		{roux.Limits{MemoryLimitMB: 1}, "memory_limit_mb cannot be lowered"},
		{roux.Limits{MemoryLimitMB: 1 << 50}, "at most 4096"},
		{roux.Limits{MemoryLimitMB: -1 << 50}, "memory_limit_mb is -1: want at least 1"},
		{roux.Limits{MaxExpressionCost: 49}, "max_expression_cost cannot be lowered"},
		{roux.Limits{MaxExpressionCost: 1_000_001}, "at most 1000000"},
	} {
		if err := e.RetryWith(ctx, run, roux.RetryOptions{Limits: tt.limits}); !errors.Is(err, fault.InputInvalid) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.limits, err, tt.want)
		}
	}
	if err := e.RetryWith(ctx, run, roux.RetryOptions{
		Input:  map[string]any{"n": 6},
		Limits: roux.Limits{MaxTotalSteps: 20, MaxLoopItems: 6, MemoryLimitMB: 4, MaxExpressionCost: 200},
	}); err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(ctx, run); err != nil || res.Status != "completed" || string(res.Outputs) != `{"many":6}` {
		t.Errorf("%+v, %v", res, err)
	}
}

// X147, A26: a step's price may have six decimals; what steps used is rounded up once. A
// failed attempt is not charged, a step that says it cost less is, and one that says it
// cost more is charged its price. A price that is none starts nothing.
func TestPrices(t *testing.T) {
	says := map[string]string{"second": "0.000001", "third": "99"}
	priced := action.Action{
		Name: "priced", Version: "1.0.0", Price: "0.4",
		Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			if task.Step == "second" && task.Attempt == 1 {
				return action.Result{Price: "0.3"}, fault.New(fault.ServiceUnavailable, "busy")
			}
			return action.Result{Output: map[string]any{}, Price: says[task.Step]}, nil
		},
	}
	unpriced, both := priced, priced
	unpriced.Name, unpriced.Price = "unpriced", "about 1"
	both.Name, both.Cost = "both", 2
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: []action.Action{priced, unpriced, both}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const text = "name: prices\nsteps:\n  - {id: first, action: {name: priced}}\n" +
		"  - {id: second, action: {name: priced}, retryPolicy: {maxAttempts: 2, initialDelay: 1ms}}\n  - {id: third, action: {name: priced}}\n"
	run, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	var charges []string
	for ev, err := range e.Watch(t.Context(), run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "node.charged" {
			raw, err := json.Marshal(ev.Payload)
			if err != nil {
				t.Fatal(err)
			}
			charges = append(charges, string(raw))
		}
	}
	want := []string{
		`{"amount":0.4,"attempt":1,"charged":true,"kind":"action","name":"first","nodeId":"first","step":"first"}`,
		`{"amount":0.3,"attempt":1,"charged":false,"kind":"action","name":"second","nodeId":"second","step":"second"}`,
		`{"amount":0.000001,"attempt":2,"charged":true,"kind":"action","name":"second","nodeId":"second","step":"second"}`,
		`{"amount":0.4,"attempt":1,"charged":true,"kind":"action","name":"third","nodeId":"third","step":"third"}`,
	}
	if !slices.Equal(charges, want) {
		t.Errorf("charged are\n%s\nwant\n%s", strings.Join(charges, "\n"), strings.Join(want, "\n"))
	}
	res, err := e.Wait(t.Context(), run)
	if err != nil || res.Credits != 1 { // 0.800001
		t.Errorf("the run used %d credits, %v", res.Credits, err)
	}
	for _, name := range []string{"unpriced", "both"} {
		_, err := e.Start(t.Context(), roux.Request{Recipe: []byte("name: r\nsteps:\n  - {id: s, action: {name: " + name + "}}\n")})
		if !errors.Is(err, fault.PriceUnknown) || !strings.Contains(err.Error(), name+"@1.0.0") {
			t.Errorf("a run with the action %s: %v", name, err)
		}
	}
}
