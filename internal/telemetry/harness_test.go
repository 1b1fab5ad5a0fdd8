// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"io"
	"maps"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/store"
)

const account = "acme"

// A site is a real node that is observed.
type site struct {
	t       *testing.T
	dir     string
	actions []action.Action
	models  map[string]provider.Config
	workers map[string]lease.Spec
	rules   map[string]engine.AccountRules
	tel     *Telemetry
	node    *node.Node
}

// newSite opens a node on a new data directory.
func newSite(t *testing.T, cfg Config, actions ...action.Action) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), actions: actions, rules: map[string]engine.AccountRules{account: {Unmetered: true}}}
	s.open(cfg)
	return s
}

// open opens the node on the data directory.
func (s *site) open(cfg Config) {
	s.t.Helper()
	s.tel = New(cfg)
	st, err := node.OpenStore(s.t.Context(), s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	list := node.NewActions(nil, s.actions...)
	if s.models != nil {
		loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		if list, err = node.NewActionsWith(loopback, s.models, func(string) string { return "key" }); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := list.AddWorkers(s.workers); err != nil {
		s.t.Fatal(err)
	}
	s.node, err = node.Open(s.t.Context(), st, node.Config{Dir: s.dir, Actions: list, Accounts: s.rules, Observer: s.tel})
	if err != nil {
		s.t.Fatal(err)
	}
	n := s.node
	n.Observe(nil, nil)
	s.t.Cleanup(func() { _ = n.Stop(context.Background()) })
}

// stop stops the node, and with it the telemetry.
func (s *site) stop() {
	s.t.Helper()
	if err := s.node.Stop(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

// plan compiles a recipe.
func (s *site) plan(src string) *plan.Plan {
	s.t.Helper()
	r, text, diags := dialect.Parse("test.yaml", []byte(src), form.Options{})
	if r != nil && !compile.HasErrors(diags) {
		var p *plan.Plan
		if p, diags = compile.Compile(r, text, compile.Options{Actions: node.Catalogue(s.node.Config.Actions.List)}); p != nil {
			return p
		}
	}
	s.t.Fatal(diags)
	return nil
}

// run runs a recipe to its end.
func (s *site) run(req engine.StartRequest) store.Head {
	s.t.Helper()
	if req.Account == "" {
		req.Account = account
	}
	started, err := s.node.Engine.Start(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	head, err := s.node.Engine.Wait(s.t.Context(), req.Account, started.Run)
	if err != nil {
		s.t.Fatal(err)
	}
	return head
}

// text returns the metrics as Prometheus reads them.
func (s *site) text() string {
	s.t.Helper()
	srv := httptest.NewServer(s.tel.Handler())
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		s.t.Fatal(resp.Status, err)
	}
	return string(text)
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+(?:\{[^}]*\})?) (\S+)$`)

// samples returns the samples of a text, by name and labels.
func samples(text string) map[string]float64 {
	all := map[string]float64{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		all[m[1]], _ = strconv.ParseFloat(m[2], 64)
	}
	return all
}

// want fails the test unless the samples have these values. What is observed later is
// waited for.
func (s *site) want(want map[string]float64) {
	s.t.Helper()
	var got map[string]float64
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got = samples(s.text())
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(name string) bool { return got[name] != want[name] }) {
			return
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if v, ok := got[name]; !ok || v != want[name] {
			s.t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want[name])
		}
	}
}

// noop does nothing.
func noop() action.Action {
	return action.Action{Name: "noop", Version: "1.0.0", Cost: 2, Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"ok": true}}, nil
	}}
}

// flaky fails in its first attempts.
func flaky(times int) action.Action {
	return action.Action{Name: "flaky", Version: "1.0.0", Run: func(_ context.Context, t *action.Task) (action.Result, error) {
		if t.Attempt <= times {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not now")
		}
		return action.Result{Output: map[string]any{"ok": true}}, nil
	}}
}

// spans is an exporter that keeps what it gets.
type spans struct {
	mu  sync.Mutex
	all []sdktrace.ReadOnlySpan
}

func (e *spans) ExportSpans(_ context.Context, s []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, s...)
	return nil
}

func (e *spans) Shutdown(context.Context) error { return nil }

// get returns the spans by the run that they are of and by name.
func (e *spans) get() []sdktrace.ReadOnlySpan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// attr returns an attribute of a span.
func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

const nested = `
name: outer
steps:
  - {id: first, action: {name: noop}, outputBinding: greeting}
  - id: each
    loop:
      over: '[1, 2]'
      steps:
        - {id: part, action: {name: noop}}
  - id: inner
    recipe:
      inline:
        name: library
        steps:
          - {id: read, action: {name: flaky}, retryPolicy: {maxAttempts: 3, initialDelay: 1ms, jitter: 0}}
          - id: deeper
            recipe: {inline: {name: page, steps: [{id: word, action: {name: noop}}]}}
`

// lines returns the lines of a text that contain a part.
func lines(text, part string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
