// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// maxComplaints bounds what a check lists.
const maxComplaints = 20

// Check has SQLite read its whole file and compare what must fit together
// (quick_check). It returns the version of the schema and what is wrong, at
// most 20 lines; it changes nothing. What the journal says of runs is checked
// when runs are loaded, by their own checksums.
func (s *Store) Check(ctx context.Context) (schema int, complaints []string, err error) {
	if err := s.isOpen(ctx); err != nil {
		return 0, nil, err
	}
	rows, err := s.read.QueryContext(ctx, fmt.Sprintf(`PRAGMA quick_check(%d)`, maxComplaints))
	if err != nil {
		_, err = s.explain(err)
		return 0, nil, err
	}
	for rows.Next() {
		var line string
		if err = rows.Scan(&line); err != nil {
			break
		}
		if line != "ok" {
			complaints = append(complaints, line)
		}
	}
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		_, err = s.explain(err)
		return 0, complaints, err
	}
	return schemaVersion, complaints, nil
}
