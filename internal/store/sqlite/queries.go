// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// queries are the reads that callers make all the time. To parse one takes
// several times as long as to run it, so they are prepared once for each
// connection.
type queries struct {
	head, plan, note    *sql.Stmt
	saved, reach        *sql.Stmt
	pack, pieces, chunk *sql.Stmt
	record              *sql.Stmt

	prepared []*sql.Stmt
}

func (q *queries) prepare(ctx context.Context, db *sql.DB) error {
	for _, p := range []struct {
		dst   **sql.Stmt
		query string
	}{
		{&q.head, `SELECT ` + qualifiedHead + ` FROM runs r WHERE account = ?1 AND run = ?2`},
		{&q.plan, `SELECT data, sum FROM plans WHERE hash = ?1`},
		{&q.note, `SELECT value, sum FROM notes WHERE name = ?1`},
		{&q.saved, savedQuery + ` WHERE r.account = ?1 AND r.run = ?2`},
		{&q.reach, `SELECT ` + compactedColumns + ` FROM runs r WHERE account = ?1 AND run = ?2`},
		{&q.pack, `SELECT data FROM packs WHERE id = ?1`},
		{&q.pieces, `SELECT first, last, pack, sum FROM pieces WHERE account = ?1 AND run = ?2 AND last > ?3 ORDER BY last LIMIT ?4`},
		{&q.chunk, `SELECT first, last, data, sum FROM chunks WHERE account = ?1 AND run = ?2 AND last > ?3 ORDER BY last LIMIT 1`},
		{&q.record, `SELECT substr(data, ?2, ?3) FROM journal WHERE id = ?1`},
	} {
		st, err := db.PrepareContext(ctx, p.query)
		if err != nil {
			return err
		}
		*p.dst = st
		q.prepared = append(q.prepared, st)
	}
	return nil
}

func (q *queries) close() error {
	var errs []error
	for _, st := range q.prepared {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

// brief is the context of a query that is over before a cancellation could be
// noticed: to watch for one takes two goroutines a query.
func brief(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }
