// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCheck: a sound file has no complaint; one whose pages were overwritten
// has, or cannot be read at all.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	version, complaints, err := s.Check(t.Context())
	if err != nil || version != schemaVersion || len(complaints) > 0 {
		t.Fatalf("version %d, %v, %v", version, complaints, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "roux.db")
	// Closing the store keeps the log, and the next opening would read the pages in it.
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := int(data[16])<<8 | int(data[17])
	for i := len(data) - page; i < len(data); i++ {
		data[i] ^= 0x5A // the last page holds a table or an index
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(t.Context(), Options{Dir: dir})
	if err == nil {
		if _, complaints, err = s.Check(t.Context()); err == nil && len(complaints) == 0 {
			t.Error("a damaged page was not noticed")
		}
		_ = s.Close()
	}
}
