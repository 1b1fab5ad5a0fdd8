// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
)

// A writer is one connection used without database/sql, whose locks and
// conversions cost as much as a small commit. It is not safe for concurrent use.
type writer struct {
	conn     driver.Conn
	prepared []driver.Stmt
}

// A stmt is a prepared statement of a writer.
type stmt struct {
	s interface {
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	args []driver.NamedValue
}

func openWriter(dsn string) (*writer, error) {
	db, err := sql.Open("sqlite", dsn) // for its driver, which has the functions that were registered
	if err != nil {
		return nil, err
	}
	conn, err := db.Driver().Open(dsn)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	return &writer{conn: conn}, nil
}

func (w *writer) prepare(query string) (*stmt, error) {
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
	return &stmt{s: ps}, nil
}

// close closes the statements first. Otherwise SQLite would keep the connection with
// its files and locks.
func (w *writer) close() error {
	var errs []error
	for _, s := range w.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

func (s *stmt) bind(args []driver.Value) []driver.NamedValue {
	s.args = s.args[:0]
	for i, a := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return s.args
}

// exec runs the statement and returns the number of rows it changed. Arguments are
// int64, string, []byte or nil. A write is never interrupted, because a cancelled
// context would fail commits of other callers.
func (s *stmt) exec(args ...driver.Value) (int64, error) {
	r, err := s.s.ExecContext(context.Background(), s.bind(args))
	clear(s.args) // do not keep a caller's bytes alive
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// row runs the statement and reads its first row into dst, which has one element for
// each column. It returns false when there is no row.
func (s *stmt) row(dst []driver.Value, args ...driver.Value) (bool, error) {
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
