// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"strings"

	"github.com/roux-engine/roux/action"
)

// MimeTypes returns the MIME types of the files that definitions of types name.
func MimeTypes(defs []action.TypeDefinition) (types []string) {
	for _, d := range defs {
		types = append(types, d.MimeTypes...)
	}
	return types
}

// MimesOverlap reports whether some MIME type matches both lists.
func MimesOverlap(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			p, q, _ := strings.Cut(x, "/")
			r, s, _ := strings.Cut(y, "/")
			if (p == r || p == "*" || r == "*") && (q == s || q == "*" || s == "*") {
				return true
			}
		}
	}
	return false
}
