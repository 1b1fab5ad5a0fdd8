// SPDX-License-Identifier: Apache-2.0

// Package userfile opens and writes files that a user names.
//
// It decides what may be opened, how a file is replaced in one step, which names
// are safe on every system, and what an error tells the user. It never works in
// a data directory.
package userfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// Open opens a file that a user named. missing is the code of the error when it
// does not exist.
func Open(path string, missing fault.Code) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, OpenError(path, missing, err)
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		_ = f.Close()
		return nil, OpenError(path, missing, err)
	}
	return f, nil
}

// Expand returns the paths of the files that --file names: a path, or a pattern
// such as 'scans/*.pdf', which the shell has left alone because it was quoted.
// It reports matches that it leaves out through say.
func Expand(args []string, say func(format string, args ...any)) (paths []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err == nil && info.IsDir():
			return nil, fault.New(fault.FileNotFound, "%s is a directory: name a file in it, or all of them with --file %s", arg, view.ShellQuote(filepath.Join(arg, "*")))
		case err == nil || !strings.ContainsAny(arg, "*?["):
			paths = append(paths, arg)
			continue
		}
		found, err := filepath.Glob(arg)
		if err != nil {
			return nil, fault.New(fault.Usage, "--file %s: this pattern cannot be read: %v", arg, err)
		}
		n := len(paths)
		for _, path := range found {
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				say("%s is no file and is left out", view.OneLine(path))
				continue
			}
			paths = append(paths, path)
		}
		if len(paths) == n {
			return nil, fault.New(fault.FileNotFound, "--file %s: no file there has such a name; looked in %s", arg, lookedIn(arg))
		}
	}
	return paths, nil
}

// OpenError returns the error for a file that cannot be opened. missing is its
// code.
func OpenError(path string, missing fault.Code, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(missing, err, "%s: no such file; looked in %s", path, lookedIn(path))
	case errors.Is(err, fs.ErrPermission):
		return fault.Wrap(missing, err, "%s: you may not read this file", path)
	case errors.Is(err, syscall.EISDIR):
		return fault.Wrap(missing, err, "%s is a directory: name a file in it", path)
	}
	return fault.Wrap(missing, err, "%s cannot be read: %v", path, err)
}

func lookedIn(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return filepath.Dir(path)
	}
	return filepath.Dir(abs)
}

// OpenRegular opens a regular file of the user for reading and returns its size.
// It refuses a pipe or a device before it opens it, because opening one can block
// and reading one may never end.
func OpenRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, OpenError(path, fault.FileNotFound, err)
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return nil, 0, fault.New(fault.FileNotFound, "%s is a directory: name a file in it, or all of them with %s", path, view.ShellQuote(filepath.Join(path, "*")))
	case !mode.IsRegular():
		return nil, 0, fault.New(fault.FileInvalid, "%s is %s and no regular file: what comes out of it is given with `… | roux files put -`", path, Kind(mode))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, OpenError(path, fault.FileNotFound, err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("it was replaced while it was opened: try again")
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, OpenError(path, fault.FileNotFound, err)
	}
	return f, opened.Size(), nil
}

// Kind names the kind of a file that is not regular.
func Kind(mode os.FileMode) string {
	switch {
	case mode&os.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&os.ModeSocket != 0:
		return "a socket"
	case mode&os.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// Relative returns a path as seen from the working directory, when it is near.
func Relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && !strings.HasPrefix(rel, filepath.Join("..", "..", "..")) {
			return rel
		}
	}
	return path
}
