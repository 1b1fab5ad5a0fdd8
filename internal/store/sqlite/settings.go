// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
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
		value, err := s.ask(query)
		if err != nil {
			return nil, fmt.Errorf("read the setting %s: %w", name, err)
		}
		settings[name] = value
	}
	return settings, nil
}

// ask runs a query for one value. The caller holds w.
func (s *Store) ask(query string) (value string, err error) {
	st, err := s.db.Conn.Prepare(query)
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := st.Close(); err == nil {
			err = cerr
		}
	}()
	rows, err := st.Query(nil) //nolint:staticcheck // the writer is used without database/sql and its contexts
	if err != nil {
		return "", err
	}
	var v [1]driver.Value
	if err := rows.Next(v[:]); err != nil {
		_ = rows.Close()
		return "", err
	}
	if b, ok := v[0].([]byte); ok {
		v[0] = string(b)
	}
	return fmt.Sprint(v[0]), rows.Close()
}
