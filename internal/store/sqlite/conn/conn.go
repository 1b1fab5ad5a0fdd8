// SPDX-License-Identifier: Apache-2.0

// Package conn uses connections to SQLite: one for writing without database/sql, and rows of
// those with it.
//
// It decides which errors of SQLite mean that nothing was done, and after which the content
// of the disk is unknown. It knows no table.
package conn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"modernc.org/sqlite"
)

// A Writer is one connection used without database/sql, whose locks and
// conversions cost as much as a small commit. It is not safe for concurrent use.
type Writer struct {
	conn     driver.Conn
	prepared []driver.Stmt
}

// A Stmt is a prepared statement of a Writer.
type Stmt struct {
	s interface {
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	args []driver.NamedValue
}

// Open opens a connection for writing.
func Open(dsn string) (*Writer, error) {
	db, err := sql.Open("sqlite", dsn) // for its driver, which has the functions that were registered
	if err != nil {
		return nil, err
	}
	conn, err := db.Driver().Open(dsn)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return &Writer{conn: conn}, KeepWAL(conn)
}

// KeepWAL makes closing the last connection keep the log at its length, so that the
// next opening finds its blocks allocated.
func KeepWAL(c any) error {
	fc, ok := c.(sqlite.FileControl)
	if !ok {
		return errors.New("the SQLite driver offers no file control")
	}
	_, err := fc.FileControlPersistWAL("main", 1)
	return err
}

// Prepare prepares a statement, which Close closes.
func (w *Writer) Prepare(query string) (*Stmt, error) {
	s, err := w.conn.Prepare(query)
	if err != nil {
		return nil, err
	}
	ps, ok := s.(interface {
		driver.StmtExecContext
		driver.StmtQueryContext
	})
	if !ok {
		return nil, errors.New("the SQLite driver's statements take no context")
	}
	w.prepared = append(w.prepared, s)
	return &Stmt{s: ps}, nil
}

// Close closes the statements first. Otherwise SQLite would keep the connection with
// its files and locks.
func (w *Writer) Close() error {
	var errs []error
	for _, s := range w.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// Once runs a statement that is not used again.
func (w *Writer) Once(query string, args ...driver.Value) error {
	return w.once(query, func(st *Stmt) error {
		_, err := st.Exec(args...)
		return err
	})
}

// Value runs a query that is not used again, for one value, and returns it as text.
func (w *Writer) Value(query string) (string, error) {
	var v [1]driver.Value
	err := w.once(query, func(st *Stmt) error {
		found, err := st.Row(v[:])
		if err == nil && !found {
			err = sql.ErrNoRows
		}
		return err
	})
	if b, ok := v[0].([]byte); ok {
		return string(b), err
	}
	return fmt.Sprint(v[0]), err
}

func (w *Writer) once(query string, use func(*Stmt) error) error {
	one := Writer{conn: w.conn}
	st, err := one.Prepare(query)
	if err != nil {
		return err
	}
	err = use(st)
	return errors.Join(err, one.prepared[0].Close())
}

func (s *Stmt) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// Exec runs the statement and returns the number of rows it changed. Arguments are
// int64, string, []byte or nil. A write is never interrupted, because a cancelled
// context would fail commits of other callers.
func (s *Stmt) Exec(args ...driver.Value) (int64, error) {
	r, err := s.s.ExecContext(context.Background(), s.bind(args))
	clear(s.args) // do not keep a caller's bytes alive
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// Row runs the statement and reads its first row into dst, which has one element for
// each column. It returns false when there is no row.
func (s *Stmt) Row(dst []driver.Value, args ...driver.Value) (bool, error) {
	rows, err := s.s.QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return false, err
	}
	err = rows.Next(dst)
	if err == nil {
		// Run to the end: a write is not done before that. There is one row.
		if err = rows.Next(dst); errors.Is(err, io.EOF) {
			return true, rows.Close()
		}
	}
	if cerr := rows.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return false, err
}

// ErrEnough ends a walk over rows before their end.
var ErrEnough = errors.New("enough rows")

// Texts returns the one column of a query.
func Texts(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	return List(ctx, db, func(rows *sql.Rows, text *string) error { return rows.Scan(text) }, query, args...)
}

// List returns what scan makes of the rows of a query.
func List[T any](ctx context.Context, db *sql.DB, scan func(*sql.Rows, *T) error, query string, args ...any) (list []T, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	err = EachRow(rows, func() error {
		var v T
		err := scan(rows, &v)
		if err == nil {
			list = append(list, v)
		}
		return err
	})
	return list, err
}

// EachRow calls fn for each row and closes rows.
func EachRow(rows *sql.Rows, fn func() error) error {
	for rows.Next() {
		if err := fn(); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
