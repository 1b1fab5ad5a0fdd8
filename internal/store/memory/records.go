// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/store"
)

// Record implements store.Records.
func (s *Store) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.Record{}, err
	}
	r, ok := s.d.synced.records[key]
	if !ok {
		return store.Record{}, store.NoRecord(key.Kind, key.ID)
	}
	return cloneRecord(r), nil
}

// RecordNamed implements store.Records.
func (s *Store) RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.Record{}, err
	}
	m := s.d.synced
	key := store.RecordKey{Account: account, Kind: kind, ID: m.holder(account, kind, name)}
	if r, ok := m.records[key]; ok && name != "" {
		return cloneRecord(r), nil
	}
	return store.Record{}, store.NoRecord(kind, name)
}

// holder returns the id of the record that has a name, or "".
func (m *model) holder(account, kind, name string) string {
	for key, r := range m.records {
		if r.Name == name && key.Account == account && key.Kind == kind {
			return key.ID
		}
	}
	return ""
}

func cloneRecord(r store.Record) store.Record {
	r.Data = bytes.Clone(r.Data)
	if len(r.Data) == 0 {
		r.Data = nil
	}
	return r
}

// Records implements store.Records.
func (s *Store) Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error) {
	err = s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, false, err
	}
	place := func(r *store.Record) string {
		if q.ByName() {
			return r.Name
		}
		return r.ID
	}
	low, high := q.Range()
	for key, r := range s.d.synced.records {
		at := place(&r)
		if key.Account == q.Account && key.Kind == q.Kind && at >= low && (high == "" || at < high) &&
			strings.HasPrefix(key.ID, q.Prefix) && (!q.ByName() || r.Name != "") {
			page = append(page, r)
		}
	}
	slices.SortFunc(page, func(a, b store.Record) int {
		if q.Newest {
			return cmp.Compare(place(&b), place(&a))
		}
		return cmp.Compare(place(&a), place(&b))
	})
	size := 0
	for i := range page {
		if i == q.Cap() || !q.KeysOnly && !q.NamesOnly && size >= store.MaxRecordsData {
			return page[:i], true, nil
		}
		size += len(page[i].Data)
		switch page[i] = cloneRecord(page[i]); {
		case q.NamesOnly:
			page[i] = store.Record{RecordKey: store.RecordKey{Account: q.Account, Kind: q.Kind}, Name: page[i].Name}
		case q.KeysOnly:
			page[i].Data = nil
		}
	}
	return page, false, nil
}

// PutRecords implements store.Records.
func (s *Store) PutRecords(ctx context.Context, epoch uint64, at int64, changes []store.RecordChange) ([]store.Record, error) {
	if err := store.CheckRecords(changes); err != nil {
		return nil, err
	}
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m := s.d.synced
	if err := store.Fenced(epoch, m.epoch); err != nil {
		return nil, err
	}
	saved := m.undo
	m.undo = []func(){}
	stored, err := m.putRecords(at, changes)
	if err != nil {
		m.rollback()
	}
	m.undo = saved
	if err == nil {
		s.stats.Syncs++
	}
	return stored, err
}

// putRecords carries out changes of records up to the first that is refused.
func (m *model) putRecords(at int64, changes []store.RecordChange) ([]store.Record, error) {
	stored := make([]store.Record, len(changes))
	for i := range changes {
		c := &changes[i]
		old, is := m.records[c.RecordKey]
		holder := ""
		if c.Name != "" && !c.Delete {
			if holder = m.holder(c.Account, c.Kind, c.Name); holder == c.ID {
				holder = ""
			}
		}
		if err := store.AdmitRecord(c, old.Revision, holder); err != nil {
			return nil, err
		}
		if m.undo != nil {
			m.undo = append(m.undo, func() {
				if delete(m.records, c.RecordKey); is {
					m.records[c.RecordKey] = old
				}
			})
		}
		if c.Delete {
			stored[i].RecordKey = c.RecordKey
			delete(m.records, c.RecordKey)
			continue
		}
		m.revision++
		r := cloneRecord(c.Record)
		r.Revision, r.Created, r.Updated, r.Damage = m.revision, at, at, ""
		if is {
			r.Created = old.Created
		}
		m.records[c.RecordKey] = r
		stored[i] = cloneRecord(r)
	}
	return stored, nil
}

// ForgetRecords implements store.Records.
func (s *Store) ForgetRecords(ctx context.Context, epoch uint64, before int64, limit int) (int, error) {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	m := s.d.synced
	if err := store.Fenced(epoch, m.epoch); err != nil {
		return 0, err
	}
	var old []store.Record
	for _, r := range m.records {
		if r.Until != 0 && r.Until < before {
			old = append(old, r)
		}
	}
	slices.SortFunc(old, func(a, b store.Record) int {
		return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	old = old[:min(len(old), max(limit, 0))]
	for i := range old {
		delete(m.records, old[i].RecordKey)
	}
	return len(old), nil
}
