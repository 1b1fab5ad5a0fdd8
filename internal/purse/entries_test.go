// SPDX-License-Identifier: Apache-2.0

package purse

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/internal/ledger"
)

// entries are the books of an account that has so many entries.
type entries int

func (n entries) Account(context.Context, string, int64) (*ledger.Account, error) {
	return ledger.NewAccount(), nil
}

func (n entries) Entries(_ context.Context, _ string, after uint64, limit int) (list []*ledger.Entry, _ error) {
	for k := int(after); k < int(n) && len(list) < limit; k++ {
		list = append(list, &ledger.Entry{At: int64(k)})
	}
	return list, nil
}

// EachEntry passes on every entry once and in order, over pages, and stops where it is told to.
func TestEachEntry(t *testing.T) {
	for _, c := range []struct{ has, most, want int }{{0, 0, 0}, {3, 0, 3}, {10_000, 0, 10_000}, {25_000, 0, 25_000}, {25_000, 10_001, 20_000}, {25_000, 30_000, 25_000}} {
		n := 0
		all, err := EachEntry(t.Context(), entries(c.has), "a", 1, c.most, func(e *ledger.Entry) {
			if e.At != int64(n) {
				t.Fatalf("%+v: entry %d comes as number %d", c, e.At, n)
			}
			n++
		})
		if err != nil || n != c.want || all != (c.want == c.has) {
			t.Errorf("%+v: %d entries, all %v, %v", c, n, all, err)
		}
	}
}
