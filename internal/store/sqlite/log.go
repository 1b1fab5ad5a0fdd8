// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// examineLog refuses a store whose log has lost acknowledged commits.
func (s *Store) examineLog() error {
	st, err := wal.Read(s.path)
	if err != nil {
		return directory.Fault(err, s.path+"-wal")
	}
	if st.Damage != "" {
		return damagedLog(s.path, st)
	}
	s.examined, s.unfinished = true, st.Unfinished
	return nil
}

// Unfinished returns how many pages were dropped from the log when the store was
// opened, because they belong to a commit that was never acknowledged, as after a power
// cut.
func (s *Store) Unfinished() int { return s.unfinished }

// emptyLog copies the log into the database. It reports whether all of it is copied and
// synced and no connection reads the log; only then may closing clear it. While another
// process reads the log, it cannot restart, and the next store appends to it; an empty
// header would hide that. The caller holds w.
func (s *Store) emptyLog() bool {
	if !s.examined || s.failed != nil || s.up.restart == nil {
		return false
	}
	busy, _, err := runCheckpoint(s.up.restart)
	return err == nil && !busy
}

// damagedLog is the error of a store whose log has lost acknowledged commits.
func damagedLog(database string, st wal.State) error {
	readable := "the database"
	if st.Commits > 0 {
		readable = fmt.Sprintf("the database and the first %d commits in the log", st.Commits)
	}
	refusal := fault.New(fault.StoreCorrupt, "the log %s-wal is damaged: %s. Commits that were acknowledged cannot be read; nothing was changed. "+
		"What can be read is %s: `roux doctor --salvage DIR` saves every run that verifies into a new directory", database, st.Damage, readable)
	refusal.Remedy = "`roux doctor --salvage DIR` makes a new data directory of what can be read; keep this one until you have seen what it names as lost."
	return refusal
}
