// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// workInside is the working directory, as the program sees it.
const workInside = "work"

// systemDirs are the directories of programs and libraries.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// systemFiles are the parts of /etc that programs and libraries read. Others may have secrets.
var systemFiles = []string{
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone",
	"/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types", "/etc/fonts", "/etc/magic", "/etc/ImageMagick-6",
	"/etc/ImageMagick-7", "/etc/papersize", "/etc/java-17-openjdk", "/etc/java-21-openjdk", "/etc/python3",
}

// networkFiles are those that programs need in addition to reach others.
var networkFiles = []string{"/etc/hosts", "/etc/resolv.conf", "/etc/services", "/etc/protocols", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/gai.conf"}

// devices are those of /dev.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// A rootBuilder mounts the file system of a box at a directory.
type rootBuilder struct {
	at  string
	err error
}

// buildRoot makes the file system of the box that of this process.
func buildRoot(b *Box) error {
	r := &rootBuilder{at: filepath.Join(b.Dir, root)}
	r.do("keep mounts to this box", unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
	r.do("mount a root", unix.Mount("roux", r.at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m,nr_inodes=4k"))
	for _, dir := range systemDirs {
		r.mirror(dir)
	}
	files := systemFiles
	if b.Network {
		files = append(append([]string{}, files...), networkFiles...)
	}
	for _, path := range files {
		r.bind(path, path, true)
	}
	for _, path := range b.Read {
		r.bind(path, path, true)
	}
	if !b.Probe && !r.below(b.Program) {
		r.bind(b.Program, b.Program, true)
	}
	for _, path := range devices {
		r.bind(path, path, false)
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "shm": "/tmp"} {
		if r.err == nil {
			r.do("link", os.Symlink(target, filepath.Join(r.at, "dev", name)))
		}
	}
	r.bind(filepath.Join(b.Dir, work), "/"+workInside, false)
	r.bind(filepath.Join(b.Dir, scratch), "/tmp", false)
	r.dir("/proc")
	if r.err == nil {
		r.do("mount /proc", unix.Mount("proc", filepath.Join(r.at, "proc"), "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	}
	if r.err != nil {
		return r.err
	}
	return r.enter()
}

func (r *rootBuilder) do(what string, err error) {
	if r.err == nil && err != nil {
		r.err = fmt.Errorf("%s: %w", what, err)
	}
}

// dir makes a directory.
func (r *rootBuilder) dir(path string) {
	if r.err == nil {
		r.do("make "+path, os.MkdirAll(filepath.Join(r.at, path), 0o755))
	}
}

// mirror shows a directory of the system, or the link that it is, read only.
func (r *rootBuilder) mirror(path string) {
	if target, err := os.Readlink(path); err == nil {
		r.do("link "+path, os.Symlink(target, filepath.Join(r.at, path)))
		return
	}
	r.bind(path, path, true)
}

// below reports whether the box shows the file already, as a part of a directory.
func (r *rootBuilder) below(path string) bool {
	_, err := os.Lstat(filepath.Join(r.at, path))
	return err == nil
}

// bind shows a file or a directory at another path. One that does not exist is left out.
func (r *rootBuilder) bind(from, to string, readOnly bool) {
	if r.err != nil {
		return
	}
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	at := filepath.Join(r.at, to)
	if err == nil && !r.below(to) {
		err = os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case info.IsDir():
			err = os.Mkdir(at, 0o755)
		default:
			err = os.WriteFile(at, nil, 0o444)
		}
	}
	if err == nil {
		err = unix.Mount(from, at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
		if readOnly {
			attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if !strings.HasPrefix(to, "/dev/") {
			attr.Attr_set |= unix.MOUNT_ATTR_NODEV
		}
		err = unix.MountSetattr(unix.AT_FDCWD, at, unix.AT_RECURSIVE, &attr)
	}
	r.do("show "+to, err)
}

// enter makes the directory the root, and removes all other mounts.
func (r *rootBuilder) enter() error {
	r.do("enter the root", os.Chdir(r.at))
	if r.err == nil {
		r.do("change the root", unix.PivotRoot(".", "."))
	}
	if r.err == nil {
		r.do("leave the old root", unix.Unmount(".", unix.MNT_DETACH))
	}
	if r.err == nil {
		r.do("enter the root", os.Chdir("/"))
	}
	if r.err == nil {
		r.do("close the root", unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}))
	}
	return r.err
}
