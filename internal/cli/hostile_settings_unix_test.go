// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
)

// No command blocks on a roux.yaml that is not a regular file. One that belongs to this
// user is an error that names it; one of another user is not read.
func TestConfigurationThatIsNoFile(t *testing.T) {
	for _, tt := range []struct {
		name string
		root bool
		lay  func(at string) error
		code int
		want string
	}{
		{"FIFO", false, func(at string) error { return syscall.Mkfifo(at, 0o600) }, fault.ExitUsage, "is a named pipe"},
		{"link to a device", false, func(at string) error { return os.Symlink("/dev/zero", at) }, fault.ExitUsage, "is a device"},
		{"link to the null device", false, func(at string) error { return os.Symlink(os.DevNull, at) }, fault.ExitOK, ""},
		{"FIFO of another user", true, func(at string) error {
			if err := syscall.Mkfifo(at, 0o666); err != nil {
				return err
			}
			return os.Chown(at, 4711, 4711)
		}, fault.ExitOK, "belongs to another user: it is not read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("only root can lay this")
			}
			dir := t.TempDir()
			t.Setenv("HOME", filepath.Join(dir, "home"))
			t.Setenv("ROUX_DATA", filepath.Join(dir, "data"))
			t.Chdir(dir)
			if err := tt.lay(filepath.Join(dir, config.ProjectFile)); err != nil {
				t.Fatal(err)
			}
			var talk string
			var code int
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, talk, code = inProcess("x", "files", "put", "-")
			}()
			select {
			case <-done:
			case <-time.After(time.Minute):
				t.Fatal("the command waits")
			}
			if code != tt.code || !strings.Contains(talk, tt.want) {
				t.Errorf("exit %d, want %d and %q: %s", code, tt.code, tt.want, talk)
			}
		})
	}
}
