// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

// TestWarm: warm lengthens a shorter log to warmWAL and keeps its content; a log that
// is longer stays as it is.
func TestWarm(t *testing.T) {
	for _, had := range []int{0, 1, 100, 1<<20 - 1, 1 << 20, warmWAL - 1, warmWAL, warmWAL + 1} {
		path := filepath.Join(t.TempDir(), "x-wal")
		content := make([]byte, had)
		for i := range content {
			content[i] = 1
		}
		if had > 0 {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := wal.Warm(path, warmWAL); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || len(got) != max(had, warmWAL) {
			t.Errorf("a log of %d bytes has %d afterwards, %v", had, len(got), err)
			continue
		}
		for i, b := range got {
			if (b == 1) != (i < had) {
				t.Errorf("byte %d of a log that had %d is %d", i, had, b)
				break
			}
		}
	}
}

// TestPackNumbersAreGivenOnce: the number of a pack that a commit began and never wrote
// is not used again. A commit that began no pack uses up no number.
func TestPackNumbersAreGivenOnce(t *testing.T) {
	p := packing{next: 5}
	p.nextPack()
	if p.next != 5 {
		t.Errorf("the next pack is %d, want 5: nothing was in it", p.next)
	}
	id := p.next
	p.Add(runKey(1), &store.Compaction{First: 1, Last: 1, Chunk: []byte("chunk"), Format: 1, State: []byte("state")})
	p.nextPack()
	if id != 5 || p.next != 6 || !p.Empty() {
		t.Errorf("after pack %d was dropped the next is %d, empty: %t", id, p.next, p.Empty())
	}
}
