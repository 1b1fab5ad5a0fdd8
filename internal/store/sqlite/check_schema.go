// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
)

// An object is a table or an index, as sqlite_schema has it.
type object struct{ kind, name string }

// schema compares the tables and indexes with those that the migrations create, and the
// type of each value with that of its column. A checksum cannot tell text from bytes,
// but a search can: a key that has become bytes is not found.
func (c *checking) schema(ctx context.Context) error {
	want, err := ownSchema()
	if err != nil {
		return err
	}
	have := map[object]string{}
	if err := c.query(ctx, c.s.t.schemaObjects, func(rows *sql.Rows) error { return scanObject(rows, have) }); err != nil {
		return err
	}
	for _, o := range slices.SortedFunc(maps.Keys(want), func(a, b object) int { return strings.Compare(a.name, b.name) }) {
		if text, ok := have[o]; !ok || text != want[o] {
			if err := c.complain("%s %s is not as this release makes it", o.kind, o.name); err != nil {
				return err
			}
		}
		delete(have, o)
	}
	for o := range have {
		if err := c.complain("%s %q is none that this release makes", o.kind, o.name); err != nil {
			return err
		}
	}
	if len(c.complaints) > 0 {
		return nil // the columns may not be there
	}
	for o := range want {
		if o.kind == "table" && !strings.HasPrefix(o.name, "sqlite_") && o.name != "goose_db_version" {
			if err := c.types(ctx, o.name); err != nil {
				return err
			}
		}
	}
	return nil
}

func scanObject(rows *sql.Rows, into map[object]string) error {
	var o object
	var text string
	err := rows.Scan(&o.kind, &o.name, &text)
	into[o] = text
	return err
}

// ownSchema is the schema that the migrations create in an empty database. It takes
// some milliseconds to find out.
var ownSchema = sync.OnceValues(func() (found map[object]string, err error) {
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
	rows, err := db.QueryContext(ctx, texts.Text("schemaObjects"))
	if err != nil {
		return nil, err
	}
	found = map[object]string{}
	return found, eachRow(rows, func() error { return scanObject(rows, found) })
})

// types compares the type of each value of a table with its column's.
func (c *checking) types(ctx context.Context, table string) error {
	var wrong []string
	err := c.query(ctx, c.s.t.columnTypes, func(rows *sql.Rows) error {
		var column, kind string
		err := rows.Scan(&column, &kind)
		wrong = append(wrong, fmt.Sprintf("typeof(%s) <> '%s'", column, kind))
		return err
	}, table)
	if err != nil {
		return err
	}
	var n int64
	err = c.s.read.QueryRowContext(ctx, `SELECT count(*) FROM `+table+` NOT INDEXED WHERE `+strings.Join(wrong, " OR ")).Scan(&n)
	if err != nil || n == 0 {
		return err
	}
	return c.complain("table %s: %d rows have a value of another type than their column", table, n)
}
