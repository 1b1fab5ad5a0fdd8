// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// TestErrorCodes: an error of the disk has the code that tells what to do, also if a quota is reached.
func TestErrorCodes(t *testing.T) {
	for err, want := range map[error]fault.Code{
		syscall.ENOSPC: fault.StoreFull, syscall.EDQUOT: fault.StoreFull, syscall.EROFS: fault.StoreReadOnly,
		fs.ErrPermission: fault.StoreReadOnly, syscall.EIO: fault.StoreFailed, errors.New("other"): fault.StoreFailed,
		fault.New(fault.Conflict, "has a code"): fault.Conflict,
	} {
		if got := fault.CodeOf(Error("data", &os.PathError{Op: "write", Path: "f", Err: err})); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if got := Code(syscall.ENOTDIR, fault.FileInvalid); got != fault.FileInvalid {
		t.Errorf("an error of no disk is %s", got)
	}
}
