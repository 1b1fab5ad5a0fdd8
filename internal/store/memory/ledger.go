// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"slices"

	"github.com/roux-engine/roux/internal/ledger"
)

// Account implements store.Store.
func (s *Store) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	b := s.d.synced.account(account)
	if b.account.At() <= at {
		return b.account.Clone(), nil
	}
	n, _ := slices.BinarySearch(b.times, at+1)
	return (&accountRecord{account: ledger.NewAccount()}).record(b.entries[:n]).account, nil
}

// Entries implements store.Store.
func (s *Store) Entries(ctx context.Context, account string, after uint64, limit int) ([]*ledger.Entry, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	entries := s.d.synced.account(account).entries
	entries = entries[min(after, uint64(len(entries))):]
	return slices.Clone(entries[:min(len(entries), max(limit, 0))]), nil
}

// Entry implements store.Store.
func (s *Store) Entry(ctx context.Context, account, key string) (*ledger.Entry, uint64, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	for i, e := range s.d.synced.account(account).entries {
		if e.Key == key {
			return e, uint64(i + 1), nil
		}
	}
	return nil, 0, nil
}
