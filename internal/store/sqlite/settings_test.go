// SPDX-License-Identifier: Apache-2.0

package sqlite

import "testing"

// What a measurement says of the store is what the writing connection does.
func TestSettingsOfTheWriter(t *testing.T) {
	s := openWith(t, Options{Dir: t.TempDir()})
	got, err := s.Settings()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"synchronous": "FULL", "journal_mode": "wal", "page_size": "4096"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if got["sqlite"] == "" {
		t.Error("the version of SQLite is missing")
	}
	if _, err := s.st.begin.exec(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ask(`SELECT nothing FROM nowhere`); err == nil {
		t.Error("a query that cannot be answered was answered")
	}
	if _, err := s.st.rollback.exec(); err != nil {
		t.Fatal(err)
	}
}
