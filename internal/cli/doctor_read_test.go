// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// TestDoctorReadsEverything checks that doctor names a head that is intact but differs
// from the journal, and a file with a flipped bit.
func TestDoctorReadsEverything(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	data := filepath.Join(dir, "data")
	recipe := filepath.Join(dir, "r.yaml")
	if err := os.WriteFile(recipe, []byte("name: r\nsteps:\n  - id: a\n    transform: {expression: '1'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, talk, code := inProcess("", "run", recipe, "--data", data); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, talk)
	}
	if out, talk, code := inProcess("", "files", "put", recipe, "--data", data); code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, talk)
	}
	check := func(want int, text string) {
		t.Helper()
		out, talk, code := inProcess("", "doctor", "--data", data)
		if code != want || !strings.Contains(out, text) {
			t.Errorf("exit %d, want %d and %q\n%s%s", code, want, text, out, talk)
		}
	}
	check(0, "1 run as lists show them")

	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	heads, err := st.List(t.Context(), store.Query{Account: account})
	if err != nil || len(heads) != 1 {
		t.Fatal(heads, err)
	}
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, apart := range []string{"it stopped the process", store.ImportedReason, ""} { // also a quarantined run
		for _, status := range []string{"failed", heads[0].Status} {
			h := heads[0]
			h.Status, h.Quarantine = status, apart
			if _, err := st.Commit(t.Context(), []store.Transition{{Key: h.Key, Epoch: epoch, Head: &h}}); err != nil {
				t.Fatal(err)
			}
			if _, err := doctor.CheckHead(t.Context(), st, h); (err == nil) != (status == heads[0].Status) {
				t.Errorf("shown as %s (%s): %v", status, apart, err)
			}
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(data, datadir.Files, "acct_*", "*", "*"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, name := range found {
		if strings.HasSuffix(name, ".json") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[3] ^= 4
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check(1, "is damaged in the store")
}
