// SPDX-License-Identifier: Apache-2.0

package sqlite

import "testing"

// Settings reports what the writing connection uses.
func TestSettingsOfTheWriter(t *testing.T) {
	s := openWith(t, Options{Dir: t.TempDir()})
	got, err := s.Settings()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"synchronous": "FULL", "journal_mode": "wal", "page_size": "8192"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if got["sqlite"] == "" {
		t.Error("the version of SQLite is missing")
	}
	if _, err := s.st.begin.Exec(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Value(`SELECT nothing FROM nowhere`); err == nil {
		t.Error("a query that cannot be answered was answered")
	}
	if _, err := s.st.rollback.Exec(); err != nil {
		t.Fatal(err)
	}
}

// A file of an older release keeps its pages of 4 KiB.
func TestAnOlderFileKeepsItsPages(t *testing.T) {
	dir := t.TempDir()
	if _, err := rawDB(t, dir).Exec(`PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; CREATE TABLE t (v); DROP TABLE t`); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		s := openWith(t, Options{Dir: dir})
		got, err := s.Settings()
		if err != nil {
			t.Fatal(err)
		}
		if got["page_size"] != "4096" || got["journal_mode"] != "wal" {
			t.Errorf("pages of %s bytes, a log of the mode %s", got["page_size"], got["journal_mode"])
		}
		mustCommit(t, s, startOf(own(t, s), runKey(n), "1"))
		wantRuns(t, s, n+1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
