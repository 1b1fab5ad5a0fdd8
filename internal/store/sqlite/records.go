// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/records"
)

// Record implements store.Records.
func (s *Store) Record(ctx context.Context, key store.RecordKey) (r store.Record, err error) {
	if err := s.isOpen(ctx); err != nil {
		return r, err
	}
	r, err = s.records.Get(brief(ctx), key)
	_, err = s.explain(err)
	return r, err
}

// RecordNamed implements store.Records.
func (s *Store) RecordNamed(ctx context.Context, account, kind, name string) (r store.Record, err error) {
	if err := s.isOpen(ctx); err != nil {
		return r, err
	}
	r, err = s.records.Named(brief(ctx), account, kind, name)
	_, err = s.explain(err)
	return r, err
}

// Records implements store.Records.
func (s *Store) Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, false, err
	}
	page, more, err = s.records.List(ctx, &q)
	if _, err = s.explain(err); err != nil {
		return nil, false, err
	}
	return page, more, nil
}

// PutRecords implements store.Records.
func (s *Store) PutRecords(ctx context.Context, epoch uint64, at int64, changes []store.RecordChange) (stored []store.Record, err error) {
	if err := store.CheckRecords(changes); err != nil {
		return nil, err
	}
	data := records.Encode(changes)
	if err := s.lockToWrite(ctx); err != nil {
		return nil, err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return nil, err
	}
	s.records.Begin()
	err = s.inTx(func() error {
		stored, err = s.records.Put(at, changes, data)
		return err
	})
	if err != nil {
		s.records.Discard()
		return nil, s.fail(err)
	}
	pages := int64(4 * len(changes))
	for _, d := range data {
		pages += int64(len(d) / pageSize)
	}
	s.countPages(pages)
	return stored, nil
}

// addRecords changes the records of a transition that was accepted.
func (s *Store) addRecords(t *store.Transition) error {
	if len(t.Records) == 0 {
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	s.c.rows += int64(len(t.Records))
	_, err := s.records.Put(t.RecordsAt, t.Records, records.Encode(t.Records))
	return err
}

// ForgetRecords implements store.Records.
func (s *Store) ForgetRecords(ctx context.Context, epoch uint64, before int64, limit int) (int, error) {
	if err := s.lockToWrite(ctx); err != nil {
		return 0, err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return 0, err
	}
	n, err := s.records.Forget(before, limit)
	if err != nil {
		return 0, s.fail(err)
	}
	s.countPages(4 * n)
	return int(n), nil
}
