// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
)

// Retention is how long things are kept. Zero fields take the default; less than
// zero keeps for ever.
type Retention struct {
	Runs    time.Duration // after a run has settled. Default 7 days
	Files   time.Duration // after the last run that names a file has settled. Default 7 days
	Uploads time.Duration // after the last use of a file that no run names. Default 24 h
}

// The defaults, and the least time for uploads: within it an action must have
// returned the file that it put, and a run begun that was given one.
const (
	DefaultRetainRuns    = 7 * 24 * time.Hour
	DefaultRetainFiles   = 7 * 24 * time.Hour
	DefaultRetainUploads = 24 * time.Hour
	MinRetainUploads     = time.Hour
)

func (r *Retention) defaults() {
	set := func(d *time.Duration, standard, least time.Duration) {
		switch {
		case *d == 0:
			*d = standard
		case *d > 0:
			*d = max(*d, least)
		}
	}
	set(&r.Runs, DefaultRetainRuns, time.Second)
	set(&r.Files, DefaultRetainFiles, time.Second)
	set(&r.Uploads, DefaultRetainUploads, MinRetainUploads)
}

const (
	sweepNote  = "sweep"
	sweepEvery = time.Hour
	// A cycle goes in steps of bounded work with a pause between them.
	sweepPause = 10 * time.Second
	sweepRuns  = 200
	sweepKeys  = 1_000
	sweepFiles = 1_000
	// maxSwept bounds the lists of what a sweep took.
	maxSwept = 1_000
)

// Swept says what a sweep took, or would take.
type Swept struct {
	Runs  int   `json:"runs"`
	Keys  int   `json:"idempotencyKeys"`
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// RunIDs and Hashes are the first 1,000 of each.
	RunIDs []string `json:"runIds"`
	Hashes []string `json:"fileHashes"`
}

// A retentionState is where a cycle stands. It is kept as a note of the store.
type retentionState struct {
	Began int64      `json:"began"`           // UTC µs of the last cycle
	Run   store.Wake `json:"run,omitzero"`    // the last one looked at
	Runs  bool       `json:"runs,omitempty"`  // all runs of the cycle were looked at
	Files string     `json:"files,omitempty"` // see blob.Store.Walk
	Busy  bool       `json:"busy,omitempty"`  // the cycle has more to do
}

// retentionLoop lets go of what is no longer kept, now and then. A process that
// lives shorter than that goes on where the one before it stopped.
func (e *Engine) retentionLoop() {
	var st retentionState
	if raw, err := e.cfg.Store.Note(e.ctx, sweepNote); err != nil || raw != nil && json.Unmarshal(raw, &st) != nil {
		st = retentionState{}
	}
	for {
		wait := time.Duration(st.Began-e.now())*time.Microsecond + sweepEvery
		if wait = min(wait, sweepEvery); st.Busy {
			wait = sweepPause
		}
		if !e.sleep(wait) {
			return
		}
		if err := e.retentionStep(&st); err != nil {
			if e.ctx.Err() != nil || errors.Is(err, fault.StaleEpoch) {
				return
			}
			e.cfg.Logger.Warn("old runs and files could not be removed; trying again in an hour", "err", err)
			st = retentionState{Began: e.now()}
		}
	}
}

func (e *Engine) sleep(d time.Duration) bool {
	if d <= 0 {
		return e.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.ctx.Done():
		return false
	}
}

// retentionStep does one step of a cycle and notes where it stands.
func (e *Engine) retentionStep(st *retentionState) error {
	e.retaining.Lock()
	defer e.retaining.Unlock()
	if !st.Busy {
		*st = retentionState{Began: e.now()}
	}
	s := retention{e: e, now: e.now()}
	err := s.step(e.ctx, st)
	if s.swept.Runs+s.swept.Files > 0 {
		e.cfg.Logger.Info("removed what is no longer kept", "runs", s.swept.Runs, "files", s.swept.Files, "bytes", s.swept.Bytes)
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return e.cfg.Store.SetNote(e.ctx, e.core.epoch, sweepNote, raw)
}

// Sweep lets go at once of everything that is no longer kept, and says what it
// was. dry only looks.
func (e *Engine) Sweep(ctx context.Context, dry bool) (Swept, error) {
	e.retaining.Lock()
	defer e.retaining.Unlock()
	if err := failpoint.Hit(failpoint.SweepBefore); err != nil {
		return Swept{}, err
	}
	s := retention{e: e, now: e.now(), dry: dry, would: map[store.Key]int64{}}
	st := retentionState{Began: s.now}
	for {
		if err := s.step(ctx, &st); err != nil {
			return s.swept, err
		}
		if !st.Busy {
			return s.swept, failpoint.Hit(failpoint.SweepAfter)
		}
	}
}

// A retention is one pass over what is kept.
type retention struct {
	e     *Engine
	now   int64 // UTC µs
	dry   bool
	would map[store.Key]int64 // dry: runs that would go, and when they ended
	swept Swept
}

// step does a bounded part of a cycle. Runs go before files: files that they
// named are nobody's then, while a run never names a file that is gone.
func (s *retention) step(ctx context.Context, st *retentionState) error {
	st.Busy = true
	if !st.Runs {
		return s.runs(ctx, st)
	}
	next, err := s.files(ctx, st.Files)
	st.Files, st.Busy = next, next != ""
	return err
}

func (s *retention) runs(ctx context.Context, st *retentionState) error {
	keep := s.e.cfg.Retention.Runs
	if keep < 0 {
		return s.keys(ctx, st)
	}
	ended, err := s.e.cfg.Store.Ended(ctx, s.now-keep.Microseconds(), st.Run, sweepRuns)
	if err != nil {
		return err
	}
	if s.dry {
		for _, w := range ended {
			s.would[w.Key] = w.At
			s.tookRun(w.Key)
		}
	} else if err := s.delete(ctx, ended); err != nil {
		return err
	}
	if len(ended) > 0 {
		st.Run = ended[len(ended)-1]
	}
	if len(ended) == sweepRuns {
		return nil
	}
	return s.keys(ctx, st)
}

func (s *retention) delete(ctx context.Context, ended []store.Wake) error {
	keys := make([]store.Key, len(ended))
	for i, w := range ended {
		keys[i] = w.Key
	}
	verdicts, err := s.e.cfg.Store.Delete(ctx, s.e.core.epoch, keys)
	for i, v := range verdicts {
		switch {
		case v.Err == nil:
			s.tookRun(keys[i])
		case errors.Is(v.Err, fault.StaleEpoch):
			return v.Err
		case !errors.Is(v.Err, fault.RunNotFound):
			s.e.cfg.Logger.Debug("a run could not be removed", "run", keys[i].Run, "err", v.Err)
		}
	}
	return err
}

func (s *retention) tookRun(key store.Key) {
	if s.swept.Runs++; len(s.swept.RunIDs) < maxSwept {
		s.swept.RunIDs = append(s.swept.RunIDs, key.Run)
	}
}

// keys forgets idempotency keys, and with the last of them the turn is the files'.
func (s *retention) keys(ctx context.Context, st *retentionState) error {
	n := 0
	if !s.dry {
		var err error
		if n, err = s.e.cfg.Store.ForgetKeys(ctx, s.e.core.epoch, s.now, sweepKeys); err != nil {
			return err
		}
	}
	s.swept.Keys += n
	st.Runs = n < sweepKeys
	return nil
}

// files looks at the next files and removes those that nobody wants.
func (s *retention) files(ctx context.Context, from string) (next string, err error) {
	if s.e.cfg.Blobs == nil || s.e.cfg.Retention.Uploads < 0 {
		return "", nil
	}
	// Files are stamped by the wall clock, which may be behind the engine's (I10).
	now := time.UnixMicro(min(s.now, s.e.cfg.Now().UnixMicro()))
	notAfter := now.Add(-s.e.cfg.Retention.Uploads)
	return s.e.cfg.Blobs.Walk(ctx, from, sweepFiles, func(f blob.Entry) error {
		if f.Stored.After(notAfter) {
			return nil
		}
		wanted, err := s.wanted(ctx, f)
		if err != nil || wanted {
			return err
		}
		if !s.dry {
			gone, err := s.e.cfg.Blobs.Remove(ctx, f.Account, f.Info.Hash, notAfter)
			if err != nil && !errors.Is(err, fault.FileNotFound) {
				// One that cannot be removed, as on Windows while it is open, must
				// not keep the others.
				s.e.cfg.Logger.Debug("a file could not be removed", "file", f.Info.Hash, "err", err)
				return nil
			}
			if !gone {
				return nil
			}
			if err := failpoint.Hit(failpoint.SweepFile); err != nil {
				return err
			}
			if err := s.e.cfg.Store.ForgetFile(ctx, f.Account, f.Info.Hash); err != nil {
				return err
			}
		}
		s.swept.Bytes += f.Info.Size
		if s.swept.Files++; len(s.swept.Hashes) < maxSwept {
			s.swept.Hashes = append(s.swept.Hashes, f.Info.Hash)
		}
		return nil
	})
}

// wanted says whether a stored run names the file, or one did not long ago.
func (s *retention) wanted(ctx context.Context, f blob.Entry) (bool, error) {
	n, err := s.e.cfg.Store.References(ctx, f.Account, f.Info.Hash, 1+len(s.would))
	if err != nil {
		return true, err
	}
	for _, run := range n.Runs {
		ended, would := s.would[store.Key{Account: f.Account, Run: run}]
		if !would {
			return true, nil
		}
		n.Released = max(n.Released, ended)
	}
	keep := s.e.cfg.Retention.Files
	return n.Released != 0 && (keep < 0 || n.Released > s.now-keep.Microseconds()), nil
}

// NamedBy returns runs that name a file, at most limit.
func (e *Engine) NamedBy(ctx context.Context, account, hash string, limit int) ([]string, error) {
	n, err := e.cfg.Store.References(ctx, account, hash, limit)
	return n.Runs, err
}

// RemoveFile removes a file that no stored run names, whatever its age.
// fault.Conflict names the runs that do.
func (e *Engine) RemoveFile(ctx context.Context, account, hash string) error {
	// Requests that have touched it and not named it yet are let through first.
	e.renewing.Lock()
	defer e.renewing.Unlock()
	n, err := e.cfg.Store.References(ctx, account, hash, 3)
	if err != nil {
		return err
	}
	if len(n.Runs) > 0 {
		return fault.New(fault.Conflict, "file %s is named by %s: it goes with the last run that names it", hash, someRuns(n.Runs))
	}
	gone, err := e.cfg.Blobs.Remove(ctx, account, hash, time.UnixMicro(e.now()))
	if err == nil && !gone {
		err = fault.New(fault.Conflict, "file %s was stored again just now", hash)
	}
	if err != nil {
		return err
	}
	return e.cfg.Store.ForgetFile(ctx, account, hash)
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
