// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// TestFlippedColumns flips bits in every column that a checksum covers. Reading the row
// then returns an error, and Check names the row.
func TestFlippedColumns(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	epoch := own(t, s)
	first, second := startOf(epoch, runKey(0), "1"), startOf(epoch, runKey(1), "1")
	second.Idempotency = &store.Idempotency{Key: "key", BodyHash: "body", Until: 1 << 50}
	second.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: make([]byte, format.MaxPiece+1), Format: 1, State: []byte("state")}
	second.Suspension = &store.Suspension{WakeAt: 1 << 50}
	second.Plans = []store.EncodedPlan{{Key: "plan", Data: []byte("a plan")}}
	first.Head.Labels = `{"a":"b"}`
	mustCommit(t, s, first, second)
	// A run in two pieces, and a deleted one whose events are still in the journal.
	third, fourth := startOf(epoch, runKey(2), "1"), startOf(epoch, runKey(3), "1")
	third.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
	fourth.Head.Ended, fourth.Files = 5, []string{"sha256_f"}
	fourth.Compaction = &store.Compaction{First: 1, Last: 1, Chunk: []byte("1")}
	mustCommit(t, s, third, fourth)
	mustCommit(t, s, store.Transition{Key: runKey(2), Epoch: epoch, First: 2, Last: 2, Frames: []byte("2"), Compaction: &store.Compaction{First: 2, Last: 2, Chunk: []byte("2")}})
	if v, err := s.Delete(ctx, epoch, 0, []store.Key{runKey(3)}); err != nil || v[0].Err != nil {
		t.Fatal(v, err)
	}
	account := ledger.NewAccount()
	grants := store.Transition{Key: store.Key{Account: "acme"}, Epoch: epoch}
	for i := range minEntries + 1 {
		e, err := account.Grant(int64(i), fmt.Sprint("grant", i), 1, ledger.Terms{Source: ledger.Paid})
		if err != nil {
			t.Fatal(err)
		}
		grants.Entries = append(grants.Entries, e)
	}
	mustCommit(t, s, grants)
	putRecords(t, s, epoch, store.Record{RecordKey: recordKey("r"), Name: "name", Until: 1 << 50, Data: []byte("data")})
	if err := s.SetNote(ctx, epoch, "note", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if c := checkOf(t, s); len(c) > 0 {
		t.Fatalf("a sound store: %q", c)
	}
	db := rawDB(t, dir)
	defer db.Close()
	flips, step := 0, 1
	if testing.Short() {
		step = 7
	}
	for _, at := range []struct{ table, columns string }{
		{"runs", "recipe version plan_hash status created updated ended code message used failures quarantine owes parked wake_at last pack packed start_sum head_sum park_sum reach_sum place_sum"},
		{"idempotency", "body_hash run sum"},
		{"plans", "data sum"},
		{"notes", "value sum"},
		{"snapshots", "last format sum"},
		{"chunks", "first last sum"},
		{"pieces", "first last pack sum"},
		{"deleted", "before sum"},
		{"file_released", "at sum"},
		{"owner", "epoch sum"},
		{"ledger", "first at data sum"},
		{"ledger_keys", "seq sum"},
		{"ledger_states", "at state sum"},
		{"feed", "first at data sum"},
		{"run_marks", "data"},
		{"records", "revision name until created updated sum data"},
		{"record_revisions", "last sum"},
	} {
		for column := range strings.FieldsSeq(at.columns) {
			for bit := 0; bit < 20; bit += step {
				flips++
				undo := flipColumn(t, db, at.table, column, bit)
				if c := checkOf(t, s); len(c) == 0 {
					t.Errorf("bit %d of %s.%s: nothing is said", bit, at.table, column)
				}
				if at.table == "run_marks" {
					if _, err := s.Head(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
						t.Errorf("bit %d of a mark: the head is shown: %v", bit, err)
					}
				}
				if at.table == "runs" && !strings.Contains(" parked wake_at park_sum last pack packed reach_sum place_sum ", " "+column+" ") {
					if _, err := s.Head(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
						t.Errorf("bit %d of %s: the head is shown: %v", bit, column, err)
					}
					for _, q := range []store.Query{{Account: "acme"}, {Account: "acme", Status: "running", Recipe: "r"}} {
						if q.Recipe != "" && (column == "recipe" || column == "ended") {
							continue // the index has the damaged value, too
						}
						heads, err := s.List(ctx, q)
						i := slices.IndexFunc(heads, func(h store.Head) bool { return h.Key == runKey(0) })
						if err != nil || len(heads) != 3 || i < 0 || !strings.Contains(heads[i].Damage, "failed the checksum") || heads[i].Status != "" {
							t.Errorf("bit %d of %s: listed as %+v, %v", bit, column, heads, err)
						}
					}
				}
				if at.table == "runs" {
					if _, err := s.Load(ctx, runKey(0)); !errors.Is(err, fault.StoreCorrupt) {
						t.Errorf("bit %d of %s: the run is loaded: %v", bit, column, err)
					}
				}
				if _, err := s.Events(ctx, runKey(2), 0, 1<<20); (at.table == "pieces") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the events in pieces: %v", bit, at.table, column, err)
				}
				if _, err := s.Events(ctx, runKey(1), 0, 1<<20); (at.table == "chunks") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the events in a chunk: %v", bit, at.table, column, err)
				}
				_, err := s.Account(ctx, "acme", math.MaxInt64)
				_, early := s.Account(ctx, "acme", 5)
				if (at.table == "ledger_states") != errors.Is(err, fault.StoreCorrupt) || at.table == "ledger" && !errors.Is(early, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the account: %v; earlier: %v", bit, at.table, column, err, early)
				}
				if _, err := s.Changes(ctx, "acme", 0, 10); (at.table == "feed") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the changes: %v", bit, at.table, column, err)
				}
				if _, err := s.Record(ctx, recordKey("r")); (at.table == "records") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the record: %v", bit, at.table, column, err)
				}
				if _, err := s.Plan(ctx, "plan"); (at.table == "plans") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the plan: %v", bit, at.table, column, err)
				}
				if _, err := s.Note(ctx, "note"); (at.table == "notes") != errors.Is(err, fault.StoreCorrupt) {
					t.Errorf("bit %d of %s.%s: the note: %v", bit, at.table, column, err)
				}
				undo()
			}
		}
	}
	t.Logf("%d flips", flips)
	if c := checkOf(t, s); len(c) > 0 {
		t.Fatalf("after all was undone: %q", c)
	}
}

func checkOf(t *testing.T, s *Store) []string {
	t.Helper()
	_, complaints, err := s.Check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return complaints
}

// flipColumn flips one bit of a column in the first row of the table, and returns a
// function that undoes it.
func flipColumn(t *testing.T, db *sql.DB, table, column string, bit int) (undo func()) {
	t.Helper()
	key := map[string]string{"runs": "run", "idempotency": "key", "notes": "name", "plans": "hash", "snapshots": "run",
		"chunks": "run", "pieces": "run", "deleted": "run", "file_released": "hash", "owner": "id", "ledger": "last", "ledger_keys": "key", "ledger_states": "seq", "feed": "last", "run_marks": "run", "records": "id", "record_revisions": "id"}[table]
	var id, was any
	if err := db.QueryRow(fmt.Sprintf(`SELECT %s, %s FROM %s ORDER BY 1 LIMIT 1`, key, column, table)).Scan(&id, &was); err != nil {
		t.Fatal(err)
	}
	set := func(v any) {
		if _, err := db.Exec(fmt.Sprintf(`UPDATE %s SET %s = ? WHERE %s = ?`, table, column, key), v, id); err != nil {
			t.Fatal(err)
		}
	}
	switch v := was.(type) {
	case int64:
		set(v ^ 1<<bit)
	case string:
		b := append([]byte(v), 0)
		if len(v) > 0 {
			b = b[:len(v)]
		}
		b[bit/8%len(b)] ^= 1 << (bit % 8)
		set(string(b))
	case []byte:
		b := append([]byte(nil), v...)
		b[bit/8%len(b)] ^= 1 << (bit % 8)
		set(b)
	default:
		t.Fatalf("%s.%s is %T", table, column, was)
	}
	return func() { set(was) }
}
