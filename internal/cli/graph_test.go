// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/roux-engine/roux/internal/picture"
)

// A status looks the same in a line of a run and in its picture.
func TestLooksAgree(t *testing.T) {
	shared := 0
	for status, l := range looks {
		switch status {
		case "dispatching", "preview", "expired", "quiet", "error", "warning":
			continue // of runs and of talk: no step has them
		}
		shared++
		if got := picture.LookOf(status); got != (picture.Look{Glyph: l.glyph, Light: l.light, Dark: l.dark}) {
			t.Errorf("%s looks %v in pictures, %v in lines", status, got, l)
		}
	}
	if shared < 12 {
		t.Errorf("%d statuses compared, want all 12 of steps", shared)
	}
}
