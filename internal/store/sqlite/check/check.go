// SPDX-License-Identifier: Apache-2.0

// Package check compares what a database of the store has with what must be consistent in
// it: pages and indexes, the schema, the types of values, checksums, and what refers to what.
//
// It decides what is wrong, and changes nothing. It folds neither events nor accounts, which
// package sqlite reads from the first to the last.
package check

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// most bounds how many problems a check lists.
const most = 20

// ErrEnough ends a check that has found so many.
var ErrEnough = errors.New("enough complaints")

// Texts are the statements of a check.
type Texts struct {
	schemaObjects, columnTypes, journalRows, allChunks, allStates, allPacks, orphans, strayMarks string

	bad []textOf // rows that fail a checksum
}

type textOf struct{ what, query string }

// NewTexts takes the statements out of those of the store.
func NewTexts(c *catalog.Texts) *Texts {
	t := &Texts{
		schemaObjects: c.Text("schemaObjects"), columnTypes: c.Text("columnTypes"), journalRows: c.Text("journalRows"),
		allChunks: c.Text("allChunks"), allStates: c.Text("allStates"), allPacks: c.Text("allPacks"), orphans: c.Text("orphans"), strayMarks: c.Text("strayMarks"),
	}
	for _, at := range []textOf{
		{"run", "badRuns"}, {"idempotency key", "badKeys"}, {"plan", "badPlans"}, {"note", "badNotes"},
		{"state of run", "badStates"}, {"chunk of run", "badChunks"}, {"piece of run", "badPieces"},
		{"mark of the deleted run", "badMarks"}, {"end of use of file", "badReleases"}, {"owner", "badOwner"},
		{"row of entries", "badEntries"}, {"key of entry", "badEntryKeys"}, {"state of account", "badAccounts"}, {"changes of account", "badChanges"},
		{"labels or deletion of run", "badRunMarks"}, {"record", "badRecords"}, {"last revision of records", "badRevisions"},
	} {
		t.bad = append(t.bad, textOf{at.what, c.Text(at.query)})
	}
	return t
}

// A Check is one check of a database.
type Check struct {
	DB         *sql.DB
	Texts      *Texts
	Complaints []string
}

// Complain adds a problem, and returns ErrEnough with the last that is listed.
func (c *Check) Complain(format string, args ...any) error {
	c.Complaints = append(c.Complaints, fmt.Sprintf(format, args...))
	if len(c.Complaints) >= most {
		return ErrEnough
	}
	return nil
}

// Query calls fn for each row.
func (c *Check) Query(ctx context.Context, query string, fn func(rows *sql.Rows) error, args ...any) error {
	rows, err := c.DB.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	return conn.EachRow(rows, func() error { return fn(rows) })
}

// Pages runs the integrity check of SQLite.
func (c *Check) Pages(ctx context.Context) error {
	return c.Query(ctx, fmt.Sprintf(`PRAGMA integrity_check(%d)`, most), func(rows *sql.Rows) error {
		var line string
		if err := rows.Scan(&line); err != nil || line == "ok" {
			return err
		}
		return c.Complain("%s", line)
	})
}

// Journal reads the rows of the journal.
func (c *Check) Journal(ctx context.Context) error {
	known := format.Texts{}
	return c.Query(ctx, c.Texts.journalRows, func(rows *sql.Rows) error {
		var id int64
		var data []byte
		if err := rows.Scan(&id, &data); err != nil {
			return err
		}
		var err error
		complain := func(off int, why string) {
			if err == nil {
				err = c.Complain("journal row %d at byte %d: %s", id, off, why)
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

// Encoded reads chunks, packs and snapshots.
func (c *Check) Encoded(ctx context.Context) error {
	for _, at := range []struct{ what, query string }{
		{"chunk", c.Texts.allChunks},
		{"state", c.Texts.allStates},
		{"pack", c.Texts.allPacks},
	} {
		err := c.Query(ctx, at.query, func(rows *sql.Rows) error {
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
				return c.Complain("%s %s: %v", at.what, name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Rows compares the checksums of columns.
func (c *Check) Rows(ctx context.Context) error {
	for _, at := range c.Texts.bad {
		err := c.Query(ctx, at.query, func(rows *sql.Rows) error {
			var name string
			if err := rows.Scan(&name); err != nil {
				return err
			}
			return c.Complain("%s %q: its row fails the checksum", at.what, name)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Trees finds child runs of which the root or the parent is missing.
func (c *Check) Trees(ctx context.Context) error {
	return c.Query(ctx, c.Texts.orphans, func(rows *sql.Rows) error {
		var run, what, missing string
		if err := rows.Scan(&run, &what, &missing); err != nil {
			return err
		}
		return c.Complain("run %q: its %s, run %q, is missing", run, what, missing)
	})
}

// Marks finds what runs have beside their rows of which there is no run, and runs that lack it.
func (c *Check) Marks(ctx context.Context) error {
	return c.Query(ctx, c.Texts.strayMarks, func(rows *sql.Rows) error {
		var what, name, problem string
		if err := rows.Scan(&what, &name, &problem); err != nil {
			return err
		}
		return c.Complain("%s %q: %s", what, name, problem)
	})
}
