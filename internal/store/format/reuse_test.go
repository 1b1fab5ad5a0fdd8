// SPDX-License-Identifier: Apache-2.0

package format

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// Rows are empty when they are used again, with the memory of the last time unless they were
// large or many.
func TestRowsAreUsedAgain(t *testing.T) {
	var rows Rows[Changes, *Changes]
	first := rows.Next()
	first.Add(&store.Change{Run: "run_1"})
	if second := rows.Next(); second == first || second.Len() != 0 {
		t.Error("two rows of a commit are one")
	}
	rows.Release()
	if again := rows.Next(); again != first || again.Len() != 0 {
		t.Error("the memory of a row is not used again, or the row is not empty")
	}
	first.Add(&store.Change{Run: strings.Repeat("x", 1<<20)})
	rows.Release()
	rows.Next() // small: it is much smaller than its memory
	rows.Release()
	if rows.Next() == first {
		t.Error("the memory of a large row is kept")
	}
	for range keptRows {
		rows.Next()
	}
	rows.Release()
	if n := len(rows.rows); n != 0 {
		t.Errorf("the memory of %d rows is kept", n)
	}
}

// What a record of the journal has of changes can be read again; bytes that are none are a
// row without data.
func TestFeedFrames(t *testing.T) {
	frames := FeedFrames(-5, []byte("data"))
	if at, data := ParseFeedFrames(frames); at != -5 || string(data) != "data" {
		t.Errorf("read %d and %q", at, data)
	}
	if at, data := ParseFeedFrames(frames[:7]); at != 0 || data != nil {
		t.Errorf("of seven bytes: %d and %q", at, data)
	}
}
