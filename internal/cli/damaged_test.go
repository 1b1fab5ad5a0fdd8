// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// TestOneDamagedHead: a run whose row is damaged is named by lists, which show the
// others and exit with 70. Only what needs that run fails.
func TestOneDamagedHead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	data, recipe := filepath.Join(dir, "data"), filepath.Join(dir, "r.yaml")
	t.Setenv("ROUX_DATA", data)
	roux := func(want int, args ...string) (out, talk string) {
		t.Helper()
		out, talk, code := inProcess("", args...)
		if code != want {
			t.Errorf("roux %v: exit %d, want %d\n%s%s", args, code, want, out, talk)
		}
		return out, talk
	}
	var ids []string
	for i := range 3 {
		text := fmt.Sprintf("name: r%d\nsteps:\n  - {id: a, transform: {expression: '1'}}\n", i)
		if err := os.WriteFile(recipe, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, _ := roux(fault.ExitOK, "run", recipe, "-q", "-o", "name")
		ids = append(ids, strings.TrimSpace(out))
	}
	damage := func(query, run string) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(data, datadir.Database))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), query, run); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	damage(`UPDATE runs SET status = 'bompleted', ended = 0 WHERE run = ?`, ids[1])
	// The engine takes the run for one that has not ended and tries to quarantine it.
	// The mark must not be stored, because the row would then have a new checksum over
	// damaged columns.
	roux(fault.ExitOK, "run", recipe, "-q")
	roux(fault.ExitOK, "resume")
	for _, args := range [][]string{{"runs", "list"}, {"runs", "list", "--status", "completed"}, {"runs", "list", "--limit", "3"}} {
		out, talk := roux(fault.ExitInternal, args...)
		if strings.Contains(out, "bompleted") || strings.Count(out, "completed") < 1 || !strings.Contains(out, ids[1]) ||
			!strings.Contains(out, damagedStatus) || !strings.Contains(talk, "roux doctor") {
			t.Errorf("roux %v:\n%s%s", args, out, talk)
		}
	}
	if out, _ := roux(fault.ExitOK, "runs", "list", "--recipe", "r0"); strings.Contains(out, ids[1]) {
		t.Errorf("its recipe is whole, and it is not that one:\n%s", out)
	}
	out, _ := roux(fault.ExitInternal, "runs", "list", "-o", "json")
	var views []headView
	if err := json.Unmarshal([]byte(out), &views); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	i := slices.IndexFunc(views, func(v headView) bool { return v.ID == ids[1] })
	if len(views) != 4 || i < 0 || views[i].Status != damagedStatus || views[i].Code != fault.StoreCorrupt || !strings.Contains(views[i].Message, ids[1]) {
		t.Errorf("listed as %+v", views)
	}
	for n, id := range ids {
		want := map[bool]int{true: fault.ExitInternal, false: fault.ExitOK}[n == 1]
		roux(want, "runs", "get", id)
		roux(want, "events", id)
	}
	roux(fault.ExitOK, "runs", "get", "@last")
	out, _ = roux(fault.ExitFailed, "doctor")
	if !strings.Contains(out, fmt.Sprintf("run %q: its row fails the checksum", ids[1])) {
		t.Errorf("doctor:\n%s", out)
	}
	// Of several runs to delete, one whose events cannot be found fails, and the others go.
	damage(`UPDATE runs SET pack = pack + 1000 WHERE run = ?`, ids[2])
	out, _ = roux(fault.ExitFailed, "runs", "delete", ids[0], ids[2])
	if !strings.Contains(out, "2 runs: 1 deleted, 0 skipped, 1 failed\n") || !strings.Contains(out, ids[2]) || !strings.Contains(out, string(fault.StoreCorrupt)) {
		t.Errorf("runs delete:\n%s", out)
	}
	roux(fault.ExitNotFound, "runs", "get", ids[0])
}
