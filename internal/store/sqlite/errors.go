// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

func (s *Store) explain(err error) (fatal bool, _ error) { return conn.Explain(s.path, err) }

// fail returns the error of a failed write. A fatal one also fails every later write.
// The caller holds s.w.
func (s *Store) fail(err error) error {
	fatal, err := s.explain(err)
	if fatal && s.failed == nil {
		s.failed = fault.Wrap(fault.StoreFailed, err, "an earlier write to %s failed, so nothing more is acknowledged: check the disk, then start again", s.path)
	}
	return err
}
