// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/view"
)

// stepLog writes a line for each step and run that has ended (X225). A goroutine of its
// own writes them, so that a terminal or a pipe that nobody reads holds up nothing.
type stepLog struct {
	log   *slog.Logger
	m     *metrics
	lines chan line
	done  chan struct{}
	// recipeID is that of feed.Host. Until it is set, a line has the name of a recipe.
	recipeID atomic.Pointer[func(account, name string) string]
}

// maxLines is how many lines may wait to be written; more are left out.
const maxLines = 8_192

// A line is one that is to be written.
type line struct {
	level slog.Level
	msg   string
	attrs []slog.Attr
	last  bool
}

func newStepLog(log *slog.Logger, m *metrics) *stepLog {
	l := &stepLog{log: log, m: m, lines: make(chan line, maxLines), done: make(chan struct{})}
	go l.write()
	return l
}

func (l *stepLog) write() {
	defer close(l.done)
	for line := range l.lines {
		if line.last {
			return
		}
		l.log.LogAttrs(context.Background(), line.level, line.msg, line.attrs...)
	}
}

// close waits until all lines are written, or ctx ends.
func (l *stepLog) close(ctx context.Context) {
	select {
	case l.lines <- line{last: true}:
	case <-ctx.Done():
		return
	}
	select {
	case <-l.done:
	case <-ctx.Done():
	}
}

func (l *stepLog) add(level slog.Level, msg string, attrs ...slog.Attr) {
	select {
	case l.lines <- line{level: level, msg: msg, attrs: attrs}:
	default:
		l.m.left.WithLabelValues("lines").Inc()
	}
}

// recipe is the id of the recipe of a run.
func (l *stepLog) recipe(o *commit) slog.Attr {
	id := o.start.Recipe
	if find := l.recipeID.Load(); find != nil {
		id = (*find)(o.key.Account, id)
	}
	return slog.String("recipeId", id)
}

// step adds the line of a step, or of a try that is followed by another.
func (l *stepLog) step(o *commit, out *view.Outcome) {
	level := slog.LevelInfo
	if out.Code != "" {
		level = slog.LevelWarn
	}
	if out.Status == "skipped" || !l.log.Enabled(context.Background(), level) {
		return
	}
	p := o.plan
	step := &p.Steps[out.Ref.Step]
	attrs := append(make([]slog.Attr, 0, 12),
		slog.String("executionId", o.key.Run),
		l.recipe(o),
		slog.String("stepId", journal.StepPath(p, out.Ref)),
		slog.String("stepName", p.Label(out.Ref.Step)),
		slog.Duration("duration", time.Duration(out.Micros)*time.Microsecond),
		slog.Any("creditsUsed", out.Credits),
	)
	if step.Bind != "" && out.Status == "completed" {
		attrs = append(attrs, slog.String("outputBinding", step.Bind))
	}
	if out.Attempt > 0 {
		attrs = append(attrs, slog.Uint64("attempt", uint64(out.Attempt)))
	}
	if out.Code != "" {
		attrs = append(attrs, slog.String("code", string(out.Code)))
	}
	l.add(level, "recipe step "+out.Status, append(attrs, whose(o)...)...)
}

// run adds the line of a run that has ended.
func (l *stepLog) run(o *commit) {
	h := o.head
	level := slog.LevelInfo
	if h.Code != "" {
		level = slog.LevelWarn
	}
	attrs := append(make([]slog.Attr, 0, 8),
		slog.String("executionId", o.key.Run),
		l.recipe(o),
		slog.Duration("duration", time.Duration(h.Ended-h.Created)*time.Microsecond),
		slog.Int64("creditsUsed", h.Used),
	)
	if h.Code != "" {
		attrs = append(attrs, slog.String("code", string(h.Code)))
	}
	if h.Parent != "" {
		attrs = append(attrs, slog.String("parentExecutionId", h.Parent))
	}
	l.add(level, "recipe execution "+h.Status, append(attrs, whose(o)...)...)
}

// whose names the account and the correlation of a run (X209).
func whose(o *commit) []slog.Attr {
	return []slog.Attr{slog.String("accountId", o.key.Account), slog.String("correlationId", o.start.Correlation)}
}
