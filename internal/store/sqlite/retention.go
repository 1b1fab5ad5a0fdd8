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
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

const (
	// everyFile is the name recorded for runs that were stored before file names were.
	everyFile = "*"
	// purgeChunks is how many chunks of a deleted run one transaction deletes. A long
	// run has megabytes of them, and commits wait for it.
	purgeChunks = 16
	// purgePacks is how many packs one transaction rewrites.
	purgePacks = 8
	// purgeTree is how many runs below roots one transaction deletes.
	purgeTree = 256
	// purgeRuns is how many half-removed runs one Delete finishes.
	purgeRuns = 64
)

// References implements store.Retention.
func (s *Store) References(ctx context.Context, account, hash string, limit int) (n store.References, err error) {
	if n.Runs, err = s.texts(ctx, s.t.references, account, hash, everyFile, max(limit, 0)); err != nil {
		return n, err
	}
	n.Released, err = s.released(ctx, account, hash)
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
	err = conn.EachRow(rows, func() error {
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
// A transaction deletes what makes a run exist (head, snapshot, names of files) and
// inserts a mark. The chunks and pieces follow, a few at a time, and in a large tree the
// runs below the root before that. The mark stays until they are deleted and no journal
// row can hold events of the run, because a restart would take those for events whose
// head was lost.
func (s *Store) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(failpoint.DeleteBefore); err != nil {
		return nil, err
	}
	if err := s.flushDeferred(brief(ctx)); err != nil {
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
	d := deletion{s: s, gone: slices.Clone(left), trees: left}
	verdicts, err := d.deleteAll(epoch, at, keys)
	if err == nil {
		err = failpoint.Hit(failpoint.DeleteMiddle)
	}
	if err != nil {
		return nil, err
	}
	// The next Delete removes what this one leaves.
	s.whole = s.removeCompacted(ctx, d.gone) == nil && s.removeTrees(ctx, d.trees) == nil && len(left) < purgeRuns
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

// A deletion is one call of Delete.
type deletion struct {
	s     *Store
	gone  []store.Key // runs whose chunks and pieces go next
	trees []store.Key // roots that are gone, below which there may be runs
}

// deleteAll deletes roots and small trees, in as many transactions as the runs below them
// need.
func (d *deletion) deleteAll(epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	verdicts := make([]store.Verdict, len(keys))
	if len(keys) == 0 {
		_, err := d.deleteSome(epoch, at, nil, nil)
		return verdicts, err
	}
	for n := 0; n < len(keys); {
		done, err := d.deleteSome(epoch, at, keys[n:], verdicts[n:])
		if err != nil {
			return nil, err
		}
		n += done
	}
	return verdicts, nil
}

// deleteSome deletes the first of the roots in one transaction and returns how many it has
// looked at.
func (d *deletion) deleteSome(epoch uint64, at int64, keys []store.Key, verdicts []store.Verdict) (done int, err error) {
	s := d.s
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return 0, err
	}
	if err := s.flushChangesLocked(); err != nil {
		return 0, err
	}
	if err := store.Fenced(epoch, s.epoch); err != nil {
		for i := range verdicts {
			verdicts[i].Err = err
		}
		return len(keys), nil
	}
	gone := len(d.gone)
	var first int64
	err = s.inTx(func() (err error) {
		for seen := 0; done < len(keys) && seen < purgeTree; done++ {
			key := keys[done]
			var below []treeRun
			if verdicts[done], below, err = s.deleteHead(key); err != nil {
				return err
			}
			seen += len(below)
			if verdicts[done].Err != nil {
				continue
			}
			d.gone = append(d.gone, key)
			if len(below) > purgeTree {
				d.trees = append(d.trees, key)
				below = nil
			}
			if err = s.dropRuns(below); err == nil {
				err = s.feed.Add(key.Account, []store.Change{{At: at, Run: key.Run, Deleted: true}})
			}
			if err != nil {
				return err
			}
			for i := range below {
				d.gone = append(d.gone, below[i].head.Key)
			}
		}
		if _, err = s.feed.Write(); err == nil {
			first, err = s.forgetMarks()
		}
		return err
	})
	if err != nil {
		s.feed.Discard()
		return 0, s.fail(err)
	}
	s.feed.Publish()
	s.cleaned = first
	s.x.Lock()
	s.x.dropped++ // a reader that found the head must look again
	s.x.Unlock()
	s.countPages(int64(4 * (len(d.gone) - gone)))
	return done, nil
}

// removeTrees removes what is left below roots that are gone, a few runs at a time, because
// commits wait for it.
func (s *Store) removeTrees(ctx context.Context, roots []store.Key) error {
	for _, root := range roots {
		if _, err := s.Head(ctx, root); !errors.Is(err, fault.RunNotFound) {
			continue // it was imported again, and these are its runs
		}
		below, err := s.treeRuns(ctx, root)
		if err != nil {
			return err
		}
		for some := range slices.Chunk(below, purgeTree) {
			gone, err := s.removeBelow(some)
			if err == nil {
				err = s.removeCompacted(ctx, gone)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// removeBelow deletes runs below a root that is gone. One that has not settled, or is
// damaged, stays for doctor to name.
func (s *Store) removeBelow(below []treeRun) (gone []store.Key, err error) {
	s.w.Lock()
	defer s.w.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	below = slices.DeleteFunc(below, func(r treeRun) bool { return s.mayGo(&r).Err != nil })
	if err := s.inTx(func() error { return s.dropRuns(below) }); err != nil {
		return nil, s.fail(err)
	}
	s.x.Lock()
	s.x.dropped++
	s.x.Unlock()
	s.countPages(int64(4 * len(below)))
	for i := range below {
		gone = append(gone, below[i].head.Key)
	}
	return gone, nil
}

// A treeRun is a run below a root as far as its deletion needs it.
type treeRun struct {
	head      headRow
	compacted compacted
}

func (r *treeRun) scan(row scanner) error {
	c := &r.compacted
	return row.Scan(append(headPlaces(&r.head), &c.reach, &c.pack, &c.packed, &c.reachSum, &c.placeSum)...)
}

// treeRuns returns the runs below a root.
func (s *Store) treeRuns(ctx context.Context, root store.Key) (below []treeRun, err error) {
	rows, err := s.read.QueryContext(ctx, s.t.treeRuns, root.Account, root.Run)
	if err == nil {
		err = conn.EachRow(rows, func() error {
			var r treeRun
			err := r.scan(rows)
			below = append(below, r)
			return err
		})
	}
	_, err = s.explain(err)
	return below, err
}

// mayGo returns why a run cannot be deleted, or no error.
func (s *Store) mayGo(r *treeRun) store.Verdict {
	key := r.head.Key
	if e := s.x.runs[key]; e != nil {
		if e.damage != nil {
			return store.Verdict{Err: e.damage} // keep what is left of a damaged run
		}
		return store.Refuse(fault.Conflict, "run %s has not settled, or events of it are only in the journal", key.Run)
	}
	err := r.head.check()
	if err == nil {
		err = r.compacted.check(key)
	}
	if err != nil { // unknown whether it has settled, or what belongs to it
		return store.Verdict{Err: err}
	}
	if !r.head.Settled() {
		return store.Refuse(fault.Conflict, "run %s has not settled", key.Run)
	}
	return store.Verdict{}
}

// forgetMarks deletes marks that are no longer needed. It returns the first row of the
// journal, or 0 when there is none: until that row goes, no later mark can be deleted.
func (s *Store) forgetMarks() (first int64, err error) {
	var v [1]driver.Value
	if _, err := s.st.firstRow.Row(v[:]); err != nil {
		return 0, err
	}
	if first, _ = v[0].(int64); first == 0 || first != s.cleaned {
		_, err = s.st.forgetDeleted.Exec()
	}
	return first, err
}

// deleteHead deletes a root in the transaction that is open if its whole tree may go, and
// returns the runs below it.
func (s *Store) deleteHead(key store.Key) (v store.Verdict, below []treeRun, err error) {
	var root treeRun
	var r foundRun
	switch found, err := r.find(s.st.findRun, key); {
	case err != nil:
		return v, nil, err
	case !found:
		return store.Verdict{Err: notFound(key)}, nil, nil
	}
	root.compacted = r.compacted
	if _, err := s.lookup(context.Background(), headPlaces(&root.head), s.q.head, key.Account, key.Run); err != nil {
		return v, nil, err
	}
	if v = s.mayGo(&root); v.Err != nil {
		return v, nil, nil
	}
	if root.head.Root != "" {
		return store.RefuseChild(&root.head.Head), nil, nil
	}
	if below, err = s.treeRuns(context.Background(), key); err != nil {
		return v, nil, err
	}
	for i := range below {
		if v = s.mayGo(&below[i]); v.Err != nil {
			return v, below, nil
		}
	}
	return v, below, s.dropRuns([]treeRun{root})
}

// dropRuns deletes what makes runs exist, in the transaction that is open.
func (s *Store) dropRuns(runs []treeRun) error {
	for i := range runs {
		key := runs[i].head.Key
		for _, st := range []struct {
			*conn.Stmt
			args []driver.Value
		}{
			{s.st.releaseFiles, []driver.Value{key.Account, key.Run, runs[i].head.Ended}},
			{s.st.dropNames, []driver.Value{key.Account, key.Run}},
			{s.st.keepPiece, []driver.Value{key.Account, key.Run}},
			{s.st.dropSnapshot, []driver.Value{key.Account, key.Run}},
			{s.st.dropRun, []driver.Value{key.Account, key.Run}},
			{s.st.markDeleted, []driver.Value{key.Account, key.Run, s.x.nextRow, format.DeletedSum(key, s.x.nextRow)}},
		} {
			if _, err := st.Exec(st.args...); err != nil {
				return err
			}
		}
		if err := s.marks.Drop(&runs[i].head.Head); err != nil {
			return err
		}
	}
	return nil
}

// halfRemoved lists deleted runs whose chunks or pieces are still there after a crash
// or a failed removal.
func (s *Store) halfRemoved(ctx context.Context) (left []store.Key, err error) {
	rows, err := s.read.QueryContext(ctx, s.t.halfRemoved, purgeRuns)
	if err != nil {
		return nil, err
	}
	err = conn.EachRow(rows, func() error {
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
	n, err := s.st.dropChunks.Exec(key.Account, key.Run, int64(purgeChunks))
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
	n, err := s.st.forgetKeys.Exec(before, int64(max(limit, 0)))
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
	n, err := s.st.forgetFile.Exec(account, hash)
	if err != nil {
		return s.fail(err)
	}
	s.countPages(2 * n)
	return nil
}

// inTx runs fn in a transaction. The caller holds w.
func (s *Store) inTx(fn func() error) error {
	if _, err := s.st.begin.Exec(); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = s.st.commit.Exec()
	}
	if err != nil {
		// A failed COMMIT has usually rolled back by itself.
		_, _ = s.st.rollback.Exec()
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
	err = conn.EachRow(rows, func() error {
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
