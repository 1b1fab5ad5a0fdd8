// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

const runs = 8

// books makes a data directory with two lots and runs that have paid 3 of the 5 credits
// that they held: entries 1 and 2, and three for each run. No row has two entries.
func books(t *testing.T) (dir string) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	s, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	must(t, err)
	epoch, err := s.Own(ctx)
	must(t, err)
	commit := func(tr store.Transition) {
		t.Helper()
		tr.Epoch = epoch
		v, err := s.Commit(ctx, []store.Transition{tr})
		must(t, err)
		must(t, v[0].Err)
	}
	a := ledger.NewAccount()
	for _, lot := range []string{"first", "second"} {
		e, err := a.Grant(1, lot, 30, ledger.Terms{Source: ledger.Paid})
		must(t, err)
		commit(store.Transition{Key: store.Key{Account: "acme"}, Entries: []*ledger.Entry{e}})
	}
	act := &action.Action{Name: "noop", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }}
	p, diags := compile.Compile(&recipe.Recipe{Head: recipe.Head{Name: "r"}, Steps: []*recipe.Step{{ID: "a", Action: &recipe.Action{Name: "noop"}}}}, nil,
		compile.Options{Actions: catalogue.New(act)})
	if p == nil {
		t.Fatal(diags)
	}
	encoded, err := p.Encode()
	must(t, err)
	for i := range runs {
		key := store.Key{Account: "acme", Run: fmt.Sprint("run_", i)}
		at := int64(10 * (i + 1))
		start, err := journal.EncodeStart(&journal.Start{Run: key.Run, Account: "acme", Recipe: "r", PlanHash: p.Key(),
			Credits: &journal.Credits{Estimated: 4, Reserved: 5, Most: 10, Policy: ledger.RefundUnused}})
		must(t, err)
		hold := key.Run + ".1"
		reserve, err := a.Reserve(at, "reserve/"+hold, hold, key.Run, 5, at+p.TTLMS*1000)
		must(t, err)
		head := &store.Head{Key: key, Recipe: "r", PlanHash: p.Key(), Status: "running", Created: at, Updated: at}
		commit(store.Transition{Key: key, First: 1, Last: 2, Head: head, Plans: []store.EncodedPlan{{Key: p.Key(), Data: encoded}},
			Entries: []*ledger.Entry{reserve}, Frames: journal.AppendFrame(nil, []journal.Event{
				{Seq: 1, At: at, Kind: journal.EvRunStarted, Data: start}, {Seq: 2, At: at, Kind: journal.EvCreditsReserved, N: 5, M: 4}})})
		settled, err := a.Settle(at+5, ledger.EventKey(ledger.Settle, hold, 5), hold, 3)
		must(t, err)
		ended := *head
		ended.Status, ended.Ended, ended.Used = "completed", at+5, 3
		commit(store.Transition{Key: key, First: 3, Last: 6, Head: &ended, Entries: settled[:1], Frames: journal.AppendFrame(nil, []journal.Event{
			{Seq: 3, At: at + 5, Kind: journal.EvNodeCharged, N: 2_500_000}, {Seq: 4, At: at + 5, Kind: journal.EvNodeCompleted},
			{Seq: 5, At: at + 5, Kind: journal.EvCreditsSettled, N: 3, M: 2}, {Seq: 6, At: at + 5, Kind: journal.EvRunCompleted, N: 3}})})
		// A row of its own, so that one entry can be damaged alone.
		commit(store.Transition{Key: key, First: 7, Last: 7, Entries: settled[1:], Frames: journal.AppendFrame(nil, []journal.Event{{Seq: 7, At: at + 5, Kind: journal.EvNodeIgnored}})})
	}
	must(t, s.Close())
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prove(t *testing.T, dir string) *reconcile.Report {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	r, err := reconcile.Account(context.Background(), s, "acme", nil)
	must(t, err)
	return r
}

// A row of the ledger is changed by hand, with a checksum that fits: the proof names it,
// and no row before it.
func TestI11_ReconcileNamesTheFirstRowChanged(t *testing.T) {
	const n = 9 // the reservation of run_2 is 9, its settlement 10, its release 11
	change := func(seq int64, fn func(e *ledger.Entry)) func(*testing.T, *sql.DB) {
		return func(t *testing.T, db *sql.DB) {
			var data []byte
			var at int64
			must(t, db.QueryRow(`SELECT data, at FROM ledger WHERE last = ?`, seq).Scan(&data, &at))
			var row format.Entries
			row.Reset()
			must(t, format.EachEntry(data, 1, func(e *ledger.Entry) error { fn(e); row.Add(e); return nil }))
			exec(t, db, `UPDATE ledger SET data = ?, sum = ? WHERE last = ?`, row.Data(), format.LedgerSum("acme", seq, seq, at, row.Data()), seq)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*testing.T, *sql.DB)
		entry  uint64
		says   string
	}{
		{"amount of a reservation", change(n, func(e *ledger.Entry) { e.Parts[0].Amount++ }), n, "reserve 5, as event 2 says"},
		{"amount of a settlement", change(n+1, func(e *ledger.Entry) { e.Parts[0].Amount-- }), n + 1, "settle 3, as event 5 says"},
		{"lot", change(n, func(e *ledger.Entry) { e.Parts[0].Lot = "second" }), n, "5 of lot first, which are used first"},
		{"key", change(n+1, func(e *ledger.Entry) { e.Key = "settle/run_2.1.4" }), n + 1, "names its reservation and event 5"},
		{"time", change(n+1, func(e *ledger.Entry) { e.At -= 3 }), n + 1, "the time of event 5"},
		{"end of a reservation", change(n, func(e *ledger.Entry) { e.HoldUntil++ }), n, "the end of the run's ttl"},
		{"run", change(n, func(e *ledger.Entry) { e.Run = "run_3" }), n, "run run_2, whose reservation it names"},
		{"kind", change(n+1, func(e *ledger.Entry) { e.Kind = ledger.Release }), n + 1, "settle 3, as event 5 says"},
		{"deleted row", func(t *testing.T, db *sql.DB) { exec(t, db, `DELETE FROM ledger WHERE last = 10`) }, n + 1, "entry 10 of account \"acme\" is missing"},
		{"doubled row", func(t *testing.T, db *sql.DB) {
			exec(t, db, `UPDATE ledger SET data = (SELECT data FROM ledger WHERE last = 10), sum = roux_sum(account, 11, 11, at, (SELECT data FROM ledger WHERE last = 10)) WHERE last = 11`)
		}, n + 2, "entry 11"},
		{"rows in another order", func(t *testing.T, db *sql.DB) {
			exec(t, db, `UPDATE ledger SET last = 1000 WHERE last = 9`)
			exec(t, db, `UPDATE ledger SET first = 9, last = 9, sum = roux_sum(account, 9, 9, at, data) WHERE last = 10`)
			exec(t, db, `UPDATE ledger SET first = 10, last = 10, sum = roux_sum(account, 10, 10, at, data) WHERE last = 1000`)
		}, n, "entry 9"},
		{"row without its checksum", func(t *testing.T, db *sql.DB) { exec(t, db, `UPDATE ledger SET at = at + 1 WHERE last = 10`) }, n + 1, "failed the checksum"},
		{"snapshot", func(t *testing.T, db *sql.DB) {
			exec(t, db, `INSERT INTO ledger_states (account, at, seq, state, sum) SELECT account, at, last, x'01', roux_sum(account, at, last, x'01') FROM ledger WHERE last = 10`)
		}, n + 2, "the state stored after entry 10 is not what the entries lead to"},
		{"journal", func(t *testing.T, db *sql.DB) {
			exec(t, db, `UPDATE journal SET data = zeroblob(length(data)) WHERE id = (SELECT id FROM journal WHERE instr(data, 'run_2') ORDER BY id LIMIT 1 OFFSET 1)`) // its events 3 to 6
		}, n + 1, "no such event"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := books(t)
			if r := prove(t, dir); len(r.Findings) > 0 || r.Runs != runs || r.Entries != 2+3*runs {
				t.Fatalf("sound books: %+v", r)
			}
			db, err := sql.Open("sqlite", filepath.Join(dir, "roux.db"))
			must(t, err)
			tt.change(t, db)
			must(t, db.Close())
			r := prove(t, dir)
			if len(r.Findings) == 0 || r.Findings[0].Entry != tt.entry || !strings.Contains(fmt.Sprint(r.Findings), tt.says) {
				t.Errorf("found %+v, want entry %d first, %q", r.Findings, tt.entry, tt.says)
			}
		})
	}
}

// The row of a run in the list says what its steps cost.
func TestI11_ReconcileComparesHeads(t *testing.T) {
	dir := books(t)
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: dir})
	must(t, err)
	key := store.Key{Account: "acme", Run: "run_4"}
	head, err := s.Head(context.Background(), key)
	must(t, err)
	epoch, err := s.Own(context.Background())
	must(t, err)
	head.Used = 4
	_, err = s.Commit(context.Background(), []store.Transition{{Key: key, Epoch: epoch, Head: &head}})
	must(t, err)
	must(t, s.Close())
	if r := prove(t, dir); len(r.Findings) != 1 || r.Findings[0].Run != "run_4" || !strings.Contains(r.Findings[0].Found, "used 4 credits") {
		t.Errorf("found %+v", r.Findings)
	}
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Exec(query, args...)
	must(t, err)
}
