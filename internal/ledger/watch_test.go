// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
	"testing"
)

// Design 12: a level is reported when the available credits fall below it, once until
// they have reached it again: by a hold, by the end of a lot, and not by a grant. A budget
// in audit mode is reported when it is exceeded, and again only after it was not.
func TestX157_Notices(t *testing.T) {
	w := &Watch{Low: []int64{100, 20}, Budgets: Budgets{
		Day:  Budget{Limit: 90, Audit: true},
		Keys: map[string]Budget{"ci": {Limit: 10, Reset: Never, Audit: true}, "hard": {Limit: 10, Reset: Never}},
	}}
	a, model := NewAccount(), NewAccount()
	apply := func(what string, at int64, decide func(*Account) ([]*Entry, error), want ...Notice) {
		t.Helper()
		entries, err := decide(model)
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.ApplyAll(a, entries)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s at %d: %+v, %v; want %+v", what, at, got, err, want)
		}
	}
	hold := func(at, n int64, key string) func(*Account) ([]*Entry, error) {
		return func(m *Account) ([]*Entry, error) {
			e, err := m.ReserveFor(Count{Key: key}, at, fmt.Sprint("r", at), fmt.Sprint("h", at), "run", n, 0)
			return []*Entry{e}, err
		}
	}
	give := func(at, n, until int64) func(*Account) ([]*Entry, error) {
		return func(m *Account) ([]*Entry, error) {
			e, err := m.Grant(at, fmt.Sprint("g", at), n, Terms{Source: Paid, Expires: until})
			return []*Entry{e}, err
		}
	}
	apply("a small grant", 1, give(1, 15, 0))
	apply("a grant", 2, give(2, 105, 0))
	apply("a hold", 3, hold(3, 20, ""))
	apply("one credit more", 4, hold(4, 1, ""), Notice{"account", 100, 99})
	apply("again", 5, hold(5, 1, "hard"))
	apply("far below", 6, hold(6, 79, "ci"), Notice{"account", 20, 19}, Notice{"day", 90, 101}, Notice{"key:ci", 10, 79})
	apply("once only", 7, hold(7, 1, "ci"))
	apply("a release", 8, func(m *Account) ([]*Entry, error) { return m.Settle(8, "s", "h6", 0) })
	apply("the day again, the key not", 9, hold(9, 80, ""), Notice{"account", 20, 17}, Notice{"day", 90, 103})
	apply("a lot for a while", 10, give(10, 500, day))
	apply("its end", day, func(m *Account) ([]*Entry, error) { return m.Expire(day) }, Notice{"account", 100, 17}, Notice{"account", 20, 17})
	apply("another day", day+1, hold(day+1, 10, "ci"), Notice{"key:ci", 10, 11})
	if _, err := (*Watch)(nil).ApplyAll(a, []*Entry{{Key: "none", Kind: Settle, At: 2 * day, Hold: "none", Parts: []Part{{"g1", 1}}}}); err == nil {
		t.Error("an entry that does not fit is applied")
	}
}
