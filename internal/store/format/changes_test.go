// SPDX-License-Identifier: Apache-2.0

package format

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// anyChange is a change of each kind, with texts that repeat and names that begin alike.
var anyChange = rapid.Custom(func(t *rapid.T) store.Change {
	name := func(what string) string {
		return rapid.OneOf(rapid.SampledFrom([]string{"run_", "run_1", "run_12", "run_13"}), rapid.StringN(1, -1, 40)).Draw(t, what)
	}
	text := func(what string) string {
		if rapid.Bool().Draw(t, what+" is a usual one") {
			return fmt.Sprint("text", rapid.IntRange(0, 90).Draw(t, what))
		}
		return rapid.String().Draw(t, what)
	}
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 3:
		return store.Change{Notice: ledger.Notice{Source: name("source"), Limit: rapid.Int64().Draw(t, "limit"), Amount: rapid.Int64().Draw(t, "amount")}}
	case 0:
		return store.Change{Run: name("run"), Deleted: true}
	case 1:
		return store.Change{Key: name("key"), Kind: ledger.Kind(rapid.IntRange(1, 8).Draw(t, "kind of entry"))}
	}
	return store.Change{
		Run: name("run"), Root: rapid.SampledFrom([]string{"", "", "run_1", "another"}).Draw(t, "root"), Status: text("status"), Recipe: text("recipe"), Code: fault.Code(text("code")), Ended: rapid.Int64().Draw(t, "ended"),
		Quarantined: rapid.Bool().Draw(t, "quarantined"), Imported: rapid.Bool().Draw(t, "imported"), Hidden: rapid.Bool().Draw(t, "hidden"),
	}
})

// TestChangesRoundTrip: a row of the feed decodes to the changes that were added, and
// bytes that were changed do not make it panic.
func TestChangesRoundTrip(t *testing.T) {
	var row Changes
	rapid.Check(t, func(t *rapid.T) {
		changes := rapid.SliceOfN(anyChange, 0, 100).Draw(t, "changes")
		first := rapid.Uint64Range(1, 1<<60).Draw(t, "first")
		at, entry := rapid.Int64Range(0, 1<<60).Draw(t, "at"), rapid.Uint64Range(1, 1<<40).Draw(t, "entry")
		row.Reset()
		for i := range changes {
			at += rapid.Int64Range(0, 1<<20).Draw(t, "later")
			changes[i].N, changes[i].At = first+uint64(i), at
			if changes[i].Run == "" && changes[i].Notice.Source == "" {
				entry++
				changes[i].Entry = entry
			}
			row.Add(&changes[i])
		}
		last := first + uint64(len(changes)) - 1
		if row.Len() != len(changes) {
			t.Fatalf("a row of %d changes has %d", len(changes), row.Len())
		}
		back, err := DecodeChanges(row.Data(), first, last)
		if err != nil || len(back) != len(changes) || len(back) > 0 && !reflect.DeepEqual(back, changes) {
			t.Fatalf("decoded %+v, %v, want %+v", back, err, changes)
		}
		data := append([]byte(nil), row.Data()...)
		for range rapid.IntRange(1, 4).Draw(t, "flips") {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		}
		_, _ = DecodeChanges(data, first, last)                                                   // it does not panic
		_, _ = DecodeChanges(data[:rapid.IntRange(0, len(data)).Draw(t, "length")], first, 1<<62) // nor allocates
	})
}

// Bytes that are no changes are refused.
func TestMalformedChanges(t *testing.T) {
	for _, c := range []struct {
		what, data  string
		first, last uint64
	}{
		{"no bytes", "", 1, 0},
		{"another version", "02", 1, 0},
		{"more changes than bytes", "01", 1, 1},
		{"numbers that go back", "0100", 5, 1},
		{"an end inside a change", "010000", 1, 1},
		{"bytes after the last", "010000000161010100", 1, 1},
		{"another kind", "01030000016100000000", 1, 1},
		{"a shared beginning of nothing", "0100000101610101", 1, 1},
		{"a text that is not there", "0100000001610901", 1, 1},
	} {
		data, err := hex.DecodeString(c.data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeChanges(data, c.first, c.last); err == nil {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}
