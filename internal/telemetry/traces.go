// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

const (
	maxTraces = 4_096     // runs that wait to be exported
	maxSpans  = 20_000    // of one run; more are left out
	batchSize = 512       // spans of one export
	pageBytes = 256 << 10 // of the journal, read at once
)

// A tracer exports the spans of runs that have ended. It reads their journals then, so it
// holds nothing of a run that is under way, a run that was interrupted has all its spans,
// and a collector that does not answer costs only what waits here.
type tracer struct {
	jobs     chan traceJob
	attached chan struct{} // closed by attach
	once     sync.Once
	reader   store.Reader // after attached

	exporter sdktrace.SpanExporter
	timeout  time.Duration
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	finished []sdktrace.ReadOnlySpan // of the run that is being exported

	m      *metrics
	log    *slog.Logger
	failed bool // the last export has

	stop context.CancelFunc
	done chan struct{}
}

type traceJob struct {
	key  store.Key
	plan *plan.Plan
	last bool
}

func newTracer(cfg Config, e sdktrace.SpanExporter, m *metrics) *tracer {
	t := &tracer{
		jobs: make(chan traceJob, maxTraces), attached: make(chan struct{}), done: make(chan struct{}),
		exporter: e, timeout: cfg.ExportTimeout, m: m, log: cfg.Logger,
	}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithIDGenerator(givenIDs{}),
		sdktrace.WithSpanProcessor(collect{t}),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "roux"), attribute.String("service.version", cfg.Version))),
	)
	t.tracer = t.provider.Tracer("github.com/roux-engine/roux")
	var ctx context.Context
	ctx, t.stop = context.WithCancel(context.Background())
	go t.run(ctx)
	return t
}

func (t *tracer) attach(r store.Reader) {
	t.once.Do(func() {
		t.reader = r
		close(t.attached)
	})
}

// close waits until everything is exported or ctx ends, and then stops the tracer.
func (t *tracer) close(ctx context.Context) {
	defer t.stop()
	select {
	case t.jobs <- traceJob{last: true}:
	case <-ctx.Done():
		return
	}
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

// ended is told of a run that has ended.
func (t *tracer) ended(key store.Key, p *plan.Plan) {
	select {
	case t.jobs <- traceJob{key: key, plan: p}:
	default:
		t.m.left.WithLabelValues("traces").Inc()
	}
}

func (t *tracer) run(ctx context.Context) {
	defer close(t.done)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout)
		defer cancel()
		_ = t.exporter.Shutdown(ctx) // nothing is left to be exported
	}()
	select {
	case <-t.attached:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case job := <-t.jobs:
			if job.last {
				return
			}
			t.export(ctx, job)
		case <-ctx.Done():
			return
		}
	}
}

// export exports the spans of a run.
func (t *tracer) export(ctx context.Context, job traceJob) {
	built, err := t.read(ctx, job)
	if err != nil {
		t.lost(err)
		return
	}
	if built == nil || !built.Context.Sampled { // it was retried meanwhile, or its caller records no trace
		return
	}
	t.m.left.WithLabelValues("spans").Add(float64(built.Cut))
	t.record(built)
	spans := t.finished
	t.finished = nil
	for len(spans) > 0 {
		n := min(batchSize, len(spans))
		if err := t.send(ctx, spans[:n]); err != nil {
			t.lost(err)
			return
		}
		spans = spans[n:]
	}
	if t.failed {
		t.failed = false
		t.log.Info("traces are exported again")
	}
}

func (t *tracer) send(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.exporter.ExportSpans(ctx, spans)
}

// lost counts a run whose spans were not exported. Only the first of a row is logged.
func (t *tracer) lost(err error) {
	t.m.left.WithLabelValues("traces").Inc()
	if !t.failed {
		t.failed = true
		t.log.Warn("a trace could not be exported; runs go on without", "err", err)
	}
}

// read builds the spans of a run from its journal.
func (t *tracer) read(ctx context.Context, job traceJob) (*view.RunTrace, error) {
	b := view.NewTraceBuilder(job.plan, maxSpans)
	for after := uint64(0); ; {
		page, err := t.reader.Events(ctx, job.key, after, pageBytes)
		if err != nil {
			return nil, err
		}
		err = journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq <= after {
				return nil
			}
			return b.Apply(ev)
		})
		if err != nil {
			return nil, err
		}
		if page.Next <= after || page.Next >= page.Last {
			return b.Trace(), nil
		}
		after = page.Next
	}
}

// record makes spans of OpenTelemetry.
func (t *tracer) record(r *view.RunTrace) {
	for i, s := range r.Spans {
		attrs := []attribute.KeyValue{attribute.String("roux.run.id", r.Start.Run), attribute.String("roux.status", s.Status)}
		if i == 0 {
			attrs = append(attrs, runAttributes(r)...)
		} else {
			attrs = append(attrs, attribute.String("roux.step", s.Step), attribute.String("roux.step.kind", s.Kind))
			if s.Action != "" {
				attrs = append(attrs, attribute.String("roux.action", s.Action))
			}
			if s.Attempt > 0 {
				attrs = append(attrs, attribute.Int64("roux.attempt", int64(s.Attempt)))
			}
			if s.Child != "" {
				attrs = append(attrs, attribute.String("roux.child_run.id", s.Child), attribute.String("roux.child_run.pipeline", s.Pipeline),
					attribute.Int64("roux.child_run.depth", r.Depth()+1))
			}
			attrs = append(attrs, modelAttributes(s.Model)...)
		}
		if s.Code != "" {
			attrs = append(attrs, attribute.String("error.type", string(s.Code)))
		}
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: r.Context.Trace, SpanID: s.Parent, TraceFlags: trace.FlagsSampled, Remote: i == 0})
		ctx := context.WithValue(context.Background(), idsKey{}, givenID{r.Context.Trace, s.ID})
		_, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, parent), s.Name,
			trace.WithTimestamp(time.UnixMicro(s.Begin)), trace.WithAttributes(attrs...))
		switch {
		case s.Failed():
			span.SetStatus(codes.Error, string(s.Code))
		case s.Status == "completed":
			span.SetStatus(codes.Ok, "")
		}
		span.End(trace.WithTimestamp(time.UnixMicro(s.End)))
	}
}

// runAttributes are those of a run's span (X227).
func runAttributes(r *view.RunTrace) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("roux.recipe", r.Start.Recipe),
		attribute.String("roux.account", r.Start.Account),
		attribute.Int64("roux.depth", r.Depth()),
		attribute.Int64("roux.generation", int64(r.Gen)),
		attribute.String("roux.correlation", r.Start.Correlation),
		attribute.String("roux.pipeline", r.Spans[0].Name),
	}
	if c := r.Start.Child; c != nil {
		attrs = append(attrs, attribute.String("roux.parent_run.id", c.Parent), attribute.String("roux.root_run.id", c.Root))
	}
	if r.Cut > 0 {
		attrs = append(attrs, attribute.Int("roux.spans_left_out", r.Cut))
	}
	return attrs
}

// modelAttributes are those of an attempt that asks a language model, by OpenTelemetry's conventions
// for generative AI (1.37 and later); nil = it asks none.
func modelAttributes(m *view.ModelCall) []attribute.KeyValue {
	if m == nil {
		return nil
	}
	attrs := []attribute.KeyValue{attribute.String("gen_ai.operation.name", "chat")}
	for _, one := range []struct{ key, value string }{
		{"gen_ai.provider.name", m.Provider}, {"gen_ai.request.model", m.Asked}, {"gen_ai.response.model", m.Model},
	} {
		if one.value != "" {
			attrs = append(attrs, attribute.String(one.key, one.value))
		}
	}
	if m.Finish != "" {
		attrs = append(attrs, attribute.StringSlice("gen_ai.response.finish_reasons", []string{m.Finish}))
	}
	if m.Answered {
		attrs = append(attrs, attribute.Int64("gen_ai.usage.input_tokens", m.InputTokens), attribute.Int64("gen_ai.usage.output_tokens", m.OutputTokens))
	}
	return attrs
}

// collect keeps the spans that have ended, for export.
type collect struct{ t *tracer }

func (c collect) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (c collect) OnEnd(s sdktrace.ReadOnlySpan)                   { c.t.finished = append(c.t.finished, s) }
func (c collect) Shutdown(context.Context) error                  { return nil }
func (c collect) ForceFlush(context.Context) error                { return nil }

// givenIDs takes the ids of a span from the context: they are computed, not random.
type givenIDs struct{}

type idsKey struct{}

type givenID struct {
	trace trace.TraceID
	span  trace.SpanID
}

func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := ctx.Value(idsKey{}).(givenID)
	return id.trace, id.span
}

func (g givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := g.NewIDs(ctx)
	return id
}
