// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"
)

// A look is how a status is shown: a glyph, a word and a colour, so that no
// meaning hangs on colour alone.
type look struct {
	glyph       string
	light, dark string
}

var looks = map[string]look{
	"pending":     {"○", "#5b6472", "#9aa4b2"},
	"queued":      {"◌", "#475a86", "#93a7d6"},
	"dispatching": {"◌", "#475a86", "#93a7d6"},
	"running":     {"◐", "#1763c7", "#5ea8ff"},
	"waiting":     {"⧗", "#7339b8", "#b992f5"},
	"preview":     {"◑", "#0b7285", "#3fc5d8"},
	"retrying":    {"↻", "#9a5b00", "#f0b13c"},
	"completed":   {"✓", "#177a3f", "#45c57a"},
	"skipped":     {"⤳", "#66707d", "#8b95a3"},
	"blocked":     {"⊘", "#66707d", "#8b95a3"},
	"failed":      {"✕", "#c4261d", "#ff7b72"},
	"timed_out":   {"⏱", "#b3470b", "#ff9a57"},
	"cancelled":   {"⊖", "#8a3b6b", "#d88bb9"},
	"expired":     {"⌛", "#77603a", "#c8ad7f"},
	"invalidated": {"≈", "#77603a", "#c8ad7f"},
	"quiet":       {"", "#4d5661", "#a3acb8"},
	"error":       {"", "#c4261d", "#ff7b72"},
	"warning":     {"", "#9a5b00", "#f0b13c"},
}

// A screen is where talk goes: standard error, with or without colour, perhaps
// a terminal that can be redrawn.
type screen struct {
	w      io.Writer
	file   *os.File // the terminal; nil when w is none
	colour bool
	dark   bool
	// annotate: a machine that builds reads along and marks files and lines.
	annotate bool
}

// inCI says that an automatic build runs this: no control codes, whatever
// standard error is, and annotations beside the diagnostics.
func inCI(getenv func(string) string) bool {
	v := getenv("CI")
	return v == "1" || v == "true"
}

func newScreen(w io.Writer, noColour bool, getenv func(string) string) *screen {
	s := &screen{w: w, dark: true}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && getenv("TERM") != "dumb" && !inCI(getenv) {
		s.file = f
		s.colour = !noColour && getenv("NO_COLOR") == ""
	}
	s.annotate = inCI(getenv)
	// "15;0" is foreground;background: 7 and 15 are the light backgrounds.
	// Asking the terminal itself would race with what the user types.
	if _, bg, ok := strings.Cut(getenv("COLORFGBG"), ";"); ok && (strings.HasSuffix(bg, "7") || strings.HasSuffix(bg, "15")) {
		s.dark = false
	}
	return s
}

// live says that lines can be redrawn.
func (s *screen) live() bool { return s.file != nil }

// size is the terminal's columns and lines.
func (s *screen) size() (columns, lines int) {
	if s.file != nil {
		if c, l, err := term.GetSize(int(s.file.Fd())); err == nil && c > 0 && l > 0 {
			return c, l
		}
	}
	return 80, 24
}

// paint gives text the colour of a status.
func (s *screen) paint(status, text string) string {
	if !s.colour || text == "" {
		return text
	}
	l, ok := looks[status]
	if !ok {
		return text
	}
	hex := l.light
	if s.dark {
		hex = l.dark
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(hex)).Render(text)
}

// glyph is the painted sign of a status.
func (s *screen) glyph(status string) string {
	l, ok := looks[status]
	if !ok || l.glyph == "" {
		return "·"
	}
	return s.paint(status, l.glyph)
}

// print writes text with as many colours as the terminal has. Talk that cannot
// be written has no reader.
func (s *screen) print(text string) {
	if s.file != nil {
		columns, _ := s.size()
		text = fold(text, columns, 2)
	}
	if s.colour {
		_, _ = lipgloss.Fprint(s.w, text)
		return
	}
	_, _ = io.WriteString(s.w, text)
}
