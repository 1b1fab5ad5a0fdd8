// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test, on every machine

	"pgregory.net/rapid"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// Design 12: a period begins at midnight in the time zone, also where midnight does not
// exist or comes twice.
func TestX157_Periods(t *testing.T) {
	for _, tt := range []struct {
		zone        string
		reset       Reset
		at          string
		first, next string
	}{
		{"UTC", Daily, "2026-03-05T23:59:59Z", "2026-03-05T00:00:00Z", "2026-03-06T00:00:00Z"},
		{"Europe/Berlin", Daily, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"}, // 23 hours
		{"Europe/Berlin", Daily, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}, // 25 hours
		{"Europe/Berlin", Weekly, "2026-03-29T21:59:59Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"Europe/Berlin", Monthly, "2026-12-31T23:30:00Z", "2026-12-31T23:00:00Z", "2027-01-31T23:00:00Z"},
		{"Asia/Kathmandu", Daily, "2026-03-05T18:14:59Z", "2026-03-04T18:15:00Z", "2026-03-05T18:15:00Z"},
		{"Africa/Cairo", Daily, "2026-04-24T12:00:00Z", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},     // 0:00 does not exist
		{"Africa/Cairo", Daily, "2026-04-23T21:59:59Z", "2026-04-22T22:00:00Z", "2026-04-23T22:00:00Z"},     // the day before
		{"America/Havana", Daily, "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},   // 0:00 comes twice
		{"America/Santiago", Daily, "2026-04-05T03:30:00Z", "2026-04-04T03:00:00Z", "2026-04-05T04:00:00Z"}, // 23:00 comes twice
		{"UTC", Never, "2026-03-05T23:59:59Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		at, _ := time.Parse(time.RFC3339, tt.at)
		first, next := tt.reset.Period(at.UnixMicro(), zone(t, tt.zone))
		if got := text3339(first); got != tt.first {
			t.Errorf("%s %s at %s begins %s, want %s", tt.zone, tt.reset, tt.at, got, tt.first)
		}
		if got := text3339(next); got != tt.next {
			t.Errorf("%s %s at %s ends %s, want %s", tt.zone, tt.reset, tt.at, got, tt.next)
		}
	}
}

func text3339(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

// Every time is in the period that it begins with, periods join, and each begins with a
// day: in every zone that has odd days, over a year.
func TestX157_PeriodsJoin(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "Africa/Cairo", "America/Havana", "America/Santiago", "Asia/Beirut",
		"Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Asia/Kathmandu", "America/Asuncion", "Atlantic/Azores"} {
		z := zone(t, name)
		for _, year := range []int{2018, 2026} {
			from := time.Date(year, 1, 1, 0, 0, 0, 0, z)
			for at := from; at.Before(from.AddDate(1, 0, 0)); at = at.Add(135 * time.Minute) {
				for _, r := range []Reset{Daily, Weekly, Monthly} {
					us := at.UnixMicro()
					first, end := r.Period(us, z)
					after, _ := r.Period(end, z)
					if us < first || us >= end || after != end || Day(first, z) != first {
						t.Fatalf("%s %s: %s is in the period from %s to %s, after which one begins at %s", name, r, at, text3339(first), text3339(end), text3339(after))
					}
				}
			}
		}
	}
}

// What a hold takes counts in the day in which it takes it; what it releases does not
// count any more in that day, whenever it is released, and what it settles does.
func TestX157_HoldsCountInTheirDay(t *testing.T) {
	a := NewAccount()
	grant(t, a, 1, "G", 1_000, Terms{Source: Paid})
	const first, second, third = day, 2 * day, 3 * day
	do := func(e *Entry, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(a.ReserveFor(Count{Key: "ci"}, first+1, "r", "h", "run", 50, 0))
	do(a.ExtendFor(Count{}, second+1, "x", "h", 30))
	do(a.Reserve(second+2, "r2", "h2", "run", 7, 0))
	want := func(when, key string, since, n int64) {
		t.Helper()
		if got := a.Used(key, since); got != n {
			t.Errorf("%s: key %q has used %d since day %d, want %d", when, key, got, since/day, n)
		}
	}
	want("held", "ci", first, 80)
	want("held", "ci", second, 30)
	want("held", "", second, 37)
	if _, err := a.Settle(third+1, "s", "h", 60); err != nil { // 50 of the first day, 10 of the second
		t.Fatal(err)
	}
	want("settled", "ci", first, 60)
	want("settled", "ci", second, 10)
	want("settled", "ci", third, 0)
	want("settled", "", second, 17)
	want("settled", "", 0, 67)
	want("settled", "other", first, 0)
	for i := range 100 {
		do(a.ReserveFor(Count{Key: "ci"}, third+int64(i)*day+2, fmt.Sprint("more", i), fmt.Sprint("hold", i), "run", 1, 0))
	}
	if n := len(a.usage["ci"].days); n != keptDays+1 {
		t.Errorf("%d days are remembered, want %d", n, keptDays+1)
	}
	want("later", "ci", 0, 160)
}

// The usage of an account is the fold of its entries: a model that keeps all of them and
// sums them up agrees, in memory, when it is stored and read again, and when entries do
// not fit and are taken back.
func TestX157_UsageIsAFold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		z := zone(t, rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/St_Johns"}).Draw(rt, "zone"))
		a := NewAccount()
		if _, err := a.Grant(1, "G", 1_000_000, Terms{Source: Paid}); err != nil {
			rt.Fatal(err)
		}
		type part struct {
			key      string
			start, n int64
			hold     int
		}
		var counted []part // what is held or settled, in the order of each hold
		keys, now, holds := map[int]string{}, int64(20*day), 0
		for k := range rapid.IntRange(1, 40).Draw(rt, "entries") {
			now += rapid.Int64Range(0, day/2).Draw(rt, "pass")
			n := rapid.Int64Range(1, 50).Draw(rt, "n")
			switch what := rapid.IntRange(0, 3).Draw(rt, "what"); {
			case what == 0 || len(keys) == 0:
				holds++
				key := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "key")
				if _, err := a.ReserveFor(Count{key, Day(now, z)}, now, fmt.Sprint("r", k), fmt.Sprint(holds), "run", n, 0); err != nil {
					rt.Fatal(err)
				}
				keys[holds] = key
				counted = append(counted, part{key: key, start: Day(now, z), n: n, hold: holds})
			case what == 1:
				hold := rapid.SampledFrom(sortedKeys(keys)).Draw(rt, "hold")
				if _, err := a.ExtendFor(Count{Day: Day(now, z)}, now, fmt.Sprint("x", k), fmt.Sprint(hold), n); err != nil {
					rt.Fatal(err)
				}
				counted = append(counted, part{key: keys[hold], start: Day(now, z), n: n, hold: hold})
			default:
				hold := rapid.SampledFrom(sortedKeys(keys)).Draw(rt, "hold")
				h, _ := a.Hold(fmt.Sprint(hold))
				due := rapid.Int64Range(0, h.Amount()).Draw(rt, "due")
				state := a.AppendState(nil)
				entries, err := a.Clone().Settle(now, fmt.Sprint("s", k), fmt.Sprint(hold), due)
				if err != nil {
					rt.Fatal(err)
				}
				misfit := append(entries[:len(entries):len(entries)], &Entry{Key: "none", Kind: Settle, At: now, Hold: "none", Parts: []Part{{"G", 1}}})
				if a.ApplyAll(misfit) == nil || !bytes.Equal(state, a.AppendState(nil)) {
					rt.Fatal("entries that do not fit have changed the account")
				}
				if err := a.ApplyAll(entries); err != nil {
					rt.Fatal(err)
				}
				delete(keys, hold)
				for i := range counted { // the front is settled, the rest is released
					if p := &counted[i]; p.hold == hold {
						kept := min(p.n, due)
						due -= kept
						p.n = kept
					}
				}
			}
			if rapid.Bool().Draw(rt, "stored") {
				state := a.AppendState(nil)
				b, err := DecodeState(state)
				if err != nil || !bytes.Equal(state, b.AppendState(nil)) {
					rt.Fatalf("the state is read as another one: %v", err)
				}
				a = b
			}
			for _, key := range []string{"", "a", "b"} {
				for _, since := range []int64{0, Day(now, z), Day(now-3*day, z), Day(now-10*day, z)} {
					want := int64(0)
					for _, p := range counted {
						if (key == "" || p.key == key) && p.start >= since {
							want += p.n
						}
					}
					if got := a.Used(key, since); got != want {
						rt.Fatalf("key %q has used %d since %s, want %d", key, got, text3339(since), want)
					}
				}
			}
		}
	})
}

func sortedKeys(m map[int]string) (keys []int) {
	for k := range 100 {
		if _, ok := m[k]; ok {
			keys = append(keys, k)
		}
	}
	return keys
}
