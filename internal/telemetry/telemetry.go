// SPDX-License-Identifier: Apache-2.0

// Package telemetry makes metrics, log lines and traces of what an engine makes durable
// (X223–X229).
//
// It decides what these are called, which values a label may have, and what is left out
// when something is slower than the engine. Runs are counted in the commit that ends them,
// from what that commit wrote, so a count is never lost, however far everything else is
// behind, and a restart counts nothing twice. Steps are observed by a goroutine of its
// own. A trace is built from the run's journal when the run has ended, so it is whole
// whatever happened meanwhile.
//
// It never delays a run, never decides what a run does, and never shows a value: of a
// run it shows ids, names from the recipe, numbers, times and codes (A20).
package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/roux-engine/roux/internal/feed"
)

// An Exporter sends spans to where they are kept. A program in which nothing makes one, as
// with -tags small, does not contain the SDK of OpenTelemetry.
type Exporter struct {
	begin func(Config, *metrics) *tracer
}

// ExportTo returns an Exporter that makes spans of OpenTelemetry and gives them to e.
func ExportTo(e sdktrace.SpanExporter) *Exporter {
	return &Exporter{func(cfg Config, m *metrics) *tracer { return newTracer(cfg, e, m) }}
}

// NewExporter makes an exporter that sends to an endpoint, and takes no longer for one
// export than timeout.
type NewExporter = func(ctx context.Context, endpoint string, timeout time.Duration) (*Exporter, error)

// Config configures Telemetry. Optional fields left zero take the default that their
// comment names.
type Config struct {
	// Recipes is how many names of recipes, and of actions, get a label value of their own.
	// All others share the value "other" (A25). Default 100.
	Recipes int
	// Accounts is how many accounts get a label value of their own. Default 0: metrics of
	// runs have no label for the account.
	Accounts int
	// Steps gets a line for each step that has ended and for each run. Default: none.
	Steps *slog.Logger
	// Exporter gets the spans of runs that have ended. Default: none. It is shut down by
	// Close.
	Exporter *Exporter
	// ExportTimeout is how long one export may take. Default 5 s.
	ExportTimeout time.Duration
	// Version is that of this program, for traces.
	Version string
	// Logger gets what is wrong with telemetry itself. Default: discarded.
	Logger *slog.Logger
}

const (
	// maxQueue and maxQueueBytes bound what waits to be observed (I15). Beyond them the
	// events of a commit are left out of the metrics of steps and of the log.
	maxQueue      = 65_536
	maxQueueBytes = 32 << 20
	// maxFlush is how long Flush waits.
	maxFlush = 2 * time.Second
)

// Telemetry observes one engine. It implements node.Observer.
type Telemetry struct {
	cfg     Config
	metrics *metrics
	scrape  *scrape
	steps   *stepLog // nil = none
	traces  *tracer  // nil = none

	mu     sync.Mutex
	queue  []commit // whose events are not observed yet
	spare  []commit
	bytes  int
	signal chan struct{} // 1 slot
	ended  sync.WaitGroup
	closed chan struct{}
	once   sync.Once
}

// New returns telemetry that observes nothing yet. Close ends it.
func New(cfg Config) *Telemetry {
	cfg.Recipes = cmp.Or(cfg.Recipes, 100)
	cfg.ExportTimeout = cmp.Or(cfg.ExportTimeout, 5*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{
		cfg: cfg, metrics: newMetrics(cfg.Recipes, cfg.Accounts),
		signal: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	t.scrape = newScrape(t.metrics)
	if cfg.Steps != nil {
		t.steps = newStepLog(cfg.Steps, t.metrics)
	}
	if cfg.Exporter != nil {
		t.traces = cfg.Exporter.begin(cfg, t.metrics)
	}
	t.ended.Go(t.observe)
	return t
}

// Attach implements node.Observer.
func (t *Telemetry) Attach(host feed.Host) {
	t.scrape.attach(host)
	if t.steps != nil && host.RecipeID != nil {
		t.steps.recipeID.Store(&host.RecipeID)
	}
	if t.traces != nil {
		t.traces.attach(host.Store)
	}
}

// Traced reports whether spans are recorded.
func (t *Telemetry) Traced() bool { return t.traces != nil }

// Handler serves the metrics in the format of Prometheus.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, EnableOpenMetrics: true})
}

// Commit implements feed.Observer.
func (t *Telemetry) Commit(transitions int, took time.Duration, err error) {
	t.metrics.commit(transitions, took, err)
}

// Durable implements feed.Observer. It counts what must not be lost, and leaves the rest
// to another goroutine.
func (t *Telemetry) Durable(runs []feed.Observed) {
	for i := range runs {
		if o := &runs[i]; o.Head != nil {
			t.metrics.head(o)
			if o.Ended && o.Plan != nil && t.traces != nil {
				t.traces.ended(o.Key, o.Plan)
			}
		}
	}
	left := 0
	t.mu.Lock()
	for i := range runs {
		o := &runs[i]
		switch n := len(o.Frames); {
		case o.Plan == nil || n == 0 && !o.Ended:
		case len(t.queue) >= maxQueue || t.bytes+n > maxQueueBytes:
			left++
		default:
			c := commit{key: o.Key, plan: o.Plan, start: o.Start, frames: o.Frames}
			if o.Ended {
				c.head = o.Head
			}
			t.queue = append(t.queue, c)
			t.bytes += n
		}
	}
	t.mu.Unlock()
	if left > 0 {
		t.metrics.left.WithLabelValues("events").Add(float64(left))
	}
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

// observe observes the events of commits until Close.
func (t *Telemetry) observe() {
	o := newObserver(t.metrics, t.steps)
	for {
		select {
		case <-t.signal:
			t.drain(o)
		case <-t.closed:
			t.drain(o)
			return
		}
	}
}

func (t *Telemetry) drain(o *observer) {
	t.mu.Lock()
	queue := t.queue
	t.queue, t.bytes = t.spare[:0], 0
	t.mu.Unlock()
	for i := range queue {
		o.events(&queue[i])
	}
	clear(queue)
	t.spare = queue
}

// Flush implements node.Observer: it waits until everything that was observed is logged
// and exported, but no longer than two seconds and until ctx ends.
func (t *Telemetry) Flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxFlush)
	defer cancel()
	t.close()
	done := make(chan struct{})
	go func() {
		t.ended.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if t.steps != nil {
		t.steps.close(ctx)
	}
	if t.traces != nil {
		t.traces.close(ctx)
	}
}

func (t *Telemetry) close() { t.once.Do(func() { close(t.closed) }) }

// Close ends what Flush has not ended, without waiting for a log or an exporter that does
// not answer.
func (t *Telemetry) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t.Flush(ctx)
}
