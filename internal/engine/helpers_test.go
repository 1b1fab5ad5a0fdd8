// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// errEnough stops a walk over events before its end.
var errEnough = errors.New("enough")

// planOf compiles the recipe of a test.
func planOf(t testing.TB, src string, actions ...*action.Action) *plan.Plan {
	t.Helper()
	r, s, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r != nil && !compile.HasErrors(diags) {
		var p *plan.Plan
		p, diags = compile.Compile(r, s, compile.Options{Actions: catalogue.New(actions...)})
		if p != nil {
			return p
		}
	}
	for _, d := range diags {
		t.Error(d)
	}
	t.FailNow()
	return nil
}

// newAction returns an action for a test.
func newAction(name string, run action.Func) *action.Action {
	return &action.Action{Name: name, Version: "1.0.0", Run: run}
}

// noop returns an action that does nothing and returns at once.
func noop() *action.Action {
	return newAction("noop", func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"ok": true}}, nil
	})
}

// blockedAction returns the action "slow", which returns when release is closed.
func blockedAction(release <-chan struct{}) *action.Action {
	return newAction("slow", func(context.Context, *action.Task) (action.Result, error) {
		<-release
		return action.Result{}, nil
	})
}

// chain returns a recipe of n noop steps in a row.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("name: chain\nlimits: {max_total_steps: 100000}\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: s%d, action: {name: noop}}\n", i)
	}
	return b.String()
}

// fan returns a recipe of n noop steps in parallel and one that joins them.
func fan(n int) string {
	var b strings.Builder
	b.WriteString("name: fan\norder: none\nlimits: {max_total_steps: 100000}\nsteps:\n")
	ids := make([]string, n)
	for i := range n {
		ids[i] = fmt.Sprintf("s%d", i)
		fmt.Fprintf(&b, "  - {id: s%d, action: {name: noop}}\n", i)
	}
	fmt.Fprintf(&b, "  - {id: join, action: {name: noop}, dependsOn: [%s]}\n", strings.Join(ids, ","))
	return b.String()
}

// testLog shows the engine's log only when the test fails.
func testLog(t testing.TB) *slog.Logger {
	var mu sync.Mutex
	var buf bytes.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			mu.Lock()
			defer mu.Unlock()
			t.Log(buf.String())
		}
	})
	return slog.New(slog.NewTextHandler(lockedWriter{&mu, &buf}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// openEngine opens an engine over a store and stops it when the test ends.
func openEngine(t testing.TB, st store.Store, cfg Config, actions ...*action.Action) *Engine {
	t.Helper()
	cfg.Store, cfg.Actions = st, catalogue.New(actions...)
	if cfg.Logger == nil {
		cfg.Logger = testLog(t)
	}
	if cfg.Accounts == nil {
		cfg.Accounts = unmetered
	}
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = e.Stop(ctx)
	})
	return e
}

const acc = "acme"

// unmetered are the rules of accounts that do not pay.
func unmetered(string) AccountRules { return AccountRules{Unmetered: true} }

// start starts a run and returns its id.
func start(t testing.TB, e *Engine, p *plan.Plan, params map[string]any) string {
	t.Helper()
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test", Parameters: params})
	if err != nil {
		t.Fatal(err)
	}
	return s.Run
}

// waitForEnd waits for the end of a run.
func waitForEnd(t testing.TB, e *Engine, run string) store.Head {
	t.Helper()
	head, err := e.Wait(t.Context(), acc, run)
	if err != nil {
		t.Fatalf("wait for run %s: %v", run, err)
	}
	return head
}

// firstEvent waits for the first event of a run that is wanted and returns its text.
func firstEvent(t testing.TB, e *Engine, run string, wanted func(*journal.Event) bool) string {
	t.Helper()
	for ev, err := range e.Watch(t.Context(), acc, run, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if wanted(ev.Event) {
			return strings.Clone(ev.Text)
		}
	}
	t.Fatalf("run %s has ended without it", run)
	return ""
}

// trace returns a stored journal as lines of event names and steps.
func trace(t testing.TB, st store.Store, p *plan.Plan, account, run string) []string {
	t.Helper()
	var lines []string
	next := uint64(1)
	err := store.EachEvent(context.Background(), st, store.Key{Account: account, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Seq != next {
			return fmt.Errorf("event %d where %d was expected", ev.Seq, next)
		}
		next++
		line := ev.Name()
		if ev.Step >= 0 {
			line += " " + journal.StepPath(p, ev.Ref())
		}
		if ev.Attempt > 0 {
			line += fmt.Sprintf(" attempt=%d", ev.Attempt)
		}
		if ev.Code != "" {
			line += " " + string(ev.Code)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatalf("journal of run %s: %v", run, err)
	}
	return lines
}

// countPrefix returns how many lines begin with prefix.
func countPrefix(lines []string, prefix string) int {
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

func wantCode(t testing.TB, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("got error %v, want code %s", err, code)
	}
}

// crash ends the engine as if the process had been killed.
func (e *Engine) crash() {
	e.crashed.Store(true)
	e.wake()
	<-e.done
}
