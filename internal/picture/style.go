// SPDX-License-Identifier: Apache-2.0

package picture

// A Style is the glyph and the colours of a status; glyph and word make sure
// that no meaning depends on colour alone. Light and Dark are the colours in
// the two themes.
type Style struct {
	Glyph       string
	Light, Dark string
}

var styles = map[string]Style{
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
}

// StyleOf returns the style of a status of a step or a run, or the zero Style
// for an unknown one. Terminal output and pictures both use it.
func StyleOf(status string) Style { return styles[status] }

// statusWord returns a status as text for people.
func statusWord(status string) string {
	if status == "timed_out" {
		return "timed out"
	}
	return status
}
