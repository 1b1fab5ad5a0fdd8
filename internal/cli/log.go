// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"log/slog"
)

// newLog is where -v goes: standard error, one line an entry, with the words
// run, step, attempt and code. Entries name places and numbers, never inputs,
// outputs or what a variable holds, so a secret has no way into them. Without
// -v nothing is said: what matters is the result of a command or its error.
func newLog(s *screen, verbose bool) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(logWriter{s}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// logWriter cleans what is logged: errors quote files and services (A31).
type logWriter struct{ s *screen }

var _ io.Writer = logWriter{}

func (w logWriter) Write(p []byte) (int, error) {
	w.s.print(clean(string(p)))
	return len(p), nil
}
