// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A plan that cannot be read does not count as a recipe without signals: the error says
// that it cannot be read.
func TestSignalOfADamagedPlan(t *testing.T) {
	dir, env := dataEnv(t)
	p := start(t, env, "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	p.signal(os.Kill)
	p.wait()
	db, err := sql.Open("sqlite", filepath.Join(dir, "roux.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`UPDATE plans SET data = x'00'`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, talk, code := roux(t, env, "runs", "signal", "@last", "approved")
	if code == fault.ExitOK || !strings.Contains(talk, "plan") || strings.Contains(talk, "waits for a signal") {
		t.Errorf("exit %d\n%s", code, talk)
	}
}
