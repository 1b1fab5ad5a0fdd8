// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// F33: once a store is open, the names of its directory and of the directories above it
// are durable, also if a process created them and was killed before it synced them. The
// test checks the system calls of a real process.
func TestF33_DirectoryNamesAreDurable(t *testing.T) {
	if dir := os.Getenv("ROUX_TEST_NAMES"); dir != "" { // the other process
		s, err := Open(ctx, Options{Dir: dir, cold: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace to see the system calls with")
	}
	for _, made := range []string{"", "a", "a/b", "a/b/c"} {
		t.Run(fmt.Sprintf("made %q", made), func(t *testing.T) {
			base := t.TempDir()
			if err := os.MkdirAll(filepath.Join(base, made), 0o700); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(t.TempDir(), "calls")
			cmd := exec.Command(strace, "-f", "-y", "-o", log, "-e", "trace=fsync", os.Args[0], "-test.run=^TestF33_DirectoryNamesAreDurable$")
			cmd.Env = append(os.Environ(), "ROUX_TEST_NAMES="+filepath.Join(base, "a", "b", "c"))
			if out, err := cmd.CombinedOutput(); err != nil {
				if strings.Contains(string(out), "ptrace") {
					t.Skipf("strace may not trace here: %s", out)
				}
				t.Fatalf("%v\n%s", err, out)
			}
			calls, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			// The last directory that existed before, and all that Open created.
			for dir := filepath.Join(base, "a", "b"); len(dir) >= len(filepath.Dir(filepath.Join(base, made))) && len(dir) >= len(base); dir = filepath.Dir(dir) {
				if !strings.Contains(string(calls), "<"+dir+">") {
					t.Errorf("names in %s were not synced; the syncs were\n%s", dir, calls)
				}
			}
		})
	}
}
