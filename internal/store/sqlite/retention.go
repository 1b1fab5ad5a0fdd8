// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

const (
	// everyFile is the name recorded for runs that were stored before file names were.
	everyFile = "*"
	// purgeChunks is how many chunks of a deleted run one transaction deletes. A long
	// run has megabytes of them, and commits wait for it.
	purgeChunks = 16
	// purgePacks is how many packs one transaction rewrites.
	purgePacks = 8
	// purgeRuns is how many half-removed runs one Delete finishes.
	purgeRuns = 64
)

// References implements store.Retention.
func (s *Store) References(ctx context.Context, account, hash string, limit int) (n store.References, err error) {
	if err := s.isOpen(ctx); err != nil {
		return n, err
	}
	rows, err := s.read.QueryContext(ctx, s.t.references, account, hash, everyFile, max(limit, 0))
	if err == nil {
		err = eachRow(rows, func() error {
			var run string
			if err := rows.Scan(&run); err != nil {
				return err
			}
			n.Runs = append(n.Runs, run)
			return nil
		})
	}
	if err == nil {
		n.Released, err = s.released(ctx, account, hash)
	}
	_, err = s.explain(err)
	return n, err
}

// released returns when the last deleted run that named a file had ended. With a
// damaged row it returns the end of time, so that the file stays.
func (s *Store) released(ctx context.Context, account, hash string) (last int64, err error) {
	rows, err := s.read.QueryContext(ctx, s.t.released, account, hash, everyFile)
	if err != nil {
		return 0, err
	}
	err = eachRow(rows, func() error {
		var hash string
		var at, stored int64
		if err := rows.Scan(&hash, &at, &stored); err != nil {
			return err
		}
		if stored != format.Sum(account, hash, at) {
			at = math.MaxInt64
		}
		last = max(last, at)
		return nil
	})
	return last, err
}

// Ended implements store.Retention.
func (s *Store) Ended(ctx context.Context, before int64, after store.Wake, limit int) ([]store.Wake, error) {
	return s.wakes(ctx, s.t.endedRuns, before, after.At, after.Account, after.Run, max(limit, 0))
}

// Delete implements store.Retention.
//
// One transaction deletes what makes a run exist (head, snapshot, names of files) and
// inserts a mark. The chunks and pieces follow, a few at a time. The mark stays until
// they are deleted and no journal row can hold events of the run, because a restart
// would take those for events whose head was lost.
func (s *Store) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(failpoint.DeleteBefore); err != nil {
		return nil, err
	}
	s.removing.Lock()
	defer s.removing.Unlock()
	whole := s.whole
	s.whole = false
	var left []store.Key
	if !whole {
		var err error
		if left, err = s.halfRemoved(ctx); err != nil {
			_, err = s.explain(err)
			return nil, err
		}
	}
	verdicts, err := s.deleteHeads(epoch, at, keys)
	if err == nil {
		err = failpoint.Hit(failpoint.DeleteMiddle)
	}
	if err != nil {
		return nil, err
	}
	gone := slices.Clone(left)
	for i, v := range verdicts {
		if v.Err == nil {
			gone = append(gone, keys[i])
		}
	}
	// The next Delete removes what this one leaves.
	s.whole = s.removeCompacted(ctx, gone) == nil && len(left) < purgeRuns
	return verdicts, nil
}

// removeCompacted removes the chunks and pieces of deleted runs.
func (s *Store) removeCompacted(ctx context.Context, gone []store.Key) error {
	if err := s.removePieces(ctx, gone); err != nil {
		return err
	}
	for _, key := range gone {
		for more := true; more; {
			err := ctx.Err()
			if err == nil {
				more, err = s.removeChunks(key)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) deleteHeads(epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	verdicts := make([]store.Verdict, len(keys))
	if err := store.Fenced(epoch, s.epoch); err != nil {
		for i := range verdicts {
			verdicts[i].Err = err
		}
		return verdicts, nil
	}
	var first int64
	err := s.inTx(func() (err error) {
		for i, key := range keys {
			if verdicts[i], err = s.deleteHead(key); err == nil && verdicts[i].Err == nil {
				err = s.collect(key.Account, []store.Change{{At: at, Run: key.Run, Deleted: true}})
			}
			if err != nil {
				return err
			}
		}
		if err = s.writeChanges(); err == nil {
			first, err = s.forgetMarks()
		}
		return err
	})
	s.feed.closeRows(err != nil)
	if err != nil {
		return nil, s.fail(err)
	}
	s.cleaned = first
	s.x.Lock()
	s.x.dropped++ // a reader that found the head must look again
	s.x.Unlock()
	s.countPages(int64(4 * len(keys)))
	return verdicts, nil
}

// forgetMarks deletes marks that are no longer needed. It returns the first row of the
// journal, or 0 when there is none: until that row goes, no later mark can be deleted.
func (s *Store) forgetMarks() (first int64, err error) {
	var v [1]driver.Value
	if _, err := s.st.firstRow.row(v[:]); err != nil {
		return 0, err
	}
	if first, _ = v[0].(int64); first == 0 || first != s.cleaned {
		_, err = s.st.forgetDeleted.exec()
	}
	return first, err
}

func (s *Store) deleteHead(key store.Key) (store.Verdict, error) {
	if e := s.x.runs[key]; e != nil {
		if e.damage != nil {
			return store.Verdict{Err: e.damage}, nil // keep what is left of a damaged run
		}
		return store.Refuse(fault.Conflict, "run %s has not settled, or events of it are only in the journal", key.Run), nil
	}
	var r foundRun
	found, err := r.find(s.st.findRun, key)
	if err != nil {
		return store.Verdict{}, err
	}
	if !found {
		return store.Verdict{Err: notFound(key)}, nil
	}
	if _, err = s.Head(context.Background(), key); err == nil {
		err = r.compacted.check(key)
	}
	if errors.Is(err, fault.StoreCorrupt) { // unknown whether it has settled, or what belongs to it
		return store.Verdict{Err: err}, nil
	}
	if err != nil {
		return store.Verdict{}, err
	}
	if r.ended == 0 || r.owes {
		return store.Refuse(fault.Conflict, "run %s has not settled", key.Run), nil
	}
	for _, st := range []struct {
		*stmt
		args []driver.Value
	}{
		{s.st.releaseFiles, []driver.Value{key.Account, key.Run, r.ended}},
		{s.st.dropNames, []driver.Value{key.Account, key.Run}},
		{s.st.keepPiece, []driver.Value{key.Account, key.Run}},
		{s.st.dropSnapshot, []driver.Value{key.Account, key.Run}},
		{s.st.dropRun, []driver.Value{key.Account, key.Run}},
		{s.st.markDeleted, []driver.Value{key.Account, key.Run, s.x.nextRow, format.DeletedSum(key, s.x.nextRow)}},
	} {
		if _, err := st.exec(st.args...); err != nil {
			return store.Verdict{}, err
		}
	}
	return store.Verdict{}, nil
}

// halfRemoved lists deleted runs whose chunks or pieces are still there after a crash
// or a failed removal.
func (s *Store) halfRemoved(ctx context.Context) (left []store.Key, err error) {
	rows, err := s.read.QueryContext(ctx, s.t.halfRemoved, purgeRuns)
	if err != nil {
		return nil, err
	}
	err = eachRow(rows, func() error {
		var key store.Key
		var before, stored int64
		if err := rows.Scan(&key.Account, &key.Run, &before, &stored); err != nil {
			return err
		}
		if stored == format.DeletedSum(key, before) { // a damaged mark must not delete the events of another run
			left = append(left, key)
		}
		return nil
	})
	return left, err
}

// removeChunks deletes some chunks of a run whose head is gone, the last ones first: a
// reader then finds that the end is missing and tries again.
func (s *Store) removeChunks(key store.Key) (more bool, err error) {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return false, err
	}
	n, err := s.st.dropChunks.exec(key.Account, key.Run, int64(purgeChunks))
	if err != nil {
		return false, s.fail(err)
	}
	s.countPages(2 * n)
	return n == purgeChunks, nil
}

// ForgetKeys implements store.Retention.
func (s *Store) ForgetKeys(ctx context.Context, epoch uint64, before int64, limit int) (int, error) {
	if err := s.lockToWrite(ctx); err != nil {
		return 0, err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return 0, err
	}
	n, err := s.st.forgetKeys.exec(before, int64(max(limit, 0)))
	if err != nil {
		return 0, s.fail(err)
	}
	s.countPages(2 * n)
	return int(n), nil
}

// ForgetFile implements store.Retention.
func (s *Store) ForgetFile(ctx context.Context, account, hash string) error {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	n, err := s.st.forgetFile.exec(account, hash)
	if err != nil {
		return s.fail(err)
	}
	s.countPages(2 * n)
	return nil
}

// inTx runs fn in a transaction. The caller holds w.
func (s *Store) inTx(fn func() error) error {
	if _, err := s.st.begin.exec(); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = s.st.commit.exec()
	}
	if err != nil {
		// A failed COMMIT has usually rolled back by itself.
		_, _ = s.st.rollback.exec()
	}
	return err
}

// deletedRuns returns the deleted runs whose events may still be in the journal, each
// with the journal row before which they are.
func (s *Store) deletedRuns(ctx context.Context) (map[store.Key]int64, error) {
	rows, err := s.read.QueryContext(ctx, s.t.deletedRuns)
	if err != nil {
		return nil, err
	}
	gone := map[store.Key]int64{}
	err = eachRow(rows, func() error {
		var key store.Key
		var before, stored int64
		if err := rows.Scan(&key.Account, &key.Run, &before, &stored); err != nil {
			return err
		}
		if stored == format.DeletedSum(key, before) {
			gone[key] = before
		}
		return nil
	})
	return gone, err
}
