// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"testing"
)

// ShrinkMap copies a map that has become small. It returns a map that was never large,
// or still is, unchanged.
func TestSlim(t *testing.T) {
	fill := func(n int) map[int]int {
		m := map[int]int{}
		for i := range n {
			m[i] = -i
		}
		return m
	}
	for _, c := range []struct{ n, left, most int }{
		{10_000, 1_000, 1_000}, // made anew
		{10_000, 1_500, 9_999}, // still large
		{1_000, 1, 999},        // never large
	} {
		m, most := fill(c.n), 0
		for i := c.n - 1; i >= c.left; i-- {
			delete(m, i)
			m, most = ShrinkMap(m, most)
		}
		if len(m) != c.left || !maps.Equal(m, fill(c.left)) {
			t.Errorf("%d of %d are left: %d entries", c.left, c.n, len(m))
		}
		if most > 8*c.most || most < c.most {
			t.Errorf("%d of %d are left: most is %d, want %d", c.left, c.n, most, c.most)
		}
	}
}
