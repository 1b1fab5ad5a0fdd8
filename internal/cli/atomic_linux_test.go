// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// F33: a file that a command has written survives a power cut under its name, because
// the directory is synced after the rename.
func TestF33_WrittenFilesAreDurable(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace to see the system calls with")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "roux") // under this name the test binary runs as roux
	if err := os.Symlink(exe, binary); err != nil {
		t.Fatal(err)
	}
	recipe := write(t, "a.yaml", "steps: [{id: a, transform: {expression: \"1\"}}]\nname:   a\n")
	log := filepath.Join(t.TempDir(), "calls")
	out, err := exec.Command(strace, "-f", "-y", "-o", log, "-e", "trace=fsync,renameat,renameat2", binary, "fmt", recipe).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	before, after, moved := strings.Cut(string(calls), `"a.yaml"`)
	if !moved || !strings.Contains(before, "/.roux-") || !strings.Contains(after, "<"+filepath.Dir(recipe)+">") {
		t.Errorf("want a sync of the file, a new name for it, and a sync of the directory; the calls are\n%s", calls)
	}
}
