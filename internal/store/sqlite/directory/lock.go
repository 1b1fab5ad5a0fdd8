// SPDX-License-Identifier: Apache-2.0

// Package directory holds the data directory of a store for one process, and reserves
// disk space in it.
package directory

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// errHeld is what tryLock returns when another process holds the lock.
var errHeld = errors.New("the lock is held")

// afterDeath is how long the lock of a process that is gone is waited for: a child that it was
// about to start when it was killed holds its files until it runs another program.
const afterDeath = 2 * time.Second

// Lock locks the directory for this process. The file stays after unlocking: with
// the file removed, two processes could lock two files of one name.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, datadir.Lock)
	f, err := datadir.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, Fault(err, path)
	}
	err = tryLock(f)
	for until := time.Now().Add(afterDeath); errors.Is(err, errHeld) && gone(holder(f)) && time.Now().Before(until); err = tryLock(f) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, errHeld) {
			return nil, fault.Wrap(fault.StoreFailed, err, "cannot lock %s: %v", path, err)
		}
		who := "another process"
		if pid := holder(f); pid != 0 {
			who = "process " + strconv.Itoa(pid)
		}
		return nil, fault.New(fault.StoreLocked, "%s uses %s: stop it, or use another directory", who, dir)
	}
	// The pid is for people. A full disk must not prevent reading.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, nil
}

// holder returns the process that a lock file names; 0 = none.
func holder(f *os.File) int {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0) // a file that cannot be read names none
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
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
