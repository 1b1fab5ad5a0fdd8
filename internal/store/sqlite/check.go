// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// maxComplaints bounds how many problems a check lists.
const maxComplaints = 20

// eventPage bounds how many bytes of a run's events a check holds in memory.
const eventPage = 4 << 20

// errEnough ends a check that has found maxComplaints problems.
var errEnough = errors.New("enough complaints")

// A checking is one check of the store.
type checking struct {
	s          *Store
	complaints []string
}

// Check reads the whole store and compares what must be consistent: pages and indexes
// (by SQLite's integrity_check), the schema with this release's, every row with its
// checksums and the types of its columns, every journal row, chunk, pack and snapshot,
// the trees of runs, and the events of every run from the first to the last. It returns the version of the
// schema and the problems found, at most 20 lines. It changes nothing and returns soon
// after ctx is done.
func (s *Store) Check(ctx context.Context) (schema int, complaints []string, err error) {
	if err := s.isOpen(ctx); err != nil {
		return 0, nil, err
	}
	c := checking{s: s}
	for _, part := range []func(context.Context) error{c.pages, c.schema, c.journal, c.encoded, c.rows, c.trees, c.heads, c.ledger, c.feed} {
		if err = part(ctx); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, errEnough) {
		_, err = s.explain(err)
		return 0, c.complaints, err
	}
	return schemaVersion, c.complaints, nil
}

// Size returns about how many bytes a check reads.
func (s *Store) Size(ctx context.Context) (n int64, err error) {
	if err := s.isOpen(ctx); err != nil {
		return 0, err
	}
	err = s.read.QueryRowContext(ctx, s.t.size).Scan(&n)
	_, err = s.explain(err)
	return n, err
}

func (c *checking) complain(format string, args ...any) error {
	c.complaints = append(c.complaints, fmt.Sprintf(format, args...))
	if len(c.complaints) >= maxComplaints {
		return errEnough
	}
	return nil
}

// query calls fn for each row.
func (c *checking) query(ctx context.Context, query string, fn func(rows *sql.Rows) error, args ...any) error {
	rows, err := c.s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return eachRow(rows, func() error { return fn(rows) })
}

func (c *checking) pages(ctx context.Context) error {
	return c.query(ctx, fmt.Sprintf(`PRAGMA integrity_check(%d)`, maxComplaints), func(rows *sql.Rows) error {
		var line string
		if err := rows.Scan(&line); err != nil || line == "ok" {
			return err
		}
		return c.complain("%s", line)
	})
}

func (c *checking) journal(ctx context.Context) error {
	known := format.Texts{}
	return c.query(ctx, c.s.t.journalRows, func(rows *sql.Rows) error {
		var id int64
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		var err error
		complain := func(off int, why string) {
			if err == nil {
				err = c.complain("journal row %d at byte %d: %s", id, off, why)
			}
		}
		if !format.IntactDirectory(data) {
			complain(0, "its directory is damaged")
		}
		lost := format.ParseRow(data, known, func(r format.Record) {
			if r.Damaged != "" {
				complain(int(r.Off), r.Damaged)
			}
		})
		if lost >= 0 {
			complain(lost, "the rest cannot be read")
		}
		return err
	})
}

// encoded reads chunks, packs and snapshots.
func (c *checking) encoded(ctx context.Context) error {
	for _, at := range []struct{ what, query string }{
		{"chunk", c.s.t.allChunks},
		{"state", c.s.t.allStates},
		{"pack", c.s.t.allPacks},
	} {
		err := c.query(ctx, at.query, func(rows *sql.Rows) error {
			var name string
			var data []byte
			if err := rows.Scan(&name, &data); err != nil {
				return err
			}
			data, err := format.DecodeBlob(data)
			if err == nil && at.what == "pack" {
				err = format.EachPiece(data, func(*format.Piece, []byte) bool { return true })
			}
			if err != nil {
				return c.complain("%s %s: %v", at.what, name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rows compares the checksums of columns.
func (c *checking) rows(ctx context.Context) error {
	t := &c.s.t
	for _, at := range []struct{ what, query string }{
		{"run", t.badRuns}, {"idempotency key", t.badKeys}, {"plan", t.badPlans}, {"note", t.badNotes},
		{"state of run", t.badStates}, {"chunk of run", t.badChunks}, {"piece of run", t.badPieces},
		{"mark of the deleted run", t.badMarks}, {"end of use of file", t.badReleases}, {"owner", t.badOwner},
		{"row of entries", t.badEntries}, {"key of entry", t.badEntryKeys}, {"state of account", t.badAccounts}, {"changes of account", t.badChanges},
	} {
		err := c.query(ctx, at.query, func(rows *sql.Rows) error {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			return c.complain("%s %q: its row fails the checksum", at.what, name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// trees finds child runs of which the root or the parent is missing.
func (c *checking) trees(ctx context.Context) error {
	return c.query(ctx, c.s.t.orphans, func(rows *sql.Rows) error {
		var run, what, missing string
		if err := rows.Scan(&run, &what, &missing); err != nil {
			return err
		}
		return c.complain("run %q: its %s, run %q, is missing", run, what, missing)
	})
}

// heads reads the events of every run.
func (c *checking) heads(ctx context.Context) error {
	var after store.Key
	for {
		var keys []store.Key
		rows, err := c.s.read.QueryContext(ctx, c.s.t.runKeys, after.Account, after.Run)
		if err != nil {
			return err
		}
		err = eachRow(rows, func() error {
			var key store.Key
			err := rows.Scan(&key.Account, &key.Run)
			keys = append(keys, key)
			return err
		})
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			if err := c.events(ctx, key); err != nil {
				return err
			}
		}
		after = keys[len(keys)-1]
	}
}

func (c *checking) events(ctx context.Context, key store.Key) error {
	for at := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		page, err := c.s.page(ctx, key, at, eventPage, true)
		switch {
		case errors.Is(err, fault.StoreCorrupt):
			return c.complain("%s", fault.Message(err))
		case errors.Is(err, fault.RunNotFound):
			return nil // deleted meanwhile
		case err != nil:
			return err
		case page.Next == at:
			return nil
		}
		at = page.Next
	}
}
