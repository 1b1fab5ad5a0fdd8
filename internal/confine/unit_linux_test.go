// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The unit of the service does not permit what a box needs, and says where the drop-in is that
// does; so does the error of a server that cannot confine.
func TestUnitAndDropIn(t *testing.T) {
	unit, err := os.ReadFile("../../supply/roux.service")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("`/etc/systemd/system/roux.service.d/commands.conf`:\n\n((?: {4}.*\n)+)").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/commands.md has no drop-in")
	}
	dropIn := strings.ReplaceAll("\n"+string(found[1]), "\n    ", "\n")
	words := func(field string) []string {
		_, rest, _ := strings.Cut(dropIn, "\n"+field+"=")
		line, _, _ := strings.Cut(rest, "\n")
		return strings.Fields(line)
	}
	var names []string
	for name, flag := range map[string]uintptr{"user": unix.CLONE_NEWUSER, "mnt": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "net": unix.CLONE_NEWNET} {
		if flag == unix.CLONE_NEWUSER || attributes(&Box{}).Cloneflags&flag != 0 { // no user namespace is made for root
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if got := words("RestrictNamespaces"); !slices.Equal(slices.Sorted(slices.Values(got)), names) {
		t.Errorf("the drop-in permits the namespaces %q, want %q", got, names)
	}
	for _, call := range []string{"mount", "mount_setattr", "umount2", "pivot_root", "capset", "setuid"} {
		if !slices.Contains(words("SystemCallFilter"), call) {
			t.Errorf("the drop-in does not permit %s", call)
		}
	}
	for _, line := range []string{"RestrictNamespaces=yes", "SystemCallFilter=~@privileged", "ProtectKernelTunables=yes", "ProtectKernelLogs=yes", "ProtectHostname=yes"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit does not have %s", line)
		}
	}
	if !strings.Contains(string(unit), "docs/commands.md") || !strings.Contains(remedy, "docs/commands.md") {
		t.Error("the unit or the error does not name the page that has the drop-in")
	}
	verify(t, strings.ReplaceAll(string(unit), "/usr/local/bin/roux", "/bin/true"), dropIn)
}

// verify has systemd check the syntax of a unit with its drop-in.
func verify(t *testing.T, unit, dropIn string) {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	file := filepath.Join(t.TempDir(), "roux.service")
	if err := os.Mkdir(file+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: unit, filepath.Join(file+".d", "commands.conf"): dropIn} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
