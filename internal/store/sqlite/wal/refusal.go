// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
)

// Refusal is the error of a store whose log is damaged, so that it has lost acknowledged
// commits.
func (st State) Refusal(database string) error {
	readable := "the database"
	if st.Commits > 0 {
		readable = fmt.Sprintf("the database and the first %d commits in the log", st.Commits)
	}
	refusal := fault.New(fault.StoreCorrupt, "the log %s-wal is damaged: %s. Commits that were acknowledged cannot be read; nothing was changed. "+
		"What can be read is %s: `roux doctor --salvage DIR` saves every run that verifies into a new directory", database, st.Damage, readable)
	refusal.Remedy = "`roux doctor --salvage DIR` makes a new data directory of what can be read; keep this one until you have seen what it names as lost."
	return refusal
}
