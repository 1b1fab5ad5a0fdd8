// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// find returns the run, damaged or not.
func (s *Store) find(key store.Key) (*run, error) {
	if r := s.d.synced.runs[key]; r != nil {
		return r, nil
	}
	return nil, notFound(key.Run)
}

func notFound(run string) error { return fault.New(fault.RunNotFound, "no run %q", run) }

func corrupt(run string) error {
	return fault.New(fault.StoreCorrupt, "run %s: the journal fails its checksum at offset 0", run)
}

func (r *run) saved() *store.Saved {
	out := &store.Saved{
		Head: r.head, Format: r.format, State: bytes.Clone(r.state), StateLast: r.stateAt,
		Chunked: r.chunked(), Last: r.last,
	}
	for _, recs := range [][]record{r.chunks, r.tail} {
		for _, rec := range recs {
			if rec.last > r.stateAt {
				out.Tail = append(out.Tail, rec.frames...)
			}
		}
	}
	if r.suspension != nil {
		p := *r.suspension
		out.Suspension = &p
	}
	return out
}

// Load implements store.Store.
func (s *Store) Load(ctx context.Context, key store.Key) (*store.Saved, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r, err := s.find(key)
	if err != nil {
		return nil, err
	}
	if r.damaged {
		return nil, corrupt(key.Run)
	}
	return r.saved(), nil
}

// Recover implements store.Store. It visits runs in the order of their keys, so that
// simulations are reproducible.
func (s *Store) Recover(ctx context.Context, fn func(*store.Saved) error) error {
	err := s.enter(ctx)
	keys := slices.SortedFunc(maps.Keys(s.d.synced.runs), store.Key.Compare)
	s.d.mu.Unlock()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return err
		}
		if saved := s.live(key); saved != nil {
			if err := fn(saved); err != nil {
				return err
			}
		}
	}
	return nil
}

// live returns a run as it is now, or nil when it is suspended, settled or gone.
func (s *Store) live(key store.Key) *store.Saved {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	r := s.d.synced.runs[key]
	switch {
	case r == nil || r.suspension != nil || r.head.Settled():
		return nil
	case r.damaged:
		return &store.Saved{Head: r.head, Err: corrupt(key.Run)}
	}
	return r.saved()
}

// Due implements store.Store.
func (s *Store) Due(ctx context.Context, until int64, limit int) ([]store.Wake, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	var due []store.Wake
	for key, r := range s.d.synced.runs {
		if r.suspension != nil && r.suspension.WakeAt != 0 && r.suspension.WakeAt <= until {
			due = append(due, store.Wake{Key: key, At: r.suspension.WakeAt, Root: r.head.Root})
		}
	}
	slices.SortFunc(due, func(a, b store.Wake) int {
		return cmp.Or(cmp.Compare(a.At, b.At), store.Key.Compare(a.Key, b.Key))
	})
	return due[:min(len(due), max(limit, 0))], nil
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.Page{}, err
	}
	r, err := s.find(key)
	if err != nil {
		return store.Page{}, err
	}
	if r.damaged {
		return store.Page{}, corrupt(key.Run)
	}
	page := store.Page{Next: after, Last: r.last}
	for _, recs := range [][]record{r.chunks, r.tail} {
		from, _ := slices.BinarySearchFunc(recs, after+1, func(rec record, n uint64) int { return cmp.Compare(rec.last, n) })
		for _, rec := range recs[from:] {
			if len(page.Frames) > 0 && len(page.Frames)+len(rec.frames) > maxBytes {
				return page, nil
			}
			page.Frames = append(page.Frames, rec.frames...)
			page.Next = rec.last
		}
	}
	return page, nil
}

// Head implements store.Store.
func (s *Store) Head(ctx context.Context, key store.Key) (store.Head, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.Head{}, err
	}
	r, err := s.find(key)
	if err != nil {
		return store.Head{}, err
	}
	return r.head, nil
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.Query) ([]store.Head, error) {
	heads, err := s.list(ctx, &q)
	if err != nil {
		return nil, err
	}
	heads = slices.DeleteFunc(heads, func(h store.Head) bool { return !q.Match(&h) })
	return heads[:min(len(heads), q.Cap())], nil
}

// Search implements store.Store.
func (s *Store) Search(ctx context.Context, q store.Query) (heads []store.Head, next string, err error) {
	all, err := s.list(ctx, &q)
	if err != nil {
		return nil, "", err
	}
	for i := range all {
		if len(heads) == q.Cap() || i == store.MaxScan {
			return heads, all[i-1].Run, nil
		}
		if q.Match(&all[i]) {
			heads = append(heads, all[i])
		}
	}
	return heads, "", nil
}

// list returns the heads that a query selects by their places.
func (s *Store) list(ctx context.Context, q *store.Query) ([]store.Head, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	selects, order, err := s.selection(q)
	if err != nil {
		return nil, err
	}
	var after *store.Head
	switch {
	case q.After == "":
	case q.All:
		after = &store.Head{Key: store.Key{Run: q.After}}
	default:
		r, err := s.find(store.Key{Account: q.Account, Run: q.After})
		if err == nil && !selects(&r.head) {
			err = notFound(q.After)
		}
		if err != nil {
			return nil, err
		}
		after = &r.head
	}
	var heads []store.Head
	for key, r := range s.d.synced.runs {
		if key.Account == q.Account && selects(&r.head) && strings.HasPrefix(key.Run, q.Prefix) && (after == nil || order(&r.head, after) > 0) {
			heads = append(heads, r.head)
		}
	}
	slices.SortFunc(heads, func(a, b store.Head) int { return order(&a, &b) })
	return heads, nil
}

// selection returns which runs a query selects by its fields Parent, Root and All, and
// their order.
func (s *Store) selection(q *store.Query) (selects func(*store.Head) bool, order func(a, b *store.Head) int, err error) {
	oldestFirst := func(a, b *store.Head) int {
		return cmp.Or(cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Created, b.Created), cmp.Compare(a.Run, b.Run))
	}
	switch {
	case q.All:
		return func(*store.Head) bool { return true }, func(a, b *store.Head) int { return cmp.Compare(a.Run, b.Run) }, nil
	case q.Root != "":
		_, err := s.find(store.Key{Account: q.Account, Run: q.Root})
		return func(h *store.Head) bool { return h.Root == q.Root }, oldestFirst, err
	case q.Parent != "":
		_, err := s.find(store.Key{Account: q.Account, Run: q.Parent})
		return func(h *store.Head) bool { return h.Parent == q.Parent }, oldestFirst, err
	}
	newestFirst := func(a, b *store.Head) int {
		return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(b.Run, a.Run))
	}
	return func(h *store.Head) bool { return h.Root == "" }, newestFirst, nil
}

// Plan implements store.Store.
func (s *Store) Plan(ctx context.Context, hash string) ([]byte, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p, ok := s.d.synced.plans[hash]
	if !ok {
		return nil, fault.New(fault.RecipeNotFound, "no plan %q", hash)
	}
	return bytes.Clone(p), nil
}

// Note implements store.Store.
func (s *Store) Note(ctx context.Context, name string) ([]byte, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return bytes.Clone(s.d.synced.notes[name]), nil
}

// Uncompacted implements store.Store.
func (s *Store) Uncompacted() (size, events int64, oldest []store.Key) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	m := s.d.synced
	return m.size, m.events, m.oldest(1000)
}

// Stats implements store.Store. A row here is a transition that no chunk covers.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.Stats{}, err
	}
	st := s.stats
	st.JournalBytes = s.d.synced.size
	for _, r := range s.d.synced.runs {
		st.JournalRows += int64(len(r.tail))
	}
	st.Records = int64(len(s.d.synced.records))
	return st, nil
}
