// SPDX-License-Identifier: Apache-2.0

// Package directory holds the data directory of a store for one process, and reserves
// disk space in it.
package directory

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// errHeld is what tryLock returns when another process holds the lock.
var errHeld = errors.New("the lock is held")

// Lock locks the directory for this process. The file stays after unlocking: with
// the file removed, two processes could lock two files of one name.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, datadir.Lock)
	f, err := datadir.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, Fault(err, path)
	}
	if err := tryLock(f); err != nil {
		if !errors.Is(err, errHeld) {
			_ = f.Close()
			return nil, fault.Wrap(fault.StoreFailed, err, "cannot lock %s: %v", path, err)
		}
		holder := "another process"
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
				holder = "process " + strconv.Itoa(pid)
			}
		}
		_ = f.Close()
		return nil, fault.New(fault.StoreLocked, "%s uses %s: stop it, or use another directory", holder, dir)
	}
	// The pid is for people. A full disk must not prevent reading.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, nil
}

// Unlock unlocks the directory. The system does so for a dead process.
func Unlock(f *os.File) error {
	_ = f.Truncate(0) // so that no message names a process that is gone
	return f.Close()
}

// Fault returns why a path in the data directory cannot be used.
func Fault(err error, path string) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return err
	case readOnly(err):
		return fault.Wrap(fault.StoreReadOnly, err, "%s cannot be written: correct its permissions, or use another directory", path)
	case Full(err):
		return fault.Wrap(fault.StoreFull, err, "no space is left for %s: free some and try again", path)
	}
	return fault.Wrap(fault.StoreFailed, err, "cannot open %s: %v", path, err)
}
