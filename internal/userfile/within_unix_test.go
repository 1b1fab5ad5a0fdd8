// SPDX-License-Identifier: Apache-2.0

//go:build unix

package userfile

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A pipe is refused before it is opened: opening it would block for ever.
func TestReadWithinRefusesPipes(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadWithin(dir, "pipe", 10, fault.RecipeNotFound); fault.CodeOf(err) != fault.FileInvalid {
		t.Errorf("%v, want %s", err, fault.FileInvalid)
	}
}
