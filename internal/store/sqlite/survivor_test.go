// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// programs caches the prepared plans of one test, because its images share a few plans.
type programs struct {
	mu sync.Mutex
	m  map[string]*machine.Program
}

func (ps *programs) load(ctx context.Context, s *Store, hash string) (*machine.Program, error) {
	data, err := s.Plan(ctx, hash)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", hash, err)
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if g := ps.m[hash]; g != nil {
		return g, nil
	}
	p, err := plan.Decode(data)
	if err != nil {
		return nil, err
	}
	ps.m[hash] = machine.Prepare(p)
	return ps.m[hash], nil
}

// survived returns an error unless a store that was opened after a power cut has
// everything in t and nothing else. Each fact in flight may be stored or not; survived
// adds those that are to t.
func survived(ctx context.Context, s *Store, t *truth, flying []*fact, ps *programs) error {
	if wrong, err := complaintsOf(ctx, s); err != nil || wrong != "" {
		return fmt.Errorf("the file is damaged: %s %w", wrong, err)
	}
	for _, f := range flying {
		is, err := f.landed(ctx, s, t)
		if err != nil {
			return fmt.Errorf("a commit in flight: %w", err)
		}
		if is {
			t.holds(f)
		}
	}
	if s.epoch < t.epoch {
		return fmt.Errorf("the epoch is %d, %d was given out", s.epoch, t.epoch)
	}
	for name, want := range t.notes {
		if v, err := s.Note(ctx, name); err != nil || !bytes.Equal(v, want) {
			return fmt.Errorf("note %s is %q, %w, want %q", name, v, err, want)
		}
	}
	for key, want := range t.runs {
		if err := want.same(ctx, s, key, ps); err != nil {
			return fmt.Errorf("run %s: %w", key.Run, err)
		}
	}
	if err := t.sameFeed(ctx, s); err != nil {
		return err
	}
	if err := t.sameRecords(ctx, s); err != nil {
		return err
	}
	heads, err := s.List(ctx, store.Query{Account: account, Limit: 500})
	if err != nil {
		return err
	}
	for _, h := range heads {
		if _, ok := t.runs[h.Key]; !ok {
			return fmt.Errorf("run %s is there and never was acknowledged or under way", h.Run)
		}
	}
	return nil
}

// sameFeed returns an error unless the newest change of each run is the expected one. What
// retention has removed may be missing.
func (t *truth) sameFeed(ctx context.Context, s *Store) error {
	_, expired, err := s.Newest(ctx, account)
	if err != nil {
		return err
	}
	newest := map[store.Key]store.Change{}
	for after := expired; ; {
		changes, err := s.Changes(ctx, account, after, 100)
		if err != nil {
			return err
		}
		for _, c := range changes {
			if after++; c.N != after {
				return fmt.Errorf("change %d comes as number %d", c.N, after)
			}
			c.N, c.At = 0, 0
			newest[store.Key{Account: account, Run: c.Run}] = c
		}
		if len(changes) == 0 {
			break
		}
	}
	for key, want := range t.feed {
		if got, is := newest[key]; got != want && (is || expired == 0) {
			return fmt.Errorf("the newest change of run %s is %+v, want %+v", key.Run, got, want)
		}
		delete(newest, key)
	}
	for key := range newest {
		return fmt.Errorf("run %s has changes and never was acknowledged or under way", key.Run)
	}
	return nil
}

func complaintsOf(ctx context.Context, s *Store) (string, error) {
	_, lines, err := s.Check(ctx)
	if len(lines) > 0 {
		return lines[0], err
	}
	return "", err
}

// same returns an error unless a run has the expected head, events, and state after
// these events.
func (k *known) same(ctx context.Context, s *Store, key store.Key, ps *programs) error {
	saved, err := s.Load(ctx, key)
	if err != nil {
		return err
	}
	if saved.Head != k.head {
		return fmt.Errorf("its head is %+v, want %+v", saved.Head, k.head)
	}
	if saved.Last != uint64(len(k.events)) {
		return fmt.Errorf("it has %d events, want %d", saved.Last, len(k.events))
	}
	if (saved.Suspension == nil) != (k.suspension == nil) || k.suspension != nil && *saved.Suspension != *k.suspension {
		return fmt.Errorf("it is suspended as %+v, want %+v", saved.Suspension, k.suspension)
	}
	g, err := ps.load(ctx, s, k.plan)
	if err != nil {
		return err
	}
	whole := machine.NewRun(g)
	var got []uint64
	for last := uint64(0); last < saved.Last; {
		page, err := s.Events(ctx, key, last, 8<<10)
		if err != nil {
			return err
		}
		some, err := sums(page.Frames, last)
		if err != nil {
			return err
		}
		got = append(got, some...)
		if err := journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq <= last {
				return nil
			}
			return whole.Apply(ev)
		}); err != nil {
			return err
		}
		if page.Next <= last {
			return fmt.Errorf("its events end at %d of %d", last, saved.Last)
		}
		last = page.Next
	}
	if !slices.Equal(got, k.events) {
		return errors.New("its events are not those that were acknowledged")
	}
	for _, hash := range k.files {
		n, err := s.References(ctx, key.Account, hash, 500)
		if err != nil || !slices.Contains(n.Runs, key.Run) {
			return fmt.Errorf("it no longer names file %s: %w", hash, err)
		}
	}
	return sameState(ctx, s, g, saved, whole)
}

// sameState returns an error unless a snapshot with the events after it gives the same
// state as all events.
func sameState(ctx context.Context, s *Store, g *machine.Program, saved *store.Saved, whole *machine.Run) error {
	short := machine.NewRun(g)
	if saved.State != nil && saved.Format == machine.SnapshotFormat {
		var err error
		if short, err = machine.Restore(g, saved.State); err != nil {
			return err
		}
	} else if saved.StateLast > 0 {
		return nil // a snapshot of another format is not used
	}
	if err := journal.EachEvent(saved.Tail, func(ev *journal.Event) error {
		if ev.Seq <= short.Last() {
			return nil
		}
		return short.Apply(ev)
	}); err != nil {
		return err
	}
	for _, seq := range short.Missing() {
		page, err := s.Events(ctx, saved.Head.Key, seq-1, 1)
		if err != nil {
			return err
		}
		if err := journal.EachEvent(page.Frames, func(ev *journal.Event) error {
			if ev.Seq == seq {
				return short.Supply(ev)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if !bytes.Equal(whole.Snapshot(nil), short.Snapshot(nil)) {
		return errors.New("its snapshot and the events after it come to another state than all its events")
	}
	return nil
}

// goesOn opens an engine on the surviving store and continues until every run has
// ended.
func goesOn(ctx context.Context, s *Store, t *truth, clock time.Time) error {
	now := newHands(clock)
	e, err := engine.Open(ctx, engine.Config{Store: s, Actions: shapes().actions, MaxLoaded: 8, Now: now.time})
	if err != nil {
		return err
	}
	defer func() {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = e.Stop(gone) // its context has ended, so Stop does not wait
	}()
	for at, id := range t.idem {
		key := at[len(account)+1:]
		again, err := e.Start(ctx, engine.StartRequest{Account: account, Plan: shapes().keyed, Recipe: "keyed", IdempotencyKey: key,
			Parameters: map[string]any{"n": int64(len(id.Key))}})
		if err != nil || !again.Existing || again.Run != t.of[at] {
			return fmt.Errorf("key %s starts run %+v, %w; it had started %s", key, again, err, t.of[at])
		}
	}
	for round := 0; ; round++ {
		heads, err := e.List(ctx, store.Query{Account: account, Limit: 500})
		if err != nil {
			return err
		}
		open := 0
		for i := range heads {
			h := &heads[i]
			switch {
			case h.Quarantine != "":
				return fmt.Errorf("run %s is quarantined: %s", h.Run, h.Quarantine)
			case h.Status == "expired":
				return fmt.Errorf("run %s ended by its time limit, not by its work", h.Run)
			case h.Ended != 0:
				continue
			}
			open++
			// A run that is not waiting for the signal yet keeps it for later, unless
			// the run ends first.
			if err := e.Signal(ctx, account, h.Run, "go", "on"); err != nil && fault.CodeOf(err) != fault.TooLate {
				return fmt.Errorf("signal run %s: %w", h.Run, err)
			}
		}
		switch {
		case open == 0 && len(heads) >= len(t.runs):
			return nil
		case open == 0:
			return fmt.Errorf("%d runs are listed of %d", len(heads), len(t.runs))
		case round == 2_000:
			return fmt.Errorf("%d runs do not come to an end", open)
		}
		now.pass(10 * time.Minute)
		if err := e.Sync(ctx); err != nil {
			return err
		}
	}
}
