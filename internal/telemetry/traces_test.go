// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// hanging is an exporter that answers only when its context ends.
type hanging struct{}

func (h *hanging) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Shutdown(context.Context) error { return nil }

// ended is what is observed of a run that has ended.
func ended(recipe, account string) *feed.Observed {
	key := store.Key{Account: account, Run: "run"}
	return &feed.Observed{
		Published: feed.Published{Key: key, Head: &store.Head{Key: key, Recipe: recipe, Status: "completed", Created: 1, Ended: 2_000_001}},
		Start:     &journal.Start{Run: "run", Account: account, Recipe: recipe}, Generation: 1, Ended: true,
	}
}

// tree formats spans as a tree, by time.
func tree(all []sdktrace.ReadOnlySpan) string {
	var b strings.Builder
	var below func(parent string, indent string)
	below = func(parent, indent string) {
		for _, s := range all {
			if s.Parent().SpanID().String() == parent {
				fmt.Fprintf(&b, "%s%s %s", indent, s.Name(), attr(s, "roux.status"))
				if a := attr(s, "roux.attempt"); a != "" {
					b.WriteString(" " + a)
				}
				if s.Status().Description != "" {
					b.WriteString(" " + s.Status().Description)
				}
				b.WriteString("\n")
				below(s.SpanContext().SpanID().String(), indent+"  ")
			}
		}
	}
	below("0000000000000000", "")
	return b.String()
}

// X226, X227: one trace for a tree of runs, with a span per step and attempt.
func TestX226_X227_Trace(t *testing.T) {
	e := &spans{}
	s := newSite(t, Config{Exporter: ExportTo(e)}, noop(), flaky(1))
	head := s.run(engine.StartRequest{Plan: s.plan(nested), Recipe: "outer"})
	s.stop()
	all := e.get()
	slices.SortStableFunc(all, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	const want = `outer completed
  first completed
    first attempt completed 1
  each completed
    part completed
      part attempt completed 1
    part completed
      part attempt completed 1
  inner completed
    inner attempt completed 1
      library completed
        read completed
          read attempt retrying 1 SERVICE_UNAVAILABLE
          read attempt completed 2
        deeper completed
          deeper attempt completed 1
            page completed
              word completed
                word attempt completed 1
`
	if got := tree(all); got != want {
		t.Errorf("the trace is\n%s\nwant\n%s", got, want)
	}
	root := journal.TraceOf("", head.Run)
	for _, span := range all {
		if span.SpanContext().TraceID() != root.Trace {
			t.Errorf("the span %s is in the trace %s", span.Name(), span.SpanContext().TraceID())
		}
		if span.EndTime().Before(span.StartTime()) || span.StartTime().Before(time.UnixMicro(head.Created)) || span.EndTime().After(time.UnixMicro(head.Ended)) {
			t.Errorf("the span %s is from %s to %s", span.Name(), span.StartTime(), span.EndTime())
		}
		switch span.Name() {
		case "page": // X227: id, parent, pipeline, depth
			if attr(span, "roux.depth") != "2" || attr(span, "roux.pipeline") != "page" || attr(span, "roux.root_run.id") != head.Run || attr(span, "roux.parent_run.id") == "" {
				t.Errorf("the span of the innermost run has %v", span.Attributes())
			}
		case "outer":
			if got := span.SpanContext().SpanID(); got != journal.SpanID(head.Run, journal.Ref{Step: -1}, journal.Fence{Gen: 1}) || !span.StartTime().Equal(time.UnixMicro(head.Created)) || !span.EndTime().Equal(time.UnixMicro(head.Ended)) {
				t.Errorf("the root span is %v from %s to %s", got, span.StartTime(), span.EndTime())
			}
		}
	}
}

// X226: a trace begins at the caller's span, and is recorded only if the caller does.
func TestX226_TraceOfTheCaller(t *testing.T) {
	e := &spans{}
	s := newSite(t, Config{Exporter: ExportTo(e)}, noop())
	p := s.plan("name: a\nsteps: [{id: a, action: {name: noop}}]")
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	s.run(engine.StartRequest{Plan: p, Recipe: "silent", Correlation: caller + "0"})
	s.run(engine.StartRequest{Plan: p, Recipe: "a", Correlation: caller + "1"})
	s.stop()
	all := e.get()
	if len(all) != 3 {
		t.Fatalf("%d spans are exported, want 3", len(all))
	}
	for _, span := range all {
		if id := span.SpanContext().TraceID().String(); id != caller[3:35] {
			t.Errorf("the span %s is in the trace %s", span.Name(), id)
		}
		if span.Name() == "a" && attr(span, "roux.step") == "" && (span.Parent().SpanID().String() != caller[36:52] || !span.Parent().IsRemote()) {
			t.Errorf("the span of the run is below %s", span.Parent().SpanID())
		}
	}
}

// X226: an action gets the trace and the id of the span that is exported later, in a retry
// another one.
func TestX226_ActionsGetTheirSpan(t *testing.T) {
	var mu sync.Mutex
	var got []string
	a := action.Action{Name: "call", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, task.TraceParent); len(got) == 1 {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not now")
		}
		return action.Result{Output: map[string]any{}}, nil
	}}
	const src = "name: a\nsteps: [{id: a, action: {name: call}, retryPolicy: {maxAttempts: 3, initialDelay: 1ms, jitter: 0}}]"
	e := &spans{}
	s := newSite(t, Config{Exporter: ExportTo(e)}, a)
	s.run(engine.StartRequest{Plan: s.plan(src), Recipe: "a"})
	s.stop()
	var want []string
	for _, span := range e.get() {
		if attr(span, "roux.attempt") != "" {
			c := span.SpanContext()
			want = append(want, "00-"+c.TraceID().String()+"-"+c.SpanID().String()+"-01")
		}
	}
	if len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("the attempts got %q, want %q", got, want)
	}

	// Without spans of our own the caller's is passed on, if there is one.
	got = nil
	s = newSite(t, Config{}, a)
	s.run(engine.StartRequest{Plan: s.plan(src), Recipe: "a", Correlation: "order 17"})
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	s.run(engine.StartRequest{Plan: s.plan(src), Recipe: "a", Correlation: caller})
	if !slices.Equal(got, []string{"", "", caller}) {
		t.Errorf("without traces the attempts got %q", got)
	}
}

// X226: a run that is interrupted has all its spans, and a retry has spans of its own.
func TestX226_TraceAfterARestartAndARetry(t *testing.T) {
	fails := true
	a := action.Action{Name: "once", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		if fails {
			return action.Result{}, fault.New(fault.ProviderError, "no")
		}
		return action.Result{Output: map[string]any{}}, nil
	}}
	s := newSite(t, Config{Exporter: ExportTo(&spans{})}, noop(), a)
	p := s.plan("name: r\nsteps: [{id: a, action: {name: noop}}, {id: w, wait: {signal: go}}, {id: b, action: {name: once}}]")
	started, err := s.node.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: "r"})
	if err != nil {
		t.Fatal(err)
	}
	s.want(map[string]float64{`recipe_step_duration_seconds_count{action="noop",kind="action",status="completed"}`: 1})
	s.stop()
	e := &spans{}
	s.open(Config{Exporter: ExportTo(e)})
	if err := s.node.Engine.Signal(t.Context(), account, started.Run, "go", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.node.Engine.Wait(t.Context(), account, started.Run); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(e.get()) < 6 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	const first = `r failed PROVIDER_ERROR
  a completed
    a attempt completed 1
  w completed
  b failed PROVIDER_ERROR
    b attempt failed 1 PROVIDER_ERROR
`
	if got := tree(e.get()); got != first {
		t.Errorf("the trace is\n%s\nwant\n%s", got, first)
	}
	before := len(e.get())
	fails = false
	if err := s.node.Engine.Retry(t.Context(), account, started.Run, engine.RetryRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.node.Engine.Wait(t.Context(), account, started.Run); err != nil {
		t.Fatal(err)
	}
	s.stop()
	const second = "r completed\n  b completed\n    b attempt completed 2\n"
	if got := tree(e.get()[before:]); got != second {
		t.Errorf("the trace of the retry is\n%s\nwant\n%s", got, second)
	}
	seen := map[string]bool{}
	for _, span := range e.get() {
		if id := span.SpanContext().SpanID().String(); seen[id] {
			t.Errorf("two spans have the id %s", id)
		} else {
			seen[id] = true
		}
	}
}

// A20: no value of a run is in metrics, log lines and spans, in any spelling.
func TestA20_NoValues(t *testing.T) {
	const secret = "canary-5a0b77"
	var log bytes.Buffer
	e := &spans{}
	says := action.Action{Name: "says", Version: "1.0.0", Input: []byte(`{"type":"object"}`), Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		if strings.Contains(string(task.Input), "fail") {
			return action.Result{}, fault.New(fault.ProviderError, "bad: %s", task.Input)
		}
		task.Report.Log("info", string(task.Input))
		task.Report.Progress(0.5, string(task.Input))
		return action.Result{Output: task.Input}, nil
	}}
	s := newSite(t, Config{Exporter: ExportTo(e), Steps: NewLogger(&log, LogJSON, nil, nil), Accounts: 5}, says)
	p := s.plan(`
name: talks
steps:
  - {id: a, action: {name: says}, inputBindings: {text: input.text}, outputBinding: said}
  - {id: l, loop: {over: '[input.text]', as: x, steps: [{id: b, action: {name: says}, inputBindings: {text: x}}]}}
  - {id: c, recipe: {inline: {name: below, steps: [{id: d, action: {name: says}, inputBindings: {text: input.text}}]}}, inputBindings: {text: said.text}}
  - {id: e, action: {name: says}, inputBindings: {text: input.text, fail: 'true'}, continue_on_error: true}
  - {id: f, fail: {code: STOP, message: '{{ input.text }}'}}
`)
	if head := s.run(engine.StartRequest{Plan: p, Recipe: "talks", Parameters: map[string]any{"text": secret}}); head.Status != "failed" || !strings.Contains(head.Message, secret) {
		t.Fatalf("the run is %s: %s", head.Status, head.Message)
	}
	metrics := s.text()
	s.stop()
	var dump strings.Builder
	for _, span := range e.get() {
		fmt.Fprintf(&dump, "%s %v %v %v\n", span.Name(), span.Attributes(), span.Status(), span.Events())
	}
	if len(e.get()) < 12 || log.Len() == 0 {
		t.Fatalf("there are %d spans and %d bytes of log", len(e.get()), log.Len())
	}
	for what, text := range map[string]string{"metrics": metrics, "log": log.String(), "spans": dump.String()} {
		for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), "Y2FuYXJ5", "canary"} {
			if strings.Contains(text, form) {
				t.Errorf("%s show the input: %s", what, lines(text, form))
			}
		}
	}
}
