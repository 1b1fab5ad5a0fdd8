// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

// newLog returns the logger of -v. It writes one line per entry to standard error,
// with the keys run, step, attempt and code. Entries contain names and numbers and
// never inputs, outputs or values of variables, so that no secret appears in them.
// Without -v it discards everything.
func newLog(s *term.Screen, verbose bool) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logWriter{s}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// logEvent logs the place and kind of an event, without its content.
func (a *app) logEvent(r *followed, ev *journal.Event) {
	if !a.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	attrs := []any{"run", r.id, "event", ev.Seq, "type", ev.Name()}
	if ev.Step >= 0 {
		attrs = append(attrs, "step", journal.StepPath(r.plan, ev.Ref()), "attempt", ev.Attempt)
	}
	if ev.Code != "" {
		attrs = append(attrs, "code", string(ev.Code))
	}
	a.log.Debug("event", attrs...)
}

// logWriter removes control characters, because errors quote files and services
// (A31).
type logWriter struct{ s *term.Screen }

var _ io.Writer = logWriter{}

func (w logWriter) Write(p []byte) (int, error) {
	w.s.Print(view.Clean(string(p)))
	return len(p), nil
}
