// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
)

// An Object is a table or an index, as sqlite_schema has it.
type Object struct{ Kind, Name string }

// Schema compares the tables and indexes with those that there must be, by their texts, and the
// type of each value with that of its column. A checksum cannot tell text from bytes,
// but a search can: a key that has become bytes is not found.
func (c *Check) Schema(ctx context.Context, want map[Object]string) error {
	have, err := c.objects(ctx)
	if err != nil {
		return err
	}
	all := slices.Collect(maps.Keys(want))
	heap.Sort(all, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range all {
		if text, ok := have[o]; !ok || text != want[o] {
			if err := c.Complain("%s %s is not as this release makes it", o.Kind, o.Name); err != nil {
				return err
			}
		}
		delete(have, o)
	}
	for o := range have {
		if err := c.Complain("%s %q is none that this release makes", o.Kind, o.Name); err != nil {
			return err
		}
	}
	if len(c.Complaints) > 0 {
		return nil // the columns may not be there
	}
	for o := range want {
		if o.Kind == "table" && !strings.HasPrefix(o.Name, "sqlite_") && o.Name != "goose_db_version" {
			if err := c.types(ctx, o.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadSchema returns the tables and indexes of a database, with their texts.
func ReadSchema(ctx context.Context, db *sql.DB, c *catalog.Texts) (map[Object]string, error) {
	of := Check{DB: db, Texts: &Texts{schemaObjects: c.Text("schemaObjects")}}
	return of.objects(ctx)
}

func (c *Check) objects(ctx context.Context) (map[Object]string, error) {
	found := map[Object]string{}
	return found, c.Query(ctx, c.Texts.schemaObjects, func(rows *sql.Rows) error {
		var o Object
		var text string
		err := rows.Scan(&o.Kind, &o.Name, &text)
		found[o] = text
		return err
	})
}

// types compares the type of each value of a table with its column's.
func (c *Check) types(ctx context.Context, table string) error {
	var wrong []string
	err := c.Query(ctx, c.Texts.columnTypes, func(rows *sql.Rows) error {
		var column, kind string
		err := rows.Scan(&column, &kind)
		wrong = append(wrong, fmt.Sprintf("typeof(%s) <> '%s'", column, kind))
		return err
	}, table)
	if err != nil {
		return err
	}
	var n int64
	err = c.DB.QueryRowContext(ctx, `SELECT count(*) FROM `+table+` NOT INDEXED WHERE `+strings.Join(wrong, " OR ")).Scan(&n)
	if err != nil || n == 0 {
		return err
	}
	return c.Complain("table %s: %d rows have a value of another type than their column", table, n)
}
