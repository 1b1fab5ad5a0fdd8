// SPDX-License-Identifier: Apache-2.0

package term

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/view"
)

// EscapeJSON replaces characters that could control a terminal or change the
// direction of text by JSON escapes (A31). Such characters appear only inside
// strings, so the JSON value stays the same.
func EscapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, view.Unprintable) {
		return text
	}
	out := make([]byte, 0, len(text)+16)
	for _, r := range string(text) {
		if view.Unprintable(r) {
			out = fmt.Appendf(out, "\\u%04x", r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// ShellQuote returns s as a shell reads it as one word.
func ShellQuote(s string) string { return view.ShellQuote(s) }
