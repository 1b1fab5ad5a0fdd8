// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
	"sync"

	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// A checkpoint copies the log into the database whenever the log has grown by
// checkpointPages, the length that warm gives it. A page that changes often is then
// copied once for all its changes, and the old content of a trimmed page is never
// copied. Copying four times as often costs a steady load 14 %; half as often saves
// nothing. Commits wait while the last fewPages are copied.
const (
	checkpointPages = warmWAL / pageSize
	fewPages        = 1600 << 10 / pageSize
	maxPasses       = 4
)

// maxDead is how many bytes of dead rows the journal may have before upkeep deletes
// them. While nothing is committed they would stay, and the next start would read them.
const maxDead = 4 << 20

// pageSize is that of a new file. The rows of one commit are stored next to each other,
// so larger pages make a steady load 5 to 10 % cheaper than pages of 4 KiB; 16 KiB gain
// no more. An older file keeps its 4 KiB pages. Its log then restarts at half of
// longWAL; the other counts are estimates anyway.
const pageSize = 8192

// Readers that overlap without a pause keep the log from restarting although every page
// of it is copied. Past longWAL, commits and new readers wait: the log restarts when the
// reads under way end, which takes a moment. If a reader takes longer than patience,
// which only one in another process does, commits go on, and the next try comes when
// the log has grown by half as much again.
const (
	longWAL  = 64 << 20
	patience = "busy_timeout(100)"
)

// upkeep is the work beside commits: checkpoints and the rest of trimming.
type upkeep struct {
	stop    sync.Once
	wake    chan struct{} // one slot
	quit    chan struct{}
	done    chan struct{}
	db      *conn.Writer
	passive *conn.Stmt
	restart *conn.Stmt
	one     sync.Mutex // one checkpoint at a time; held before Store.w
	pages   int64      // written since the last checkpoint, about; guarded by Store.w
	limit   int64      // longWAL in pages; tests lower it
	long    int64      // pages in the log at which it must restart; guarded by one
}

func (s *Store) startUpkeep(opt Options, texts *catalog.Texts) (err error) {
	u := &s.up
	if u.db, err = conn.Open(s.dsn(opt, "wal_autocheckpoint(0)", synchronous(), patience, "cache_size(-16)")); err != nil {
		return err
	}
	if u.passive, err = u.db.Prepare(texts.Text("checkpoint")); err != nil {
		return err
	}
	if u.restart, err = u.db.Prepare(s.t.restartLog); err != nil {
		return err
	}
	u.limit = longWAL / pageSize
	u.long = u.limit
	u.wake, u.quit, u.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go s.upkeep()
	return nil
}

// stopUpkeep stops the work beside commits. Its connection stays open for Close.
func (s *Store) stopUpkeep() {
	u := &s.up
	u.stop.Do(func() {
		if u.done != nil {
			close(u.quit)
			<-u.done
		}
	})
}

// nudge is called after every commit, with w held. It estimates how many pages the
// commit has written to the log: a journal row has its own pages, and several of the
// small rows beside it share one, in the table and in its indexes.
func (s *Store) nudge(rows []newRow) {
	pages := s.c.bytes/pageSize + s.c.rows/2
	for _, r := range rows {
		pages += r.size/pageSize + 2
	}
	s.countPages(pages)
}

// countPages counts pages that were written to the log, with w held. Every write
// counts, because deleting many runs may be all that happens.
func (s *Store) countPages(pages int64) {
	s.up.pages += pages
	if s.up.pages >= checkpointPages || len(s.x.dead) > trimRows || s.x.deadBytes > maxDead || s.x.endedCount >= flushAfter {
		select {
		case s.up.wake <- struct{}{}:
		default:
		}
	}
}

func (s *Store) upkeep() {
	defer close(s.up.done)
	for {
		select {
		case <-s.up.quit:
			return
		case <-s.up.wake:
		}
		for _, work := range []func() bool{s.flushSome, s.trim} {
			for more := true; more; {
				select {
				case <-s.up.quit:
					return
				default:
				}
				more = work()
			}
		}
		s.checkpoint()
	}
}

// flushSome writes the rows of some deferred runs that have ended, and reports whether there
// are more to fill a transaction.
func (s *Store) flushSome() bool {
	s.w.Lock()
	defer s.w.Unlock()
	if s.closed.Load() || s.failed != nil || s.x.endedCount < flushRows {
		return false
	}
	err := s.flush(&s.x.endedRuns) // after a full disk they stay until the next try
	return err == nil && len(s.x.endedRuns) > 0
}

// trim deletes some dead rows and reports whether there are more.
func (s *Store) trim() bool {
	s.w.Lock()
	defer s.w.Unlock()
	if s.closed.Load() || s.failed != nil || len(s.x.dead) == 0 {
		return false
	}
	spans, ids := s.x.trimmable(4*trimRows, trimBytes)
	err := func() error {
		if err := failpoint.Hit(failpoint.TrimBefore); err != nil {
			return err
		}
		if _, err := s.st.begin.Exec(); err != nil {
			return err
		}
		for _, sp := range spans {
			if _, err := s.st.deleteRows.Exec(sp.from, sp.to); err != nil {
				return err
			}
		}
		if err := failpoint.Hit(failpoint.TrimMiddle); err != nil {
			return err
		}
		_, err := s.st.commit.Exec()
		return err
	}()
	if err != nil {
		_, _ = s.st.rollback.Exec()
		_ = s.fail(err) // after a full disk the rows stay until the next try
		return false
	}
	s.x.Lock()
	s.x.trimmed(ids)
	s.x.Unlock()
	s.up.pages += int64(len(ids)/8 + 4)
	return len(s.x.dead) > 0
}

// checkpoint copies the log into the database in the background, several times while
// much is added meanwhile, and then copies the rest on the writer's connection. Without
// that last step the log would never restart from its beginning under continuous
// writes: it would grow, and a growing log doubles the time of every commit.
func (s *Store) checkpoint() {
	s.up.one.Lock()
	defer s.up.one.Unlock()
	taken, few := int64(0), int64(checkpointPages-1)
	for range maxPasses {
		s.w.Lock()
		pages := s.up.pages
		due := pages > few && s.failed == nil && !s.closed.Load()
		if due {
			s.up.pages = 0
		}
		s.w.Unlock()
		if !due {
			break
		}
		err := failpoint.Hit(failpoint.CheckpointFirst)
		if err == nil {
			_, _, err = runCheckpoint(s.up.passive)
		}
		if err == nil {
			err = failpoint.Hit(failpoint.CheckpointHalf)
		}
		taken += pages
		if err != nil {
			s.checkpointFailed(err, taken)
			return
		}
		few = fewPages
	}
	if taken == 0 {
		return
	}
	s.w.Lock()
	defer s.w.Unlock()
	if s.failed != nil || s.closed.Load() {
		return
	}
	s.up.pages = 0
	_, log, err := runCheckpoint(s.st.checkpoint)
	if err == nil && log > s.up.long {
		var busy bool
		if busy, log, err = runCheckpoint(s.up.restart); busy {
			s.up.long = log + s.up.limit/2
		} else {
			s.up.long = s.up.limit
		}
	}
	if err == nil {
		err = failpoint.Hit(failpoint.CheckpointLast)
	}
	if err != nil {
		_ = s.fail(err)
	}
}

// checkpointFailed stops the store after a failed sync, because what a commit wrote may
// be gone from the page cache without having reached the disk. After a full disk the
// pages are still to be copied.
func (s *Store) checkpointFailed(err error, pages int64) {
	s.w.Lock()
	defer s.w.Unlock()
	s.up.pages += pages
	_ = s.fail(err)
}

// runCheckpoint also returns whether another connection was in its way, and the number
// of pages in the log. The next checkpoint copies what this one has not.
func runCheckpoint(st *conn.Stmt) (busy bool, log int64, err error) {
	var v [3]driver.Value // busy, pages in the log, pages copied
	_, err = st.Row(v[:])
	is, _ := v[0].(int64)
	log, _ = v[1].(int64)
	return is != 0, log, err
}

// examineLog refuses a store whose log has lost acknowledged commits.
func (s *Store) examineLog() error {
	st, err := wal.Read(s.path)
	if err != nil {
		return directory.Fault(err, s.path+"-wal")
	}
	if st.Damage != "" {
		return st.Refusal(s.path)
	}
	s.examined, s.unfinished = true, st.Unfinished
	return nil
}

// Unfinished returns how many pages were dropped from the log when the store was
// opened, because they belong to a commit that was never acknowledged, as after a power
// cut.
func (s *Store) Unfinished() int { return s.unfinished }

// emptyLog copies the log into the database. It reports whether all of it is copied and
// synced and no connection reads the log; only then may closing clear it. While another
// process reads the log, it cannot restart, and the next store appends to it; an empty
// header would hide that. The caller holds w.
func (s *Store) emptyLog() bool {
	if !s.examined || s.failed != nil || s.up.restart == nil {
		return false
	}
	busy, _, err := runCheckpoint(s.up.restart)
	return err == nil && !busy
}
