// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/internal/datadir"
)

// At no moment can another user connect to the socket: it is created in a private
// directory and moved to its name once its mode is set.
func TestSocketIsBornClosed(t *testing.T) {
	dir := shortDir(t)
	chmod(t, dir, 0o755)
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	watch, err := syscall.InotifyInit1(syscall.IN_NONBLOCK)
	if err != nil {
		t.Skipf("changes of a directory cannot be watched here: %v", err)
	}
	defer func() { _ = syscall.Close(watch) }()
	if _, err := syscall.InotifyAddWatch(watch, dir, syscall.IN_CREATE|syscall.IN_MOVED_TO); err != nil {
		t.Skipf("changes of a directory cannot be watched here: %v", err)
	}
	// A private directory with a socket that a killed process left behind does not
	// matter.
	if err := os.Mkdir(filepath.Join(dir, datadir.Nursery), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, datadir.Nursery, newborn), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, stop, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	defer func() { _ = ln.Close() }()
	buf := make([]byte, 4<<10)
	n, err := syscall.Read(watch, buf)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for buf = buf[:n]; len(buf) > 0; {
		mask, size := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:])
		name := string(bytes.TrimRight(buf[16:16+size], "\x00"))
		seen = append(seen, map[bool]string{true: "made ", false: "moved "}[mask&syscall.IN_CREATE != 0]+name)
		buf = buf[16+size:]
	}
	// inotify merges identical consecutive events, so the directory, which is made
	// once, is seen once.
	if want := []string{"made " + datadir.Nursery, "moved " + datadir.Socket}; !slices.Equal(seen, want) {
		t.Errorf("the directory saw %q, want %q", seen, want)
	}
	info, err := os.Lstat(filepath.Join(dir, datadir.Socket))
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket has the mode %v, %v", info.Mode(), err)
	}
	if Find(t.Context(), dir) == nil {
		t.Error("nobody answers at a socket that was moved")
	}
}

// as runs fn as another user, on a thread that ends afterwards.
func as(t *testing.T, uid int, fn func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked, so the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- fn()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A user whom the mode of the socket lets in by mistake is refused, because the kernel
// names the user at the other end.
func TestCallersOfAnotherUser(t *testing.T) {
	dir := shortDir(t)
	chmod(t, dir, 0o755)
	ln, stop, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	defer func() { _ = ln.Close() }()
	path := filepath.Join(dir, datadir.Socket)
	chmod(t, path, 0o666)
	let := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("welcome"))
			_ = c.Close()
			let <- c
		}
	}()
	as(t, 4711, func() error {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Close(fd) }()
		if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			return err
		}
		var buf [16]byte
		if n, err := syscall.Read(fd, buf[:]); n > 0 {
			return errors.New("another user was answered: " + string(buf[:n]))
		} else if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			return err
		}
		return nil
	})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if text, err := io.ReadAll(c); err != nil || string(text) != "welcome" {
		t.Errorf("we are answered %q, %v", text, err)
	}
	if !mayCall(0, 1000) || mayCall(1001, 1000) || !mayCall(1000, 1000) {
		t.Error("who may call is wrong")
	}
}

// A client sends nothing to a socket whose listener belongs to another user.
func TestListenerOfAnotherUser(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, datadir.Socket)
	chmod(t, dir, 0o777)
	var fd int
	as(t, 4711, func() (err error) {
		if fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err != nil {
			return err
		}
		return errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 8))
	})
	defer func() { _ = syscall.Close(fd) }()
	if err := errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o600), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Socket(dir); err != nil {
		t.Fatalf("what is on the disk should look right: %v", err)
	}
	if Find(t.Context(), dir) != nil {
		t.Error("it is taken for ours")
	}
}
