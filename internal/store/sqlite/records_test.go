// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/records"
	"github.com/roux-engine/roux/internal/store/sqlite/wal"
)

func recordKey(id string) store.RecordKey {
	return store.RecordKey{Account: "acme", Kind: "recipe", ID: id}
}

func putRecords(t testing.TB, s *Store, epoch uint64, list ...store.Record) []store.Record {
	t.Helper()
	var changes []store.RecordChange
	for i := range list {
		r := list[i]
		r.Revision = store.AnyRevision
		changes = append(changes, store.RecordChange{Record: r})
	}
	stored, err := s.PutRecords(ctx, epoch, 1, changes)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// A record whose row or data are damaged is said to be, by every way of reading it and by a
// check. It hides no other, is written only without a condition, and is whole again then.
func TestDamagedRecords(t *testing.T) {
	for _, damage := range []struct{ what, query string }{
		{"name", `UPDATE records SET name = 'none' WHERE id = 'b'`},
		{"revision", `UPDATE records SET revision = revision - 1 WHERE id = 'b'`},
		{"until", `UPDATE records SET until = 1 WHERE id = 'b'`},
		{"data", `UPDATE records SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB) WHERE id = 'b'`},
		{"empty data", `UPDATE records SET data = x'' WHERE id = 'b'`},
	} {
		t.Run(damage.what, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			epoch := own(t, s)
			stored := putRecords(t, s, epoch, store.Record{RecordKey: recordKey("a"), Data: []byte("1")}, store.Record{RecordKey: recordKey("b"), Name: "named", Data: []byte("22")},
				store.Record{RecordKey: recordKey("c"), Data: []byte("3")})
			if _, err := rawDB(t, dir).Exec(damage.query); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Record(ctx, recordKey("b")); !errors.Is(err, fault.StoreCorrupt) {
				t.Errorf("Record = %v", err)
			}
			if _, err := s.RecordNamed(ctx, "acme", "recipe", "named"); damage.what != "name" && !errors.Is(err, fault.StoreCorrupt) {
				t.Errorf("RecordNamed = %v", err)
			}
			page, _, err := s.Records(ctx, store.RecordQuery{Account: "acme", Kind: "recipe"})
			if err != nil || len(page) != 3 || page[1].RecordKey != recordKey("b") || page[1].Damage == "" || page[1].Data != nil || page[0].Damage+page[2].Damage != "" {
				t.Errorf("Records = %+v, %v", page, err)
			}
			if c := checkOf(t, s); len(c) != 1 || !strings.Contains(c[0], `record "acme recipe b"`) {
				t.Errorf("the check says %q", c)
			}
			guarded := store.RecordChange{Record: store.Record{RecordKey: recordKey("b"), Revision: stored[1].Revision}}
			if _, err := s.PutRecords(ctx, epoch, 2, []store.RecordChange{guarded}); !strings.Contains(damage.what, "data") && !errors.Is(err, fault.StoreCorrupt) {
				t.Errorf("a change with a guard = %v", err)
			}
			again := putRecords(t, s, epoch, store.Record{RecordKey: recordKey("b"), Name: "named", Data: []byte("4")})
			if got, err := s.Record(ctx, recordKey("b")); err != nil || string(got.Data) != "4" || got.Revision != again[0].Revision || got.Revision <= stored[2].Revision {
				t.Errorf("written again: %+v, %v", got, err)
			}
			if c := checkOf(t, s); len(c) > 0 {
				t.Errorf("then the check says %q", c)
			}
		})
	}
}

// If the number of the last revision is damaged or lost, the next ones are far behind all
// that can have been used.
func TestDamagedRevisions(t *testing.T) {
	for _, query := range []string{`UPDATE record_revisions SET last = 3`, `DELETE FROM record_revisions`, `UPDATE record_revisions SET last = 'x'`} {
		dir := t.TempDir()
		s := open(t, dir)
		epoch := own(t, s)
		putRecords(t, s, epoch, store.Record{RecordKey: recordKey("a")}, store.Record{RecordKey: recordKey("b")})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db := rawDB(t, dir)
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, dir)
		if c := checkOf(t, s); (len(c) == 0) == strings.HasPrefix(query, "UPDATE") {
			t.Errorf("%s: the check says %q", query, c)
		}
		if r := putRecords(t, s, own(t, s), store.Record{RecordKey: recordKey("c")}); r[0].Revision != 3+records.Skipped {
			t.Errorf("%s: the next revision is %d", query, r[0].Revision)
		}
		if c := checkOf(t, s); len(c) > 0 {
			t.Errorf("%s: after a write the check says %q", query, c)
		}
	}
}

// Records are taken out of an image as far as they are whole, with its names, and revisions
// go on where none was used.
func TestTakeOverRecords(t *testing.T) {
	from := t.TempDir()
	s := open(t, from)
	epoch := own(t, s)
	stored := putRecords(t, s, epoch, store.Record{RecordKey: recordKey("a"), Name: "name", Until: 7, Data: bytes.Repeat([]byte("text "), 1_000)},
		store.Record{RecordKey: recordKey("row")}, store.Record{RecordKey: recordKey("data"), Data: []byte("x")}, store.Record{RecordKey: store.RecordKey{Kind: "key", ID: "k"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{`UPDATE records SET until = 9 WHERE id = 'row'`, `UPDATE records SET data = x'00' WHERE id = 'data'`} {
		if _, err := rawDB(t, from).Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, t.TempDir())
	epoch = own(t, s)
	putRecords(t, s, epoch, store.Record{RecordKey: recordKey("mine")})
	for _, all := range []bool{false, true, true} {
		if err := s.TakeOver(ctx, wal.Image{Dir: from}, all); err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{all, false, false, all} {
			r, err := s.Record(ctx, stored[i].RecordKey)
			if is := err == nil; is != want || is && fmt.Sprint(r) != fmt.Sprint(stored[i]) {
				t.Errorf("all %t: record %s is %+v, %v", all, stored[i].ID, r, err)
			}
		}
	}
	next := putRecords(t, s, epoch, store.Record{RecordKey: recordKey("next")})[0].Revision
	if next <= stored[3].Revision+records.Skipped {
		t.Errorf("the next revision is %d", next)
	}
	if err := s.EndFeeds(ctx); err != nil {
		t.Fatal(err)
	}
	if r := putRecords(t, s, epoch, store.Record{RecordKey: recordKey("next")}); r[0].Revision <= next+records.Skipped {
		t.Errorf("after the end of feeds the next revision is %d", r[0].Revision)
	}
	if c := checkOf(t, s); len(c) > 0 {
		t.Errorf("the check says %q", c)
	}
}

// A list of keys does not read the data, a page reads no more rows than it has, and a record
// is found by its key and by its name, not by a scan.
func TestPlansOfRecords(t *testing.T) {
	s := open(t, t.TempDir())
	for name, want := range map[string]string{
		"recordByKey":    "SEARCH records USING INDEX sqlite_autoindex_records_1 (account=? AND kind=? AND id=?)",
		"recordByName":   "SEARCH records USING INDEX records_name (account=? AND kind=? AND name=?)",
		"findRecordName": "SEARCH records USING INDEX records_name (account=? AND kind=? AND name=?)",
	} {
		if got := queryPlan(t, s, textOf(t, name), "acme", "recipe", "x"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"SELECT id " + textOf(t, "recordIds") + " DESC " + textOf(t, "recordLimit"), "SEARCH records USING COVERING INDEX sqlite_autoindex_records_1 (account=? AND kind=? AND id>? AND id<?)"},
		{"SELECT name " + textOf(t, "recordNames") + " " + textOf(t, "recordLimit"), "SEARCH records USING INDEX records_name (account=? AND kind=? AND name>? AND name<?)"},
	} {
		if got := queryPlan(t, s, tt.text, "acme", "recipe", "", "x", 50, "", "x"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.text, got, tt.want)
		}
	}
	if got := queryPlan(t, s, textOf(t, "forgetRecords"), 1, 1); !strings.Contains(got, "SEARCH records USING COVERING INDEX records_until (until<?)") {
		t.Errorf("forgetRecords: %s", got)
	}
}

// Reads of records do not wait for the writer.
func TestRecordsAreReadBesideACommit(t *testing.T) {
	s := open(t, t.TempDir())
	epoch := own(t, s)
	putRecords(t, s, epoch, store.Record{RecordKey: recordKey("a"), Name: "n"})
	s.w.Lock() // a commit is under way
	defer s.w.Unlock()
	done := make(chan error, 1)
	go func() {
		_, err := s.Record(ctx, recordKey("a"))
		_, named := s.RecordNamed(ctx, "acme", "recipe", "n")
		_, _, list := s.Records(ctx, store.RecordQuery{Account: "acme", Kind: "recipe"})
		done <- errors.Join(err, named, list)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the reads wait for the commit")
	}
}

// BenchmarkRecords writes one small record at a time, and reads records by key and by name,
// and a page of them, in a store of 100,000.
func BenchmarkRecords(b *testing.B) {
	s := openWith(b, Options{Dir: b.TempDir()})
	epoch := own(b, s)
	const n = 100_000
	data := bytes.Repeat([]byte(`{"field": "value"} `), 10)
	of := func(i int) store.Record {
		i %= n
		return store.Record{RecordKey: recordKey(fmt.Sprintf("recipe_%06d", i)), Name: fmt.Sprintf("name-%06d", i*7919%n), Data: data}
	}
	for from := 0; from < n; from += 1_000 {
		var some []store.Record
		for i := range 1_000 {
			some = append(some, of(from+i))
		}
		putRecords(b, s, epoch, some...)
	}
	i := 0
	run := func(name string, fn func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				i += 7919
				if err := fn(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("put", func() error {
		r := of(i)
		r.Revision = store.AnyRevision
		_, err := s.PutRecords(ctx, epoch, 1, []store.RecordChange{{Record: r}})
		return err
	})
	run("get", func() error { _, err := s.Record(ctx, of(i).RecordKey); return err })
	run("named", func() error { _, err := s.RecordNamed(ctx, "acme", "recipe", of(i).Name); return err })
	run("list", func() error {
		_, _, err := s.Records(ctx, store.RecordQuery{Account: "acme", Kind: "recipe", After: of(i).ID, KeysOnly: true})
		return err
	})
}

// textOf returns a statement by its name.
func textOf(t *testing.T, name string) string {
	t.Helper()
	texts, err := catalog.Load(sqlFiles)
	if err != nil {
		t.Fatal(err)
	}
	text := texts.Text(name)
	if err := texts.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}
