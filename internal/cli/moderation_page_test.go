// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// Nothing shows what was flagged and nobody has decided on.
func TestModerationPage(t *testing.T) {
	needs(t, "curl")
	if out := runSelfServed(t, "moderation", "", 17)[0]; strings.Contains(out, "Note: this") {
		t.Errorf("it shows what was flagged:\n%s", out)
	}
}
