// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// localDir is the data directory of a project: used where it exists.
const localDir = ".roux"

// dataDir is where runs are kept. A directory that a project's file names is
// judged as one that came with the project.
func (a *app) dataDir() (string, error) {
	dir, err := dataDir(a.data, a.getenv)
	if err != nil || a.data != "" || a.environ("ROUX_DATA") != "" {
		return dir, err
	}
	for _, file := range a.configs {
		if _, ok := file.values["data"]; ok {
			if file.kind == "project" {
				err = mayUseIn(file.dir, dir)
			}
			break // the first one counts
		}
	}
	return dir, err
}

// dataDir decides where runs are kept: the flag, else ROUX_DATA, else ./.roux
// where it exists, else the user's data directory. A ./.roux that somebody else
// may have put there is refused.
func dataDir(flag string, getenv func(string) string) (string, error) {
	dir := flag
	if dir == "" {
		dir = getenv("ROUX_DATA")
	}
	if dir == "" {
		if info, err := os.Lstat(localDir); err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0) {
			if err := mayUse(localDir); err != nil {
				return "", err
			}
			dir = localDir
		}
	}
	if dir == "" {
		var err error
		if dir, err = userDataDir(runtime.GOOS, getenv); err != nil {
			return "", err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fault.Wrap(fault.Usage, err, "data directory %q: %v", dir, err)
	}
	if _, err := os.Stat(abs); errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENAMETOOLONG) {
		return "", fault.Wrap(fault.Usage, err, "data directory %s: there can be no directory of this name: %v", view.Cut(abs, 200), errors.Unwrap(err))
	}
	return abs, nil
}

// userDataDir is the place the system sets aside for an application's data.
func userDataDir(goos string, getenv func(string) string) (string, error) {
	home := func(parts ...string) (string, error) {
		h := getenv("HOME")
		if h == "" {
			return "", fault.New(fault.Usage, "no place for data: HOME is not set; name a directory with --data DIR or ROUX_DATA")
		}
		return filepath.Join(append([]string{h}, parts...)...), nil
	}
	switch goos {
	case "windows":
		if d := getenv("LocalAppData"); d != "" {
			return filepath.Join(d, "roux"), nil
		}
		return "", fault.New(fault.Usage, "no place for data: LocalAppData is not set; name a directory with --data DIR or ROUX_DATA")
	case "darwin":
		return home("Library", "Application Support", "roux")
	}
	if d := getenv("XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "roux"), nil
	}
	return home(".local", "share", "roux")
}

// mustExist refuses to read a data directory that is not there: a command that
// only looks must not leave an empty store behind.
func mustExist(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.RunNotFound, "%s does not exist: nothing has run with this data directory yet; `roux run FILE` starts the first run", dir)
	case err != nil:
		return storageError(dir, err)
	case !info.IsDir():
		return fault.New(fault.Usage, "%s is not a directory: --data and ROUX_DATA name one", dir)
	}
	return nil
}

// storageError gives an error of the disk under dir the code that says what
// to do; an error that has a code keeps it.
func storageError(dir string, err error) error {
	var known *fault.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC):
		return fault.Wrap(fault.StoreFull, err, "no space is left on the disk under %s", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Wrap(fault.StoreReadOnly, err, "the data directory %s cannot be written", dir)
	}
	return fault.Wrap(fault.StoreFailed, err, "the data directory %s: %v", dir, err)
}
