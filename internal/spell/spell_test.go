// SPDX-License-Identifier: Apache-2.0

package spell_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/spell"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b        string
		limit, want int
	}{
		{"", "", 5, 0},
		{"", "abc", 5, 3},
		{"abc", "", 5, 3},
		{"steps", "steps", 5, 0},
		{"step", "steps", 5, 1},
		{"stpes", "steps", 5, 1},
		{"stxps", "steps", 5, 1},
		{"kitten", "sitting", 5, 3},
		{"ca", "abc", 5, 3}, // each place is edited once
		{"größe", "grösse", 5, 2},
		{"kitten", "sitting", 3, 3},
		{"kitten", "sitting", 2, 2},
		{"a", "abcdefgh", 4, 4},
		{"abcdefgh", "a", 4, 4},
		{"abcd", "wxyz", 4, 4},
		{"same", "same", 0, 0},
		{strings.Repeat("a", 300), strings.Repeat("a", 299), 5, 5}, // no work is done for names of any length
	} {
		if got := spell.Distance(tt.a, tt.b, tt.limit); got != tt.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", tt.a, tt.b, tt.limit, got, tt.want)
		}
		if got := spell.Distance(tt.b, tt.a, tt.limit); got != tt.want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", tt.b, tt.a, tt.limit, got, tt.want)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"run", "resume", "runs", "validate", "events"}
	for _, tt := range []struct{ got, want string }{
		{"rnu", "run"}, {"vaildate", "validate"}, {"even", "events"}, {"res", "resume"}, {"xyz", ""}, {"frobnicate", ""}, {"", ""},
		{strings.Repeat("x", 1000), ""},
	} {
		if got := spell.Nearest(tt.got, names); got != tt.want {
			t.Errorf("nearest(%q) = %q, want %q", tt.got[:min(len(tt.got), 20)], got, tt.want)
		}
	}
}
