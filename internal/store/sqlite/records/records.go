// SPDX-License-Identifier: Apache-2.0

// Package records keeps the records of a store in their table.
//
// It decides which revision a record gets, when a guard has failed, and how damage of a
// row shows. It never opens a transaction: the store does, for a whole set of changes.
package records

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// A Table has the records. Get, Named, List and Count may be called at any time; all else
// belongs to the writer of the store.
type Table struct {
	read           *sql.DB
	byKey, byName  *sql.Stmt
	columns        string
	ids, names     string
	index          string
	limit, counted string
	writer
}

// Open returns the records of a store. Close it before the connections.
func Open(ctx context.Context, texts *catalog.Texts, w *conn.Writer, read *sql.DB) (*Table, error) {
	t := &Table{
		read: read, columns: texts.Text("recordColumns"), ids: texts.Text("recordIds"), names: texts.Text("recordNames"), index: texts.Text("recordIndex"),
		limit: texts.Text("recordLimit"), counted: texts.Text("countRecords"),
	}
	if err := errors.Join(t.prepare(texts, w), texts.Err()); err != nil {
		return nil, err
	}
	var err error
	if t.byKey, err = read.PrepareContext(ctx, texts.Text("recordByKey")); err == nil {
		t.byName, err = read.PrepareContext(ctx, texts.Text("recordByName"))
	}
	if err = errors.Join(err, texts.Err()); err != nil {
		return nil, err
	}
	return t, nil
}

// Close closes what reads.
func (t *Table) Close() error { return errors.Join(t.byKey.Close(), t.byName.Close()) }

// Get is that of [store.Records].
func (t *Table) Get(ctx context.Context, key store.RecordKey) (store.Record, error) {
	r := row{Record: store.Record{RecordKey: key}}
	return r.one(t.byKey.QueryRowContext(ctx, key.Account, key.Kind, key.ID), key.ID)
}

// Named is that of [store.Records].
func (t *Table) Named(ctx context.Context, account, kind, name string) (store.Record, error) {
	r := row{Record: store.Record{RecordKey: store.RecordKey{Account: account, Kind: kind}}}
	return r.one(t.byName.QueryRowContext(ctx, account, kind, name), name)
}

// endless is behind every text: SQLite sorts blobs so.
var endless = []byte{0xff}

// before returns the argument for the end of a range.
func before(high string) any {
	if high == "" {
		return endless
	}
	return high
}

// List is that of [store.Records].
func (t *Table) List(ctx context.Context, q *store.RecordQuery) (page []store.Record, more bool, err error) {
	if q.NamesOnly {
		return t.listNames(ctx, q)
	}
	low, high := q.Range()
	args := []any{q.Account, q.Kind, low, before(high), q.Cap() + 1}
	text := []string{"SELECT", t.columns, ", data"}
	if q.KeysOnly {
		text[2] = ", NULL"
	}
	if q.ByName() {
		text = append(text, t.names)
		args = append(args, q.Prefix, before(store.PrefixEnd(q.Prefix)))
	} else {
		text = append(text, t.ids)
	}
	if q.Newest {
		text = append(text, "DESC")
	}
	rows, err := t.read.QueryContext(ctx, strings.Join(append(text, t.limit), " "), args...)
	if err != nil {
		return nil, false, err
	}
	size := 0
	err = conn.EachRow(rows, func() error {
		if more = len(page) == q.Cap() || size >= store.MaxRecordsData; more {
			return conn.ErrEnough
		}
		r := row{Record: store.Record{RecordKey: store.RecordKey{Account: q.Account, Kind: q.Kind}}}
		if err := r.scan(rows); err != nil {
			return err
		}
		size += len(r.blob)
		page = append(page, r.orDamage(q.KeysOnly))
		return nil
	})
	if errors.Is(err, conn.ErrEnough) {
		err = nil
	}
	return page, more, err
}

// listNames lists names, from their index alone.
func (t *Table) listNames(ctx context.Context, q *store.RecordQuery) (page []store.Record, more bool, err error) {
	low, high := q.Range()
	text := []string{"SELECT name", t.index}
	if q.Newest {
		text = append(text, "DESC")
	}
	rows, err := t.read.QueryContext(ctx, strings.Join(append(text, t.limit), " "), q.Account, q.Kind, low, before(high), q.Cap()+1)
	if err != nil {
		return nil, false, err
	}
	page = make([]store.Record, 0, q.Cap())
	err = conn.EachRow(rows, func() error {
		if more = len(page) == q.Cap(); more {
			return conn.ErrEnough
		}
		page = append(page, store.Record{RecordKey: store.RecordKey{Account: q.Account, Kind: q.Kind}})
		return rows.Scan(&page[len(page)-1].Name)
	})
	if errors.Is(err, conn.ErrEnough) {
		err = nil
	}
	return page, more, err
}

// Count returns how many records are stored.
func (t *Table) Count(ctx context.Context) (n int64, err error) {
	return n, t.read.QueryRowContext(ctx, t.counted).Scan(&n)
}

// A row is a record as it is stored.
type row struct {
	store.Record
	revision int64
	sum      int64
	blob     []byte
}

func (r *row) scan(from interface{ Scan(...any) error }) error {
	return from.Scan(&r.ID, &r.revision, &r.Name, &r.Until, &r.Created, &r.Updated, &r.sum, &r.blob)
}

// one reads the only row of a query, for what was asked by id or name.
func (r *row) one(from *sql.Row, asked string) (store.Record, error) {
	err := r.scan(from)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Record{}, store.NoRecord(r.Kind, asked)
	}
	if err == nil {
		err = r.decode(false)
	}
	if err != nil {
		return store.Record{}, err
	}
	return r.Record, nil
}

// decode completes the record, and reports damage of the row.
func (r *row) decode(keysOnly bool) error {
	if r.sum != sumOf(&r.Record, r.revision) {
		return fault.New(fault.StoreCorrupt, "%s %q: the stored row failed the checksum: `roux doctor` checks the rest, and a backup has the whole", r.Kind, r.ID)
	}
	r.Revision = uint64(r.revision)
	if keysOnly {
		return nil
	}
	data, err := format.DecodeBlob(r.blob)
	if err != nil {
		return fault.Wrap(fault.StoreCorrupt, err, "%s %q: the stored data cannot be read (%v): `roux doctor` checks the rest, and a backup has the whole", r.Kind, r.ID, err)
	}
	if r.Data = data; len(data) == 0 {
		r.Data = nil
	}
	return nil
}

// orDamage returns the record, or its key and damage.
func (r *row) orDamage(keysOnly bool) store.Record {
	if err := r.decode(keysOnly); err != nil {
		return store.Record{RecordKey: r.RecordKey, Damage: fault.Message(err)}
	}
	return r.Record
}

// sumOf is the checksum of a row without its data, which have their own.
func sumOf(r *store.Record, revision int64) int64 {
	return format.Sum(r.Account, r.Kind, r.ID, revision, r.Name, r.Until, r.Created, r.Updated)
}

// damaged returns the error of a change whose guard needs a damaged row.
func damaged(key *store.RecordKey) error {
	return fault.New(fault.StoreCorrupt, "%s %q: the stored row failed the checksum: replace or delete it without a condition on its revision", key.Kind, key.ID)
}
