// SPDX-License-Identifier: Apache-2.0

// Package bystanders checks that a program under test changes nothing on the disk but the workspaces of its runs.
//
// Before the first process it lays out files that must stay as they are: files of users, links, the workspaces of
// another data directory, and names that look like workspaces. While no process runs, it plants links that lead out of
// the workspaces of runs, and a file in the directory of one of them. When all runs have ended, it reports each name,
// kind, mode, content and target of a link that has changed, and what the program has left behind.
//
// It never removes anything, and does not know what runs write into their workspaces.
package bystanders

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

// A tree describes the entries of a directory by their paths: the kind, the mode, and the content or target of each.
type tree map[string]string

// Files are those beside the workspaces of one data directory.
type Files struct {
	data       string          // the data directory
	beside     string          // a directory of users
	workspaces string          // the directory in which that of the workspaces is, or which is that one if inData is set
	inData     bool            // the workspaces are in the data directory
	was        map[string]tree // by directory, as they were laid out
	planted    tree            // what was planted in the directory of the workspaces, besides links
	mine       bool            // a file was planted in the directory of a workspace
	links      int64           // that were planted
}

// treeOf describes the directory at root. It follows no link.
func treeOf(root string) (tree, error) {
	t := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			t[name], err = describe(path)
		}
		return err
	})
	return t, err
}

// describe describes the entry at a path.
func describe(path string) (string, error) {
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

// differences lists what differs in two trees. It does not list what is below a directory that is gone or left.
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

// otherData is the directory of the workspaces of another data directory.
const otherData = "data_0123456789abcdef"

// foreign returns the name of a workspace that no run has.
func foreign(n byte) string { return "ws_" + strings.Repeat(fmt.Sprintf("%02x", n), 20) }

// Lay lays out the files, before the first process, in dir and in the data directory. Workspaces are in the data directory
// if inData is set, and otherwise in [Files.Root]. The files in the directory of the recipes must stay as they are, too.
func Lay(dir, data, recipes string, inData bool) (f *Files, err error) {
	f = &Files{data: data, beside: filepath.Join(dir, "beside"), workspaces: filepath.Join(dir, "workspaces"), inData: inData, was: map[string]tree{}, planted: tree{}}
	if f.inData {
		f.workspaces = filepath.Join(data, "workspaces")
	}
	for _, dir := range []string{f.beside, f.workspaces} {
		if err := layUsersFiles(dir); err != nil {
			return nil, err
		}
	}
	other := filepath.Join(f.workspaces, otherData, foreign(1))
	if err := errors.Join(os.MkdirAll(filepath.Join(other, "files", "a"), 0o700),
		os.WriteFile(filepath.Join(other, "run"), []byte("run_other\nlocal"), 0o600),
		os.WriteFile(filepath.Join(other, "files", "a", "1.txt"), []byte("other"), 0o600)); err != nil {
		return nil, err
	}
	if f.inData {
		if err := layLookalikes(f.workspaces, f.beside); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{recipes, f.beside, f.workspaces} {
		if f.was[dir], err = treeOf(dir); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Root is the directory for workspaces outside of the data directory; "" = they are in it.
func (f *Files) Root() string {
	if f.inData {
		return ""
	}
	return f.workspaces
}

// Links is how many links were planted in workspaces.
func (f *Files) Links() int64 { return f.links }

// layUsersFiles lays out files of users: with several modes, with the names that Roux gives its own, and links.
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

// layLookalikes lays out names that workspaces have in the directory of the workspaces: a directory with files that
// names no run, one that names a run whose workspace has another name, a file and a link.
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

// within returns the directory of the workspaces; "" = there is none yet.
func (f *Files) within() (string, error) {
	if f.inData {
		return f.workspaces, nil
	}
	entries, err := os.ReadDir(f.workspaces)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "data_") && e.Name() != otherData {
			return filepath.Join(f.workspaces, e.Name()), err
		}
	}
	return "", err
}

// Plant plants links in all workspaces, and a file in the directory of the first one. No process runs meanwhile.
func (f *Files) Plant() error {
	dir, err := f.within()
	if dir == "" || err != nil {
		return err
	}
	if !f.inData && len(f.planted) == 0 {
		if err := layLookalikes(dir, f.beside); err != nil {
			return err
		}
		for n := byte(2); n <= 5; n++ {
			if err := f.note(dir, foreign(n)); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		_, known := f.was[f.workspaces][e.Name()]
		if _, mine := f.planted[e.Name()]; known || mine || !strings.HasPrefix(e.Name(), "ws_") {
			continue
		}
		if err := f.plantIn(dir, e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// plantIn plants links in each directory of a workspace, and a file beside its files if it is the first one.
func (f *Files) plantIn(dir, name string) error {
	links := map[string]string{"to-users": filepath.Join(f.beside, "users"), "to-notes": filepath.Join(f.beside, "notes.txt"), "to-above": "../../../.."}
	err := filepath.WalkDir(filepath.Join(dir, name, "files"), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the process died before it made the directory of the files
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		for link, to := range links {
			switch err := os.Symlink(to, filepath.Join(path, link)); {
			case err == nil:
				f.links++
			case !errors.Is(err, fs.ErrExist): // planted after an earlier process
				return err
			}
		}
		return nil
	})
	if err != nil || f.mine {
		return err
	}
	f.mine = true
	if err := os.WriteFile(filepath.Join(dir, name, "mine.txt"), []byte("mine"), 0o640); err != nil {
		return err
	}
	for _, path := range []string{name, filepath.Join(name, "mine.txt")} {
		if f.planted[path], err = describe(filepath.Join(dir, path)); err != nil {
			return err
		}
	}
	return nil
}

// note adds a name in the directory of the workspaces, and what is below it, to what was planted.
func (f *Files) note(dir, name string) error {
	t, err := treeOf(filepath.Join(dir, name))
	for path, what := range t {
		f.planted[filepath.Join(name, path)] = what
	}
	return err
}

// Check calls bad with each change of the files, when every run has ended.
func (f *Files) Check(bad func(string, ...any)) error {
	inside, err := f.within()
	if err != nil {
		return err
	}
	for dir, was := range f.was {
		is, err := treeOf(dir)
		if err != nil {
			return err
		}
		want := maps.Clone(was)
		if dir == f.workspaces && inside != "" {
			at, err := filepath.Rel(dir, inside)
			if err != nil {
				return err
			}
			for path, what := range f.planted {
				want[filepath.Join(at, path)] = what
			}
			want[at] = is[at] // Roux has made it
		}
		for _, d := range differences(want, is) {
			bad("after all runs have ended: in %s, %s", dir, d)
		}
	}
	return f.checkLeftovers(bad)
}

// checkLeftovers checks that nothing is in the data directory that only a process needs while it works.
func (f *Files) checkLeftovers(bad func(string, ...any)) error {
	for _, name := range []string{"copy.tmp", "commands", filepath.Join("files", "tmp"), ".new"} {
		entries, err := os.ReadDir(filepath.Join(f.data, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			bad("after all runs have ended, %s is left in %s of the data directory", e.Name(), name)
		}
	}
	return nil
}
