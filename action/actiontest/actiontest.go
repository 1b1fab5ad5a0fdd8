// SPDX-License-Identifier: Apache-2.0

// Package actiontest is a test kit for authors of actions.
//
// [Check] checks a declaration and runs its examples; [Call] calls an action as an
// attempt of a run does. A whole test:
//
//	func TestGreet(t *testing.T) {
//		actiontest.Check(t, greet)
//		out, err := actiontest.Call(t, greet, map[string]any{"name": "Ada"})
//		if err != nil || out.Object()["text"] != "Hello, Ada!" {
//			t.Errorf("%s, %v", out.JSON, err)
//		}
//	}
//
// The kit decides nothing: contracts, encoding, bounds, timeouts and files are
// handled by the same code as in a run. It opens no network connection and stores
// nothing outside the test's temporary directories. It never retries, because the
// recipe decides whether an attempt is repeated.
package actiontest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/worker"
)

// An Output is the output of a successful attempt, as the journal would hold it. If it
// exceeds 1 MiB, its largest texts and lists are stored in files and replaced by
// {"$roux": "ref", "hash": "sha256_…", …}; [Files.Read] returns their content.
type Output struct {
	JSON json.RawMessage // canonical
	// Value is JSON decoded: map[string]any, []any, string, int64, float64, bool
	// or nil. Integers are int64.
	Value any
	Cost  int64  // whole credits charged for the call
	Price string // what the call said that it cost, for an action with a price; "" = nothing
	// Job is the job that the action has submitted to an outside service; nil = it has done its
	// work, and the other fields are what it returned.
	Job *action.Job
}

// Object returns Value as an object; nil if it is not one.
func (o Output) Object() map[string]any {
	obj, _ := o.Value.(map[string]any)
	return obj
}

// Decode unmarshals the output into v.
func (o Output) Decode(v any) error { return json.Unmarshal(o.JSON, v) }

// Reports are the reports of an attempt, in order.
type Reports struct {
	Progress []Progress
	Logs     []Log
	Deltas   []string
	Previews []json.RawMessage // canonical
	Dropped  int64             // number of reports beyond the bounds of an attempt
}

// Progress is one progress report.
type Progress struct {
	Fraction float64 // 0..1
	Text     string
}

// A Log is one line of an attempt's log.
type Log struct {
	Level string // debug, info, warn or error
	Text  string
}

// An Option changes how [Call] and [Check] call an action.
type Option func(*settings)

type settings struct {
	ctx       context.Context
	task      action.Task
	files     action.Files
	workspace workspace
	timeout   time.Duration
	reports   *Reports
	published bool
	noRun     string
	samples   map[string]sample
}

type sample struct {
	name string
	data []byte
}

// WithFiles sets the file store of the action, such as a [Files]. Default: a new store
// for each call.
func WithFiles(files action.Files) Option { return func(s *settings) { s.files = files } }

// WithWorkspace gives the action a directory, such as a t.TempDir(), as its [action.Task.Workspace]. Default: it has
// none.
func WithWorkspace(dir string) Option { return func(s *settings) { s.workspace = workspace(dir) } }

// A workspace is the directory of every run.
type workspace string

// Open implements worker.Workspaces.
func (w workspace) Open(context.Context, string, string, string) (*os.Root, func(), error) {
	root, err := os.OpenRoot(string(w))
	return root, func() {}, err
}

// WithContext cancels the attempt when ctx ends.
func WithContext(ctx context.Context) Option { return func(s *settings) { s.ctx = ctx } }

// WithTimeout sets how long the attempt may take; the action sees it as its context's
// deadline. Default one minute.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithEffectKey sets what the action passes to services as idempotency key.
// Default "effect-key-of-the-test".
func WithEffectKey(key string) Option { return func(s *settings) { s.task.EffectKey = key } }

// WithTraceParent sets the trace context of the attempt. Default none.
func WithTraceParent(text string) Option { return func(s *settings) { s.task.TraceParent = text } }

// WithAttempt sets the attempt's number. Default 1.
func WithAttempt(n int) Option { return func(s *settings) { s.task.Attempt = n } }

// Capture collects the reports of the attempt in r.
func Capture(r *Reports) Option { return func(s *settings) { s.reports = r } }

func settingsOf(opts []Option) *settings {
	s := &settings{ctx: context.Background(), timeout: time.Minute, task: action.Task{
		Run: "run_of_the_test", Step: "step", Attempt: 1, Account: account, EffectKey: "effect-key-of-the-test",
	}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Call calls an action as an attempt of a run does: the input is validated against its
// schema, the action gets a context with a deadline and a file store, its output is
// encoded, bounded and validated against its schema, and a panic becomes an error.
//
// input is a JSON object: a map, a struct, or json.RawMessage as it is; nil is
// {}. The error is nil or a *fault.Error; compare its code with errors.Is(err,
// fault.InputInvalid).
func Call(t testing.TB, act action.Action, input any, opts ...Option) (Output, error) {
	t.Helper()
	s := settingsOf(opts)
	if act.Run == nil {
		t.Fatalf("action %s has no function to call; a durable wait (Waits) is tried in a run, see roux.Open", act.Name)
	}
	if s.files == nil {
		s.files = NewFiles(t)
	}
	raw, err := encode(input)
	if err != nil {
		t.Fatalf("the input of action %s is no JSON object: %v", act.Name, err)
	}
	out, stuck, err := s.attempt(act, raw)
	if stuck {
		t.Errorf("action %s had not returned %s after its context ended: it must watch ctx.Done()", act.Name, grace)
	}
	return out, err
}

// grace is how long a cancelled action may take to return, as in a run.
const grace = 5 * time.Second

func encode(input any) (json.RawMessage, error) {
	raw, ok := input.(json.RawMessage)
	if !ok {
		if input == nil {
			input = map[string]any{}
		}
		var err error
		if raw, err = json.Marshal(input); err != nil {
			return nil, err
		}
	}
	raw, err := jsonx.CanonicalRaw(raw)
	if err == nil && raw[0] != '{' {
		err = errors.New("want an object")
	}
	return raw, err
}

// attempt gives the action to a worker and waits for the result. stuck is set if the
// action ignored the end of its context.
func (s *settings) attempt(act action.Action, input json.RawMessage) (out Output, stuck bool, err error) {
	checkIn, err := contract("input", act.Input)
	if err != nil {
		return out, false, err
	}
	checkOut, err := contract("output", act.Output)
	if err != nil {
		return out, false, err
	}
	running := make(chan struct{})
	work := act.Run
	act.Run = func(ctx context.Context, task *action.Task) (action.Result, error) {
		defer close(running)
		return work(ctx, task)
	}
	results := make(chan worker.Result, 1)
	pool := worker.New(worker.Config{Done: func(r worker.Result) { results <- r }, Report: s.hear, Workspaces: s.workspace, Grace: grace, DeltaWait: -1})
	task := worker.Task{ID: worker.ID{Run: s.task.Run}, Action: &act, Task: s.task, TimeoutMS: max(s.timeout.Milliseconds(), 1),
		CheckInput: checkIn, CheckOutput: checkOut, Workspace: string(s.workspace)}
	task.Task.Input, task.Task.Files = input, s.files
	if err := pool.Run(task); err != nil {
		return out, false, err
	}
	stop := context.AfterFunc(s.ctx, func() { pool.Cancel(task.ID) })
	r := <-results
	stop()
	pool.Stop(context.Background()) // returns when the action has returned, or after the grace period
	if s.reports != nil {
		s.reports.Dropped = r.Dropped
	}
	if r.Err != nil {
		if errors.Is(r.Err, fault.StepTimeout) || errors.Is(r.Err, fault.ExecutionCancelled) {
			select {
			case <-running:
			default:
				stuck = true
			}
		}
		return out, stuck, r.Err
	}
	if r.Job != nil {
		return Output{Job: r.Job}, false, nil
	}
	v, err := jsonx.Decode(r.Output, jsonx.Limits{Bytes: len(r.Output) + 1})
	out = Output{JSON: r.Output, Value: v, Cost: r.Cost}
	if r.Price != nil {
		out.Price = r.Price.String()
	}
	return out, false, err
}

// hear receives a report. It is called on the attempt's goroutine, before the result is
// reported.
func (s *settings) hear(r worker.Report) {
	if s.reports == nil {
		return
	}
	switch r.Kind {
	case worker.Progress:
		s.reports.Progress = append(s.reports.Progress, Progress{r.Fraction, r.Text})
	case worker.Log:
		s.reports.Logs = append(s.reports.Logs, Log{r.Level, r.Text})
	case worker.Delta:
		s.reports.Deltas = append(s.reports.Deltas, r.Text)
	case worker.Preview:
		s.reports.Previews = append(s.reports.Previews, r.Value)
	}
}

// contract returns a validation function for a worker from a schema.
func contract(phase string, raw json.RawMessage) (func(any) error, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	sch, err := jsonschema.Compile(raw)
	if err != nil {
		return nil, fault.Wrap(fault.RecipeInvalid, err, "the %s schema cannot be used: %v", phase, err)
	}
	return func(v any) error {
		var list []string
		for _, bad := range sch.Validate(v) {
			list = append(list, phase+bad.Pointer+": "+bad.Msg)
		}
		if list == nil {
			return nil
		}
		return errors.New("the " + phase + " does not fit its contract: " + strings.Join(list, "; "))
	}, nil
}
