// SPDX-License-Identifier: Apache-2.0

// Package retention decides which runs, idempotency keys, records and files are no longer kept,
// and removes them.
//
// A run is removed some time after it has settled, with all runs below it, a change of an
// account after the same time, a file some time after the last run that names it has
// settled, an upload that no run names some time after its last use, and a record at the time
// that it says itself. Runs are removed before files: a crash in
// between leaves files that no run names, which the next pass finds, and never a run that
// names a missing file. The package also finds the files that a transition names, so
// that the store can record them, and renews those that a request names. It never
// removes a file that a stored run names, nor anything younger than its policy allows.
package retention

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
)

// A Policy says how long things are kept. Zero fields take the default; a negative
// field keeps them for ever.
type Policy struct {
	Runs    time.Duration // after a run has settled. Default 7 days
	Files   time.Duration // after the last run that names a file has settled. Default 7 days
	Uploads time.Duration // after the last use of a file that no run names. Default 24 h
	// Accounts are those that have times of their own. Default: none has.
	Accounts Accounts
}

// Accounts know how long what belongs to an account is kept. Their policies have no zero
// fields.
type Accounts interface {
	Retention(account string) Policy
	// Shortest returns the shortest times of all accounts: nothing that is younger is removed.
	Shortest() Policy
}

// of returns what applies to an account.
func (p *Policy) of(account string) Policy {
	if p.Accounts == nil {
		return *p
	}
	own := p.Accounts.Retention(account)
	own.SetDefaults()
	return own
}

// shortest returns the shortest times of all accounts.
func (p *Policy) shortest() Policy {
	if p.Accounts == nil {
		return *p
	}
	least := p.Accounts.Shortest()
	least.SetDefaults()
	return least
}

// The defaults, and the minimum for uploads: within it an action must return the file
// that it has put, and a run that uses an uploaded file must be started.
const (
	DefaultRuns    = 7 * 24 * time.Hour
	DefaultFiles   = 7 * 24 * time.Hour
	DefaultUploads = 24 * time.Hour
	MinUploads     = time.Hour
)

// SetDefaults replaces zero fields with the defaults and raises values that are too
// short.
func (p *Policy) SetDefaults() {
	set := func(d *time.Duration, standard, least time.Duration) {
		switch {
		case *d == 0:
			*d = standard
		case *d > 0:
			*d = max(*d, least)
		}
	}
	set(&p.Runs, DefaultRuns, time.Second)
	set(&p.Files, DefaultFiles, time.Second)
	set(&p.Uploads, DefaultUploads, MinUploads)
}

const (
	// Note is the name of the store's note that holds the progress of a cycle.
	Note = "sweep" // stored, so it keeps its first name
	// Pause is the time between two steps of a cycle.
	Pause = 10 * time.Second

	cycleInterval = time.Hour // between the starts of two cycles
	// RunsStep is how many runs one step looks at.
	RunsStep = 200
	// keptPages is how many further pages of runs one step looks at, as long as it removes
	// none of them: those of accounts that keep them for longer.
	keptPages = 50

	keysStep, recordsStep, filesStep, changesStep = 1_000, 200, 1_000, 1_000
	// maxListed bounds the lists of what was removed.
	maxListed = 1_000
)

// Removed is what was removed, or what a dry run would remove.
type Removed struct {
	Runs int `json:"runs"` // those below them are not counted
	Keys int `json:"idempotencyKeys"`
	// Records are those of the service that have ended, such as kept answers.
	Records int   `json:"records"`
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`
	// RunIDs and Hashes are the first 1,000 of each.
	RunIDs []string `json:"runIds"`
	Hashes []string `json:"fileHashes"`
}

// A state is the progress of a cycle. It is stored as a note.
type state struct {
	Began int64      `json:"began"`           // start of the last cycle, UTC µs
	Run   store.Wake `json:"run,omitzero"`    // the last run that was checked
	Runs  bool       `json:"runs,omitempty"`  // all runs of the cycle were checked
	Feed  string     `json:"feed,omitempty"`  // the account whose old changes go next
	Files string     `json:"files,omitempty"` // see blob.Store.Walk
	Busy  bool       `json:"busy,omitempty"`  // the cycle has more to do
}

// A Cleaner removes what is no longer kept. Set its fields before the first use.
type Cleaner struct {
	Store interface {
		store.Retention
		store.Notes
		ForgetRecords(ctx context.Context, epoch uint64, before int64, limit int) (int, error)
		List(ctx context.Context, q store.Query) ([]store.Head, error)
	}
	Blobs  *blob.Store // nil: no files
	Policy Policy
	Epoch  uint64       // the epoch of its changes to the store
	Now    func() int64 // the engine's time, UTC µs
	Wall   func() time.Time
	Logger *slog.Logger
	// Deleted is called with an account after runs of it were removed. Default: not called
	Deleted func(account string)

	cleaning sync.Mutex
	copying  sync.RWMutex // read-held while files are removed, held by KeepFiles; before removal
	removal  sync.RWMutex // read-held from the touch of a file to the commit that names it
}

// Run removes what is no longer kept, one step at a time, until ctx ends. A process
// that ends during a cycle leaves the rest to the next one.
func (c *Cleaner) Run(ctx context.Context) {
	var st state
	if raw, err := c.Store.Note(ctx, Note); err != nil || raw != nil && json.Unmarshal(raw, &st) != nil {
		st = state{}
	}
	for {
		wait := time.Duration(st.Began-c.Now())*time.Microsecond + cycleInterval
		if wait = min(wait, cycleInterval); st.Busy {
			wait = Pause
		}
		if !sleep(ctx, wait) {
			return
		}
		if err := c.step(ctx, &st); err != nil {
			if ctx.Err() != nil || errors.Is(err, fault.StaleEpoch) {
				return
			}
			c.Logger.Warn("old runs and files could not be removed; trying again in an hour", "err", err)
			st = state{Began: c.Now()}
		}
	}
}

// sleep waits for d and reports whether ctx is still valid.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// step does one step of a cycle and stores the progress.
func (c *Cleaner) step(ctx context.Context, st *state) error {
	c.cleaning.Lock()
	defer c.cleaning.Unlock()
	if !st.Busy {
		*st = state{Began: c.Now()}
	}
	if st.Runs { // it goes on with files
		if !c.copying.TryRLock() {
			return nil
		}
		defer c.copying.RUnlock()
	}
	s := pass{c: c, now: c.Now()}
	err := s.step(ctx, st)
	if s.removed.Runs+s.removed.Files > 0 {
		c.Logger.Info("removed what is no longer kept", "runs", s.removed.Runs, "files", s.removed.Files, "bytes", s.removed.Bytes)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return c.Store.SetNote(ctx, c.Epoch, Note, raw)
}

// Clean removes everything that is no longer kept and returns what it removed. If dry
// is true it removes nothing and returns what it would remove.
func (c *Cleaner) Clean(ctx context.Context, dry bool) (Removed, error) {
	c.cleaning.Lock()
	defer c.cleaning.Unlock()
	if err := failpoint.Hit(failpoint.SweepBefore); err != nil {
		return Removed{}, err
	}
	if !dry {
		if !c.copying.TryRLock() {
			return Removed{}, errCopying()
		}
		defer c.copying.RUnlock()
	}
	s := pass{c: c, now: c.Now(), dry: dry, wouldRemove: map[store.Key]int64{}}
	st := state{Began: s.now}
	for {
		if err := s.step(ctx, &st); err != nil {
			return s.removed, err
		}
		if !st.Busy {
			return s.removed, failpoint.Hit(failpoint.SweepAfter)
		}
	}
}

// A pass checks what is kept and removes the rest.
type pass struct {
	c           *Cleaner
	now         int64 // UTC µs
	dry         bool
	wouldRemove map[store.Key]int64 // dry: the runs that would be removed, and when they ended
	removed     Removed
}

// step does a bounded part of a cycle. Runs come before files, so that a stored run
// never names a file that has been removed.
func (s *pass) step(ctx context.Context, st *state) error {
	st.Busy = true
	if !st.Runs {
		return s.runs(ctx, st)
	}
	next, err := s.files(ctx, st.Files)
	st.Files, st.Busy = next, next != ""
	return err
}

func (s *pass) runs(ctx context.Context, st *state) error {
	keep := s.c.Policy.shortest().Runs
	if keep < 0 {
		return s.keys(ctx, st)
	}
	for range keptPages {
		page, err := s.c.Store.Ended(ctx, s.now-keep.Microseconds(), st.Run, RunsStep)
		if err != nil {
			return err
		}
		ended := slices.DeleteFunc(slices.Clone(page), func(w store.Wake) bool { return s.keeps(&w) })
		if s.dry {
			for _, w := range ended {
				s.wouldRemove[w.Key] = w.At
				s.addRun(w.Key)
				if err := s.addTree(ctx, w.Key); err != nil {
					return err
				}
			}
		} else if len(ended) > 0 {
			if err := s.delete(ctx, ended); err != nil {
				return err
			}
		}
		if len(page) > 0 {
			st.Run = page[len(page)-1]
		}
		switch {
		case len(page) < RunsStep:
			return s.keys(ctx, st)
		case len(ended) > 0:
			return nil
		}
	}
	return nil
}

// keeps reports whether the account of a run that has ended keeps it for longer than others.
func (s *pass) keeps(w *store.Wake) bool {
	keep := s.c.Policy.of(w.Account).Runs
	return keep < 0 || w.At > s.now-keep.Microseconds()
}

// addTree notes the runs below a root that a dry run would remove.
func (s *pass) addTree(ctx context.Context, root store.Key) error {
	q := store.Query{Account: root.Account, Root: root.Run, Limit: 500}
	for {
		heads, err := s.c.Store.List(ctx, q)
		if errors.Is(err, fault.RunNotFound) {
			return nil // it was deleted meanwhile
		}
		if err != nil {
			return err
		}
		for i := range heads {
			s.wouldRemove[heads[i].Key] = heads[i].Ended
		}
		if len(heads) < q.Limit {
			return nil
		}
		q.After = heads[len(heads)-1].Run
	}
}

func (s *pass) delete(ctx context.Context, ended []store.Wake) error {
	keys := make([]store.Key, len(ended))
	for i, w := range ended {
		keys[i] = w.Key
	}
	verdicts, err := s.c.Store.Delete(ctx, s.c.Epoch, s.now, keys)
	defer s.announce(keys, verdicts)
	for i, v := range verdicts {
		switch {
		case v.Err == nil:
			s.addRun(keys[i])
		case errors.Is(v.Err, fault.StaleEpoch):
			return v.Err
		case !errors.Is(v.Err, fault.RunNotFound):
			s.c.Logger.Debug("a run could not be removed", "run", keys[i].Run, "err", v.Err)
		}
	}
	return err
}

// announce calls Deleted once for each account of which runs were removed.
func (s *pass) announce(keys []store.Key, verdicts []store.Verdict) {
	announced := map[string]bool{}
	for i, v := range verdicts {
		if account := keys[i].Account; v.Err == nil && s.c.Deleted != nil && !announced[account] {
			announced[account] = true
			s.c.Deleted(account)
		}
	}
}

func (s *pass) addRun(key store.Key) {
	if s.removed.Runs++; len(s.removed.RunIDs) < maxListed {
		s.removed.RunIDs = append(s.removed.RunIDs, key.Run)
	}
}

// keys forgets idempotency keys, then records. After the last of them the cycle continues
// with changes.
func (s *pass) keys(ctx context.Context, st *state) error {
	n := 0
	if !s.dry {
		var err error
		if n, err = s.c.Store.ForgetKeys(ctx, s.c.Epoch, s.now, keysStep); err != nil {
			return err
		}
	}
	s.removed.Keys += n
	if n == keysStep {
		return nil
	}
	if n = 0; !s.dry {
		var err error
		if n, err = s.c.Store.ForgetRecords(ctx, s.c.Epoch, s.now, recordsStep); err != nil {
			return err
		}
	}
	s.removed.Records += n
	if n == recordsStep {
		return nil
	}
	return s.changes(ctx, st)
}

// changes removes changes of accounts that are older than any run that is kept after its
// end. After the last of them all that concerns runs is done.
func (s *pass) changes(ctx context.Context, st *state) error {
	// The feeds of all accounts go back as far as the policy of the server says.
	if keep := s.c.Policy.Runs; !s.dry && keep >= 0 {
		next, err := s.c.Store.ForgetChanges(ctx, s.c.Epoch, s.now-keep.Microseconds(), st.Feed, changesStep)
		if err != nil {
			return err
		}
		st.Feed = next
	}
	st.Runs = st.Feed == ""
	return nil
}

// files checks the next files and removes those that are no longer kept.
func (s *pass) files(ctx context.Context, from string) (next string, err error) {
	least := s.c.Policy.shortest().Uploads
	if s.c.Blobs == nil || least < 0 {
		return "", nil
	}
	// Files carry times of the wall clock, which may be behind the engine's (I10).
	now := time.UnixMicro(min(s.now, s.c.Wall().UnixMicro()))
	return s.c.Blobs.Walk(ctx, from, filesStep, func(f blob.Entry) error {
		keep := s.c.Policy.of(f.Account)
		notAfter := now.Add(-keep.Uploads)
		if keep.Uploads < 0 || f.Stored.After(notAfter) {
			return nil
		}
		referenced, err := s.referenced(ctx, f, keep.Files)
		if err != nil || referenced {
			return err
		}
		if !s.dry {
			removed, err := s.c.Blobs.Remove(ctx, f.Account, f.Info.Hash, notAfter)
			if err != nil && !errors.Is(err, fault.FileNotFound) {
				// A file that cannot be removed, for example because it is open on
				// Windows, must not stop the removal of others.
				s.c.Logger.Debug("a file could not be removed", "file", f.Info.Hash, "err", err)
				return nil
			}
			if !removed {
				return nil
			}
			if err := failpoint.Hit(failpoint.SweepFile); err != nil {
				return err
			}
			if err := s.c.Store.ForgetFile(ctx, f.Account, f.Info.Hash); err != nil {
				return err
			}
		}
		s.removed.Bytes += f.Info.Size
		if s.removed.Files++; len(s.removed.Hashes) < maxListed {
			s.removed.Hashes = append(s.removed.Hashes, f.Info.Hash)
		}
		return nil
	})
}

// referenced reports whether a stored run names the file, or did until a short time
// ago.
func (s *pass) referenced(ctx context.Context, f blob.Entry, keep time.Duration) (bool, error) {
	refs, err := s.c.Store.References(ctx, f.Account, f.Info.Hash, 1+len(s.wouldRemove))
	if err != nil {
		return true, err
	}
	for _, run := range refs.Runs {
		ended, goes := s.wouldRemove[store.Key{Account: f.Account, Run: run}]
		if !goes {
			return true, nil
		}
		refs.Released = max(refs.Released, ended)
	}
	return refs.Released != 0 && (keep < 0 || refs.Released > s.now-keep.Microseconds()), nil
}

// KeepFiles calls fn, and no file is removed until fn returns: the sweep of a [Cleaner] waits,
// and requests to remove files are refused.
func (c *Cleaner) KeepFiles(fn func() error) error {
	c.copying.Lock()
	defer c.copying.Unlock()
	return fn()
}

func errCopying() error {
	return fault.New(fault.Conflict, "a backup is being made, and no file is removed until it is done: try again then")
}

// NamedBy returns at most limit runs that name a file.
func (c *Cleaner) NamedBy(ctx context.Context, account, hash string, limit int) ([]string, error) {
	refs, err := c.Store.References(ctx, account, hash, limit)
	return refs.Runs, err
}

// RemoveFile removes a file that no stored run names, whatever its age. If a run names
// it, the error is fault.Conflict and lists such runs.
func (c *Cleaner) RemoveFile(ctx context.Context, account, hash string) error {
	if !c.copying.TryRLock() {
		return errCopying()
	}
	defer c.copying.RUnlock()
	// First let requests finish that have touched the file and not yet committed the
	// transition that names it.
	c.removal.Lock()
	defer c.removal.Unlock()
	refs, err := c.Store.References(ctx, account, hash, 3)
	if err != nil {
		return err
	}
	if len(refs.Runs) > 0 {
		return fault.New(fault.Conflict, "file %s is named by %s: it goes with the last run that names it", hash, someRuns(refs.Runs))
	}
	removed, err := c.Blobs.Remove(ctx, account, hash, time.UnixMicro(c.Now()))
	if err == nil && !removed {
		err = fault.New(fault.Conflict, "file %s was stored again just now", hash)
	}
	if err != nil {
		return err
	}
	return c.Store.ForgetFile(ctx, account, hash)
}

func someRuns(runs []string) string {
	runs = slices.Clone(runs)
	switch len(runs) {
	case 1:
		return "run " + runs[0]
	case 2:
		return "runs " + runs[0] + " and " + runs[1]
	}
	return "runs " + runs[0] + ", " + runs[1] + " and others"
}
