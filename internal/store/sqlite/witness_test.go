// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"maps"
	"slices"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A witness wraps the store of an engine. It records the commits and their answers, and
// adds transitions that the store must refuse.
type witness struct {
	*Store
	tape  *tape
	mu    sync.Mutex
	facts []*fact
	odd   int // number of refused transitions so far
	keys  map[string]string
}

// A fact is one thing that a store was asked to make durable.
type fact struct {
	epoch uint64 // Own
	note  string
	value []byte
	moves []move      // Commit: the transitions that were not refused
	gone  []store.Key // Delete: the runs that were not refused

	records []store.Record // PutRecords: as they were stored; one without a revision was deleted
}

// A move is the change that one transition made to its run.
type move struct {
	key        store.Key
	events     []uint64 // checksums of the events, in order
	head       *store.Head
	suspension *store.Suspension
	files      []string
	plan       string
	idem       *store.Idempotency
	compaction bool
}

var crcTable = crc64.MakeTable(crc64.ECMA)

// sums are the checksums of the events in frames, which must follow `after`.
func sums(frames []byte, after uint64) (out []uint64, err error) {
	err = journal.EachEvent(frames, func(ev *journal.Event) error {
		if ev.Seq <= after {
			return nil
		}
		if ev.Seq != after+uint64(len(out))+1 {
			return fmt.Errorf("event %d follows event %d", ev.Seq, after+uint64(len(out)))
		}
		out = append(out, crc64.Checksum(journal.AppendFrame(nil, []journal.Event{*ev}), crcTable))
		return nil
	})
	return out, err
}

func (w *witness) submit(f *fact) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts = append(w.facts, f)
	w.tape.add(op{kind: opSubmit, file: len(w.facts) - 1})
	return len(w.facts) - 1
}

func (w *witness) acknowledge(n int) { w.tape.add(op{kind: opAck, file: n}) }

// Own implements store.Store.
func (w *witness) Own(ctx context.Context) (uint64, error) {
	f := &fact{}
	n := w.submit(f)
	epoch, err := w.Store.Own(ctx)
	f.epoch = epoch
	if err == nil {
		w.acknowledge(n)
	}
	return epoch, err
}

// SetNote implements store.Store.
func (w *witness) SetNote(ctx context.Context, epoch uint64, name string, value []byte) error {
	n := w.submit(&fact{note: name, value: bytes.Clone(value)})
	err := w.Store.SetNote(ctx, epoch, name, value)
	if err == nil {
		w.acknowledge(n)
	}
	return err
}

// Commit implements store.Store.
func (w *witness) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	f := &fact{}
	for i := range batch {
		m, err := moveOf(&batch[i])
		if err != nil {
			return nil, err
		}
		f.moves = append(f.moves, m)
	}
	n := w.submit(f)
	wrong := w.refused(&batch[0])
	verdicts, err := w.Store.Commit(ctx, append(slices.Clip(batch), wrong...))
	if err != nil {
		return nil, err
	}
	for i := range wrong {
		if verdicts[len(batch)+i].Err == nil {
			return nil, fmt.Errorf("the store took %+v", wrong[i])
		}
	}
	for i := len(batch) - 1; i >= 0; i-- {
		if verdicts[i].Err != nil {
			f.moves = slices.Delete(f.moves, i, i+1)
		} else if id := batch[i].Idempotency; id != nil {
			w.keys[id.Key] = batch[i].Run
		}
	}
	w.acknowledge(n)
	return verdicts[:len(batch)], nil
}

// Delete implements store.Store. It deletes one run at a time, because a fact is
// recorded before the call and it is known only afterwards which runs were refused.
func (w *witness) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	var all []store.Verdict
	for _, key := range keys {
		f := &fact{}
		n := w.submit(f)
		verdicts, err := w.Store.Delete(ctx, epoch, at, []store.Key{key})
		if err != nil {
			return nil, err
		}
		if verdicts[0].Err == nil {
			f.gone = []store.Key{key}
		}
		w.acknowledge(n)
		all = append(all, verdicts...)
	}
	return all, nil
}

// refused returns a variant of t that the store must refuse, for a different reason
// each time.
func (w *witness) refused(t *store.Transition) []store.Transition {
	w.odd++
	stranger := store.Key{Account: t.Account, Run: fmt.Sprintf("refused_%d", w.odd)}
	start := startOf(t.Epoch, stranger, "refused")
	switch w.odd % 4 {
	case 0: // a stale epoch
		start.Epoch--
		return []store.Transition{start}
	case 1: // events that leave a gap
		gap := *t
		gap.Head, gap.Compaction, gap.Suspension, gap.Idempotency = nil, nil, nil, nil
		gap.First, gap.Last, gap.Frames = t.Last+1_000, t.Last+1_000, []byte("refused")
		return []store.Transition{gap}
	case 2: // a run without a head
		start.Head = nil
		return []store.Transition{start}
	}
	for key := range w.keys { // an idempotency key of another request
		start.Idempotency = &store.Idempotency{Key: key, BodyHash: "another"}
		return []store.Transition{start}
	}
	return nil
}

func moveOf(t *store.Transition) (move, error) {
	m := move{key: t.Key, files: slices.Clone(t.Files), compaction: t.Compaction != nil}
	for _, p := range t.Plans {
		m.plan = p.Key
	}
	if t.Head != nil {
		h := *t.Head
		m.head = &h
	}
	if t.Suspension != nil {
		p := *t.Suspension
		m.suspension = &p
	}
	if t.Idempotency != nil {
		id := *t.Idempotency
		m.idem = &id
	}
	if t.First == 0 {
		return m, nil
	}
	var err error
	m.events, err = sums(t.Frames, t.First-1)
	if err == nil && uint64(len(m.events)) != t.Last-t.First+1 {
		err = fmt.Errorf("%d events where the transition says %d to %d", len(m.events), t.First, t.Last)
	}
	return m, err
}

// A truth is what a store must hold.
type truth struct {
	epoch uint64
	notes map[string][]byte
	runs  map[store.Key]known
	idem  map[string]store.Idempotency // by account and key
	of    map[string]string            // the run that the key started
	feed  map[store.Key]store.Change   // the newest change of each run, without number and time

	records map[store.RecordKey]store.Record
}

type known struct {
	head       store.Head
	events     []uint64
	suspension *store.Suspension
	plan       string
	files      []string
}

func newTruth() *truth {
	return &truth{notes: map[string][]byte{}, runs: map[store.Key]known{}, idem: map[string]store.Idempotency{}, of: map[string]string{}, feed: map[store.Key]store.Change{}, records: map[store.RecordKey]store.Record{}}
}

func (t *truth) clone() *truth {
	return &truth{t.epoch, maps.Clone(t.notes), maps.Clone(t.runs), maps.Clone(t.idem), maps.Clone(t.of), maps.Clone(t.feed), maps.Clone(t.records)}
}

// holds adds a fact to the truth.
func (t *truth) holds(f *fact) {
	if f.note != "" {
		if t.notes[f.note] = f.value; f.value == nil {
			delete(t.notes, f.note)
		}
	}
	t.epoch = max(t.epoch, f.epoch)
	for i := range f.records {
		r := &f.records[i]
		if t.records[r.RecordKey] = *r; r.Revision == 0 {
			delete(t.records, r.RecordKey)
		}
	}
	for _, key := range f.gone {
		delete(t.runs, key)
		t.feed[key] = store.Change{Run: key.Run, Deleted: true}
	}
	for i := range f.moves {
		m := &f.moves[i]
		k := t.runs[m.key]
		k.events = append(slices.Clip(k.events), m.events...)
		if m.head != nil {
			k.head = *m.head
			c := store.AppendChanges(nil, &store.Transition{Key: m.key, Head: m.head}, 0)[0]
			c.At = 0
			t.feed[m.key] = c
		}
		switch {
		case m.suspension != nil:
			k.suspension = m.suspension
		case len(m.events) > 0:
			k.suspension = nil
		}
		if m.plan != "" {
			k.plan = m.plan
		}
		k.files = append(slices.Clip(k.files), m.files...)
		t.runs[m.key] = k
		if m.idem != nil {
			at := m.key.Account + " " + m.idem.Key
			t.idem[at], t.of[at] = *m.idem, m.key.Run
		}
	}
}

// landed reports whether a store has a fact that it had not acknowledged. It returns an
// error if the store has a part of the fact only.
func (f *fact) landed(ctx context.Context, s *Store, before *truth) (bool, error) {
	switch {
	case f.note != "":
		v, err := s.Note(ctx, f.note)
		return bytes.Equal(v, f.value), err
	case len(f.gone) > 0:
		_, err := s.Head(ctx, f.gone[0])
		if errors.Is(err, fault.RunNotFound) {
			return true, nil
		}
		return false, err
	case len(f.records) > 0:
		return f.putLanded(ctx, s, before)
	case len(f.moves) == 0:
		return s.epoch >= f.epoch, nil // Own
	}
	var yes, no []string
	for i := range f.moves {
		m := &f.moves[i]
		if len(m.events) == 0 {
			continue
		}
		want := uint64(len(before.runs[m.key].events)) // before the first move of the run
		page, err := s.Events(ctx, m.key, want, 1)
		switch {
		case errors.Is(err, fault.RunNotFound) && want == 0:
			no = append(no, m.key.Run)
		case err != nil:
			return false, err
		case page.Last > want:
			yes = append(yes, m.key.Run)
		default:
			no = append(no, m.key.Run)
		}
	}
	if len(yes) > 0 && len(no) > 0 {
		return false, fmt.Errorf("half of a commit is there: of %v, not of %v", yes, no)
	}
	if len(yes) > 0 {
		return true, nil
	}
	if len(no) > 0 {
		return false, nil
	}
	// The fact has no events, only compactions, heads and suspensions. Its heads and
	// suspensions show whether it was stored.
	for i := range f.moves {
		m := &f.moves[i]
		saved, err := s.Load(ctx, m.key)
		if err != nil {
			return false, err
		}
		if m.suspension != nil && (saved.Suspension == nil || *saved.Suspension != *m.suspension) || m.head != nil && saved.Head != *m.head {
			return false, nil
		}
	}
	return true, nil
}
