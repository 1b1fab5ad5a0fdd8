// SPDX-License-Identifier: Apache-2.0

// Package term lays out text for a terminal.
//
// It decides how wide a line may be, where a line is broken, how columns of a
// table are cut, which colour and glyph a status has, and how text from
// outside is escaped. It knows no command and no run, and it never decides
// what is shown.
package term

import (
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	xterm "golang.org/x/term"

	"github.com/roux-engine/roux/internal/picture"
)

// messageStyles are the styles of messages that are not about a status. They
// have no glyph.
var messageStyles = map[string]picture.Style{
	"quiet":   {Light: "#4d5661", Dark: "#a3acb8"},
	"error":   {Light: "#c4261d", Dark: "#ff7b72"},
	"warning": {Light: "#9a5b00", Dark: "#f0b13c"},
}

// styleOf returns the style of a status, or of a kind of message.
func styleOf(what string) picture.Style {
	if l, ok := messageStyles[what]; ok {
		return l
	}
	return picture.StyleOf(what)
}

// Glyph returns the glyph of a status without colour; "" when it has none.
func Glyph(status string) string { return styleOf(status).Glyph }

// A Screen writes messages to standard error, in colour when that is a
// terminal that shows colours.
type Screen struct {
	w      io.Writer
	file   *os.File // the terminal; nil when w is not one
	colour bool
	dark   bool // the terminal's background is dark
	ci     bool
}

// inCI reports whether an automatic build runs this process. Control codes are
// then off even on a terminal.
func inCI(getenv func(string) string) bool {
	v := getenv("CI")
	return v == "1" || v == "true"
}

// NewScreen returns a Screen that writes to w.
func NewScreen(w io.Writer, noColour bool, getenv func(string) string) *Screen {
	s := &Screen{w: w, dark: true, ci: inCI(getenv)}
	if f, ok := w.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) && getenv("TERM") != "dumb" && !s.ci {
		s.file = f
		s.colour = !noColour && getenv("NO_COLOR") == ""
	}
	// COLORFGBG is "foreground;background", such as "15;0". Backgrounds 7 and 15
	// are light. Querying the terminal would race with what the user types.
	if _, bg, ok := strings.Cut(getenv("COLORFGBG"), ";"); ok && (strings.HasSuffix(bg, "7") || strings.HasSuffix(bg, "15")) {
		s.dark = false
	}
	return s
}

// CI reports whether an automatic build runs this process.
func (s *Screen) CI() bool { return s.ci }

// Live reports whether lines can be redrawn.
func (s *Screen) Live() bool { return s.file != nil }

// Coloured reports whether text is written in colour.
func (s *Screen) Coloured() bool { return s.colour }

// NoColour turns colours off.
func (s *Screen) NoColour() { s.colour = false }

// Size returns the columns and lines of the terminal, or 80 and 24 when there
// is none.
func (s *Screen) Size() (columns, lines int) {
	if s.file != nil {
		if c, l, err := xterm.GetSize(int(s.file.Fd())); err == nil && c > 0 && l > 0 {
			return c, l
		}
	}
	return 80, 24
}

// Paint returns text in the colour of a status or of a kind of message
// (quiet, error, warning).
func (s *Screen) Paint(status, text string) string {
	if !s.colour || text == "" {
		return text
	}
	l := styleOf(status)
	hex := l.Light
	if s.dark {
		hex = l.Dark
	}
	if hex == "" {
		return text
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(hex)).Render(text)
}

// Glyph returns the glyph of a status in its colour, or a dot when it has none.
func (s *Screen) Glyph(status string) string {
	if g := Glyph(status); g != "" {
		return s.Paint(status, g)
	}
	return "·"
}

// Print writes text with as many colours as the terminal has. It ignores write
// errors, because there is nobody left to report them to.
func (s *Screen) Print(text string) {
	if s.file != nil {
		columns, _ := s.Size()
		text = Wrap(text, columns, 2)
	}
	if s.colour {
		_, _ = lipgloss.Fprint(s.w, text)
		return
	}
	_, _ = io.WriteString(s.w, text)
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && xterm.IsTerminal(int(f.Fd()))
}

// Columns returns the width of the terminal that w is. ok is false when w is
// not a terminal.
func Columns(w io.Writer) (columns int, ok bool) {
	if !IsTerminal(w) {
		return 0, false
	}
	f, _ := w.(*os.File)
	if columns, _, err := xterm.GetSize(int(f.Fd())); err == nil && columns > 0 {
		return columns, true
	}
	return 80, true
}
