// SPDX-License-Identifier: Apache-2.0

package linediff

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestUnified: a difference, applied to the old lines, gives the new ones.
func TestUnified(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() []string {
		var lines []string
		for range r.IntN(30) {
			lines = append(lines, string(rune('a'+r.IntN(5)))+"\n")
		}
		return lines
	}
	for range 500 {
		x, y := draw(), draw()
		var got []string
		at, kept := 0, 0
		for _, e := range lineEdits(x, y) {
			switch {
			case e.op != '+' && e.x != at:
				t.Fatalf("%q to %q: line %d of the old text where %d is next", x, y, e.x, at)
			case e.op == '+':
				got = append(got, y[e.y])
				continue
			case e.op == ' ':
				got = append(got, x[e.x])
				kept++
			}
			at++
		}
		if strings.Join(got, "") != strings.Join(y, "") || at != len(x) || kept != int(longest(x, y)[0][0]) {
			t.Fatalf("%q to %q: got %q, kept %d", x, y, got, kept)
		}
	}
	const want = "--- f\n+++ f\n@@ -1,3 +1,3 @@\n-a\n+A\n b\n c\n\\ No newline at end of file\n"
	if got := Unified("f", []byte("a\nb\nc"), []byte("A\nb\nc")); got != want {
		t.Errorf("got\n%s", got)
	}
}
