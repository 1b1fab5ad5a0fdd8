// SPDX-License-Identifier: Apache-2.0

package wal

import (
	"errors"
	"os"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store/sqlite/directory"
)

// Warm makes a log at least so many bytes long. SQLite ignores what follows the last valid
// frame, so zeros do no harm, and overwriting allocated blocks makes later syncs cheap.
// A full disk is left to the first commit to report.
func Warm(path string, size int64) (err error) {
	f, err := datadir.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return directory.Fault(err, path)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return fault.Wrap(fault.StoreFailed, err, "cannot examine %s: %v", path, err)
	}
	zeros := make([]byte, 1<<20)
	for at := info.Size(); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			if directory.Full(err) {
				return f.Truncate(info.Size())
			}
			return fault.Wrap(fault.StoreFailed, err, "cannot write %s: %v", path, err)
		}
	}
	if info.Size() >= size {
		return nil
	}
	if err := f.Sync(); err != nil {
		return fault.Wrap(fault.StoreFailed, err, "the disk refused to sync %s: %v", path, err)
	}
	return nil
}
