// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
)

// Accounts are those that have runs here.
func (s *Store) Accounts(ctx context.Context) (accounts []string, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	rows, err := s.read.QueryContext(ctx, `SELECT DISTINCT account FROM runs ORDER BY account`)
	if err == nil {
		err = eachRow(rows, func() error {
			var account string
			err := rows.Scan(&account)
			accounts = append(accounts, account)
			return err
		})
	}
	_, err = s.explain(err)
	return accounts, err
}

// Deleted are runs that were removed, as far as something of them may still be there.
func (s *Store) Deleted(ctx context.Context) (map[store.Key]bool, error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	marks, err := s.deletedRuns(ctx)
	if err != nil {
		_, err = s.explain(err)
		return nil, err
	}
	gone := map[store.Key]bool{}
	for key := range marks {
		gone[key] = true
	}
	return gone, nil
}

// TakeOver copies what stands beside the runs of an image: the idempotency keys of
// those that are here, and with all also notes and when files were last named.
func (s *Store) TakeOver(ctx context.Context, from Image, all bool) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return err
	}
	defer func() { _, err = s.explain(err) }()
	if err := s.once(s.t.attachImage, filepath.Join(from.Dir, datadir.Database)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.once(s.t.detachImage)) }()
	queries := []string{s.t.takeKeys}
	if all {
		queries = append(queries, s.t.takeNotes, s.t.takeReleases)
	}
	var errs []error
	for _, query := range queries {
		errs = append(errs, s.once(query))
	}
	return errors.Join(errs...)
}

// once runs a statement that nobody asks again. The caller holds w.
func (s *Store) once(query string, args ...driver.Value) error {
	w := writer{conn: s.db.conn}
	st, err := w.prepare(query)
	if err != nil {
		return err
	}
	_, err = st.exec(args...)
	return errors.Join(err, w.prepared[0].Close())
}
