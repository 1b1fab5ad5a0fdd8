// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"testing"
	_ "time/tzdata" // the zones of these worlds, on every machine
)

// TestI13_SchedulesOverClockJumps plays worlds whose schedules start runs while clocks jump,
// processes die and others take over, each twice with one history. TestSchedules plays more of
// them.
func TestI13_SchedulesOverClockJumps(t *testing.T) {
	n := 8
	if testing.Short() {
		n = 3
	}
	var all Stats
	for seed := uint64(20_000); n > 0; seed++ {
		if !hasSchedules(seed) {
			continue
		}
		n--
		once, first := playOn(t, Options{Source: Drawn{}}, seed, 1)
		_, second := playOn(t, Options{Source: Drawn{}}, seed, 1)
		if first != second {
			t.Errorf("I2: seed %d gave the history %016x, and then %016x", seed, first, second)
		}
		all.Add(&once)
	}
	if all.Scheduled.Started == 0 {
		t.Errorf("schedules started nothing: %+v", all.Scheduled)
	}
}
