// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/roux-engine/roux/fault"
)

// MustExist returns an error when the data directory does not exist. A command
// that only reads must not leave an empty store behind.
func MustExist(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.RunNotFound, "%s does not exist: nothing has run with this data directory yet; `roux run FILE` starts the first run", dir)
	case err != nil:
		return Error(dir, err)
	case !info.IsDir():
		return fault.New(fault.Usage, "%s is not a directory: --data and ROUX_DATA name one", dir)
	}
	return nil
}

// Code returns the code of an error that the disk gave, or otherwise for any other error.
func Code(err error, otherwise fault.Code) fault.Code {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.StoreFull
	case errors.Is(err, syscall.EROFS):
		return fault.StoreReadOnly
	case errors.Is(err, syscall.EIO):
		return fault.StoreFailed
	}
	return otherwise
}

// Error gives an error of the disk under dir the code that tells the user what
// to do. An error that has a code keeps it.
func Error(dir string, err error) error {
	var known *fault.Error
	code := Code(err, fault.StoreFailed)
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case code == fault.StoreFull:
		return fault.Wrap(fault.StoreFull, err, "no space is left on the disk under %s", dir)
	case code == fault.StoreReadOnly, errors.Is(err, fs.ErrPermission):
		return fault.Wrap(fault.StoreReadOnly, err, "the data directory %s cannot be written", dir)
	}
	return fault.Wrap(fault.StoreFailed, err, "the data directory %s: %v", dir, err)
}
