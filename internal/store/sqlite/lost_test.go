// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// TestLostFoldIsLoud: the last events of a run are in a piece or a chunk, whose row
// is lost. The run does not end earlier for that, whether it is parked or live.
func TestLostFoldIsLoud(t *testing.T) {
	for _, tt := range []struct {
		table string
		park  *store.Park
		size  int
	}{
		{"pieces", nil, 1}, {"pieces", &store.Park{WakeAt: 7}, 1},
		{"chunks", nil, maxPiece + 1}, {"chunks", &store.Park{}, maxPiece + 1},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		epoch := own(t, s)
		start := startOf(epoch, runKey(0), "1")
		start.Fold = &store.Fold{First: 1, Last: 1, Chunk: []byte("1")}
		mustCommit(t, s, start)
		mustCommit(t, s, store.Transition{Key: runKey(0), Epoch: epoch, First: 2, Last: 3, Frames: []byte("23"), Park: tt.park,
			Fold: &store.Fold{First: 2, Last: 3, Chunk: make([]byte, tt.size)}})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db := rawDB(t, dir)
		if _, err := db.Exec(`DELETE FROM ` + tt.table); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		if _, err := s.Load(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
			t.Errorf("without %s, parked %t: Load = %v", tt.table, tt.park != nil, err)
		}
		at, err := uint64(0), error(nil)
		for range 3 {
			var page store.Page
			if page, err = s.Events(ctx, runKey(0), at, 1); err != nil || page.Next == at {
				break
			}
			at = page.Next
		}
		if !errors.Is(err, fault.StoreCorrupt) {
			t.Errorf("without %s, parked %t: the events end after %d: %v", tt.table, tt.park != nil, at, err)
		}
	}
}
