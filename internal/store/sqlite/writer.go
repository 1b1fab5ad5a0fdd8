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

// close ends the statements first: a connection with statements would stay
// behind as a zombie, files, locks and all.
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

// exec runs the statement and returns the number of rows it changed. Arguments
// are int64, string, []byte or nil. A write is never interrupted: half of the
// commits a cancelled context would stop are others'.
func (s *stmt) exec(args ...driver.Value) (int64, error) {
	r, err := s.s.ExecContext(context.Background(), s.bind(args))
	clear(s.args) // do not keep a caller's bytes alive
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// row runs the statement and reads its first row into dst, which has as many
// places as there are columns; false when there is none.
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

// The statements of the writer. They are prepared once, when the store opens.
type statements struct {
	begin, commit, rollback        *stmt
	insertRow, deleteRows          *stmt
	startRun, suspend, wake        *stmt
	putHead, putHeadPlace          *stmt
	putHeadAlone, putOpenHead      *stmt
	place, putPack, putPiece       *stmt
	findRun                        *stmt
	putPlan, findKey, putKey       *stmt
	putChunk, putSnapshot          *stmt
	putNote, deleteNote, takeEpoch *stmt
	checkpoint                     *stmt

	putName                               *stmt
	releaseFiles, dropNames, dropSnapshot *stmt
	dropRun, markDeleted, dropChunks      *stmt
	forgetDeleted, forgetKeys, forgetFile *stmt
	firstRow                              *stmt
	keepPiece, dropPiece                  *stmt
	replacePack, dropPack                 *stmt
}

// compactedColumns are how far the events of a run (r) reach, how far its chunks do,
// its pack and the last event of its piece there, how far its other pieces reach,
// and the checksums.
const compactedColumns = `r.last, ifnull((SELECT max(c.last) FROM chunks c WHERE c.account = r.account AND c.run = r.run), 0), r.pack, r.packed,
	ifnull((SELECT max(p.last) FROM pieces p WHERE p.account = r.account AND p.run = r.run), 0), r.reach_sum, r.place_sum`

const headColumns = `account, run, recipe, version, plan_hash, status, created, updated, ended,
	code, message, used, failures, quarantine, owes`

const (
	headUpdate     = openHeadUpdate + `, ended = ?5, owes = ?11`
	openHeadUpdate = `UPDATE runs SET status = ?3, updated = ?4, code = ?6, message = ?7, used = ?8,
		failures = ?9, quarantine = ?10, head_sum = ?12`
)

func (s *statements) prepare(w *writer) error {
	for _, q := range []struct {
		dst   **stmt
		query string
	}{
		{&s.begin, `BEGIN IMMEDIATE`},
		{&s.commit, `COMMIT`},
		{&s.rollback, `ROLLBACK`},
		{&s.insertRow, `INSERT INTO journal (id, data) VALUES (?1, ?2)`},
		{&s.deleteRows, `DELETE FROM journal WHERE id BETWEEN ?1 AND ?2`},
		{&s.startRun, `INSERT INTO runs (` + headColumns + `, last, start_sum, head_sum, reach_sum)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) ON CONFLICT DO NOTHING`},
		// What a start fixes for good is not written again: its index would be, too.
		// A head says how far the events reach, and where the first of them are when
		// that is new. Of a damaged run both stay as they are. Several statements,
		// because functions that choose between columns cost more than they, and to
		// set a column to what it is writes its indexes: those of a run that goes on
		// as it did are left alone.
		{&s.putHead, headUpdate + `, last = ?13, reach_sum = ?14 WHERE account = ?1 AND run = ?2`},
		{&s.putOpenHead, openHeadUpdate + `, last = ?13, reach_sum = ?14 WHERE account = ?1 AND run = ?2`},
		{&s.putHeadPlace, headUpdate + `, last = ?13, reach_sum = ?14, pack = ?15, packed = ?16, place_sum = ?17 WHERE account = ?1 AND run = ?2`},
		{&s.putHeadAlone, headUpdate + ` WHERE account = ?1 AND run = ?2`},
		{&s.place, `UPDATE runs SET pack = ifnull(?3, pack), packed = ifnull(?4, packed), place_sum = ifnull(?5, place_sum),
			last = ?6, reach_sum = ?7 WHERE account = ?1 AND run = ?2`},
		{&s.putPack, `INSERT INTO packs (id, data) VALUES (?1, ?2)`},
		{&s.putPiece, `INSERT INTO pieces (account, run, first, last, pack, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`},
		{&s.suspend, `UPDATE runs SET parked = 1, wake_at = ?3, pack = ifnull(?4, pack), packed = ifnull(?5, packed), park_sum = ?6,
			place_sum = ifnull(?7, place_sum), last = ?8, reach_sum = ?9
			WHERE account = ?1 AND run = ?2`},
		{&s.wake, `UPDATE runs SET parked = 0, wake_at = 0, park_sum = ?3 WHERE account = ?1 AND run = ?2`},
		{&s.findRun, `SELECT parked, ended, owes, ` + compactedColumns + ` FROM runs r WHERE account = ?1 AND run = ?2`},
		{&s.putPlan, `INSERT INTO plans (hash, data, sum) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`},
		{&s.findKey, `SELECT run, body_hash, until, sum FROM idempotency WHERE account = ?1 AND key = ?2`},
		{&s.putKey, `INSERT INTO idempotency (account, key, body_hash, run, until, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`},
		{&s.putChunk, `INSERT INTO chunks (account, run, first, last, data, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`},
		{&s.putSnapshot, `INSERT INTO snapshots (account, run, last, format, state, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
			ON CONFLICT DO UPDATE SET last = ?3, format = ?4, state = ?5, sum = ?6`},
		{&s.putNote, `INSERT INTO notes (name, value, sum) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET value = ?2, sum = ?3`},
		{&s.deleteNote, `DELETE FROM notes WHERE name = ?1`},
		{&s.takeEpoch, `INSERT INTO owner (id, epoch, sum) VALUES (1, 1, roux_sum(1, 1))
			ON CONFLICT DO UPDATE SET epoch = epoch + 1, sum = roux_sum(id, epoch + 1) RETURNING epoch`},
		{&s.checkpoint, `PRAGMA wal_checkpoint(PASSIVE)`},
		{&s.putName, `INSERT INTO file_refs (account, hash, run) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`},
		// A damaged row stays as it is: a new checksum would make it good.
		{&s.releaseFiles, `INSERT INTO file_released (account, hash, at, sum)
			SELECT account, hash, ?3, roux_sum(account, hash, ?3) FROM file_refs WHERE account = ?1 AND run = ?2
			ON CONFLICT DO UPDATE SET at = excluded.at, sum = excluded.sum
			WHERE excluded.at > at AND sum = roux_sum(account, hash, at)`},
		{&s.dropNames, `DELETE FROM file_refs WHERE account = ?1 AND run = ?2`},
		{&s.dropSnapshot, `DELETE FROM snapshots WHERE account = ?1 AND run = ?2`},
		{&s.dropRun, `DELETE FROM runs WHERE account = ?1 AND run = ?2`},
		{&s.markDeleted, `INSERT INTO deleted (account, run, before, sum) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT DO UPDATE SET before = ?3, sum = ?4`},
		{&s.dropChunks, `DELETE FROM chunks WHERE account = ?1 AND run = ?2 AND last IN
			(SELECT last FROM chunks WHERE account = ?1 AND run = ?2 ORDER BY last DESC LIMIT ?3)`},
		{&s.firstRow, `SELECT min(id) FROM journal`},
		{&s.forgetDeleted, `DELETE FROM deleted WHERE before <= ifnull((SELECT min(id) FROM journal), before)
			AND NOT EXISTS (SELECT 1 FROM chunks c WHERE c.account = deleted.account AND c.run = deleted.run)
			AND NOT EXISTS (SELECT 1 FROM pieces p WHERE p.account = deleted.account AND p.run = deleted.run)`},
		// The head is about to go; where its first piece is must not.
		{&s.keepPiece, `INSERT INTO pieces (account, run, first, last, pack, sum)
			SELECT account, run, 1, packed, pack, roux_sum(account, run, packed, 1, pack) FROM runs WHERE account = ?1 AND run = ?2 AND pack > 0`},
		{&s.dropPiece, `DELETE FROM pieces WHERE account = ?1 AND run = ?2 AND pack = ?3`},
		{&s.replacePack, `UPDATE packs SET data = ?2 WHERE id = ?1`},
		{&s.dropPack, `DELETE FROM packs WHERE id = ?1`},
		{&s.forgetKeys, `DELETE FROM idempotency WHERE (account, key) IN (SELECT i.account, i.key FROM idempotency i
			WHERE i.until < ?1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.account = i.account AND r.run = i.run AND r.ended = 0)
			ORDER BY i.until, i.account, i.key LIMIT ?2)`},
		{&s.forgetFile, `DELETE FROM file_released WHERE account = ?1 AND hash = ?2`},
	} {
		p, err := w.prepare(q.query)
		if err != nil {
			return err
		}
		*q.dst = p
	}
	return nil
}
