// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"github.com/roux-engine/roux/internal/picture"
)

// talk are the colours of what is said beside statuses: it has no glyph.
var talk = map[string]picture.Look{
	"quiet":   {Light: "#4d5661", Dark: "#a3acb8"},
	"error":   {Light: "#c4261d", Dark: "#ff7b72"},
	"warning": {Light: "#9a5b00", Dark: "#f0b13c"},
}

// lookOf is how a status, or a kind of talk, is shown.
func lookOf(what string) picture.Look {
	if l, ok := talk[what]; ok {
		return l
	}
	return picture.LookOf(what)
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
	l := lookOf(status)
	hex := l.Light
	if s.dark {
		hex = l.Dark
	}
	if hex == "" {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(hex)).Render(text)
}

// glyph is the painted sign of a status.
func (s *screen) glyph(status string) string {
	if g := lookOf(status).Glyph; g != "" {
		return s.paint(status, g)
	}
	return "·"
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
