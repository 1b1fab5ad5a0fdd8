// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

// F47: sizes are binary, whole and below 2^62; anything else is refused, not guessed.
func TestF47_Size(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "12": 12, "1KiB": 1 << 10, "16MiB": 16 << 20, "2 GiB": 2 << 30} {
		var b Size
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q: %d, %v, want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "12MB", "9999999999GiB", "0x10"} {
		var b Size
		if err := b.Set(text); err == nil {
			t.Errorf("%q: read as %d", text, b)
		}
	}
	if b := Size(1 << 20); b.String() != "1MiB" {
		t.Errorf("1 MiB is written %s", b.String())
	}
}
