// SPDX-License-Identifier: Apache-2.0

// Package sqlite keeps runs in one SQLite file.
//
// It decides how a commit is written: one journal row per group commit, one sync, one
// writer, with chunks and snapshots so that journal rows can be deleted. It decides
// what can still be read when bytes are damaged, and after which failures of the disk
// the store stops acknowledging for good. Package format encodes the bytes.
//
// It never interprets an event, never repeats a failed sync and never returns part of a
// run as the whole.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/changes"
	"github.com/roux-engine/roux/internal/store/sqlite/check"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
	"github.com/roux-engine/roux/internal/store/sqlite/marks"
	"github.com/roux-engine/roux/internal/store/sqlite/records"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// warmWAL is the length of the write-ahead log from opening on. Commits to a growing
// log allocate blocks and write metadata, which doubles the time of a sync.
const warmWAL = 16 << 20

// Options configure a store.
type Options struct {
	// Dir is the data directory, which is created when absent. The store keeps roux.db
	// (with SQLite's files beside it) and lock there. Required.
	Dir string
	// Readers is the number of connections for reading. Default 4.
	Readers int

	vfs  string // a failing disk, in tests
	cold bool   // do not warm the log; for tests that open thousands of stores
}

// A Store is an open data directory. Only one process at a time has it open.
type Store struct {
	path       string
	lock       *os.File
	x          sharedIndex
	read       *sql.DB
	q          queries
	t          rareTexts
	packs      packCache
	checkTexts *check.Texts
	plans      map[string]struct{}       // hashes known to be stored
	accounts   map[string]*cachedAccount // guarded by w
	feed       *changes.Feed
	records    *records.Table
	marks      *marks.Marks

	w       sync.Mutex // serialises all writes; held before x
	db      *conn.Writer
	st      statements
	c       commit
	epoch   uint64
	failed  error // set by a failed write or sync; never cleared
	cleaned int64 // number of the first journal row when the marks of deleted runs were last removed
	closed  atomic.Bool
	scanned atomic.Bool // the index of runs has been built

	removing  sync.Mutex // one Delete at a time; held before w
	snapshots sync.Mutex // one Snapshot at a time; held before w
	snapshot  *conn.Copy // under way; guarded by w
	whole     bool       // every run that was marked as deleted is removed entirely; guarded by removing

	up upkeep

	examined   bool // the log was read before SQLite opened it; it must be closed cleanly
	unfinished int
}

type sharedIndex struct {
	sync.RWMutex // for readers; the writer locks it to change the index
	index
}

var _ store.Store = (*Store)(nil)

// Open opens or creates the store in a directory and locks it for this process.
// fault.StoreLocked names the process that holds the lock, fault.StoreReadOnly the path
// that cannot be written. fault.StoreNewer means that a newer release wrote the store.
func Open(ctx context.Context, opt Options) (*Store, error) {
	dir, err := filepath.Abs(opt.Dir)
	if err != nil || opt.Dir == "" {
		return nil, fault.New(fault.Usage, "data directory %q: want a path", opt.Dir)
	}
	if err := datadir.Check(dir); err != nil { // before anything is made in it
		return nil, directory.Fault(err, dir)
	}
	if err := makeDir(dir); err != nil {
		return nil, directory.Fault(err, dir)
	}
	s, err := openDir(ctx, dir, opt)
	if errors.Is(err, fault.StoreFull) && directory.SpendReserve(dir) {
		s, err = openDir(ctx, dir, opt)
	}
	if err == nil && !opt.cold && opt.vfs == "" {
		directory.KeepReserve(dir)
	}
	return s, err
}

// openDir opens the store in an existing directory.
func openDir(ctx context.Context, dir string, opt Options) (*Store, error) {
	lock, err := directory.Lock(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{path: filepath.Join(dir, datadir.Database), lock: lock, plans: map[string]struct{}{}, accounts: map[string]*cachedAccount{}}
	s.x.init()
	s.c.fresh, s.c.starts.last = map[store.Key]*entry{}, map[string]string{}
	err = datadir.Secure(dir)
	if err == nil && opt.vfs == "" {
		err = s.examineLog()
	}
	if err == nil {
		err = failpoint.Hit(failpoint.StoreOpened)
	}
	if err == nil {
		err = s.open(ctx, opt)
	}
	if err != nil {
		_, err = s.explain(err)
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// makeDir creates a directory and its parents and makes their names durable. An
// existing one is synced too, because a process may have created it and died before its
// sync. SQLite syncs the names in the directory.
func makeDir(dir string) error {
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(parent); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return datadir.Sync(parent)
}

func (s *Store) open(ctx context.Context, opt Options) error {
	// SQLite would open a read-only file without an error and fail at the first commit. It also
	// gives its other files the mode of this one, which must be 0600 under every umask,
	// so the file is created here. This must happen before SQLite opens it, because
	// closing any descriptor of a file releases all locks of the process on it.
	flag := os.O_RDWR
	if opt.vfs == "" {
		flag |= os.O_CREATE
	}
	f, err := datadir.Open(s.path, flag)
	switch {
	case err == nil:
		_ = f.Close()
	case !errors.Is(err, os.ErrNotExist):
		return directory.Fault(err, s.path)
	}
	texts, err := catalog.Load(sqlFiles)
	if err != nil {
		return err
	}
	if err := s.t.load(texts); err != nil {
		return err
	}
	s.checkTexts = check.NewTexts(texts)
	if err := s.migrate(ctx, opt); err != nil {
		return err
	}
	if !opt.cold {
		if err := wal.Warm(s.path+"-wal", warmWAL); err != nil {
			return err
		}
	}
	if s.db, err = conn.Open(s.dsn(opt, writerPragmas, synchronous())); err != nil {
		return err
	}
	if err := s.st.prepare(s.db, texts, &s.c.starts); err != nil {
		return err
	}
	if s.read, err = sql.Open("sqlite", s.dsn(opt, "query_only(1)", "busy_timeout(5000)", readerCache)); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(cmp.Or(opt.Readers, 4))
	s.read.SetMaxIdleConns(cmp.Or(opt.Readers, 4))
	if err := s.q.prepare(ctx, s.read, texts); err != nil {
		return err
	}
	if s.feed, err = changes.Open(texts, s.db, s.read); err != nil {
		return err
	}
	if s.marks, err = marks.Open(texts, s.db, s.read); err != nil {
		return err
	}
	if s.records, err = records.Open(ctx, texts, s.db, s.read); err != nil {
		return err
	}
	if err := s.read.QueryRowContext(ctx, s.t.epoch).Scan(&s.epoch); err != nil {
		return err
	}
	if err := s.read.QueryRowContext(ctx, s.t.nextPack).Scan(&s.c.packing.next); err != nil {
		return err
	}
	return s.startUpkeep(opt, texts)
}

// writerPragmas are the pragmas of the writing connection. A cache of 64 pages is as
// fast as one of 4,000, because the system caches the rest. A page takes twice its size
// in SQLite's memory. A commit with more pages keeps them in memory until it ends:
// writing them to the log early and reading them back cost 8 % of a steady load.
//
// The size limit is longWAL: a log that a reader in another process has made longer is
// cut to this length when it restarts. Close removes the limit, because closing with a
// limit deletes the log.
const writerPragmas = "journal_mode(WAL) wal_autocheckpoint(0) busy_timeout(5000) temp_store(MEMORY) cache_size(-256) cache_spill(0) journal_size_limit(67108864)"

// readerCache bounds the cache of a reader, and of the connection for checkpoints,
// which needs no cache. This build of SQLite has one cache bound for all connections, the
// sum of theirs, so the writer fills what the readers leave unused. With the default
// bounds, 512 KiB for each reader and 2 MiB for the connection for checkpoints, the
// process grew for hours.
const readerCache = "cache_size(-128)"

// synchronous is the pragma that makes an acknowledged commit durable.
func synchronous() string {
	if mutation.Fsync {
		return "synchronous(OFF)"
	}
	return "synchronous(FULL)"
}

// dsn returns the file as a URI, because a path may contain any character.
func (s *Store) dsn(opt Options, pragmas ...string) string {
	dsn := dsnOf(s.path, pragmas...)
	if opt.vfs != "" {
		dsn += "&vfs=" + url.QueryEscape(opt.vfs)
	}
	return dsn
}

func dsnOf(path string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive letter
	}
	q := url.Values{}
	for _, p := range strings.Fields(strings.Join(pragmas, " ")) {
		q.Add("_pragma", p)
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// writable returns an error if the store cannot write any more. The caller holds w.
func (s *Store) writable() error {
	if s.closed.Load() {
		return errClosed
	}
	if s.failed != nil {
		return s.failed
	}
	return s.scan()
}

// lockToWrite locks w for a write, which the caller unlocks. On an error nothing is
// locked.
func (s *Store) lockToWrite(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.w.Lock()
	if err := s.writable(); err != nil {
		s.w.Unlock()
		return err
	}
	return nil
}

var errClosed = fault.New(fault.StoreFailed, "the store is closed")

// Close implements store.Store.
func (s *Store) Close() error {
	s.stopUpkeep()
	errs := []error{s.flushLast()}
	s.w.Lock()
	defer s.w.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	if s.records != nil {
		errs = append(errs, s.records.Close())
	}
	errs = append(errs, s.endSnapshot())
	if s.read != nil {
		errs = append(errs, s.q.close(), s.read.Close())
	}
	whole := s.emptyLog()
	// The connection that closes last checkpoints, which must not follow a failed sync (I21):
	// then this one stays open until the process ends.
	if s.up.db != nil && s.failed == nil {
		_ = s.up.db.Close() // the writer's close reports what matters
	}
	if s.db != nil { // closed last, because the connection that closes last checkpoints and keeps the log
		_, err := s.db.Prepare(s.t.keepLog)
		errs = append(errs, err)
		if err = s.db.Close(); err == nil && whole {
			if err = wal.Clear(s.path); err != nil {
				err = directory.Fault(err, s.path+"-wal")
			}
		}
		errs = append(errs, err)
	}
	errs = append(errs, directory.Unlock(s.lock))
	return errors.Join(errs...)
}

// Stats implements store.Store. Syncs counts those of commits. Checkpoints make more of
// them in the background.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	if err := s.ready(ctx); err != nil {
		return store.Stats{}, err
	}
	records, err := s.records.Count(ctx)
	if _, err = s.explain(err); err != nil {
		return store.Stats{}, err
	}
	s.x.RLock()
	defer s.x.RUnlock()
	return store.Stats{
		JournalRows: s.x.rowCount, JournalBytes: s.x.rowBytes,
		Syncs: s.x.commits, Commits: s.x.commits, Transitions: s.x.transitions, Records: records,
	}, nil
}

// Uncompacted implements store.Store.
func (s *Store) Uncompacted() (size, events int64, oldest []store.Key) {
	if s.ready(context.Background()) != nil {
		return 0, 0, nil // the next call reports the failure
	}
	s.x.Lock() // oldest may drop stale entries of the queue of uncompacted runs
	defer s.x.Unlock()
	return s.x.uncoveredBytes, s.x.uncoveredEvents, s.x.oldest(1000)
}

func (s *Store) explain(err error) (fatal bool, _ error) { return conn.Explain(s.path, err) }

// fail returns the error of a failed write. A fatal one also fails every later write.
// The caller holds s.w.
func (s *Store) fail(err error) error {
	fatal, err := s.explain(err)
	if fatal && s.failed == nil {
		s.failed = fault.Wrap(fault.StoreFailed, err, "an earlier write to %s failed, so nothing more is acknowledged: check the disk, then start again", s.path)
	}
	return err
}
