// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// Owns implements store.Committer.
func (s *Store) Owns(ctx context.Context, epoch uint64) error {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	return store.Fenced(epoch, s.epoch)
}

// Own implements store.Committer.
func (s *Store) Own(ctx context.Context) (uint64, error) {
	if err := s.lockToWrite(ctx); err != nil {
		return 0, err
	}
	defer s.w.Unlock()
	var v [1]driver.Value
	if _, err := s.st.takeEpoch.Row(v[:]); err != nil {
		return 0, s.fail(err)
	}
	epoch, ok := v[0].(int64)
	if !ok || epoch <= 0 {
		return 0, damagedRow("the owner of the runs", "epoch")
	}
	s.epoch = uint64(epoch)
	return s.epoch, failpoint.Hit(failpoint.StoreOwned)
}

// SetNote implements store.Store.
func (s *Store) SetNote(ctx context.Context, epoch uint64, name string, value []byte) error {
	if err := s.lockToWrite(ctx); err != nil {
		return err
	}
	defer s.w.Unlock()
	if err := store.Fenced(epoch, s.epoch); err != nil {
		return err
	}
	if err := failpoint.Hit(failpoint.NoteWrite); err != nil {
		return err
	}
	var err error
	if value == nil {
		_, err = s.st.deleteNote.Exec(name)
	} else {
		_, err = s.st.putNote.Exec(name, value, format.Sum(name, value))
	}
	if err != nil {
		return s.fail(err)
	}
	s.countPages(int64(len(value)/pageSize) + 1)
	return nil
}
