// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"

	"github.com/roux-engine/roux/internal/spell"
)

// nearHint proposes the known name that is closest to a wrong one; "" when none
// is close.
func nearHint(name string, known []string) string {
	best, least := "", min(max(1, len(name)/3), len(name)-1)
	for _, k := range known {
		if d := spell.Distance(strings.ToLower(name), strings.ToLower(k), least+1); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "did you mean " + `"` + best + `"?`
}
