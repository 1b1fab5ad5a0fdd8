// SPDX-License-Identifier: Apache-2.0

package access

import (
	"strings"
	"testing"
)

func TestCheckAccount(t *testing.T) {
	for _, name := range []string{"local", "acme", "A-1_b.c@d", strings.Repeat("a", 64)} {
		if err := CheckAccount(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "-data", "a/b", "a b", "a\x1b[2J", "ä", "@last", strings.Repeat("a", 65)} {
		if CheckAccount(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}
