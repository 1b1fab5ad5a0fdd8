// SPDX-License-Identifier: Apache-2.0

// Package grounds looks at what is on the disk beside the runs of a program under test.
//
// It lays out what others keep where workspaces of runs are: files of users, links, the workspaces of other data
// directories, and names that look like workspaces. While no process runs, it puts more there: links out of the
// workspaces of runs that go on, and a file beside those of one run. When all runs have ended, it tells what is not as it
// was (names, kinds, modes, contents, targets of links), and what is left that is not theirs.
//
// It never removes anything, and does not know what a workspace has.
package grounds

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A tree is what is in a directory: the kind, the mode and the content of each, by its path.
type tree map[string]string

// Grounds are the directories of one data directory's runs.
type Grounds struct {
	data, beside, spaces string // directories; spaces is where workspaces are, and may be in the data directory
	inData               bool   // it is
	was                  map[string]tree
	planted              tree // what was put into the workspaces' own directory, by its path
	own                  int  // files beside those of runs
	links                int64
}

// treeOf reads the directory at root. A link is not followed.
func treeOf(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			t[name], err = seen(path)
		}
		return err
	})
	return t, err
}

// seen tells what is at a path.
func seen(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	what := info.Mode().String()
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		return what + " -> " + to, err
	case info.Mode().IsRegular():
		data, err := os.ReadFile(path)
		sum := sha256.Sum256(data)
		return what + " " + hex.EncodeToString(sum[:]), err
	}
	return what, nil
}

// differences lists what is not the same in two trees. What is below a directory that is gone or left is not listed.
func differences(was, is tree) (list []string) {
	above := func(t tree, name string) bool { _, ok := t[filepath.Dir(name)]; return ok }
	for _, name := range slices.Sorted(maps.Keys(was)) {
		switch now, ok := is[name]; {
		case !ok && !above(is, name):
		case !ok:
			list = append(list, fmt.Sprintf("%s is gone (%s)", name, was[name]))
		case now != was[name]:
			list = append(list, fmt.Sprintf("%s is %s, and was %s", name, now, was[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, ok := was[name]; !ok && above(was, name) {
			list = append(list, fmt.Sprintf("%s is left (%s)", name, is[name]))
		}
	}
	return list
}

// foreign is the name of a workspace that no run has.
func foreign(n byte) string { return "ws_" + strings.Repeat(fmt.Sprintf("%02x", n), 20) }

// Lay puts down what others keep, before the first process. data is the data directory, and dir where else there may be
// something. Workspaces are in data if inData is set, and otherwise in [Grounds.Root]. The recipes in a directory are looked
// at, too.
func Lay(dir, data, recipes string, inData bool) (g *Grounds, err error) {
	g = &Grounds{data: data, beside: filepath.Join(dir, "beside"), spaces: filepath.Join(dir, "spaces"), inData: inData, was: map[string]tree{}, planted: tree{}}
	if g.inData {
		g.spaces = filepath.Join(data, "workspaces")
	}
	for _, dir := range []string{g.beside, g.spaces} {
		if err := layUsersFiles(dir); err != nil {
			return nil, err
		}
	}
	other := filepath.Join(g.spaces, "data_0123456789abcdef", foreign(1)) // of another data directory
	if err := errors.Join(os.MkdirAll(filepath.Join(other, "files", "a"), 0o700),
		os.WriteFile(filepath.Join(other, "run"), []byte("run_other\nlocal"), 0o600),
		os.WriteFile(filepath.Join(other, "files", "a", "1.txt"), []byte("other"), 0o600)); err != nil {
		return nil, err
	}
	if g.inData {
		if err := layLookalikes(g.spaces, g.beside); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{recipes, g.beside, g.spaces} {
		if g.was[dir], err = treeOf(dir); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Root is where workspaces are outside of the data directory; "" = they are in it.
func (g *Grounds) Root() string {
	if g.inData {
		return ""
	}
	return g.spaces
}

// Links is how many links were put into workspaces.
func (g *Grounds) Links() int64 { return g.links }

// layUsersFiles puts down files of users: of several modes, with the names that Roux gives its own, and links.
func layUsersFiles(dir string) error {
	return errors.Join(
		os.MkdirAll(filepath.Join(dir, "users", "empty"), 0o700),
		os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("notes"), 0o640),
		os.WriteFile(filepath.Join(dir, "users", "fixed.txt"), []byte("fixed"), 0o400),
		os.WriteFile(filepath.Join(dir, "users", ".roux-tmp-USER"), []byte("a user's"), 0o600),
		os.Mkdir(filepath.Join(dir, "users", "open"), 0o750),
		os.WriteFile(filepath.Join(dir, "users", "open", "run"), []byte("run_x\nlocal"), 0o644),
		os.Symlink("../notes.txt", filepath.Join(dir, "users", "link")),
		os.Symlink("open", filepath.Join(dir, "users", "to-open")),
		os.Symlink("nowhere", filepath.Join(dir, "users", "to-nothing")),
	)
}

// layLookalikes puts down, in the directory of this data directory's workspaces, names that workspaces have: one that
// has files and does not say whose it is, one that says it is a run's that has another name, a file and a link.
func layLookalikes(dir, beside string) error {
	return errors.Join(
		os.MkdirAll(filepath.Join(dir, foreign(2), "files"), 0o700),
		os.WriteFile(filepath.Join(dir, foreign(2), "files", "1.txt"), []byte("nobody's"), 0o600),
		os.Mkdir(filepath.Join(dir, foreign(3)), 0o700),
		os.WriteFile(filepath.Join(dir, foreign(3), "run"), []byte("run_x\nlocal"), 0o600),
		os.WriteFile(filepath.Join(dir, foreign(4)), []byte("a file"), 0o600),
		os.Symlink(beside, filepath.Join(dir, foreign(5))),
	)
}

// within is the directory of this data directory's workspaces; "" = there is none yet.
func (g *Grounds) within() (string, error) {
	if g.inData {
		return g.spaces, nil
	}
	entries, err := os.ReadDir(g.spaces)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "data_") && e.Name() != "data_0123456789abcdef" {
			return filepath.Join(g.spaces, e.Name()), err
		}
	}
	return "", err
}

// Plant puts links into the workspaces that there are, and a file beside those of one run. No process runs.
func (g *Grounds) Plant() error {
	dir, err := g.within()
	if dir == "" || err != nil {
		return err
	}
	if !g.inData && len(g.planted) == 0 {
		if err := layLookalikes(dir, g.beside); err != nil {
			return err
		}
		for n := byte(2); n <= 5; n++ {
			if err := g.note(dir, foreign(n)); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, known := g.was[g.spaces][e.Name()]
		if _, mine := g.planted[e.Name()]; known || mine || !strings.HasPrefix(e.Name(), "ws_") {
			continue
		}
		if err := g.plantIn(dir, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// plantIn puts links into a workspace, and a file beside its files into the first one.
func (g *Grounds) plantIn(dir, name string) error {
	err := filepath.WalkDir(filepath.Join(dir, name, "files"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.IsDir() {
			return nil
		}
		for link, to := range map[string]string{"to-users": filepath.Join(g.beside, "users"), "to-notes": filepath.Join(g.beside, "notes.txt"), "to-above": "../../../.."} {
			if e := os.Symlink(to, filepath.Join(path, link)); err == nil && !errors.Is(e, fs.ErrExist) {
				err = e
			}
		}
		g.links++
		return err
	})
	if err != nil || g.own > 0 {
		return err
	}
	g.own++
	if err := os.WriteFile(filepath.Join(dir, name, "mine.txt"), []byte("mine"), 0o640); err != nil {
		return err
	}
	for _, path := range []string{name, filepath.Join(name, "mine.txt")} {
		if g.planted[path], err = seen(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	return nil
}

// note records what is at a name in the directory of the workspaces, and below.
func (g *Grounds) note(dir, name string) error {
	t, err := treeOf(filepath.Join(dir, name))
	for path, what := range t {
		g.planted[filepath.Join(name, path)] = what
	}
	return err
}

// Check compares what is on the disk with what was there, when every run has ended.
func (g *Grounds) Check(bad func(string, ...any)) error {
	inside, err := g.within()
	if err != nil {
		return err
	}
	for dir, was := range g.was {
		is, err := treeOf(dir)
		if err != nil {
			return err
		}
		want := maps.Clone(was)
		if dir == g.spaces && inside != "" {
			at, err := filepath.Rel(dir, inside)
			if err != nil {
				return err
			}
			for path, what := range g.planted {
				want[filepath.Join(at, path)] = what
			}
			want[at] = is[at] // it is Roux's
		}
		for _, d := range differences(want, is) {
			bad("after all runs have ended: in %s, %s", dir, d)
		}
	}
	return g.checkLeftovers(bad)
}

// checkLeftovers checks that nothing is in the data directory that only a process needs while it works.
func (g *Grounds) checkLeftovers(bad func(string, ...any)) error {
	for _, name := range []string{"copy.tmp", "commands", filepath.Join("files", "tmp"), ".new"} {
		entries, err := os.ReadDir(filepath.Join(g.data, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			bad("after all runs have ended, %s is left in %s of the data directory", e.Name(), name)
		}
	}
	return nil
}
