// SPDX-License-Identifier: Apache-2.0

//go:build unix

package directory

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// A process that was killed while it started another one leaves the lock with that for a moment.
// The lock of one that runs is refused at once.
func TestLockAfterAKill(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"gone": dead.ProcessState.Pid(), "runs": os.Getppid()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			f, err := os.Create(filepath.Join(dir, datadir.Lock))
			if err == nil {
				_, err = f.WriteString(strconv.Itoa(pid) + "\n")
			}
			if err == nil {
				err = tryLock(f)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = f.Close() })
			got, err := Lock(dir)
			if name == "runs" {
				if !errors.Is(err, fault.StoreLocked) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = got.Close()
		})
	}
}
