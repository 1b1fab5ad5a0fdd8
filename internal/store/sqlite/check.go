// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/check"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// eventPage bounds how many bytes of a run's events a check holds in memory.
const eventPage = 4 << 20

// A checking is one check of the store.
type checking struct {
	check.Check
	s *Store
}

// ownSchema is the schema that the migrations create in an empty database. It takes
// some milliseconds to find out.
var ownSchema = sync.OnceValues(func() (found map[check.Object]string, err error) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := migrateUp(ctx, db, "a database in memory"); err != nil {
		return nil, err
	}
	texts, err := catalog.Load(sqlFiles)
	if err != nil {
		return nil, err
	}
	return check.ReadSchema(ctx, db, texts)
})

// Check reads the whole store and compares what must be consistent: pages and indexes
// (by SQLite's integrity_check), the schema with this release's, every row with its
// checksums and the types of its columns, every journal row, chunk, pack and snapshot,
// the trees of runs, and the events of every run from the first to the last. It returns the version of the
// schema and the problems found, at most 20 lines. It changes nothing, but writes rows
// that are deferred or pending, and returns soon after ctx is done.
func (s *Store) Check(ctx context.Context) (schema int, complaints []string, err error) {
	err = s.flushDeferred(ctx)
	if err == nil {
		err = s.flushChanges(ctx)
	}
	if err != nil {
		return 0, nil, err
	}
	c := checking{check.Check{DB: s.read, Texts: s.checkTexts}, s}
	for _, part := range []func(context.Context) error{c.Pages, c.schema, c.Journal, c.Encoded, c.Rows, c.Trees, c.Marks, c.heads, c.ledger, c.changes} {
		if err = part(ctx); err != nil {
			break
		}
	}
	if err != nil && !errors.Is(err, check.ErrEnough) {
		_, err = s.explain(err)
		return 0, c.Complaints, err
	}
	return schemaVersion, c.Complaints, nil
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

func (c *checking) changes(ctx context.Context) error { return c.s.feed.Check(ctx, c.Complain) }

func (c *checking) schema(ctx context.Context) error {
	want, err := ownSchema()
	if err != nil {
		return err
	}
	return c.Schema(ctx, want)
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
		err = conn.EachRow(rows, func() error {
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
			return c.Complain("%s", fault.Message(err))
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
