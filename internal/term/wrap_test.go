// SPDX-License-Identifier: Apache-2.0

package term

import "testing"

func TestWrap(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"short", "as it is", "as it is"},
		{"long", "one two three four five", "one two three\n  four five"},
		{"columns stay", "  a   b  three four five", "  a   b  three\n  four five"},
		{"a command in one piece", "go on with `roux resume run_1` now", "go on with\n  `roux resume run_1`\n  now"},
		{"source text is left alone", "12 |  action: {name: one, more: two}", "12 |  action: {name: one, more: two}"},
		{"a word too long", "aaaaaaaaaaaaaaaaaaaaaaaa b", "aaaaaaaaaaaaaaaaaaaaaaaa\n  b"},
		{"lines by themselves", "one two three four\nfive", "one two three\n  four\nfive"},
		{"colours take no room", "\x1b[38;5;1mone\x1b[0m two three", "\x1b[38;5;1mone\x1b[0m two three"},
	} {
		if got := Wrap(tt.in, 14, 2); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
