// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// kill -9 of the process that makes a backup, or of the command that asked for it, at any
// moment: the original is whole and goes on, each backup that is listed verifies, and the next
// one is made.
func TestKill9DuringBackup(t *testing.T) {
	kills := 4
	if os.Getenv("ROUX_LONG") != "" {
		kills = 60
	}
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	_, env := dataEnv(t)
	to := filepath.Join(t.TempDir(), "backups")
	p := start(t, env, "run", write(t, "wait.yaml", waiting))
	p.until("node.waiting")
	for i := range kills {
		asks := start(t, env, "backup", "--to", to)
		time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond) // the moment of the kill
		if i%2 == 0 {
			p.signal(os.Kill)
			p.wait()
			asks.wait()
			p = start(t, env, "resume")
			p.until("goes on after")
		} else {
			asks.signal(os.Kill)
			asks.wait()
		}
	}
	if _, talk, code := roux(t, env, "backup", "--to", to); code != fault.ExitOK {
		t.Fatalf("a backup after %d kills: exit %d\n%s", kills, code, talk)
	}
	listed := object[[]backupView](t, env, "backup", "list", to)
	for _, b := range listed {
		if out, talk, code := roux(t, env, "backup", "verify", b.Path); code != fault.ExitOK || b.Problem != "" {
			t.Errorf("%s %s: exit %d\n%s%s", b.Path, b.Problem, code, out, talk)
		}
	}
	p.signal(os.Kill)
	p.wait()
	restored := filepath.Join(t.TempDir(), "restored")
	if _, talk, code := roux(t, env, "restore", to, "--data", restored); code != fault.ExitOK {
		t.Fatalf("restore: exit %d\n%s", code, talk)
	}
	for _, dir := range [][]string{nil, {"--data", restored}} {
		if r := object[replayed](t, env, append([]string{"replay", "@last"}, dir...)...); !r.Same {
			t.Errorf("%v: differences %v", dir, r.Differences)
		}
		if out, talk, code := roux(t, env, append([]string{"doctor"}, dir...)...); code != fault.ExitOK {
			t.Errorf("doctor %v: exit %d\n%s%s", dir, code, out, talk)
		}
	}
	t.Logf("%d backups are whole after %d kills", len(listed), kills)
}

// What `roux backup` and `roux restore` refuse, and with which exit code.
func TestBackupRefuses(t *testing.T) {
	dir, to := filepath.Join(shortDir(t), "data"), filepath.Join(t.TempDir(), "backups")
	t.Setenv("ROUX_DATA", dir)
	for _, tt := range []struct {
		args string
		code int
	}{
		{"backup --to " + to, fault.ExitNotFound}, // there is no data directory
		{"run " + write(t, "plain.yaml", plainRecipe) + " -q", fault.ExitOK},
		{"backup --to " + filepath.Join(dir, "backups"), fault.ExitUsage},
		{"backup --to " + to, fault.ExitOK},
		{"backup", fault.ExitOK},
		{"backup list " + dir + "-backups -o name", fault.ExitOK},
		{"backup prune " + to, fault.ExitUsage},
		{"backup prune " + to + " --keep 1 -o json", fault.ExitOK},
		{"backup verify " + filepath.Join(to, "20200101T000000.000Z"), fault.ExitUsage},
		{"backup verify " + t.TempDir(), fault.ExitUsage},
		{"restore " + to, fault.ExitUsage}, // into the original
	} {
		if out, talk, code := inProcess("", strings.Fields(tt.args)...); code != tt.code {
			t.Errorf("`roux %s` ends with %d, want %d\n%s%s", tt.args, code, tt.code, out, talk)
		}
	}
	parts, err := filepath.Glob(filepath.Join(to, "*", "roux.db"))
	if err != nil || len(parts) != 1 {
		t.Fatalf("%q, %v", parts, err)
	}
	if err := os.Truncate(parts[0], 100); err != nil {
		t.Fatal(err)
	}
	if out, talk, code := inProcess("", "backup", "verify", to); code != fault.ExitFailed {
		t.Errorf("verify of a damaged backup: exit %d\n%s%s", code, out, talk)
	}
}
