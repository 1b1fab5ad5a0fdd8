// SPDX-License-Identifier: Apache-2.0

package view

import "testing"

// TestItemCount: which items are shown, and how the rest is described.
func TestItemCount(t *testing.T) {
	fill := func(n int64, total int64, odd map[int64]string) (map[int64]bool, string) {
		c := itemCount{total: total}
		for i := range n {
			c.add(i, "completed")
			if odd[i] != "" {
				c.add(i, odd[i])
				c.add(i, "completed") // less important
			}
		}
		return c.shown()
	}
	for _, tt := range []struct {
		name     string
		n, total int64
		odd      map[int64]string
		shown    int
		rest     string
	}{
		{"few", 20, 20, nil, 0, ""},
		{"one more", 21, 21, nil, 20, "1 more item: 1 completed"},
		{"a failed one", 30, 30, map[int64]string{3: "failed", 29: "failed", 28: "skipped"}, 21, "9 more items: 9 completed"},
		{"the last is a failed one", 21, 21, map[int64]string{20: "failed"}, 0, ""},
		{"many that failed", 100, 100, map[int64]string{}, 20, "80 more items: 80 completed"},
		{"more than was read", 333, 5_000, nil, 20, "4,980 more items: 313 completed, 4,667 not read"},
	} {
		items, rest := fill(tt.n, tt.total, tt.odd)
		if len(items) != tt.shown || rest != tt.rest {
			t.Errorf("%s: %d shown, %q; want %d, %q", tt.name, len(items), rest, tt.shown, tt.rest)
		}
	}
	c := itemCount{}
	for i := range int64(100) {
		c.add(i, "timed_out")
	}
	if items, rest := c.shown(); len(items) != firstItems+otherItems || rest != "60 more items: 60 timed_out" {
		t.Errorf("%d shown, %q", len(items), rest)
	}
}
