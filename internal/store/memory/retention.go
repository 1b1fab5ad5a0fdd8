// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// name records that a run names a file.
func (m *model) name(file store.Key, run string) {
	runs := m.names[file]
	if _, known := runs[run]; known {
		return
	}
	if m.undo != nil {
		m.undo = append(m.undo, func() { delete(m.names[file], run) })
	}
	if runs == nil {
		runs = map[string]struct{}{}
		m.names[file] = runs
	}
	runs[run] = struct{}{}
}

// References implements store.Retention.
func (s *Store) References(ctx context.Context, account, hash string, limit int) (store.References, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return store.References{}, err
	}
	file := store.Key{Account: account, Run: hash}
	runs := slices.Sorted(maps.Keys(s.d.synced.names[file]))
	return store.References{Runs: runs[:min(len(runs), max(limit, 0))], Released: s.d.synced.released[file]}, nil
}

// Ended implements store.Retention.
func (s *Store) Ended(ctx context.Context, before int64, after store.Wake, limit int) ([]store.Wake, error) {
	err := s.enter(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	order := func(a, b store.Wake) int { return cmp.Or(cmp.Compare(a.At, b.At), store.Key.Compare(a.Key, b.Key)) }
	var ended []store.Wake
	for key, r := range s.d.synced.runs {
		w := store.Wake{Key: key, At: r.head.Ended}
		if r.head.Settled() && r.head.Root == "" && w.At < before && order(w, after) > 0 {
			ended = append(ended, w)
		}
	}
	slices.SortFunc(ended, order)
	return ended[:min(len(ended), max(limit, 0))], nil
}

// Delete implements store.Retention.
func (s *Store) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	m := s.d.synced
	verdicts := make([]store.Verdict, len(keys))
	for i, key := range keys {
		if verdicts[i] = m.mayGo(epoch, key); verdicts[i].Err == nil {
			for _, run := range m.tree(key) {
				m.remove(run)
			}
			m.record(key.Account, []store.Change{{At: at, Run: key.Run, Deleted: true}})
		}
	}
	s.stats.Syncs++
	return verdicts, nil
}

func (m *model) mayGo(epoch uint64, key store.Key) store.Verdict {
	if err := store.Fenced(epoch, m.epoch); err != nil {
		return store.Verdict{Err: err}
	}
	switch r := m.runs[key]; {
	case r == nil:
		return store.Verdict{Err: notFound(key.Run)}
	case r.head.Root != "":
		return store.RefuseChild(&r.head)
	}
	for _, key := range m.tree(key) {
		switch r := m.runs[key]; {
		case !r.head.Settled():
			return store.Refuse(fault.Conflict, "run %s has not settled", key.Run)
		case len(r.tail) > 0:
			return store.Refuse(fault.Conflict, "run %s: events up to %d are only in the journal", key.Run, r.last)
		}
	}
	return store.Verdict{}
}

// tree returns a root run and all runs below it.
func (m *model) tree(root store.Key) []store.Key {
	keys := []store.Key{root}
	for key, r := range m.runs {
		if key.Account == root.Account && r.head.Root == root.Run {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *model) remove(key store.Key) {
	ended := m.runs[key].head.Ended
	delete(m.runs, key)
	for file, runs := range m.names {
		if _, named := runs[key.Run]; !named || file.Account != key.Account {
			continue
		}
		delete(runs, key.Run)
		m.released[file] = max(m.released[file], ended)
		if len(runs) == 0 {
			delete(m.names, file)
		}
	}
}

// ForgetKeys implements store.Retention.
func (s *Store) ForgetKeys(ctx context.Context, epoch uint64, before int64, limit int) (int, error) {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	m := s.d.synced
	if err := store.Fenced(epoch, m.epoch); err != nil {
		return 0, err
	}
	var old []store.Key
	for key, u := range m.keys {
		r := m.runs[store.Key{Account: key.Account, Run: u.run}]
		if u.until < before && (r == nil || r.head.Ended != 0) {
			old = append(old, key)
		}
	}
	slices.SortFunc(old, func(a, b store.Key) int {
		return cmp.Or(cmp.Compare(m.keys[a].until, m.keys[b].until), store.Key.Compare(a, b))
	})
	old = old[:min(len(old), max(limit, 0))]
	for _, key := range old {
		delete(m.keys, key)
	}
	return len(old), nil
}

// ForgetFile implements store.Retention.
func (s *Store) ForgetFile(ctx context.Context, account, hash string) error {
	err := s.enterToWrite(ctx)
	defer s.d.mu.Unlock()
	if err != nil {
		return err
	}
	delete(s.d.synced.released, store.Key{Account: account, Run: hash})
	return nil
}
