// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/roux-engine/roux/internal/datadir"
)

// Whoever answers at the socket of a data directory is told everything and
// believed everything. So a socket counts only where no other user can have put
// it (decision 0023).

const (
	socketName = datadir.Socket
	// pointerName is a file that names the socket where the directory's own
	// path is longer than the system lets socket names be.
	pointerName = datadir.Pointer
	// nurseryName is a directory that only its owner enters: the socket is made
	// there and moved once its rights are set. The path is as long as that of
	// the socket itself, and the name is none that somebody's project has.
	nurseryName   = datadir.Nursery
	newborn       = "s"
	maxSocketPath = 100
)

// judge says why something on the disk is not this user's alone.
func judge(info fs.FileInfo, kind fs.FileMode, uid int) error {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return errors.New("is a symbolic link")
	case mode.Type() != kind:
		return errors.New("is not what should be there")
	}
	switch owner, ok := ownerOf(info); {
	case !ok:
		return nil // the rights of the directory are all there is
	case owner != uid:
		return errors.New("belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("may be written by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// trusted is judge for a path, whose last part may be no link.
func trusted(path string, kind fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := judge(info, kind, os.Geteuid()); err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	return nil
}

// socketOf finds the socket of a data directory. An error that is not
// fs.ErrNotExist says why the one that is there is not used.
func socketOf(dir string) (string, error) {
	info, err := os.Stat(dir) // the user may have named a link
	if err != nil {
		return "", err
	}
	if err := judge(info, fs.ModeDir, os.Geteuid()); err != nil {
		return "", fmt.Errorf("%s %w", dir, err)
	}
	path := filepath.Join(dir, socketName)
	if len(path) > maxSocketPath {
		if path, err = readPointer(filepath.Join(dir, pointerName)); err != nil {
			return "", err
		}
		if err := trusted(filepath.Dir(path), fs.ModeDir); err != nil {
			return "", err
		}
	}
	return path, trusted(path, fs.ModeSocket)
}

// readPointer reads where the socket of a directory with a long path is.
func readPointer(name string) (string, error) {
	if err := trusted(name, 0); err != nil {
		return "", err
	}
	f, err := datadir.Open(name, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSocketPath+1))
	if err != nil {
		return "", err
	}
	path := string(text)
	if len(path) > maxSocketPath || !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Base(path) != socketName {
		return "", fmt.Errorf("%s names no socket of Roux", name)
	}
	return path, nil
}

// listen makes the socket, which at no moment another user can reach. One that
// a killed process left behind is replaced: the caller holds the directory's
// lock.
func listen(dir string) (net.Listener, func(), error) {
	path, birth := filepath.Join(dir, socketName), filepath.Join(dir, nurseryName)
	undo := func() {}
	switch {
	case len(path) > maxSocketPath:
		short, err := os.MkdirTemp("", "roux-") // for its owner only
		if err != nil {
			return nil, nil, datadir.Error(os.TempDir(), err)
		}
		path, birth = filepath.Join(short, socketName), ""
		pointer := filepath.Join(dir, pointerName)
		undo = func() {
			_ = os.Remove(pointer)
			_ = os.RemoveAll(short)
		}
		if err := writePointer(pointer, path); err != nil {
			undo()
			return nil, nil, datadir.Error(dir, err)
		}
	case runtime.GOOS == "windows":
		birth = "" // who may enter the directory is all that counts
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, datadir.Error(dir, err)
		}
	}
	ln, err := bind(path, birth)
	if err != nil {
		undo()
		return nil, nil, datadir.Error(dir, err)
	}
	return &peerCheck{Listener: ln, seats: make(chan struct{}, maxCallers), closed: make(chan struct{})}, func() {
		_ = os.Remove(path)
		undo()
	}, nil
}

// writePointer makes the pointer anew: what is there may be a link.
func writePointer(pointer, path string) error {
	if err := os.Remove(pointer); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(pointer, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(path)
	return errors.Join(err, f.Close())
}

// bind listens at path. With a nursery the socket is made in there, and moved
// when nobody else may connect to it.
func bind(path, nursery string) (net.Listener, error) {
	at := path
	if nursery != "" {
		at = filepath.Join(nursery, newborn)
		// A killed process may have left it behind. What else is in there is not
		// ours to remove: the data directory may be one with other things in it.
		_ = os.Remove(at)
		if err := os.Remove(nursery); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := os.Mkdir(nursery, 0o700); err != nil {
			return nil, err
		}
		defer func() {
			_ = os.Remove(at)
			_ = os.Remove(nursery)
		}()
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // whoever called listen removes it
	err = os.Chmod(at, 0o600)
	if err == nil && at != path {
		err = os.Rename(at, path)
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// A peerCheck lets in callers of this user (the system's own user could not be
// kept out), and so many at a time.
type peerCheck struct {
	net.Listener
	seats  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// mayCall says whether a caller of that user is let in.
func mayCall(peer, us int) bool { return peer == us || peer == 0 }

// Accept implements net.Listener.
func (d *peerCheck) Accept() (net.Conn, error) {
	select {
	case d.seats <- struct{}{}:
	case <-d.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			<-d.seats
			return nil, err
		}
		if uid, ok := peerOf(c); ok && !mayCall(uid, os.Geteuid()) {
			_ = c.Close()
			continue
		}
		return &seated{Conn: c, leave: sync.OnceFunc(func() { <-d.seats })}, nil
	}
}

// Close implements net.Listener.
func (d *peerCheck) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// seated is a connection that gives its seat back.
type seated struct {
	net.Conn
	leave func()
}

func (s *seated) Close() error {
	defer s.leave()
	return s.Conn.Close()
}
