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

// newLog is where -v goes: standard error, one line an entry, with the words
// run, step, attempt and code. Entries name places and numbers, never inputs,
// outputs or what a variable holds, so a secret has no way into them. Without
// -v nothing is said: what matters is the result of a command or its error.
func newLog(s *term.Screen, verbose bool) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logWriter{s}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// logEvent says that a run has got an event: where, not what with.
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

// logWriter cleans what is logged: errors quote files and services (A31).
type logWriter struct{ s *term.Screen }

var _ io.Writer = logWriter{}

func (w logWriter) Write(p []byte) (int, error) {
	w.s.Print(view.Clean(string(p)))
	return len(p), nil
}
