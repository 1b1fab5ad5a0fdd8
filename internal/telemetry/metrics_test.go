// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/registry"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// X223, X224, X229, X247: what Prometheus reads after real runs, and the values of it.
func TestX223_X224_Metrics(t *testing.T) {
	s := newSite(t, Config{}, noop(), flaky(1))
	p := s.plan(nested)
	for range 3 {
		if head := s.run(engine.StartRequest{Plan: p, Recipe: "outer"}); head.Status != "completed" {
			t.Fatalf("the run is %s: %s", head.Status, head.Message)
		}
	}
	bad := s.plan("name: bad\nsteps: [{id: stop, fail: {code: NO_STOCK, message: none}}]")
	if head := s.run(engine.StartRequest{Plan: bad, Recipe: "bad"}); head.Status != "failed" {
		t.Fatalf("the run is %s", head.Status)
	}
	s.want(map[string]float64{
		`recipe_executions_total{recipe="outer",status="completed"}`:                         3,
		`recipe_executions_total{recipe="bad",status="failed"}`:                              1,
		`recipe_execution_duration_seconds_count{recipe="outer"}`:                            3,
		`recipe_credits_used{recipe="outer"}`:                                                3 * 8,
		`recipe_credits_reserved`:                                                            0,
		`recipe_step_duration_seconds_count{action="noop",kind="action",status="completed"}`: 3 * 4,
		`recipe_step_duration_seconds_count{action="",kind="recipe",status="completed"}`:     3 * 2,
		`recipe_step_duration_seconds_count{action="",kind="fail",status="failed"}`:          1,
		`pipeline_nested_executions_total{depth="1",pipeline="library"}`:                     3,
		`pipeline_nested_executions_total{depth="2",pipeline="page"}`:                        3,
		`roux_nested_run_duration_seconds_count{depth="2",pipeline="page"}`:                  3,
		`roux_nested_run_memory_bytes_count{pipeline="library"}`:                             3,
		`roux_step_retries_total{action="flaky",code="SERVICE_UNAVAILABLE"}`:                 3,
		`roux_step_failures_total{action="",code="other"}`:                                   1,
		`roux_runs_started_total`:                                                            4 + 6,
		`roux_telemetry_dropped_total{what="events"}`:                                        0,
		`roux_attempts_in_flight`:                                                            0,
		`roux_accounts_complete`:                                                             1,
	})
	if got := samples(s.text()); got["roux_commit_duration_seconds_count"] == 0 || got["roux_commit_runs_count"] == 0 ||
		got["roux_store_journal_bytes"] == 0 || got["roux_store_wal_bytes"] == 0 || got["process_cpu_seconds_total"] == 0 || got["go_goroutines"] == 0 {
		t.Errorf("there is nothing of commits, the store or the process: %v", got)
	}
	known := map[string]bool{}
	for _, d := range s.tel.metrics.table {
		known[d.name] = true
	}
	for line := range strings.Lines(s.text()) {
		if name, ok := strings.CutPrefix(line, "# HELP "); ok {
			if name, _, _ = strings.Cut(name, " "); !known[name] && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				t.Errorf("%s is not in the table", name)
			}
		}
	}
}

// X223, X224: the names, types and labels of the metrics are those of docs/observability.md.
func TestMetricsPage(t *testing.T) {
	m := newMetrics(1, 1)
	newScrape(m)
	var b strings.Builder
	b.WriteString("| metric | type | labels | what it says |\n| --- | --- | --- | --- |\n")
	for _, d := range m.table {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", d.name, d.kind, strings.Join(d.labels, ", "), d.help)
	}
	const name, mark = "../../docs/observability.md", "<!-- metrics -->\n"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(strings.ReplaceAll(string(page), "\r\n", "\n"), mark)
	_, after, end := strings.Cut(rest, "<!-- end -->")
	if !ok || !end {
		t.Fatalf("%s does not say where the metrics are", name)
	}
	want := before + mark + "\n" + b.String() + "\n<!-- end -->" + after
	if *rewrite {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if strings.ReplaceAll(string(page), "\r\n", "\n") != want {
		t.Errorf("%s is not current: run `make rewrite` and read the diff", name)
	}
	// The names that the sources of the requirements give.
	for metric, labels := range map[string]string{
		"recipe_executions_total": "status", "recipe_execution_duration_seconds": "", "recipe_step_duration_seconds": "",
		"recipe_credits_reserved": "", "recipe_credits_used": "", "pipeline_nested_executions_total": "pipeline, depth",
		"pipeline_nested_duration_seconds": "pipeline, depth", "pipeline_nested_errors_total": "pipeline, error", "pipeline_nested_memory_bytes": "pipeline",
	} {
		if !slices.ContainsFunc(m.table, func(d described) bool {
			return d.name == metric && strings.HasPrefix(strings.Join(d.labels, ", "), labels)
		}) {
			t.Errorf("there is no %s with %s", metric, labels)
		}
	}
}

// X223: what is held for runs, and what they used.
func TestX223_Credits(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	slow := action.Action{Name: "slow", Version: "1.0.0", Cost: 7, Run: func(context.Context, *action.Task) (action.Result, error) {
		close(begun)
		<-release
		return action.Result{Output: map[string]any{}}, nil
	}}
	s := newSite(t, Config{}, slow)
	if _, err := s.node.Engine.Grant(t.Context(), engine.GrantRequest{Account: "payer", Key: "all", Amount: 1000, Terms: ledger.Terms{Source: ledger.Paid}}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(engine.StartRequest{Account: "payer", Plan: s.plan("name: paid\nsteps: [{id: a, action: {name: slow}}]"), Recipe: "paid"})
	}()
	<-begun
	got := samples(s.text())
	if held := got["recipe_credits_reserved"]; held < 7 || got[`recipe_credits_used{recipe="paid"}`] != 0 || got[`roux_runs{state="live"}`] != 1 || got["roux_attempts_in_flight"] != 1 {
		t.Errorf("during the run %v credits are held: %v", held, got)
	}
	close(release)
	<-ended
	s.tel.scrape.read = time.Time{}
	s.want(map[string]float64{`recipe_credits_used{recipe="paid"}`: 7, "recipe_credits_reserved": 0, `roux_runs{state="live"}`: 0})
}

// X224: a run that would be too deep is an error of the recipe that would have run.
func TestX224_TooDeep(t *testing.T) {
	s := newSite(t, Config{}, noop())
	dir := t.TempDir()
	const src = "name: again\nsteps: [{id: a, recipe: {ref: again, limits: {max_depth: 2}}}]\n"
	if err := os.WriteFile(filepath.Join(dir, "again.yaml"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _, _, diags := compile.Source("again.yaml", []byte(src), compile.Options{
		Actions: node.Catalogue(s.actions), Recipes: registry.NewFiles(registry.Config{Recipe: "again.yaml", Dir: dir, MaxSource: 1 << 20}),
	})
	if p == nil {
		t.Fatal(diags)
	}
	if head := s.run(engine.StartRequest{Plan: p, Recipe: "again"}); head.Code != fault.DepthExceeded {
		t.Fatalf("the run is %s: %s %s", head.Status, head.Code, head.Message)
	}
	s.want(map[string]float64{
		`pipeline_nested_errors_total{error="depth_exceeded",pipeline="again"}`: 3, // the run that is refused, and those at depth 1 and 2
		`pipeline_nested_executions_total{depth="1",pipeline="again"}`:          1,
		`pipeline_nested_executions_total{depth="2",pipeline="again"}`:          1,
	})
}

// X224: the lines of the source, value for value.
func TestX224_TheLinesOfTheSource(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("ROUX_SHARED"), "../../../shared"), "sources", "recursive-pipelines.txt"))
	if err != nil {
		t.Skipf("the source documents are not here (ROUX_SHARED): %v", err)
	}
	m := newMetrics(10, 0)
	for i := range 42 {
		o := ended("analysis", account)
		o.Head.Root, o.Head.Ended, o.Memory = "root", o.Head.Created+1_234_000, 104_857_600
		o.Start = &journal.Start{Child: &journal.Child{Depth: 2}}
		if i < 3 {
			o.Head.Code = fault.DepthExceeded
		}
		m.head(o)
	}
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got := samples(rec.Body.String())
	lines := regexp.MustCompile(`(?m)^(pipeline_nested_\w+)\{(.*)\} ([0-9.]+)$`).FindAllStringSubmatch(strings.ReplaceAll(string(document), "\r\n", "\n"), -1)
	if len(lines) != 4 {
		t.Fatalf("the source has %d lines of metrics, want 4", len(lines))
	}
	for _, line := range lines {
		labels := strings.Split(line[2], ", ")
		slices.Sort(labels) // as the format for Prometheus is written; their order says nothing
		want, err := strconv.ParseFloat(line[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		if name := line[1] + "{" + strings.Join(labels, ",") + "}"; got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

// A25: names that users choose make a bounded number of series.
func TestA25_LabelsAreBounded(t *testing.T) {
	m := newMetrics(10, 3)
	count := func() int {
		n := 0
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	explode := func(from, to int) {
		for i := from; i < to; i++ {
			o := ended(fmt.Sprint("recipe ", i), fmt.Sprint("account ", i))
			o.Head.Code = fault.Code(fmt.Sprint("CODE_", i))
			m.head(o)
			o.Head.Root = "root"
			m.head(o)
		}
		m.head(ended(strings.Repeat("long", 100), "x"))
		m.head(ended("\xff", "x"))
	}
	explode(0, 100)
	before := count()
	explode(100, 10_000)
	if after := count(); after != before || after > 400 {
		t.Errorf("%d series have become %d", before, after)
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "recipe_executions_total" {
			continue
		}
		total := 0.0
		for _, one := range f.GetMetric() {
			total += one.GetCounter().GetValue()
		}
		if total != 10_004 {
			t.Errorf("%v runs are counted, want 10004: those without a label of their own are lost", total)
		}
	}
	plain := newMetrics(10, 0)
	plain.head(ended("a", account))
	if families, err = plain.registry.Gather(); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				if l.GetValue() == account {
					t.Errorf("%s has the account, which nobody has asked for", f.GetName())
				}
			}
		}
	}
}

// F24: the metrics have the depth and the age of a queue whose workers are away.
func TestF24_QueuesOfWorkers(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), rules: map[string]engine.AccountRules{account: {Unmetered: true}}}
	object := []byte(`{"type": "object"}`)
	s.workers = map[string]lease.Spec{"far": {Queue: "gpu", Input: object, Output: object, Accounts: []string{account}}}
	s.open(Config{})
	s.want(map[string]float64{`roux_queue_waiting{queue="gpu"}`: 0, `roux_queue_oldest_seconds{queue="gpu"}`: 0})
	p := s.plan("name: r\nsteps: [{id: a, action: {name: far}}]")
	for range 3 {
		if _, err := s.node.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	s.want(map[string]float64{`roux_queue_waiting{queue="gpu"}`: 3})
	s.want(map[string]float64{`roux_queue_oldest_seconds{queue="gpu"}`: 1}) // the first of them has waited for a second
	list, err := s.node.Workers.Lease(t.Context(), &lease.Want{Queue: "gpu", Max: 2})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	s.want(map[string]float64{`roux_queue_waiting{queue="gpu"}`: 1})
}

// What workers and senders of webhooks have sent, and was refused, is counted by reason.
func TestRefusals(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), rules: map[string]engine.AccountRules{account: {Unmetered: true}}}
	object := []byte(`{"type": "object"}`)
	s.workers = map[string]lease.Spec{"far": {Queue: "gpu", Input: object, Output: object, Accounts: []string{account}}}
	s.open(Config{})
	const results, webhooks = "roux_worker_results_refused_total", "roux_webhooks_refused_total"
	s.want(map[string]float64{results + `{reason="no_lease"}`: 0, results + `{reason="off_schema"}`: 0, webhooks + `{about="job"}`: 0})
	p := s.plan("name: r\nsteps: [{id: a, action: {name: far}}]")
	finish := func(output string) {
		t.Helper()
		started, err := s.node.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: "r"})
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.node.Workers.Lease(t.Context(), &lease.Want{Queue: "gpu", Max: 1, Wait: time.Minute})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		r := &lease.WorkerResult{Lease: list[0].Lease, Output: []byte(output)}
		if err := s.node.Workers.Finish(t.Context(), r, account); err != nil {
			t.Fatal(err)
		}
		if _, err := s.node.Engine.Wait(t.Context(), account, started.Run); err != nil {
			t.Fatal(err)
		}
		if err := s.node.Workers.Finish(t.Context(), r, account); !errors.Is(err, lease.ErrStale) {
			t.Fatal(err)
		}
	}
	finish(`{"fine": true}`)
	finish(`["no object"]`)
	finish(`{"numbers": [` + strings.Repeat("1,", 4<<20) + `1]}`)
	if err := s.node.Jobs.Deliver(t.Context(), "nobody", nil, nil); !errors.Is(err, fault.Unauthorized) {
		t.Fatal(err)
	}
	s.want(map[string]float64{
		results + `{reason="no_lease"}`: 0, results + `{reason="ended_lease"}`: 3, results + `{reason="off_schema"}`: 1, results + `{reason="too_large"}`: 1,
		webhooks + `{about="job"}`: 1,
	})
}

// A restart counts nothing twice, and loses nothing of what is computed from the store.
func TestMetricsAfterARestart(t *testing.T) {
	s := newSite(t, Config{}, noop(), flaky(0))
	p := s.plan(nested)
	waits := s.plan("name: waits\nsteps: [{id: w, wait: {signal: go}}, {id: a, action: {name: noop}}]")
	s.run(engine.StartRequest{Plan: p, Recipe: "outer"})
	started, err := s.node.Engine.Start(t.Context(), engine.StartRequest{Account: account, Plan: waits, Recipe: "waits"})
	if err != nil {
		t.Fatal(err)
	}
	s.want(map[string]float64{`recipe_executions_total{recipe="outer",status="completed"}`: 1, "roux_runs_started_total": 2 + 2})
	s.stop()
	s.open(Config{})
	if err := s.node.Engine.Signal(t.Context(), account, started.Run, "go", nil); err != nil {
		t.Fatal(err)
	}
	if head, err := s.node.Engine.Wait(t.Context(), account, started.Run); err != nil || head.Status != "completed" {
		t.Fatal(head, err)
	}
	s.want(map[string]float64{
		`recipe_executions_total{recipe="waits",status="completed"}`: 1,
		`recipe_executions_total{recipe="outer",status="completed"}`: 0,
		`recipe_credits_used{recipe="waits"}`:                        2,
		`recipe_credits_used{recipe="outer"}`:                        0,
		`roux_runs_started_total`:                                    0,
		`roux_runs{state="live"}`:                                    0,
	})
}

// A retry ends again, and is counted again; what was used before the retry is not.
func TestMetricsOfARetry(t *testing.T) {
	fails := true
	a := action.Action{Name: "once", Version: "1.0.0", Cost: 3, Run: func(context.Context, *action.Task) (action.Result, error) {
		if fails {
			return action.Result{}, fault.New(fault.ProviderError, "no")
		}
		return action.Result{Output: map[string]any{}}, nil
	}}
	s := newSite(t, Config{}, noop(), a)
	head := s.run(engine.StartRequest{Plan: s.plan("name: r\nsteps: [{id: a, action: {name: noop}}, {id: b, action: {name: once}}]"), Recipe: "r"})
	s.want(map[string]float64{`recipe_executions_total{recipe="r",status="failed"}`: 1, `recipe_credits_used{recipe="r"}`: 2})
	fails = false
	if err := s.node.Engine.Retry(t.Context(), account, head.Run, engine.RetryRequest{}); err != nil {
		t.Fatal(err)
	}
	if head, err := s.node.Engine.Wait(t.Context(), account, head.Run); err != nil || head.Status != "completed" {
		t.Fatal(head, err)
	}
	s.want(map[string]float64{
		`recipe_executions_total{recipe="r",status="failed"}`:    1,
		`recipe_executions_total{recipe="r",status="completed"}`: 1,
		`recipe_credits_used{recipe="r"}`:                        5,
		`recipe_execution_duration_seconds_count{recipe="r"}`:    1,
	})
}

// stuck is a writer that never returns until it is released.
type stuck struct{ release chan struct{} }

func (w stuck) Write(p []byte) (int, error) {
	<-w.release
	return len(p), nil
}

// I15: a log that nobody reads and an exporter that does not answer delay no run, take
// bounded memory, and change no count.
func TestI15_NothingWaitsForTelemetry(t *testing.T) {
	w := stuck{make(chan struct{})}
	defer close(w.release)
	e := &hanging{}
	s := newSite(t, Config{Steps: NewLogger(w, LogJSON, nil, nil), Exporter: ExportTo(e), ExportTimeout: time.Hour}, noop())
	p := s.plan("name: many\nsteps: [{id: a, transform: {expression: '1'}}, {id: b, transform: {expression: '2'}}, {id: c, action: {name: noop}}]")
	const runs = 6_000
	limit := make(chan struct{}, 200)
	for range runs {
		limit <- struct{}{}
		go func() {
			defer func() { <-limit }()
			s.run(engine.StartRequest{Plan: p, Recipe: "many"})
		}()
	}
	for range cap(limit) {
		limit <- struct{}{}
	}
	s.want(map[string]float64{
		`recipe_executions_total{recipe="many",status="completed"}`:                          runs,
		`recipe_credits_used{recipe="many"}`:                                                 2 * runs,
		`recipe_step_duration_seconds_count{action="noop",kind="action",status="completed"}`: runs,
	})
	got := samples(s.text())
	if n := got[`roux_telemetry_dropped_total{what="lines"}`]; n < 4*runs-maxLines-1 {
		t.Errorf("%v lines are counted as left out", n)
	}
	if n := got[`roux_telemetry_dropped_total{what="traces"}`]; n < runs-maxTraces-1 {
		t.Errorf("%v traces are counted as left out", n)
	}
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

// Events that wait in vain are left out, and what is counted by heads is right.
func TestI15_QueueIsBounded(t *testing.T) {
	s := newSite(t, Config{}, noop())
	s.stop()
	tel := &Telemetry{metrics: newMetrics(10, 0), signal: make(chan struct{}, 1)} // nobody observes
	p := s.plan("name: a\nsteps: [{id: a, action: {name: noop}}]")
	batch := make([]feed.Observed, 100)
	for i := range batch {
		batch[i] = *ended("a", account)
		batch[i].Plan, batch[i].Frames = p, make([]byte, 1<<20)
	}
	tel.Durable(batch)
	if tel.bytes > maxQueueBytes || len(tel.queue) != 32 {
		t.Errorf("%d commits with %d bytes wait", len(tel.queue), tel.bytes)
	}
	for i := range batch {
		batch[i].Frames = []byte{1}
	}
	tel.queue, tel.bytes = nil, 0
	for range 1_000 {
		tel.Durable(batch)
	}
	if len(tel.queue) != maxQueue {
		t.Errorf("%d commits wait", len(tel.queue))
	}
	s.tel = tel
	got := samples(s.text())
	if n := got[`recipe_executions_total{recipe="a",status="completed"}`]; n != 100_100 {
		t.Errorf("%v runs are counted", n)
	}
	if n := got[`roux_telemetry_dropped_total{what="events"}`]; n != 68+100_000-maxQueue {
		t.Errorf("%v commits are counted as left out", n)
	}
}

// Commits that fail are counted by code.
func TestStoreFailures(t *testing.T) {
	m := newMetrics(1, 0)
	m.commit(3, time.Millisecond, nil)
	m.commit(1, time.Millisecond, fault.New(fault.StoreFull, "full"))
	m.commit(1, time.Millisecond, errors.Join(io.ErrUnexpectedEOF))
	s := &site{t: t, tel: &Telemetry{metrics: m}}
	got := samples(s.text())
	if got[`roux_store_failures_total{code="STORE_FULL"}`] != 1 || got[`roux_store_failures_total{code="INTERNAL_ERROR"}`] != 1 || got["roux_commit_duration_seconds_count"] != 1 {
		t.Errorf("%v", got)
	}
}
