// SPDX-License-Identifier: Apache-2.0

package picture

// A Look is how a status is shown: a glyph, its word and a colour, so that no
// meaning hangs on colour alone. Light and Dark are the colours on the two canvases.
type Look struct {
	Glyph       string
	Light, Dark string
}

// statuses are those that a step can have, the one that a stack of steps takes
// its look from first.
var statuses = []string{
	"running", "retrying", "waiting", "queued", "blocked", "failed", "timed_out",
	"cancelled", "invalidated", "completed", "skipped", "pending",
}

// LookOf is the look of a step's status.
func LookOf(status string) Look {
	switch status {
	case "queued":
		return Look{"◌", "#475a86", "#93a7d6"}
	case "running":
		return Look{"◐", "#1763c7", "#5ea8ff"}
	case "waiting":
		return Look{"⧗", "#7339b8", "#b992f5"}
	case "retrying":
		return Look{"↻", "#9a5b00", "#f0b13c"}
	case "completed":
		return Look{"✓", "#177a3f", "#45c57a"}
	case "skipped":
		return Look{"⤳", "#66707d", "#8b95a3"}
	case "blocked":
		return Look{"⊘", "#66707d", "#8b95a3"}
	case "failed":
		return Look{"✕", "#c4261d", "#ff7b72"}
	case "timed_out":
		return Look{"⏱", "#b3470b", "#ff9a57"}
	case "cancelled":
		return Look{"⊖", "#8a3b6b", "#d88bb9"}
	case "invalidated":
		return Look{"≈", "#77603a", "#c8ad7f"}
	}
	return Look{"○", "#5b6472", "#9aa4b2"}
}

// word is a status as people read it.
func word(status string) string {
	if status == "timed_out" {
		return "timed out"
	}
	return status
}
