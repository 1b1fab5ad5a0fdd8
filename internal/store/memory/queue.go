// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/roux-engine/roux/internal/store"
)

// Unended implements store.Queue.
func (s *Store) Unended(ctx context.Context, account string) (n store.Unended, err error) {
	err = s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return n, err
	}
	for key, r := range s.d.synced.runs {
		switch {
		case key.Account != account || !r.head.Counts():
		case r.head.Status == store.StatusQueued:
			n.Queued++
		default:
			n.Live++
		}
	}
	return n, nil
}

// Queued implements store.Queue.
func (s *Store) Queued(ctx context.Context, after store.Wake, limit int) ([]store.Wake, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	order := func(a, b store.Wake) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.At, b.At), cmp.Compare(a.Run, b.Run))
	}
	var queued []store.Wake
	for key, r := range s.d.synced.runs {
		w := store.Wake{Key: key, At: r.head.Updated}
		if r.head.Counts() && r.head.Status == store.StatusQueued && order(w, after) > 0 {
			queued = append(queued, w)
		}
	}
	slices.SortFunc(queued, order)
	return queued[:min(len(queued), max(limit, 0))], nil
}
