// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/store"
)

// metrics are those that commits change. They are in a registry of their own.
type metrics struct {
	registry *prometheus.Registry
	recipes  *names
	actions  *names
	accounts *names // nil = there is no label for the account

	runs, used              *prometheus.CounterVec
	runSeconds, stepSeconds *prometheus.HistogramVec

	nested, nestedErrors        *prometheus.CounterVec
	nestedSeconds, nestedMemory *prometheus.HistogramVec
	lastSeconds, lastMemory     *prometheus.GaugeVec

	started                 prometheus.Counter
	quarantined             prometheus.Counter
	failures, retries, lost *prometheus.CounterVec
	commitSeconds, batch    prometheus.Histogram
	storeFailures           *prometheus.CounterVec
	left                    *prometheus.CounterVec

	// Results of remote workers that steps have refused: scrape adds what was refused before that.
	offSchema, tooLarge atomic.Int64

	table []described // for the page
}

// described is a metric as the page shows it.
type described struct {
	name, kind, help string
	labels           []string
}

// seconds are the buckets for durations of steps and runs: 1 ms to an hour.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}

func newMetrics(recipes, accounts int) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(), recipes: newNames(recipes), actions: newNames(recipes),
	}
	byRun := []string{"recipe"}
	if accounts > 0 {
		m.accounts = newNames(accounts)
		byRun = append(byRun, "account")
	}
	m.runs = m.counter("recipe_executions_total", "Runs that have ended, by the status that they ended with. A retry ends again. Runs inside other runs are in pipeline_nested_executions_total.", append([]string{"status"}, byRun...)...)
	m.used = m.counter("recipe_credits_used", "Credits that runs have used, with those of runs inside them.", byRun...)
	m.runSeconds = m.histogram("recipe_execution_duration_seconds", "How long runs took from their start to their end, retries left out.", seconds, "recipe")
	m.stepSeconds = m.histogram("recipe_step_duration_seconds", "How long steps took, waiting included, by kind of step, action and outcome.", seconds, "kind", "action", "status")
	m.nested = m.counter("pipeline_nested_executions_total", "Runs inside other runs that have ended, by recipe and depth; the root has depth 0.", "pipeline", "depth")
	m.lastSeconds = m.gauge("pipeline_nested_duration_seconds", "How long the last run inside another one took, by recipe and depth. How long all of them took is in roux_nested_run_duration_seconds.", "pipeline", "depth")
	m.nestedErrors = m.counter("pipeline_nested_errors_total", "Runs inside other runs that failed, or were refused because they would be too deep.", "pipeline", "error")
	m.lastMemory = m.gauge("pipeline_nested_memory_bytes", "Memory that the values and scopes of the last run inside another one took at its end. That of all of them is in roux_nested_run_memory_bytes.", "pipeline")
	m.nestedSeconds = m.histogram("roux_nested_run_duration_seconds", "How long runs inside other runs took.", seconds, "pipeline", "depth")
	m.nestedMemory = m.histogram("roux_nested_run_memory_bytes", "Memory that the values and scopes of runs inside other runs took at their end.", prometheus.ExponentialBuckets(1<<10, 4, 10), "pipeline")
	m.started = m.counter("roux_runs_started_total", "Runs that have started, those inside others included.").WithLabelValues()
	m.quarantined = m.counter("roux_runs_quarantined_total", "Runs that were quarantined.").WithLabelValues()
	m.failures = m.counter("roux_step_failures_total", "Steps that failed in the end, by action and error code.", "action", "code")
	m.retries = m.counter("roux_step_retries_total", "Attempts that failed and are tried again, by action and error code.", "action", "code")
	m.lost = m.counter("roux_attempts_lost_total", "Attempts that a crash or a stop has interrupted.", "action")
	m.commitSeconds = m.histogram("roux_commit_duration_seconds", "How long commits took.", prometheus.ExponentialBuckets(0.0001, 2, 17)).WithLabelValues().(prometheus.Histogram)
	m.batch = m.histogram("roux_commit_runs", "How many runs shared a commit.", prometheus.ExponentialBuckets(1, 2, 12)).WithLabelValues().(prometheus.Histogram)
	m.storeFailures = m.counter("roux_store_failures_total", "Commits that failed, by error code.", "code")
	m.left = m.counter("roux_telemetry_dropped_total", "What telemetry has left out because it could not keep up: events (commits of runs, of which the metrics and log lines of steps are missing), lines (of the log), traces (of runs), spans (of runs with too many).", "what")
	for _, what := range []string{"events", "lines", "traces", "spans"} {
		m.left.WithLabelValues(what)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.table = append(m.table, described{name, "counter", help, labels})
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.table = append(m.table, described{name, "gauge", help, labels})
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	m.table = append(m.table, described{name, "histogram", help, labels})
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

// commit counts a commit.
func (m *metrics) commit(transitions int, took time.Duration, err error) {
	if err != nil {
		m.storeFailures.WithLabelValues(codeLabel(fault.CodeOf(err))).Inc()
		return
	}
	m.commitSeconds.Observe(took.Seconds())
	m.batch.Observe(float64(transitions))
}

// head counts what a new head says. A commit has few of them: at the start of a run, at
// its end, and when its status changes.
func (m *metrics) head(o *feed.Observed) {
	h := o.Head
	if o.Start == nil {
		if h.Quarantine != "" {
			m.quarantined.Inc()
		}
		return
	}
	if o.Started {
		m.started.Inc()
	}
	if h.Root != "" {
		if o.Ended {
			m.nestedEnd(o)
		}
		return
	}
	if !o.Ended && o.Used <= 0 {
		return // its status has changed
	}
	by := make([]string, 0, 3)
	by = append(by, h.Status, m.recipes.label(h.Recipe))
	if m.accounts != nil {
		by = append(by, m.accounts.label(h.Account))
	}
	if o.Used > 0 {
		m.used.WithLabelValues(by[1:]...).Add(float64(o.Used))
	}
	if o.Ended {
		m.runs.WithLabelValues(by...).Inc()
		if o.Generation == 1 { // a retry may come days later
			m.runSeconds.WithLabelValues(by[1]).Observe(lasted(h))
		}
	}
}

// nestedEnd counts the end of a run inside another one (X224). The names that the source gives for duration and
// memory have one value for each set of labels there, so they are gauges; what a gauge cannot say is in histograms.
func (m *metrics) nestedEnd(o *feed.Observed) {
	h := o.Head
	pipeline, depth := m.pipeline(h.Recipe), "0"
	if o.Start.Child != nil {
		depth = strconv.FormatInt(o.Start.Child.Depth, 10)
	}
	m.nested.WithLabelValues(pipeline, depth).Inc()
	took, memory := lasted(h), float64(o.Memory)
	m.lastSeconds.WithLabelValues(pipeline, depth).Set(took)
	m.lastMemory.WithLabelValues(pipeline).Set(memory)
	m.nestedSeconds.WithLabelValues(pipeline, depth).Observe(took)
	m.nestedMemory.WithLabelValues(pipeline).Observe(memory)
	if h.Code != "" {
		m.nestedErrors.WithLabelValues(pipeline, errorLabel(h.Code)).Inc()
	}
}

// pipeline is the label value of a recipe that runs inside another one.
func (m *metrics) pipeline(recipe string) string { return m.recipes.label(cmp.Or(recipe, inline)) }

// inline stands for a recipe without a name of its own (X227).
const inline = "inline"

// errorLabel spells a code as X224 does, for example depth_exceeded.
func errorLabel(code fault.Code) string { return strings.ToLower(codeLabel(code)) }

// lasted is how long a run took, in seconds.
func lasted(h *store.Head) float64 { return float64(h.Ended-h.Created) / 1e6 }
