// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// grants is a transition with grants of a credit each, which become the entries from+1
// to to of an account. Each is dated with its number.
func grants(tb testing.TB, s *Store, account string, from, to int) store.Transition {
	tb.Helper()
	t := store.Transition{Key: store.Key{Account: account}, Epoch: s.epoch}
	for n := from + 1; n <= to; n++ {
		e, err := ledger.NewAccount().Grant(int64(n), fmt.Sprint("grant", n), 1, ledger.Terms{Source: ledger.Paid})
		if err != nil {
			tb.Fatal(err)
		}
		t.Entries = append(t.Entries, e)
	}
	return t
}

func grant(tb testing.TB, s *Store, account string, from, to int) {
	tb.Helper()
	mustCommit(tb, s, grants(tb, s, account, from, to))
}

// Rows of the ledger that were changed by hand, with checksums that fit: Check names the
// first one, and reading what it leads to is an error.
func TestDamagedLedger(t *testing.T) {
	const rows = 2*minEntries + 10
	for _, tt := range []struct {
		name, change string
		args         func(entry []byte) []any
		says         string
		now, early   bool // whether the account can be read as of now, and as of entry 10
	}{
		{
			"a missing entry", `DELETE FROM ledger WHERE last = 5`, nil,
			`entry 5 of account "acme" is missing`, true, false,
		},
		{
			"a missing entry behind the last state", `DELETE FROM ledger WHERE last = 520`, nil,
			`entry 520 of account "acme" is missing`, false, true,
		},
		{
			"another amount", `UPDATE ledger SET data = ?1, sum = ?2 WHERE last = 5`,
			func(entry []byte) []any {
				entry[len(entry)-1] = 4 // 2 credits
				return rowOfFive(entry, 5)
			},
			`account "acme": the state stored after entry 256 is not what the entries lead to`, true, true,
		},
		{
			"another time", `UPDATE ledger SET at = 1, sum = ?2 WHERE last = 5 AND ?1 IS NOT NULL`,
			func(entry []byte) []any {
				return rowOfFive(entry, 1)
			},
			`entries 5 to 5 of account "acme" were recorded by 1, one of them says 5`, true, false,
		},
		{
			"bytes that are no entry", `UPDATE ledger SET data = ?1, sum = ?2 WHERE last = 5`,
			func([]byte) []any {
				return rowOfFive([]byte{9}, 5)
			},
			`entries 5 to 5 of account "acme" cannot be read: entry of form 9`, true, false,
		},
		{
			"an entry that does not fit", `UPDATE ledger SET data = ?1, sum = ?2 WHERE last = 5`,
			func([]byte) []any {
				return rowOfFive((&ledger.Entry{Kind: ledger.Void, At: 5, Parts: []ledger.Part{{Lot: "none", Amount: 1}}}).Append(nil), 5)
			},
			`entry 5 of account "acme" does not fit those before it: entry grant/grant5 (void): there is no lot none`, true, false,
		},
		{
			"a state of another number", `UPDATE ledger_states SET seq = 511, sum = ?2 WHERE seq = 512 AND ?1 IS NOT NULL`,
			func([]byte) []any {
				return []any{[]byte{}, int64(0)}
			},
			`state of account "acme 511": its row fails the checksum`, false, true,
		},
		{
			"a state that is no state", `UPDATE ledger_states SET state = ?1, sum = ?2 WHERE seq = 512`,
			func([]byte) []any {
				return []any{[]byte{9}, format.Sum("acme", int64(512), int64(512), []byte{9})}
			},
			`account "acme": the state stored after entry 512 is not what the entries lead to`, false, true,
		},
		{
			"a state of another entry", `UPDATE ledger_states SET state = (SELECT state FROM ledger_states WHERE seq = 256), sum = roux_sum(account, at, seq, (SELECT state FROM ledger_states WHERE seq = 256)) WHERE seq = 512`, nil,
			`account "acme": the state stored after entry 512 is not what the entries lead to`, false, true,
		},
		{
			"a key that is gone", `DELETE FROM ledger_keys WHERE key = 'grant/grant5'`, nil,
			`entry 5 (grant/grant5) is not the one that is recorded under its key`, true, true,
		},
		{
			"a key of no entry", `INSERT INTO ledger_keys SELECT account, 'more', 1000, roux_sum(account, 'more', 1000) FROM ledger_keys WHERE key = 'grant/grant5'`, nil,
			`account "acme" has keys of entries that are not there`, true, true,
		},
		{
			"entries that are gone", `DELETE FROM ledger WHERE last > 500`, nil,
			`account "acme" has states after entries that are not there`, true, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			own(t, s)
			for _, to := range [][2]int{{0, 4}, {4, 5}, {5, minEntries}, {minEntries, 500}, {500, 2 * minEntries}, {2 * minEntries, 519}, {519, 520}, {520, rows}} {
				grant(t, s, "acme", to[0], to[1])
			}
			grant(t, s, "other", 0, 3)
			if c := checkOf(t, s); len(c) > 0 {
				t.Fatalf("a sound store: %q", c)
			}
			db := rawDB(t, dir)
			defer db.Close()
			entry, _, err := s.Entry(ctx, "acme", "grant/grant5")
			if err != nil {
				t.Fatal(err)
			}
			var args []any
			if tt.args != nil {
				args = tt.args(entry.Append(nil))
			}
			change := strings.Replace(tt.change, " WHERE ", " WHERE account = 'acme' AND ", 1)
			if strings.Contains(tt.change, "SELECT") {
				change = tt.change
			}
			if _, err := db.Exec(change, args...); err != nil {
				t.Fatal(err)
			}
			c := checkOf(t, s)
			if len(c) == 0 || !strings.Contains(strings.Join(c, "\n"), tt.says) {
				t.Errorf("the check says %q, want %q", c, tt.says)
			}
			for at, whole := range map[int64]bool{math.MaxInt64: tt.now, 10: tt.early} {
				if _, err := s.Account(ctx, "acme", at); (err == nil) != whole || err != nil && !errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("the account as of %d: %v", at, err)
				}
			}
			if a, err := s.Account(ctx, "other", math.MaxInt64); err != nil || a.Balance(10).Available != 3 {
				t.Errorf("another account has %+v, %v", a, err)
			}
		})
	}
}

// rowOfFive are the data and the checksum of the row with the fifth entry alone.
func rowOfFive(entry []byte, at int64) []any {
	data := format.EntryRow("grant/grant5", entry)
	return []any{data, format.LedgerSum("acme", 5, 5, at, data)}
}

// The accounts in memory are bounded, and one that was left out is read again.
func TestManyAccounts(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short: 20,000 commits")
	}
	s := open(t, t.TempDir())
	own(t, s)
	const accounts = maxCached + 10
	for n := range 2 {
		var batch []store.Transition
		for i := range accounts {
			batch = append(batch, grants(t, s, fmt.Sprint("a", i), n, n+1))
		}
		mustCommit(t, s, batch...)
	}
	grant(t, s, "last", 0, 1)
	if len(s.accounts) > maxCached+1 {
		t.Errorf("%d accounts are in memory", len(s.accounts))
	}
	for _, i := range []int{0, accounts / 2, accounts - 1} {
		if a, err := s.Account(ctx, fmt.Sprint("a", i), math.MaxInt64); err != nil || a.Balance(9).Available != 2 {
			t.Errorf("account %d: %+v, %v", i, a, err)
		}
	}
}

// BenchmarkLedger measures the balance as of a random time and now, and a durable grant, in
// an account with a million entries, of 1,000 lots and 333,000 settled reservations. The
// grants come last: each adds a lot.
func BenchmarkLedger(b *testing.B) {
	s := openWith(b, Options{Dir: b.TempDir()})
	own(b, s)
	a := ledger.NewAccount()
	at, run := int64(0), 0
	var batch []store.Transition
	flush := func() {
		mustCommit(b, s, batch...)
		batch = batch[:0]
	}
	for a.Seq() < 1_000_000 {
		at++
		t := store.Transition{Key: store.Key{Account: "acme"}, Epoch: s.epoch}
		if a.Available(at) < 2 {
			e, err := a.Grant(at, fmt.Sprint("lot", run), 333, ledger.Terms{Source: ledger.Paid})
			if err != nil {
				b.Fatal(err)
			}
			t.Entries = append(t.Entries, e)
		} else {
			k := fmt.Sprintf("run%08d", run)
			t = startOf(s.epoch, store.Key{Account: "acme", Run: k}, "1")
			e, err := a.Reserve(at, k+"/1/reserve", k+"/1", k, 2, 0)
			if err != nil {
				b.Fatal(err)
			}
			settled, err := a.Settle(at, k+"/1/settle", k+"/1", 1)
			if err != nil {
				b.Fatal(err)
			}
			t.Entries = append(append(t.Entries, e), settled...)
			t.Head.Ended = 1
			t.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: t.Frames}
		}
		run++
		if batch = append(batch, t); len(batch) == 1000 {
			flush()
		}
	}
	flush()
	b.Logf("%d entries, %d lots and holds, %d bytes of state", a.Seq(), a.Size(), len(a.AppendState(nil)))
	b.Run("balance", func(b *testing.B) {
		when := int64(1)
		for b.Loop() {
			when = (when*7919 + 12345) % at
			old, err := s.Account(ctx, "acme", when)
			if err != nil || old.Balance(when).Granted == 0 {
				b.Fatal(old, err)
			}
		}
	})
	b.Run("now", func(b *testing.B) {
		for b.Loop() {
			got, err := s.Account(ctx, "acme", math.MaxInt64)
			if err != nil || got.Seq() != a.Seq() {
				b.Fatal(err)
			}
		}
	})
	if got, err := s.Account(ctx, "acme", math.MaxInt64); err != nil || !bytes.Equal(got.AppendState(nil), a.AppendState(nil)) {
		b.Fatal(err)
	}
	b.Run("grant", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n++
			e, err := a.Grant(at, fmt.Sprint("more", a.Seq(), n), 1, ledger.Terms{Source: ledger.Paid})
			if err != nil {
				b.Fatal(err)
			}
			mustCommit(b, s, store.Transition{Key: store.Key{Account: "acme"}, Epoch: s.epoch, Entries: []*ledger.Entry{e}})
		}
	})
}

// I23: the entries of a store of schema 7, which had a row each, are read and go on; a
// damaged one stays damaged.
func TestI23_EntriesThatHadARowEach(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	own(t, s)
	grant(t, s, "acme", 0, minEntries+3)
	want, err := s.Entries(ctx, "acme", 0, 1000)
	if err != nil || len(want) != minEntries+3 {
		t.Fatal(len(want), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := rawDB(t, dir)
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.Exec(query, args...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	exec(`DROP TABLE ledger`)
	exec(`DROP TABLE ledger_keys`)
	exec(`DROP TABLE records`)
	exec(`DROP TABLE record_revisions`)
	exec(`DROP TABLE run_marks`)
	exec(`DROP TABLE run_labels`)
	exec(`DROP TABLE hidden_runs`)
	exec(`DROP TABLE recipe_spans`)
	exec(`DROP INDEX runs_failed`)
	first, err := migrations.ReadFile("migrations/00006_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(first), "CREATE TABLE ledger_states")
	exec(text)
	for i, e := range want {
		data := e.Append(nil)
		exec(`INSERT INTO ledger VALUES ('acme', ?, ?, ?, ?, ?)`, i+1, e.Key, e.At, data, format.Sum("acme", int64(i+1), e.Key, e.At, data))
	}
	exec(`INSERT INTO ledger VALUES ('damaged', 1, 'k', 1, ?, 1)`, want[0].Append(nil))
	exec(`DELETE FROM goose_db_version WHERE version_id >= 11`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	own(t, s)
	got, err := s.Entries(ctx, "acme", 0, 1000)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d entries, %v, are not the %d from before", len(got), err, len(want))
	}
	if e, n, err := s.Entry(ctx, "acme", "grant/grant7"); err != nil || n != 7 || !reflect.DeepEqual(e, want[6]) {
		t.Errorf("entry grant/grant7 is %d, %+v, %v", n, e, err)
	}
	if _, err := s.Account(ctx, "damaged", math.MaxInt64); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("a damaged entry is read: %v", err)
	}
	again := store.Transition{Key: store.Key{Account: "acme"}, Epoch: s.epoch, Entries: want[:1]}
	if v, err := s.Commit(ctx, []store.Transition{again}); err != nil || !errors.Is(v[0].Err, fault.Conflict) {
		t.Errorf("a key from before is used again: %v, %v", v, err)
	}
	grant(t, s, "acme", minEntries+3, minEntries+9)
	if c := checkOf(t, s); len(c) != 2 || !strings.Contains(c[0], `"damaged 1"`) {
		t.Errorf("the check says %q", c)
	}
}
