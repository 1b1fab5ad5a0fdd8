// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"testing"

	"github.com/gofrs/uuid/v5"

	"github.com/roux-engine/roux/internal/journal"
)

// A run's id is its UUID in base 32, so that ids sort as they were made.
func TestRunIDs(t *testing.T) {
	for hex, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000": "run_00000000000000000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"00000000-0000-0000-0000-00000000001f": "run_0000000000000000000000000Z",
		"00000000-0000-0001-0000-000000000000": "run_0000000000000G000000000000",
		"0123ab45-6789-7cde-8f01-23456789abcd": "run_014ENMASW9FKF8Y0938NKRKAYD",
	} {
		if got := journal.RunID(uuid.Must(uuid.FromString(hex))); got != want {
			t.Errorf("%s becomes %s, want %s", hex, got, want)
		}
	}
}
