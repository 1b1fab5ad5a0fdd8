// SPDX-License-Identifier: Apache-2.0

// Package memory keeps runs in memory and loses them the way disks do.
//
// It decides what survives a crash: everything that was synced, and as many whole
// batches of the rest as the test chooses. A torn batch fails its checksum and counts
// as absent, as in a write-ahead log. The store can be told to refuse a commit, to
// write it and lose the reply, or to fail its sync.
//
// It never starts a goroutine, reads a clock or uses randomness: the same calls return
// the same answers, so simulations replay from a seed.
package memory

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

// An Outcome is what happens to one commit.
type Outcome uint8

// The outcomes.
const (
	// OK writes, syncs and answers.
	OK Outcome = iota
	// Refused writes nothing and answers fault.StoreFull.
	Refused
	// ReplyLost writes and syncs, then returns an error (F16).
	ReplyLost
	// SyncFailed writes without syncing and returns fault.StoreFailed, as does every
	// later Commit of this Store (I21). What survived is known only after Crash.
	SyncFailed
)

// Options make a Store misbehave. With the zero value it does not.
type Options struct {
	// OnCommit decides the outcome of the nth Commit, counted from 1 over the life of
	// the disk. It is called before anything else, so a test can delay a commit by
	// blocking in it. It must not call the Store.
	OnCommit func(n int, batch []store.Transition) Outcome
}

// A Store is one opening of a disk in memory.
type Store struct {
	d      *disk
	failed error // every write fails with it
	closed error // every call fails with it
	stats  store.Stats
}

// A disk outlives the stores that open it.
type disk struct {
	mu      sync.Mutex
	opt     Options
	commits int
	synced  *model
	// written are batches that were written and not synced.
	written [][]store.Transition
}

// New returns an open, empty store.
func New(opt Options) *Store {
	return &Store{d: &disk{opt: opt, synced: newModel()}}
}

// Unsynced is the number of batches that were written and not synced.
func (s *Store) Unsynced() int {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	return len(s.d.written)
}

// Crash ends this opening without warning and opens the disk again. Of the
// batches that were not synced the first choice % (Unsynced()+1) survive.
func (s *Store) Crash(choice uint64) *Store {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	s.closed = fault.New(fault.StoreFailed, "the process that had opened this store has died")
	if mutation.Fsync {
		d.synced.rollback() // the last commit was answered and not synced
	}
	keep := int(choice % uint64(len(d.written)+1))
	for _, batch := range d.written[:keep] {
		for i := range batch {
			d.synced.apply(&batch[i])
		}
	}
	d.written = nil
	return &Store{d: d}
}

// Reopen closes this opening and opens the disk again.
func (s *Store) Reopen() *Store {
	_ = s.Close() // it cannot fail
	return s.Crash(0)
}

// Damage changes the stored bytes of one run so that they fail their checksum.
func (s *Store) Damage(key store.Key) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if r := s.d.synced.runs[key]; r != nil {
		r.damaged = true
	}
}

// enter locks the disk; the caller unlocks it.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		s.d.mu.Lock()
		return err
	}
	s.d.mu.Lock()
	return s.closed
}

func (s *Store) enterToWrite(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	return s.failed
}

// Owns implements store.Committer.
func (s *Store) Owns(ctx context.Context, epoch uint64) error {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return err
	}
	return store.Fenced(epoch, s.d.synced.epoch)
}

// Own implements store.Committer.
func (s *Store) Own(ctx context.Context) (uint64, error) {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	s.d.synced.epoch++
	s.stats.Syncs++
	return s.d.synced.epoch, nil
}

// Commit implements store.Store.
func (s *Store) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	err := s.enterToWrite(ctx)
	d := s.d
	defer d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	d.commits++
	outcome := OK
	if d.opt.OnCommit != nil {
		outcome = d.opt.OnCommit(d.commits, batch)
	}
	if outcome == Refused {
		return nil, fault.New(fault.StoreFull, "the disk is full: nothing of this commit was written")
	}

	if outcome == SyncFailed {
		d.write(batch)
		s.failed = fault.New(fault.StoreFailed, "an earlier sync failed, so nothing more is acknowledged: start again")
		return nil, fault.New(fault.StoreFailed, "the disk refused to sync")
	}
	if mutation.Fsync {
		d.synced.undo = []func(){} // the next crash takes this commit back
	}
	verdicts, accepted := d.synced.take(batch)
	s.stats.Commits++
	s.stats.Syncs++
	s.stats.Transitions += int64(len(accepted))
	if outcome == ReplyLost {
		return nil, fault.New(fault.ServiceUnavailable, "the commit's reply was lost: load its runs again")
	}
	return verdicts, nil
}

// Tear writes a batch like a process that dies before the sync: the commit is not
// acknowledged, and what survived is known only after Crash.
func (s *Store) Tear(batch []store.Transition) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.closed == nil && s.failed == nil {
		s.d.write(batch)
	}
}

// write writes without syncing: the batch stays invisible until a crash decides its
// fate.
func (d *disk) write(batch []store.Transition) {
	d.synced.undo = []func(){}
	_, accepted := d.synced.take(batch)
	d.synced.rollback()
	d.written = append(d.written, accepted)
}

// take applies the transitions whose guards hold. It returns all verdicts and the
// applied transitions.
func (m *model) take(batch []store.Transition) ([]store.Verdict, []store.Transition) {
	verdicts := make([]store.Verdict, len(batch))
	if !slices.ContainsFunc(batch, func(t store.Transition) bool { return t.Group != "" }) {
		accepted, _ := m.try(batch, verdicts)
		return verdicts, accepted
	}
	undo := m.undo
	for {
		m.undo = []func(){}
		accepted, again := m.try(batch, verdicts)
		if !again {
			if undo != nil {
				undo = append(undo, m.undo...)
			}
			m.undo = undo
			return verdicts, accepted
		}
		m.rollback()
	}
}

// try applies the transitions whose guards hold and whose groups have not been refused.
// again reports that a group was refused of which a part is applied.
func (m *model) try(batch []store.Transition, verdicts []store.Verdict) (accepted []store.Transition, again bool) {
	for i := range batch {
		if store.InRefusedGroup(&batch[i], &verdicts[i]) {
			continue
		}
		if verdicts[i] = m.guard(&batch[i]); verdicts[i].Err != nil {
			if batch[i].Group != "" && store.RefuseGroup(batch, verdicts, i) {
				return nil, true
			}
			continue
		}
		t := clone(&batch[i])
		m.apply(&t)
		accepted = append(accepted, t)
	}
	return accepted, false
}

// clone copies what the caller may overwrite after Commit.
func clone(t *store.Transition) store.Transition {
	c := *t
	c.Frames = bytes.Clone(t.Frames)
	c.Plans = slices.Clone(t.Plans)
	for i := range c.Plans {
		c.Plans[i].Data = bytes.Clone(c.Plans[i].Data)
	}
	c.Files = slices.Clone(t.Files)
	c.Entries = slices.Clone(t.Entries)
	c.Records = slices.Clone(t.Records)
	for i := range c.Records {
		c.Records[i].Data = bytes.Clone(c.Records[i].Data)
	}
	if t.Head != nil {
		h := *t.Head
		c.Head = &h
	}
	if t.Idempotency != nil {
		id := *t.Idempotency
		c.Idempotency = &id
	}
	if t.Compaction != nil {
		f := *t.Compaction
		f.Chunk = bytes.Clone(f.Chunk)
		f.State = bytes.Clone(f.State)
		c.Compaction = &f
	}
	if t.Suspension != nil {
		p := *t.Suspension
		c.Suspension = &p
	}
	return c
}

// SetNote implements store.Store.
func (s *Store) SetNote(ctx context.Context, epoch uint64, name string, value []byte) error {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := store.Fenced(epoch, s.d.synced.epoch); err != nil {
		return err
	}
	s.stats.Syncs++
	if value == nil {
		delete(s.d.synced.notes, name)
		return nil
	}
	s.d.synced.notes[name] = append([]byte{}, value...)
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.closed == nil {
		s.closed = fault.New(fault.StoreFailed, "the store is closed")
	}
	return nil
}
