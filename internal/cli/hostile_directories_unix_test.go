// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/datadir"
)

// outside describes everything below a directory that no command may touch: bytes,
// modes, owners and times.
func outside(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(p)
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d %d %v", p, info.Mode(), st.Uid, st.Size, info.ModTime().UnixNano())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", text)
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A trap is a way to put something in the place of a file of Roux.
type trap struct {
	name string
	root bool // only root can lay it
	lay  func(at, away string) error
	want string // of the refusal; "" = the data directory is used, and closed to others
}

// hostile returns each trap with the name at which it is placed: more than forty
// directories.
func hostile() (all []struct {
	at string
	trap
}) {
	link := trap{"link", false, func(at, away string) error { return os.Symlink(filepath.Join(away, "victim"), at) }, "is a symbolic link"}
	nothing := trap{"link to nothing", false, func(at, away string) error { return os.Symlink(filepath.Join(away, "new"), at) }, "is a symbolic link"}
	dirLink := trap{"link to a directory", false, func(at, away string) error { return os.Symlink(away, at) }, "is a symbolic link"}
	hard := trap{"hard link", false, func(at, away string) error { return os.Link(filepath.Join(away, "victim"), at) }, "is a hard link"}
	fifo := trap{"FIFO", false, func(at, _ string) error { return syscall.Mkfifo(at, 0o600) }, "is a FIFO"}
	socket := trap{"socket", false, func(at, _ string) error {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer func() { _ = syscall.Close(fd) }()
		return syscall.Bind(fd, &syscall.SockaddrUnix{Name: at})
	}, "is a socket"}
	device := trap{"device", true, func(at, _ string) error { return syscall.Mknod(at, syscall.S_IFCHR|0o600, 1<<8|3) }, "is a device"}
	dir := trap{"directory", false, func(at, _ string) error { return os.Mkdir(at, 0o700) }, "is a directory"}
	owner := trap{"of another user", true, func(at, _ string) error {
		if err := os.WriteFile(at, nil, 0o666); err != nil {
			return err
		}
		return os.Chown(at, 4711, 4711)
	}, "belongs to another user"}
	mode := trap{"mode", false, func(at, _ string) error {
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			return err
		}
		return os.Chmod(at, 0o666)
	}, ""}
	add := func(at string, traps ...trap) {
		for _, tr := range traps {
			all = append(all, struct {
				at string
				trap
			}{at, tr})
		}
	}
	for _, name := range []string{datadir.Lock, datadir.Database, datadir.Database + "-wal", datadir.Database + "-shm", datadir.Database + "-journal", datadir.Reserve, datadir.MasterKey} {
		add(name, link, nothing, hard, fifo, socket, device, dir, owner, mode)
	}
	for _, name := range []string{datadir.Socket, datadir.Pointer, datadir.Nursery} {
		add(name, link, nothing, dirLink, owner, hard)
	}
	looseDir := trap{"loose directory", false, func(at, _ string) error {
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		return os.Chmod(at, 0o777)
	}, ""}
	for _, name := range []string{datadir.Files, datadir.Secrets} {
		add(name, dirLink, nothing, fifo, owner, looseDir)
	}
	inside := func(name string, what trap) trap {
		return trap{what.name, what.root, func(at, away string) error {
			if err := os.Mkdir(at, 0o700); err != nil {
				return err
			}
			return what.lay(filepath.Join(at, name), away)
		}, ""}
	}
	tmp := inside("tmp", dirLink)
	tmp.want = "tmp is a symbolic link"
	add(datadir.Files, tmp)
	return all
}

// deeper returns the traps at names below the directory files, in which one file is
// stored.
func deeper() (all []struct {
	at string
	trap
}) {
	kinds := map[string][]string{
		"tmp":                      {"link", "link to nothing", "link to a directory", "FIFO", "socket", "directory of another user"},
		storedAccount:              {"link", "link to nothing", "link to a directory", "FIFO", "socket", "directory of another user"},
		storedAccount + "/account": {"link", "link to nothing", "hard link", "FIFO", "socket", "device", "directory", "of another user"},
		storedShard:                {"link", "link to nothing", "link to a directory", "FIFO", "socket", "directory of another user"},
		storedFile:                 {"link", "link to nothing", "hard link", "FIFO", "socket", "device", "directory", "of another user"},
		storedFile + ".json":       {"link", "link to nothing", "hard link", "FIFO", "socket", "device", "directory", "of another user"},
	}
	traps := map[string]trap{}
	for _, tt := range hostile() {
		if tt.at == datadir.Lock || tt.at == datadir.Nursery {
			traps[tt.name] = tt.trap
		}
	}
	traps["directory of another user"] = trap{"directory of another user", true, func(at, _ string) error {
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		return os.Chown(at, 4711, 4711)
	}, "belongs to another user"}
	for _, at := range slices.Sorted(maps.Keys(kinds)) {
		for _, name := range kinds[at] {
			all = append(all, struct {
				at string
				trap
			}{at, traps[name]})
		}
	}
	return all
}

// Where the text "x" of the command line's account is stored.
const storedText = "x"

var (
	storedAccount = fmt.Sprintf("acct_%x", sha256.Sum256([]byte("roux account\x00"+account)))[:len("acct_")+32]
	storedHash    = fmt.Sprintf("sha256_%x", sha256.Sum256([]byte(storedText)))
	storedShard   = storedAccount + "/" + storedHash[7:9]
	storedFile    = storedShard + "/" + storedHash
)

// A data directory of unknown origin is refused with a message that says what is wrong
// in it, or used and closed to others, however it was named. Nothing outside is
// touched, no command blocks, and every refusal has a message.
func TestHostileDataDirectories(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	cases := hostile()
	if len(cases) < 40 {
		t.Fatalf("%d hostile directories, want 40", len(cases))
	}
	for i, tt := range cases {
		if os.Getenv("ROUX_LONG") == "" && i%2 == time.Now().YearDay()%2 {
			continue // all of them are nightly's
		}
		how := []string{"data in roux.yaml", "./.roux", "--data"}[i%3]
		t.Run(strings.ReplaceAll(fmt.Sprint(tt.at, " ", tt.name, " ", how), "/", ""), func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("only root can lay this")
			}
			hostileDirectory(t, tt.at, tt.trap, how)
		})
	}
}

func hostileDirectory(t *testing.T, at string, tr trap, how string) {
	base := shortDir(t)
	away, project := filepath.Join(base, "away"), filepath.Join(base, "project")
	for _, dir := range []string{away, project} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"victim", "doctor-1.tmp", "put-1"} {
		if err := os.WriteFile(filepath.Join(away, name), []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ROUX_DATA", "")
	t.Setenv("HOME", filepath.Join(base, "home"))
	t.Chdir(project)
	dir, args := filepath.Join(project, "state"), []string(nil)
	switch how {
	case "./.roux":
		dir = filepath.Join(project, config.LocalDir)
	case "--data":
		args = []string{"--data", dir}
	default:
		if err := os.WriteFile(config.ProjectFile, []byte("data: state\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tr.lay(filepath.Join(dir, at), away); err != nil {
		t.Fatal(err)
	}
	before := outside(t, away)
	for _, cmd := range [][]string{{"files", "put", "-"}, {"files", "ls"}, {"runs", "list"}, {"resume"}, {"doctor"}, {"doctor", "--fix"}} {
		var out, talk string
		var code int
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, talk, code = inProcess("x", append(cmd, args...)...)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%v waits", cmd)
		}
		if tr.want == "" {
			if code != fault.ExitOK && cmd[0] != "doctor" {
				t.Errorf("%v: exit %d: %s", cmd, code, talk)
			}
			continue
		}
		opensFiles := at != datadir.Files || tr.want == "is a symbolic link" || cmd[0] == "files"
		if (code == fault.ExitOK || !strings.Contains(out+talk, tr.want)) && opensFiles && (!strings.HasPrefix(tr.want, "tmp") || cmd[0] != "doctor") {
			t.Errorf("%v: exit %d, want a refusal that says %q: %s%s", cmd, code, tr.want, out, talk)
		}
	}
	if got := outside(t, away); got != before {
		t.Errorf("outside was touched:\n%swas\n%s", got, before)
	}
	if tr.want == "" {
		closedToOthers(t, dir)
	}
}

// A trap in the place of a stored file, or on the path to it, is refused and named, or
// replaced when the file is stored again. Nothing outside is touched, and no command
// blocks.
func TestHostileFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	cases := deeper()
	if len(cases) < 35 {
		t.Fatalf("%d hostile files, want 35", len(cases))
	}
	for _, tt := range cases {
		name := strings.NewReplacer(storedAccount, "account", storedHash, "file", "/", " ").Replace(tt.at)
		t.Run(strings.ReplaceAll(name+" "+tt.name, "/", " "), func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("only root can lay this")
			}
			hostileFile(t, tt.at, tt.trap)
		})
	}
}

func hostileFile(t *testing.T, at string, tr trap) {
	base := shortDir(t)
	away, dir := filepath.Join(base, "a"), filepath.Join(base, "d")
	t.Setenv("ROUX_DATA", dir)
	if _, talk, code := inProcess(storedText, "files", "put", "-"); code != 0 {
		t.Fatal(talk)
	}
	// A link out of the directory would work if it were followed: away has the same
	// bytes under the same names.
	if err := os.CopyFS(away, os.DirFS(filepath.Join(dir, "files"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"victim", "put-1", "account"} {
		if err := os.WriteFile(filepath.Join(away, name), []byte(storedText), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(away, "victim"), past, past); err != nil {
		t.Fatal(err)
	}
	before := outside(t, away)
	place := filepath.Join(dir, "files", at)
	if err := os.RemoveAll(place); err != nil {
		t.Fatal(err)
	}
	// The path of a socket is limited to about 100 bytes, so the trap is placed by a
	// relative path.
	t.Chdir(filepath.Dir(place))
	if err := tr.lay(filepath.Base(place), away); err != nil {
		t.Fatal(err)
	}
	t.Chdir(base)
	run := func(args ...string) (string, int) {
		t.Helper()
		var out, talk string
		var code int
		done := make(chan struct{})
		go func() {
			defer close(done)
			out, talk, code = inProcess(storedText, args...)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%v waits", args)
		}
		if got := outside(t, away); got != before {
			t.Fatalf("%v touched what is outside:\n%swas\n%s", args, got, before)
		}
		return out + talk, code
	}
	isFile, isRecord := at == storedFile, at == storedFile+".json"
	onTheWay := isFile || at == storedShard || at == storedAccount
	for _, args := range [][]string{
		{"files", "get", storedHash, "-O", "got"}, {"files", "inspect", storedHash}, {"files", "gc"}, {"files", "ls"},
	} {
		said, code := run(args...)
		if (args[1] == "get" || args[1] == "inspect") && onTheWay && code == fault.ExitOK {
			t.Errorf("%v: exit %d: %s", args, code, said)
		}
	}
	said, code := run("doctor")
	if code == fault.ExitOK || !strings.Contains(said, "files  ") || !strings.Contains(said, filepath.Base(at)) {
		t.Errorf("doctor: exit %d, is silent: %s", code, said)
	}
	recipe := filepath.Join(base, "r.yaml")
	if err := os.WriteFile(recipe, []byte("name: r\nsteps: [{id: a, transform: {expression: '1'}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, code := run("run", recipe, "--file", storedHash, "-q"); onTheWay && code == fault.ExitOK {
		t.Errorf("run --file: exit %d: %s", code, said)
	}
	if at == "tmp" { // doctor --fix removes what was left in tmp
		run("doctor", "--fix")
	}
	said, code = run("files", "put", "-")
	replaced := (isFile || isRecord || strings.HasSuffix(at, "/account")) && tr.name != "directory"
	if replaced != (code == fault.ExitOK) {
		t.Errorf("files put: exit %d, replaced %t: %s", code, replaced, said)
	}
	if !replaced && !strings.Contains(said, tr.want) && tr.name != "directory" {
		t.Errorf("files put: want a refusal that says %q: %s", tr.want, said)
	}
	if replaced {
		if said, code := run("files", "get", storedHash, "-O", "got", "--force"); code != fault.ExitOK {
			t.Errorf("files get after it was stored again: exit %d: %s", code, said)
		}
		run("files", "rm", storedHash)
	}
}

// --salvage copies what Roux made, names the rest, and lets nobody else into the new
// directory while it fills it.
func TestSalvageLeavesTraps(t *testing.T) {
	base := shortDir(t)
	away, dir := filepath.Join(base, "a"), killedWith(t, 1)
	if err := os.Mkdir(away, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(away, "victim")
	if err := os.WriteFile(victim, []byte("a secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	shard := filepath.Join(dir, datadir.Files, storedShard)
	if err := os.MkdirAll(shard, 0o700); err != nil {
		t.Fatal(err)
	}
	laid := map[string]func(at string) error{
		"link":      func(at string) error { return os.Symlink(victim, at) },
		"hard link": func(at string) error { return os.Link(victim, at) },
		"FIFO":      func(at string) error { return syscall.Mkfifo(at, 0o600) },
		"way":       func(at string) error { return os.Symlink(away, at) },
	}
	for name, lay := range laid {
		if err := lay(filepath.Join(shard, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := outside(t, away)
	saved := filepath.Join(base, "saved")
	if err := os.Mkdir(saved, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(saved, 0o777); err != nil {
		t.Fatal(err)
	}
	out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", saved)
	if code != fault.ExitFailed || !strings.Contains(out, "saved 1 run and 1 file ") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
	for name := range laid {
		if !strings.Contains(out, filepath.Join(storedShard, name)+" is a ") {
			t.Errorf("%s is not named: %s", name, out)
		}
		if _, err := os.Lstat(filepath.Join(saved, datadir.Files, storedShard, name)); err == nil {
			t.Errorf("%s was copied", name)
		}
	}
	if got := outside(t, away); got != before {
		t.Errorf("touched what is outside:\n%swas\n%s", got, before)
	}
	closedToOthers(t, saved)
	if info, err := os.Stat(saved); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the new directory is %v, %v", info.Mode(), err)
	}
	// --salvage creates nothing in the damaged directory, not even a missing directory
	// files.
	if err := os.RemoveAll(filepath.Join(dir, datadir.Files)); err != nil {
		t.Fatal(err)
	}
	if out, talk, code := inProcess("", "doctor", "--data", dir, "--salvage", filepath.Join(base, "again")); code != fault.ExitOK || !strings.Contains(out, "0 files") {
		t.Errorf("exit %d: %s%s", code, out, talk)
	}
	if _, err := os.Lstat(filepath.Join(dir, datadir.Files)); err == nil {
		t.Error("files was made in the damaged directory")
	}
}

// closedToOthers checks the mode of everything in a data directory.
func closedToOthers(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has the mode %04o, want %04o", p, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Files are 0600 and directories 0700 under every umask, and after somebody made
// all of them open.
func TestModesOfTheDataDirectory(t *testing.T) {
	for _, mask := range []int{0o000, 0o022, 0o077} {
		t.Run(fmt.Sprintf("umask %04o", mask), func(t *testing.T) {
			old := syscall.Umask(mask)
			defer syscall.Umask(old)
			dir := filepath.Join(shortDir(t), "data")
			for range 2 {
				for _, cmd := range [][]string{{"files", "put", "-"}, {"files", "ls"}} {
					if _, talk, code := inProcess("x", append(cmd, "--data", dir)...); code != 0 {
						t.Fatal(talk)
					}
				}
				closedToOthers(t, dir)
				err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
					if err != nil {
						return err
					}
					return os.Chmod(p, map[bool]fs.FileMode{true: 0o775, false: 0o666}[d.IsDir()])
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, talk, code := inProcess("x", "files", "put", "-", "--data", dir); code != 0 {
				t.Fatal(talk)
			}
			closedToOthers(t, dir)
		})
	}
}

// A data directory that roux.yaml names must lie in the project, with no link on the
// path to it.
func TestProjectNamesItsOwnDirectory(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"above", "../away/data", "outside the project"},
		{"absolute", "BASE/away/data", "outside the project"},
		{"through a link", "way/data", "is a symbolic link"},
		{"a link", "way", "is a symbolic link"},
		{"below", "a/b/data", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := shortDir(t)
			for _, sub := range []string{"project", "away"} {
				if err := os.Mkdir(filepath.Join(base, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("ROUX_DATA", "")
			t.Setenv("HOME", filepath.Join(base, "home"))
			t.Chdir(filepath.Join(base, "project"))
			if err := os.Symlink("../away", "way"); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(config.ProjectFile, []byte("data: "+strings.Replace(tt.data, "BASE", base, 1)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := outside(t, filepath.Join(base, "away"))
			_, talk, code := inProcess("x", "files", "put", "-")
			if (code == 0) != (tt.want == "") || !strings.Contains(talk, tt.want) {
				t.Errorf("exit %d, want %q: %s", code, tt.want, talk)
			}
			if outside(t, filepath.Join(base, "away")) != before {
				t.Error("outside was touched")
			}
		})
	}
}
