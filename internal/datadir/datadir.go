// SPDX-License-Identifier: Apache-2.0

// Package datadir guards the files of a data directory.
//
// It decides which files Roux opens there: regular files that have one name, belong to
// the user of this process (or to root) and are reached without a symbolic link. It
// sets their mode to 0600, and that of directories to 0700, whatever the umask is and
// whatever modes they had (decision 0033).
//
// It never creates a name that is not listed here, and never changes the mode of
// another user's file.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/roux-engine/roux/fault"
)

// The names of what Roux keeps in a data directory.
const (
	Database  = "roux.db"
	Lock      = "lock"
	Reserve   = "reserve"
	Socket    = "socket"
	Pointer   = "socket.path" // a file that says where the socket is
	Nursery   = ".new"        // a directory in which the socket is made
	Files     = "files"
	Secrets   = "secrets"    // sealed secrets
	MasterKey = "master.key" // what they are sealed with
	Copy      = "copy.tmp"   // of the database, while a backup is made
	Commands  = "commands"   // the working directories of commands that run
	Fetched   = "fetched"    // recipes from outside that a server registers
	// Workspaces are the directories of runs.
	Workspaces = "workspaces"
)

// anyKind is the kind of a name that is replaced, whatever it is.
const anyKind = fs.ModeIrregular

// names lists everything in a data directory, with its kind.
var names = []struct {
	name string
	kind fs.FileMode
}{
	{Lock, 0},
	{Database, 0}, {Database + "-wal", 0}, {Database + "-shm", 0}, {Database + "-journal", 0},
	{Reserve, 0},
	{Socket, anyKind}, {Pointer, anyKind}, {Nursery, anyKind},
	{Copy, anyKind},
	{Files, fs.ModeDir},
	{Secrets, fs.ModeDir}, {MasterKey, 0},
	{Commands, fs.ModeDir},
	{Fetched, fs.ModeDir},
	{Workspaces, fs.ModeDir},
}

// Refuse returns why a file or a directory of that kind is not this user's alone, or
// nil. It ignores the mode, which the caller can change. A regular file must have one
// name, because what is written to it would also be written to its other names.
func Refuse(info fs.FileInfo, kind fs.FileMode) error {
	mode := info.Mode()
	if mode&fs.ModeSymlink != 0 {
		return errors.New("is a symbolic link")
	}
	if err := Foreign(info); err != nil {
		return err
	}
	if kind != anyKind && mode.Type() != kind {
		return fmt.Errorf("is %s, not %s", kindName(mode.Type()), kindName(kind))
	}
	if _, links, ok := ownerOf(info); ok && mode.IsRegular() && links > 1 {
		return errors.New("is a hard link: the same file has another name")
	}
	return nil
}

// Foreign reports whether a file belongs to a user who is neither this process's nor
// root.
func Foreign(info fs.FileInfo) error {
	if uid, _, ok := ownerOf(info); ok && uid != 0 && uid != os.Geteuid() {
		return errors.New("belongs to another user")
	}
	return nil
}

// A gap is called between the check of a name and its opening. Tests replace the file
// there, because what was checked need not be what is opened.
type gap func()

func nothing() {}

// OpenRoot opens a directory of the data directory, creating it when absent. It must
// not be a link and must belong to this user. OpenRoot removes the access of other
// users.
func OpenRoot(dir string) (*os.Root, error) { return openRoot(dir, nothing) }

func openRoot(dir string, between gap) (*os.Root, error) {
	before, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			before, err = os.Lstat(dir)
		}
	}
	if err != nil {
		return nil, err
	}
	if why := Refuse(before, fs.ModeDir); why != nil {
		return nil, refused(dir, why)
	}
	between()
	// With a separator at the end of the path the system opens nothing but a directory.
	// Without it os.OpenRoot would wait for the other end of a FIFO.
	root, err := os.OpenRoot(dir + string(filepath.Separator))
	if err != nil {
		return nil, err
	}
	d, err := root.Open(".")
	if err == nil {
		info, statErr := d.Stat()
		switch {
		case statErr != nil:
			err = statErr
		case !os.SameFile(before, info):
			err = refused(dir, errReplaced)
		default:
			err = tighten(d, info, 0o700)
		}
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// OpenBelow opens a regular file or a directory at name below root to read it. It
// refuses links, hard links, other kinds and files of other users, and never waits for
// the other end of a FIFO. It removes the access of other users. A [Refusal] says why
// it does not open something.
func OpenBelow(root *os.Root, name string, kind fs.FileMode) (*os.File, error) {
	return openBelow(root, name, kind, nothing)
}

func openBelow(root *os.Root, name string, kind fs.FileMode, between gap) (*os.File, error) {
	before, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if why := Refuse(before, kind); why != nil {
		return nil, &Refusal{name, why}
	}
	between()
	f, err := root.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !os.SameFile(before, info):
		err = &Refusal{name, errReplaced}
	default:
		err = tighten(f, info, info.Mode().Perm()&^0o077)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// A Refusal says why a file or a directory is not used.
type Refusal struct {
	Name string
	Why  error
}

func (r *Refusal) Error() string { return r.Name + " " + r.Why.Error() }

var errReplaced = errors.New("was replaced while it was opened")

func kindName(kind fs.FileMode) string {
	switch {
	case kind == 0:
		return "a regular file"
	case kind&fs.ModeDir != 0:
		return "a directory"
	case kind&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case kind&fs.ModeSocket != 0:
		return "a socket"
	case kind&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// refused returns the error for a path that is not used.
func refused(path string, why error) error {
	return fault.Wrap(fault.Usage, why, "%s %v and is not used: remove it after a look at where it came from, or name another data directory with --data DIR or ROUX_DATA", path, why)
}

// Check refuses a data directory in which a name of Roux is of another kind than Roux
// makes. It changes nothing, and accepts a directory that does not exist.
func Check(dir string) error {
	info, err := os.Stat(dir) // the user may have named a link
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if why := Refuse(info, fs.ModeDir); why != nil {
		return refused(dir, why)
	}
	for _, n := range names {
		path := filepath.Join(dir, n.name)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if why := Refuse(info, n.kind); why != nil {
			return refused(path, why)
		}
	}
	return nil
}

// Open opens a regular file of the data directory. It refuses links and files of other
// users, and never waits for the other end of a FIFO. It removes the access of other
// users; a file that flag creates has the mode 0600 under every umask. flag must not
// truncate, because the file is checked again after it is opened.
func Open(path string, flag int) (*os.File, error) { return open(path, flag, nothing) }

func open(path string, flag int, between gap) (*os.File, error) {
	if flag&os.O_TRUNC != 0 {
		return nil, fault.New(fault.InternalError, "%s would be emptied before it is known what it is", path)
	}
	// Opening a device can have an effect of its own, so the kind comes first.
	before, err := os.Lstat(path)
	switch {
	case err == nil:
		if why := Refuse(before, 0); why != nil {
			return nil, refused(path, why)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	between()
	f, err := os.OpenFile(path, flag|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		if why := Refuse(info, 0); why != nil {
			err = refused(path, why)
		} else if before != nil && !os.SameFile(before, info) {
			err = refused(path, errReplaced)
		} else {
			err = tighten(f, info, 0o600)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// tighten sets the mode of an open file or directory unless it has it. On a file system
// without modes it does nothing.
func tighten(f *os.File, info fs.FileInfo, mode fs.FileMode) error {
	if runtime.GOOS == "windows" || info.Mode().Perm() == mode {
		return nil
	}
	if uid, _, ok := ownerOf(info); !ok || uid != os.Geteuid() {
		return nil // its owner decides
	}
	if err := f.Chmod(mode); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// Secure checks a data directory and removes the access of other users to the
// directory, to the directory of the files, and to the files that SQLite will open by
// name. The caller holds the directory's lock. SQLite opens files by path, some time
// after this check. That is safe because other users can no longer write to the
// directory, and so cannot replace a file by a link meanwhile.
func Secure(dir string) error {
	if err := Check(dir); err != nil {
		return err
	}
	if err := closeToOthers(dir); err != nil {
		return err
	}
	for _, n := range names {
		if n.name == Lock { // the holder of the lock has opened it
			continue
		}
		path := filepath.Join(dir, n.name)
		info, err := os.Lstat(path)
		if err != nil || runtime.GOOS == "windows" {
			continue
		}
		var opened io.Closer
		switch mode := info.Mode().Perm(); {
		case n.kind == 0 && mode != 0o600:
			opened, err = Open(path, os.O_RDONLY)
		case n.kind == fs.ModeDir && mode&0o077 != 0:
			if opened, err = OpenRoot(path); errors.Is(err, fs.ErrPermission) {
				continue // it may not be readable
			}
		default:
			continue
		}
		if err != nil {
			return err
		}
		if err := opened.Close(); err != nil {
			return err
		}
	}
	return nil
}

// closeToOthers removes the access of other users to a data directory. A directory that also
// contains something else was not made for Roux and keeps its mode; it is refused if
// everybody may write there.
func closeToOthers(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|onlyDir, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil // it may be usable without being readable
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	entries, err := f.Readdirnames(100)
	if (err == nil || errors.Is(err, io.EOF)) && !slices.ContainsFunc(entries, foreign) { // at its end: it is empty
		if err := tighten(f, info, 0o700); err != nil {
			return err
		}
		if info, err = f.Stat(); err != nil {
			return err
		}
	}
	if _, _, ok := ownerOf(info); ok && info.Mode().Perm()&0o002 != 0 {
		return refused(dir, fmt.Errorf("may be written by everybody (mode %04o)", info.Mode().Perm()))
	}
	return nil
}

// Chmod sets the mode of a data directory unless it was replaced after info was read.
func Chmod(dir string, info fs.FileInfo, mode fs.FileMode) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|onlyDir, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, now) {
		return refused(dir, errReplaced)
	}
	return f.Chmod(mode)
}

// Sync makes the names in a directory durable, if it is readable and its file system
// can sync directories. Windows has no such call: NTFS journals names.
func Sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|onlyDir, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// foreign reports whether an entry is not one of Roux's.
func foreign(name string) bool {
	for _, n := range names {
		if n.name == name {
			return false
		}
	}
	return !strings.HasSuffix(name, ".tmp")
}

// LiesIn reports whether a path is dir or below it. Not all of the path need
// exist.
func LiesIn(path, dir string) bool {
	want, err := os.Stat(dir)
	if err != nil {
		return false
	}
	for {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		if info, err := os.Stat(path); err == nil && os.SameFile(info, want) {
			return true
		}
		above := filepath.Dir(path)
		if above == path {
			return false
		}
		path = above
	}
}
