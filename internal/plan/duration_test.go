// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/roux-engine/roux/internal/plan"
)

// TestFormatISO tests the canonical format of durations.
func TestFormatISO(t *testing.T) {
	for ms, want := range map[int64]string{
		-1: "PT0S", 0: "PT0S", 1: "PT0.001S", 1_500: "PT1.5S", 150_000: "PT2M30S", 3_600_000: "PT1H", 90_061_001: "P1DT1H1M1.001S",
	} {
		if got := plan.FormatISO(ms); got != want {
			t.Errorf("FormatISO(%d) = %s, want %s", ms, got, want)
		}
	}
}
