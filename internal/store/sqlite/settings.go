// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
)

// Settings returns what the writing connection reports about itself, by the names of
// SQLite's pragmas. A published measurement needs them.
func (s *Store) Settings() (map[string]string, error) {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for name, query := range map[string]string{
		"sqlite":       s.t.libraryVersion,
		"synchronous":  s.t.synchronous,
		"journal_mode": s.t.journalMode,
		"page_size":    s.t.pageSize,
	} {
		value, err := s.db.Value(query)
		if err != nil {
			return nil, fmt.Errorf("read the setting %s: %w", name, err)
		}
		settings[name] = value
	}
	return settings, nil
}
