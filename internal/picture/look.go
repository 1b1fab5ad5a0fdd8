// SPDX-License-Identifier: Apache-2.0

package picture

// A Look is how a status is shown: a glyph, its word and a colour, so that no
// meaning hangs on colour alone. Light and Dark are the colours on the two canvases.
type Look struct {
	Glyph       string
	Light, Dark string
}

var looks = map[string]Look{
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

// LookOf is the look of a status of a step or a run; the zero Look for what is
// none. Lines in a terminal and pictures take theirs from here.
func LookOf(status string) Look { return looks[status] }

// word is a status as people read it.
func word(status string) string {
	if status == "timed_out" {
		return "timed out"
	}
	return status
}
