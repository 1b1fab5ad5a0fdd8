// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// TestLostCompactionIsLoud: the row of the piece or chunk with the last events of a run
// is lost. Reading the run, suspended or live, is then an error, and never returns a
// shorter run.
func TestLostCompactionIsLoud(t *testing.T) {
	for _, tt := range []struct {
		table      string
		suspension *store.Suspension
		size       int
	}{
		{"pieces", nil, 1}, {"pieces", &store.Suspension{WakeAt: 7}, 1},
		{"chunks", nil, format.MaxPiece + 1}, {"chunks", &store.Suspension{}, format.MaxPiece + 1},
	} {
		dir := t.TempDir()
		s := open(t, dir)
		epoch := own(t, s)
		start := startOf(epoch, runKey(0), "1")
		start.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
		mustCommit(t, s, start)
		mustCommit(t, s, store.Transition{Key: runKey(0), Epoch: epoch, First: 2, Last: 3, Frames: []byte("23"), Suspension: tt.suspension,
			Compaction: &store.Compaction{First: 2, Last: 3, Chunk: make([]byte, tt.size)}})
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
			t.Errorf("without %s, suspended %t: Load = %v", tt.table, tt.suspension != nil, err)
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
			t.Errorf("without %s, suspended %t: the events end after %d: %v", tt.table, tt.suspension != nil, at, err)
		}
	}
}
