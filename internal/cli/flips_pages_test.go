// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// rowsOf returns the rows of each table, read with SQL and not with the code of the
// store.
func rowsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range tables {
		found["table "+table] = rowsIn(t.Context(), db, table)
	}
	return found
}

// tables are those whose rows mean something to Roux.
var tables = []string{"journal", "chunks", "snapshots", "runs", "plans", "idempotency", "notes", "owner", "file_refs", "file_released", "deleted", "packs", "pieces"}

func rowsIn(ctx context.Context, db *sql.DB, table string) string {
	what := "*"
	if table == "journal" {
		what = "data" // only the order of rows in the journal counts, not their row ids
	}
	rows, err := db.QueryContext(ctx, "SELECT "+what+" FROM "+table+" NOT INDEXED")
	if err != nil {
		return failed + err.Error()
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return failed + err.Error()
	}
	values, places := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		places[i] = &values[i]
	}
	var text strings.Builder
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return failed + err.Error()
		}
		for i, v := range values {
			fmt.Fprintf(&text, "%s=%T %v ", columns[i], v, v)
		}
		text.WriteByte('\n')
	}
	if err := rows.Err(); err != nil {
		return failed + err.Error()
	}
	return text.String()
}

// A btree is a table or an index as it lies in the file.
type btree struct {
	name    string
	used    [][2]int // all bytes in use
	shaping [][2]int // those that say where cells are and what is in them
}

// pick returns the offset of a byte in use: for even i one of the structure of the
// tree, otherwise any.
func (b *btree) pick(r *rand.Rand, i int) int {
	spans := b.used
	if i%2 == 0 && len(b.shaping) > 0 {
		spans = b.shaping
	}
	total := 0
	for _, s := range spans {
		total += s[1] - s[0]
	}
	n := r.IntN(total)
	for _, s := range spans {
		if n < s[1]-s[0] {
			return s[0] + n
		}
		n -= s[1] - s[0]
	}
	panic("unreachable")
}

// treesOf finds the bytes in use of every table and index.
func treesOf(t *testing.T, path string) []*btree {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+"?immutable=1") // immutable: the log is not copied into the database
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT name, pageno, pagetype, pgsize, unused FROM dbstat ORDER BY name, pageno`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var trees []*btree
	for rows.Next() {
		var name, kind string
		var number, size, unused int
		if err := rows.Scan(&name, &number, &kind, &size, &unused); err != nil {
			t.Fatal(err)
		}
		if len(trees) == 0 || trees[len(trees)-1].name != name {
			trees = append(trees, &btree{name: name})
		}
		b := trees[len(trees)-1]
		start := (number - 1) * size
		if kind == "overflow" {
			b.used = append(b.used, [2]int{start, start + size - unused})
			continue
		}
		b.page(data[start:start+size], start)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return trees
}

// page adds the bytes in use of a page that begins at byte start of the file.
func (b *btree) page(page []byte, start int) {
	head := 0
	if start == 0 {
		head = 100
	}
	cells := int(binary.BigEndian.Uint16(page[head+3:]))
	content := int(binary.BigEndian.Uint16(page[head+5:]))
	first := head + 8
	if page[head] == 2 || page[head] == 5 {
		first += 4
	}
	end := first + 2*cells
	b.used = append(b.used, [2]int{start + head, start + end}, [2]int{start + content, start + len(page)})
	b.shaping = append(b.shaping, [2]int{start + head, start + end})
	for i := range cells {
		at := int(binary.BigEndian.Uint16(page[first+2*i:]))
		b.shaping = append(b.shaping, [2]int{start + at, start + min(at+48, len(page))})
	}
}
