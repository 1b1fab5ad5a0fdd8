// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// PutRecords implements store.Records.
func (w *witness) PutRecords(ctx context.Context, epoch uint64, at int64, changes []store.RecordChange) ([]store.Record, error) {
	f := &fact{}
	n := w.submit(f)
	stored, err := w.Store.PutRecords(ctx, epoch, at, changes)
	f.records = stored
	if err == nil {
		w.acknowledge(n)
	}
	return stored, err
}

// someRecords writes and deletes a few records at once.
func (w *witness) someRecords(dice *rand.Rand, at int64) error {
	var changes []store.RecordChange
	for _, n := range dice.Perm(8)[:1+dice.IntN(4)] {
		c := store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Account: account, Kind: "recipe", ID: fmt.Sprint(n)}, Revision: store.AnyRevision}}
		if c.Delete = dice.IntN(3) == 0; !c.Delete {
			c.Data = make([]byte, dice.IntN(20_000))
			for i := range c.Data {
				c.Data[i] = byte(dice.IntN(256))
			}
			if len(c.Data) == 0 {
				c.Data = nil
			}
			c.Until = int64(dice.IntN(2)) << 60 // retention would delete it unnoticed
			if dice.IntN(2) == 0 {
				c.Name = fmt.Sprint("name ", n)
			}
		}
		changes = append(changes, c)
	}
	if len(changes) == 1 {
		changes[0].Delete = false // whether a deletion alone was made cannot be told
	}
	w.w.Lock()
	epoch := w.epoch
	w.w.Unlock()
	_, err := w.PutRecords(ctx, epoch, at, changes)
	return err
}

// putLanded reports whether the records of a fact are stored.
func (f *fact) putLanded(ctx context.Context, s *Store, before *truth) (bool, error) {
	yes, no := 0, 0
	for i := range f.records {
		want := &f.records[i]
		_, was := before.records[want.RecordKey]
		got, err := s.Record(ctx, want.RecordKey)
		switch {
		case errors.Is(err, fault.RecordNotFound) && want.Revision == 0:
			if was {
				yes++
			}
		case err != nil && !errors.Is(err, fault.RecordNotFound):
			return false, err
		case got.Revision == want.Revision:
			yes++
		default:
			no++
		}
	}
	if yes > 0 && no > 0 {
		return false, fmt.Errorf("half of a change of records is there: %d are, %d are not", yes, no)
	}
	return yes > 0, nil
}

// sameRecords returns an error unless a store has the records that it must have, and no
// others.
func (t *truth) sameRecords(ctx context.Context, s *Store) error {
	for key, want := range t.records {
		for i, read := range []func() (store.Record, error){
			func() (store.Record, error) { return s.Record(ctx, key) },
			func() (store.Record, error) { return s.RecordNamed(ctx, key.Account, key.Kind, want.Name) },
		} {
			if i == 1 && want.Name == "" {
				continue
			}
			if got, err := read(); err != nil || !reflect.DeepEqual(got, want) {
				return fmt.Errorf("record %s has revision %d and %d bytes, want revision %d and %d bytes: %w", key.ID, got.Revision, len(got.Data), want.Revision, len(want.Data), err)
			}
		}
	}
	n := 0
	err := store.EachRecord(ctx, s, store.RecordQuery{Account: account, Kind: "recipe"}, func(*store.Record) error { n++; return nil })
	if err == nil && n != len(t.records) {
		err = fmt.Errorf("%d records are listed of %d", n, len(t.records))
	}
	return err
}
