// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The demo needs no network: not even the loopback interface, which is down in a new
// network namespace. The limit of ten seconds is on its CPU time and not on the elapsed
// time, because other tests run at the same time.
func TestDemoWithoutNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: the demo is one process after the other")
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil || exec.Command(unshare, "-n", "true").Run() != nil {
		t.Skip("no network namespace can be made here: unshare -n is missing or not allowed")
	}
	for _, args := range [][]string{{"demo"}, {"demo", "--crash"}} {
		// The test binary runs as roux when it has that name (see TestMain).
		roux := filepath.Join(t.TempDir(), "roux")
		if err := os.Symlink(testBinary(t), roux); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(unshare, append([]string{"-n", "--", roux}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "HOME="+t.TempDir())
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "what to try next") {
			t.Fatalf("roux %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		t.Logf("roux %s: %s, of which computing %s", strings.Join(args, " "), time.Since(begin).Round(time.Millisecond), cpu.Round(time.Millisecond))
		if cpu > 10*time.Second {
			t.Errorf("roux %s computed for %s", strings.Join(args, " "), cpu)
		}
	}
}

func testBinary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
