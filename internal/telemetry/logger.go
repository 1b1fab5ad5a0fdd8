// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"io"
	"log/slog"
	"strings"
)

// The formats of a log.
const (
	LogOff  = "off"
	LogText = "text"
	LogJSON = "json"
)

// NewLogger returns a logger that writes lines of a format to w. Durations are written as
// Go writes them, such as 1.5s (R20), and levels in lower case (X225). replace, if it is not nil, sees every attribute and
// returns what is written in its place, for example without secrets.
func NewLogger(w io.Writer, format string, level slog.Leveler, replace func(groups []string, a slog.Attr) slog.Attr) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if replace != nil {
			a = replace(groups, a)
		}
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && len(groups) == 0 {
			a.Value = slog.StringValue(strings.ToLower(l.String()))
		}
		return a
	}}
	switch format {
	case LogJSON:
		return slog.New(slog.NewJSONHandler(w, opts))
	case LogText:
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.DiscardHandler)
}
