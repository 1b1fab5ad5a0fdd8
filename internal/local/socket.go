// SPDX-License-Identifier: Apache-2.0

package local

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

// A client tells the process behind a socket everything and believes its answers.
// It therefore uses a socket only where no other user can have put it (decision
// 0023).

const (
	// newborn is the name of the socket until its rights are set. It is made in the
	// directory datadir.Nursery, which only its owner can enter, and moved. Its
	// path is as long as that of the socket itself.
	newborn = "s"
	// maxSocketPath is the longest path of a socket. In a directory with a longer
	// path the file datadir.Pointer names the socket.
	maxSocketPath = 100
	// maxCallers is the number of connections that are served at a time.
	maxCallers = 64
)

// checkOwner returns an error when another user may have made or changed a file.
func checkOwner(info fs.FileInfo, kind fs.FileMode, uid int) error {
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return errors.New("is a symbolic link")
	case mode.Type() != kind:
		return errors.New("is not what should be there")
	}
	switch owner, ok := ownerOf(info); {
	case !ok:
		return nil // only the rights of the directory can be checked
	case owner != uid:
		return errors.New("belongs to another user")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("may be written by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// checkPath is checkOwner for a path whose last element must not be a link.
func checkPath(path string, kind fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := checkOwner(info, kind, os.Geteuid()); err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	return nil
}

// Socket returns the path of the socket of a data directory. An error other than
// fs.ErrNotExist says why an existing socket is not used.
func Socket(dir string) (string, error) {
	info, err := os.Stat(dir) // the user may have named a link
	if err != nil {
		return "", err
	}
	if err := checkOwner(info, fs.ModeDir, os.Geteuid()); err != nil {
		return "", fmt.Errorf("%s %w", dir, err)
	}
	path := filepath.Join(dir, datadir.Socket)
	if len(path) > maxSocketPath {
		if path, err = readPointer(filepath.Join(dir, datadir.Pointer)); err != nil {
			return "", err
		}
		if err := checkPath(filepath.Dir(path), fs.ModeDir); err != nil {
			return "", err
		}
	}
	return path, checkPath(path, fs.ModeSocket)
}

// readPointer reads the path of the socket of a directory with a long path.
func readPointer(name string) (string, error) {
	if err := checkPath(name, 0); err != nil {
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
	if len(path) > maxSocketPath || !filepath.IsAbs(path) || filepath.Clean(path) != path || filepath.Base(path) != datadir.Socket {
		return "", fmt.Errorf("%s names no socket of Roux", name)
	}
	return path, nil
}

// Listen makes the socket of a data directory, and returns it with what removes it, which
// closing it does, too. At no moment can another user connect to it. It replaces one that a
// killed process left behind, which is safe because the caller holds the lock of the
// directory: it closes the socket before it gives that up.
func Listen(dir string) (ln net.Listener, remove func(), err error) {
	path, birth := filepath.Join(dir, datadir.Socket), filepath.Join(dir, datadir.Nursery)
	undo := func() {}
	switch {
	case len(path) > maxSocketPath:
		short, err := os.MkdirTemp("", "roux-") // for its owner only
		if err != nil {
			return nil, nil, datadir.Error(os.TempDir(), err)
		}
		path, birth = filepath.Join(short, datadir.Socket), ""
		pointer := filepath.Join(dir, datadir.Pointer)
		undo = func() {
			_ = os.Remove(pointer)
			_ = os.RemoveAll(short)
		}
		if err := writePointer(pointer, path); err != nil {
			undo()
			return nil, nil, datadir.Error(dir, err)
		}
	case runtime.GOOS == "windows":
		birth = "" // only the rights of the directory protect the socket
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, datadir.Error(dir, err)
		}
	}
	if ln, err = bind(path, birth); err != nil {
		undo()
		return nil, nil, datadir.Error(dir, err)
	}
	remove = sync.OnceFunc(func() {
		_ = os.Remove(path)
		undo()
	})
	return &peerCheck{Listener: ln, slots: make(chan struct{}, maxCallers), closed: make(chan struct{}), remove: remove}, remove, nil
}

// writePointer replaces the pointer file, because an existing one may be a link.
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

// bind listens at path. When nursery is not empty, the socket is made in that
// directory and moved to path once only this user can connect to it.
func bind(path, nursery string) (net.Listener, error) {
	at := path
	if nursery != "" {
		at = filepath.Join(nursery, newborn)
		// A killed process may have left the socket behind. Other files in there are
		// not removed, because the directory may belong to something else.
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
	ln.SetUnlinkOnClose(false) // peerCheck removes it
	err = os.Chmod(at, 0o600)
	if err == nil && at != path {
		err = os.Rename(at, path)
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// A peerCheck is a listener that accepts connections of this user and of root,
// which could not be kept out, and a limited number at a time.
type peerCheck struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	remove func()
}

// mayCall reports whether a connection of the user peer is accepted.
func mayCall(peer, us int) bool { return peer == us || peer == 0 }

// Accept implements net.Listener.
func (d *peerCheck) Accept() (net.Conn, error) {
	select {
	case d.slots <- struct{}{}:
	case <-d.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			<-d.slots
			return nil, err
		}
		if uid, ok := peerOf(c); ok && !mayCall(uid, os.Geteuid()) {
			_ = c.Close()
			continue
		}
		return &admitted{Conn: c, leave: sync.OnceFunc(func() { <-d.slots })}, nil
	}
}

// Close implements net.Listener.
func (d *peerCheck) Close() error {
	d.once.Do(func() {
		close(d.closed)
		d.remove()
	})
	return d.Listener.Close()
}

// admitted is a connection that frees its slot when it is closed.
type admitted struct {
	net.Conn
	leave func()
}

func (s *admitted) Close() error {
	defer s.leave()
	return s.Conn.Close()
}
