// SPDX-License-Identifier: Apache-2.0

//go:build unix

package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// A thing is a kind of file that may have a given name. make creates it at the path at;
// away is a directory outside the data directory.
type thing struct {
	name string
	root bool // only root can make it
	make func(at, away string) error
	file string // why it is refused as a regular file; "" = it is one
	dir  string // why it is refused as a directory; "" = it is one
}

var things = []thing{
	{"file", false, func(at, _ string) error { return os.WriteFile(at, nil, 0o600) }, "", "is a regular file, not a directory"},
	{"directory", false, func(at, _ string) error { return os.Mkdir(at, 0o700) }, "is a directory, not a regular file", ""},
	{"link to a file", false, func(at, away string) error { return os.Symlink(filepath.Join(away, "victim"), at) }, "is a symbolic link", "is a symbolic link"},
	{"link to a directory", false, func(at, away string) error { return os.Symlink(away, at) }, "is a symbolic link", "is a symbolic link"},
	{"link to nothing", false, func(at, away string) error { return os.Symlink(filepath.Join(away, "new"), at) }, "is a symbolic link", "is a symbolic link"},
	{"link to a link", false, func(at, away string) error { return os.Symlink(filepath.Join(away, "link"), at) }, "is a symbolic link", "is a symbolic link"},
	{"link to itself", false, func(at, _ string) error { return os.Symlink(filepath.Base(at), at) }, "is a symbolic link", "is a symbolic link"},
	{"hard link", false, func(at, away string) error { return os.Link(filepath.Join(away, "victim"), at) }, "is a hard link", "is a regular file, not a directory"},
	{"FIFO", false, func(at, _ string) error { return syscall.Mkfifo(at, 0o600) }, "is a FIFO", "is a FIFO"},
	{"socket", false, makeSocket, "is a socket", "is a socket"},
	{"device", true, func(at, _ string) error { return syscall.Mknod(at, syscall.S_IFCHR|0o600, 1<<8|3) }, "is a device", "is a device"},
	{"disk", true, func(at, _ string) error { return syscall.Mknod(at, syscall.S_IFBLK|0o600, 7<<8) }, "is a device", "is a device"},
	{"file of another user", true, func(at, _ string) error {
		return errors.Join(os.WriteFile(at, nil, 0o666), os.Chown(at, 4711, 4711))
	}, "belongs to another user", "belongs to another user"},
	{"directory of another user", true, func(at, _ string) error {
		return errors.Join(os.Mkdir(at, 0o777), os.Chown(at, 4711, 4711))
	}, "belongs to another user", "belongs to another user"},
	{"link of another user", true, func(at, away string) error {
		return errors.Join(os.Symlink(filepath.Join(away, "victim"), at), os.Lchown(at, 4711, 4711))
	}, "is a symbolic link", "is a symbolic link"},
}

// makeSocket makes a socket at a name that may be too long for one.
func makeSocket(at, away string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	short := filepath.Join(away, "s")
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: short}); err != nil {
		return err
	}
	return os.Rename(short, at)
}

// grounds creates a data directory, and a directory outside it with files that must not
// change.
func grounds(t *testing.T) (dir, away string) {
	t.Helper()
	base, err := os.MkdirTemp("", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir, away = filepath.Join(base, "d"), filepath.Join(base, "a")
	err = errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(away, 0o755),
		os.WriteFile(filepath.Join(away, "victim"), []byte("precious"), 0o644), os.Symlink("victim", filepath.Join(away, "link")))
	if err != nil {
		t.Fatal(err)
	}
	return dir, away
}

// each calls try once for every thing, created at name in a new data directory.
func each(t *testing.T, name string, try func(t *testing.T, th *thing, dir, at string)) {
	for i := range things {
		th := &things[i]
		t.Run(th.name, func(t *testing.T) {
			if th.root && os.Geteuid() != 0 {
				t.Skip("only root can make this")
			}
			dir, away := grounds(t)
			at := filepath.Join(dir, name)
			if err := th.make(at, away); err != nil {
				t.Fatal(err)
			}
			try(t, th, dir, at)
			victim := filepath.Join(away, "victim")
			text, err := os.ReadFile(victim)
			info, err2 := os.Stat(victim)
			if err != nil || err2 != nil || string(text) != "precious" || info.Mode().Perm() != 0o644 {
				t.Errorf("the file outside: %q, %v, %v, %v", text, info.Mode(), err, err2)
			}
			if _, err := os.Lstat(filepath.Join(away, "new")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a file outside was made")
			}
		})
	}
}

// says fails the test unless err contains want, or is nil if want is "".
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// Open opens, for reading and for writing, only a regular file of this user that is not
// reached by a link, and refuses everything else.
func TestOpen(t *testing.T) {
	for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE, os.O_WRONLY | os.O_CREATE | os.O_APPEND} {
		t.Run(fmt.Sprintf("flag %x", flag), func(t *testing.T) {
			each(t, Lock, func(t *testing.T, th *thing, _, at string) {
				f, err := Open(at, flag)
				says(t, "open", err, th.file)
				if err == nil {
					says(t, "close", f.Close(), "")
				} else if fault.CodeOf(err) != fault.Usage {
					t.Errorf("%v has the code %s", err, fault.CodeOf(err))
				}
			})
		})
	}
}

// Open never truncates, because a file is checked only after it is opened.
func TestOpenNeverTruncates(t *testing.T) {
	dir, _ := grounds(t)
	at := filepath.Join(dir, Lock)
	if err := os.WriteFile(at, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(at, os.O_RDWR|os.O_TRUNC); fault.CodeOf(err) != fault.InternalError {
		t.Errorf("truncate: %v", err)
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
}

// Open creates a missing file only with os.O_CREATE, and then with the mode 0600 under
// every umask. Looser modes are tightened, stricter ones are made 0600.
func TestOpenModes(t *testing.T) {
	dir, _ := grounds(t)
	at := filepath.Join(dir, Lock)
	if _, err := Open(at, os.O_RDWR); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "no", "lock"), os.O_RDWR|os.O_CREATE); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in no directory: %v", err)
	}
	if _, err := Open(filepath.Join(dir, strings.Repeat("x", 300)), os.O_RDONLY); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("too long a name: %v", err)
	}
	for _, mask := range []int{0, 0o022, 0o077, 0o177} {
		for _, mode := range []fs.FileMode{0, 0o666, 0o644, 0o600, 0o400, 0o777} {
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			old := syscall.Umask(mask)
			if mode != 0 {
				says(t, "write", errors.Join(os.WriteFile(at, nil, 0o600), os.Chmod(at, mode)), "")
			}
			flag := os.O_RDWR | os.O_CREATE
			if mode == 0o400 {
				flag = os.O_RDONLY
			}
			f, err := Open(at, flag)
			syscall.Umask(old)
			if err != nil {
				t.Fatalf("umask %04o, mode %04o: %v", mask, mode, err)
			}
			info, err := f.Stat()
			says(t, "stat", errors.Join(err, f.Close()), "")
			if info.Mode().Perm() != 0o600 {
				t.Errorf("umask %04o, mode %04o: it is %04o now", mask, mode, info.Mode().Perm())
			}
		}
	}
}

// OpenRoot creates a missing directory, removes the access of other users to an
// existing one, and refuses links and everything else.
func TestOpenRoot(t *testing.T) {
	each(t, Files, func(t *testing.T, th *thing, _, at string) {
		r, err := OpenRoot(at)
		says(t, "open", err, th.dir)
		if err == nil {
			says(t, "close", r.Close(), "")
		}
	})
	dir, away := grounds(t)
	for _, mode := range []fs.FileMode{0, 0o777, 0o755, 0o700} {
		at := filepath.Join(dir, "deep", "er", fmt.Sprint("files", mode))
		if mode != 0 {
			says(t, "mkdir", errors.Join(os.Mkdir(at, 0o700), os.Chmod(at, mode)), "")
		}
		r, err := OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		info, err := r.Stat(".")
		says(t, "stat", errors.Join(err, r.Close()), "")
		if info.Mode().Perm() != 0o700 {
			t.Errorf("mode %04o: it is %04o now", mode, info.Mode().Perm())
		}
	}
	if _, err := OpenRoot(filepath.Join(away, "victim", "files")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}

// OpenBelow does the same for names below a root as Open does for paths, and returns
// the reason of a refusal.
func TestOpenBelow(t *testing.T) {
	for kind, want := range map[fs.FileMode]func(*thing) string{
		0: func(th *thing) string { return th.file }, fs.ModeDir: func(th *thing) string { return th.dir },
	} {
		each(t, "name", func(t *testing.T, th *thing, dir, _ string) {
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			f, err := OpenBelow(root, "name", kind)
			says(t, "open", err, want(th))
			var odd *Refusal
			if err == nil {
				says(t, "close", f.Close(), "")
			} else if !errors.As(err, &odd) || odd.Name != "name" {
				t.Errorf("%v tells no reason", err)
			}
		})
	}
	dir, _ := grounds(t)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := OpenBelow(root, "name", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	for mode, want := range map[fs.FileMode]fs.FileMode{0o666: 0o600, 0o640: 0o600, 0o444: 0o400, 0o600: 0o600} {
		at := filepath.Join(dir, "name")
		says(t, "write", errors.Join(os.WriteFile(at, []byte("text"), 0o600), os.Chmod(at, mode)), "")
		f, err := OpenBelow(root, "name", 0)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		info, err2 := f.Stat()
		if err != nil || err2 != nil || string(text) != "text" || info.Mode().Perm() != want {
			t.Errorf("mode %04o: %q, %v, %v, %v", mode, text, info.Mode(), err, err2)
		}
		says(t, "close", errors.Join(f.Close(), os.Remove(at)), "")
	}
}

// Check refuses a directory in which one of Roux's names is a link or of another kind
// than Roux makes, and changes nothing.
func TestCheck(t *testing.T) {
	for _, n := range names {
		t.Run(n.name, func(t *testing.T) {
			each(t, n.name, func(t *testing.T, th *thing, dir, at string) {
				want := th.file
				switch n.kind {
				case fs.ModeDir:
					want = th.dir
				case anyKind:
					if want = ""; strings.Contains(th.name, "link") || strings.Contains(th.name, "another") {
						want = th.file
					}
				}
				before, err := os.Lstat(at)
				if err != nil {
					t.Fatal(err)
				}
				says(t, "check", Check(dir), want)
				after, err := os.Lstat(at)
				if err != nil || after.Mode() != before.Mode() || !os.SameFile(before, after) {
					t.Errorf("it was changed: %v, %v", after, err)
				}
			})
		})
	}
	dir, away := grounds(t)
	says(t, "an empty one", Check(dir), "")
	says(t, "none", Check(filepath.Join(dir, "none")), "")
	says(t, "a file", Check(filepath.Join(away, "victim")), "is a regular file, not a directory")
	if err := Check(filepath.Join(away, "victim", "below")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
	way := filepath.Join(away, "way")
	says(t, "link", os.Symlink(dir, way), "")
	says(t, "a link that the user names", Check(way), "")
	if os.Geteuid() == 0 {
		says(t, "chown", os.Chown(dir, 4711, 4711), "")
		says(t, "of another user", Check(dir), "belongs to another user")
	}
}

// Secure removes the access of other users to a data directory and its files. A
// directory that also contains something else keeps its mode, and is refused if
// everybody may write there.
func TestSecure(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode
		also string // something else in it
		want fs.FileMode
		why  string
	}{
		{"closed", 0o700, "", 0o700, ""},
		{"open to others", 0o755, "", 0o700, ""},
		{"everybody may write", 0o777, "", 0o700, ""},
		{"somebody's project", 0o755, "main.go", 0o755, ""},
		{"a group's project", 0o775, "main.go", 0o775, ""},
		{"everybody's project", 0o777, "main.go", 0o777, "may be written by everybody"},
		{"everybody's, with a file of doctor", 0o777, "doctor-1.tmp", 0o700, ""},
		{"closed, with other things", 0o700, "main.go", 0o700, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := grounds(t)
			for _, name := range []string{Lock, Database, Database + "-wal", Reserve, tt.also} {
				if name != "" {
					at := filepath.Join(dir, name)
					says(t, "write", errors.Join(os.WriteFile(at, nil, 0o600), os.Chmod(at, 0o666)), "")
				}
			}
			files := filepath.Join(dir, Files)
			says(t, "files", errors.Join(os.Mkdir(files, 0o700), os.Chmod(files, 0o777)), "")
			says(t, "chmod", os.Chmod(dir, tt.mode), "")
			says(t, "secure", Secure(dir), tt.why)
			if info, err := os.Stat(files); err != nil || (info.Mode().Perm() == 0o700) != (tt.why == "") {
				t.Errorf("%s is %v: %v", Files, info.Mode(), err)
			}
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != tt.want {
				t.Errorf("the directory is %v, want %04o: %v", info.Mode(), tt.want, err)
			}
			for name, want := range map[string]fs.FileMode{Database: 0o600, Database + "-wal": 0o600, Reserve: 0o600, Lock: 0o666} {
				if tt.why != "" {
					want = 0o666
				}
				info, err := os.Stat(filepath.Join(dir, name))
				if err != nil || info.Mode().Perm() != want {
					t.Errorf("%s is %v, want %04o: %v", name, info.Mode(), want, err)
				}
			}
		})
	}
	each(t, Database+"-wal", func(t *testing.T, th *thing, dir, _ string) { says(t, "secure", Secure(dir), th.file) })
	empty, _ := grounds(t)
	says(t, "an empty one", errors.Join(os.Chmod(empty, 0o777), Secure(empty)), "")
	if info, err := os.Stat(empty); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("an empty directory is %v, %v", info.Mode(), err)
	}
	if err := Secure(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A directory that its user may enter but not read is left as it is.
func TestSecureUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("permissions do not bind this user")
	}
	dir, _ := grounds(t)
	says(t, "chmod", os.Chmod(dir, 0o300), "")
	defer func() { _ = os.Chmod(dir, 0o700) }()
	says(t, "secure", Secure(dir), "")
	says(t, "chmod", os.Chmod(dir, 0o000), "")
	if err := Check(dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a directory that may not be entered: %v", err)
	}
}

// asUser is an environment variable. The test starts itself as another user with a
// directory in it, and that process checks how files of root are handled there.
const asUser = "DATADIR_AS_USER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asUser); dir != "" {
		if err := rootsAffair(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Root is trusted as an owner and its files keep their modes, because the volume of a
// container belongs to root. Files and directories that this user may not open are
// skipped or give an error.
func TestWhatBelongsToRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make this")
	}
	base, err := os.MkdirTemp("", "dd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Skipf("only root can on Linux: %v", err)
	}
	exe := filepath.Join(base, "test")
	says(t, "copy", errors.Join(os.WriteFile(exe, program, 0o755), os.Chmod(exe, 0o755), os.Chmod(base, 0o777)), "")
	for dir, mode := range map[string]fs.FileMode{"readable": 0o755, "everybodys": 0o777, "closed": 0o711, "shut": 0o700} {
		at := filepath.Join(base, dir)
		says(t, "mkdir", os.Mkdir(at, 0o700), "")
		for name, mode := range map[string]fs.FileMode{Lock: 0o644, Database: 0o644, Reserve: 0o644} {
			says(t, "write", errors.Join(os.WriteFile(filepath.Join(at, name), nil, 0o600), os.Chmod(filepath.Join(at, name), mode)), "")
		}
		says(t, "mkdir", errors.Join(os.Mkdir(filepath.Join(at, Files), 0o700), os.Chmod(filepath.Join(at, Files), 0o755), os.Chmod(at, mode)), "")
	}
	says(t, "hidden", errors.Join(os.Mkdir(filepath.Join(base, "hidden"), 0o755), os.WriteFile(filepath.Join(base, "hidden", Database), nil, 0o640)), "")
	before := modesBelow(t, base)
	cmd := exec.Command(exe)
	cmd.Env = []string{asUser + "=" + base}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if after := modesBelow(t, base); after != before {
		t.Errorf("modes were changed:\n%swere\n%s", after, before)
	}
}

func modesBelow(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil {
			fmt.Fprintln(&b, path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rootsAffair is the part of TestWhatBelongsToRoot that runs as another user. It
// returns the problems.
func rootsAffair(base string) (problems error) {
	want := func(what string, err, is error, says string) {
		if is == nil && says == "" && err != nil || is != nil && !errors.Is(err, is) || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			problems = errors.Join(problems, fmt.Errorf("%s: %s, want %s %q", what, fmt.Sprint(err), fmt.Sprint(is), says))
		}
	}
	dir := func(name string) string { return filepath.Join(base, name) }
	want("check", Check(dir("readable")), nil, "")
	want("secure", Secure(dir("readable")), nil, "")
	want("secure what everybody may write", Secure(dir("everybodys")), nil, "may be written by everybody")
	want("secure what may be entered and not read", Secure(dir("closed")), nil, "")
	want("check what may not be entered", Check(dir("shut")), fs.ErrPermission, "")
	want("secure what may not be read", Secure(dir("hidden")), fs.ErrPermission, "")
	f, err := Open(filepath.Join(dir("readable"), Lock), os.O_RDONLY)
	want("open", err, nil, "")
	if err == nil {
		want("close", f.Close(), nil, "")
	}
	_, err = Open(filepath.Join(dir("readable"), Lock), os.O_RDWR)
	want("open to write", err, fs.ErrPermission, "")
	r, err := OpenRoot(filepath.Join(dir("readable"), Files))
	want("open a root", err, nil, "")
	if err == nil {
		want("close", r.Close(), nil, "")
	}
	_, err = OpenRoot(filepath.Join(dir("shut"), Files))
	want("open a root that may not be reached", err, fs.ErrPermission, "")
	info, err := os.Stat(dir("readable"))
	want("stat", err, nil, "")
	want("chmod", Chmod(dir("readable"), info, 0o700), fs.ErrPermission, "")
	want("a file of another user", Foreign(mine{}), nil, "belongs to another user")
	return problems
}

// mine is a file of a user who is neither this process's nor root.
type mine struct{ fs.FileInfo }

func (mine) Sys() any { return &syscall.Stat_t{Uid: 4712} }

// Chmod changes only the directory that info describes, and not one that replaced it.
func TestChmod(t *testing.T) {
	dir, away := grounds(t)
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	says(t, "chmod", Chmod(dir, info, 0o750), "")
	if now, err := os.Stat(dir); err != nil || now.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", now.Mode(), err)
	}
	says(t, "move", errors.Join(os.Rename(dir, dir+"-old"), os.Symlink(away, dir)), "")
	says(t, "another one", Chmod(dir, info, 0o700), "was replaced while it was opened")
	if now, err := os.Stat(away); err != nil || now.Mode().Perm() != 0o755 {
		t.Errorf("the other one: %v, %v", now.Mode(), err)
	}
	says(t, "link", errors.Join(os.Remove(dir), os.Symlink(filepath.Join(away, "victim"), dir)), "")
	if err := Chmod(dir, info, 0o700); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file: %v", err)
	}
	if err := Chmod(filepath.Join(away, "none"), info, 0o700); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
}

// TestKinds: every kind of file has a name for messages.
func TestKinds(t *testing.T) {
	for kind, want := range map[fs.FileMode]string{
		0: "a regular file", fs.ModeDir: "a directory", fs.ModeNamedPipe: "a FIFO", fs.ModeSocket: "a socket",
		fs.ModeDevice: "a device", fs.ModeDevice | fs.ModeCharDevice: "a device", fs.ModeIrregular: "a special file",
	} {
		if got := kindName(kind); got != want {
			t.Errorf("%v is %q, want %q", kind, got, want)
		}
	}
	if err := refused("/d/lock", errors.New("is a FIFO")); fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "/d/lock is a FIFO and is not used: ") || !strings.Contains(err.Error(), "--data DIR") {
		t.Errorf("%v", err)
	}
	if _, _, ok := ownerOf(noInfo{}); ok {
		t.Error("what no system says has an owner")
	}
	if err := Foreign(noInfo{}); err != nil {
		t.Errorf("what has no owner is another user's: %v", err)
	}
}

// noInfo is the FileInfo of a file system without owners.
type noInfo struct{ fs.FileInfo }

func (noInfo) Sys() any { return nil }
