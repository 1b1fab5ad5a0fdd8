// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// dataDirPackages are the packages that work in a data directory. They open its files
// through internal/datadir or an os.Root, which follow no link out of it.
var dataDirPackages = []string{".", "internal/backup", "internal/blob", "internal/cli", "internal/config", "internal/doctor", "internal/engine", "internal/local", "internal/node", "internal/secrets", "internal/store/sqlite", "internal/store/sqlite/directory", "internal/store/sqlite/snapshot", "internal/store/sqlite/wal", "internal/userfile", "internal/command", "internal/workspace"}

// pathCalls are the functions that open, create, change or remove the file at a path.
// Stat and Lstat are not among them, because they only look.
var pathCalls = map[string][]string{
	"os": {
		"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "ReadDir", "CopyFS", "DirFS", "OpenRoot", "OpenInRoot",
		"Mkdir", "MkdirAll", "MkdirTemp", "Remove", "RemoveAll", "Rename", "Truncate", "Link", "Symlink",
		"Chmod", "Chown", "Lchown", "Chtimes", "Chdir",
	},
	"io/ioutil":                {"ReadFile", "WriteFile", "ReadDir", "TempFile", "TempDir"},
	"path/filepath":            {"Walk", "WalkDir", "Glob"},
	"syscall":                  {"Open", "Creat", "Mkdir", "Rmdir", "Unlink", "Rename", "Truncate", "Chmod", "Chown", "Link", "Symlink", "Mkfifo", "Mknod"},
	"golang.org/x/sys/unix":    {"Open", "Openat", "Creat", "Mkdir", "Rmdir", "Unlink", "Rename", "Truncate", "Chmod", "Chown", "Link", "Symlink", "Mkfifo", "Mknod"},
	"golang.org/x/sys/windows": {"CreateFile", "CreateDirectory", "DeleteFile", "MoveFile", "MoveFileEx"},
}

// mayOpen are the functions that may call one of these.
var mayOpen = map[string]string{
	// Not in a data directory.
	"internal/userfile/atomic.go OpenParent":   "the directory of a recipe that the user names",
	"internal/userfile/save.go Save":           "the directory that the user wants a file in",
	"internal/userfile/open.go Open":           "a file that the user names",
	"internal/userfile/open.go Expand":         "a pattern that the user names",
	"internal/userfile/open.go OpenRegular":    "a file that the user names, checked before and after",
	"internal/userfile/dir.go OpenDir":         "the directory that the user wants a project in",
	"internal/userfile/within.go ReadWithin":   "the directory of a recipe that the user names, through a rooted handle",
	"internal/userfile/within.go StampsWithin": "sizes and times in a directory of recipes that the user names, through a rooted handle",
	"internal/userfile/within.go ListWithin":   "the names in a directory of recipes that the user names",
	"internal/cli/demo.go newDemo":             "a directory of this command alone",
	"internal/cli/sources.go unpack":           "a directory of this command alone",
	"internal/cli/sources.go tidy":             "the directories that unpack has made",
	"load.go loadOutside":                      "a directory of this call alone",
	"internal/cli/worker.go work":              "a directory of this command alone",
	"internal/config/profiles.go SaveProfiles": "the directory of the user's configuration",
	"internal/secrets/key.go openNamed":        "the file that the user names",
	"internal/secrets/secrets.go openDir":      "a directory that the user names, through a rooted handle",
	"internal/local/socket.go Listen":          "a directory of this process alone where the path of the socket is too long; what is removed is a name",
	"internal/backup/backup.go openDir":        "the directory of backups that the user names",
	"internal/backup/create.go makeDir":        "the directory of backups that the user names",
	"internal/backup/restore.go wantEmpty":     "looks whether the directory that the user names is empty",
	"internal/backup/restore.go begin":         "the new data directory that the user names; it is secured and locked before anything is put there",
	"internal/backup/restore.go undo":          "removes the empty directory that begin has made",
	"internal/doctor/salvage.go EmptyDir":      "the new directory that the user names; it is secured before anything is put there",
	// In a data directory, where no link can redirect the call.
	"internal/doctor/checks.go leftovers":                     "the data directory itself, which its user may reach by a link",
	"internal/doctor/checks.go syncTime":                      "makes a new file or fails, and removes that name",
	"internal/doctor/contents.go bytesUnder":                  "adds up sizes, and follows and opens no file",
	"internal/doctor/gather.go gather":                        "renames and removes what was just made in a directory that is closed to others",
	"internal/local/socket.go writePointer":                   "removes a name, and makes a new file or fails",
	"internal/local/socket.go bind":                           "removes names, and makes the socket in a new directory that is closed to others",
	"internal/store/sqlite/snapshot/snapshot.go removeCopy":   "removes a name, before the file is made and after it is read",
	"internal/store/sqlite/directory/reserve.go SpendReserve": "removes a name, to have its space",
	"internal/store/sqlite/wal/image.go Salvage":              "makes a new directory or fails",
	"internal/secrets/files.go ensure":                        "makes the data directory itself and those above it",
	"internal/secrets/key.go exclusive":                       "the data directory itself, which its user may reach by a link",
	"internal/command/action.go Open":                         "makes the directory of commands, after what had its name is removed, and removes a name in it",
	"internal/command/run.go prepare":                         "makes a new directory or fails, and opens what was just made in it",
	"internal/command/run.go openStdin":                       "a new file in a directory that was just made, in which no program runs yet",
	"internal/command/output.go newOutput":                    "a new file in a directory that was just made, in which no program runs yet",
	"internal/store/sqlite/sqlite.go makeDir":                 "makes the data directory itself and those above it",
}

// TestDataDirectoryOpens: files in a data directory are opened by internal/datadir or
// below an os.Root, so that no link leads out of it.
func TestDataDirectoryOpens(t *testing.T) {
	for _, problem := range openProblems(load(t), mayOpen) {
		t.Error(problem)
	}
}

// TestDataDirectoryRuleCatches breaks the rule in each way.
func TestDataDirectoryRuleCatches(t *testing.T) {
	for _, tt := range []struct{ name, path, imports, body, want string }{
		{"a file opened", "internal/blob/x.go", `"os"`, `os.Open(p)`, "internal/blob/x.go f: os.Open"},
		{"a file emptied", "internal/store/sqlite/x.go", `"os"`, `os.WriteFile(p, nil, 0)`, "os.WriteFile"},
		{"a mode changed", "internal/engine/x.go", `"os"`, `os.Chmod(p, 0)`, "os.Chmod"},
		{"a directory made by the library", "x.go", `"os"`, `os.MkdirAll(p, 0)`, "os.MkdirAll"},
		{"on one system", "internal/store/sqlite/x_windows.go", `"os"`, `os.Create(p)`, "os.Create"},
		{"under another name", "internal/blob/x.go", `disk "os"`, `disk.ReadFile(p)`, "os.ReadFile"},
		{"without a name", "internal/blob/x.go", `. "os"`, `ReadFile(p)`, "imports os without a name"},
		{"as a value", "internal/blob/x.go", `"os"`, `open := os.Open; open(p)`, "os.Open"},
		{"past the library", "internal/store/sqlite/x.go", `"golang.org/x/sys/unix"`, `unix.Open(p, 0, 0)`, "unix.Open"},
		{"a walk", "internal/cli/x.go", `"path/filepath"`, `filepath.WalkDir(p, nil)`, "filepath.WalkDir"},
		{"in a function of another file that may", "internal/cli/y.go", `"os"`, `os.Remove(p)`, "os.Remove"},
		{"a package that is new to data directories", "internal/api/x.go", `_ "` + module + `/internal/datadir"`, ``, "not in dataDirPackages"},
	} {
		f, err := parse(tt.path, []byte(spdx+"\npackage x\n\nimport "+tt.imports+"\n\nfunc f(p string) { "+tt.body+" }\n"))
		if err != nil {
			t.Fatal(err)
		}
		got := openProblems([]*source{f}, map[string]string{})
		if len(got) != 1 || !strings.Contains(got[0], tt.want) {
			t.Errorf("%s: got %q, want a problem with %q", tt.name, got, tt.want)
		}
	}
	method := "\npackage x\n\nimport \"os\"\n\nvar v = os.Remove\n\ntype t struct{}\n\nfunc (t) Open(p string) { os.Open(p); os.Stat(p) }\n"
	for path, want := range map[string]int{"internal/blob/x.go": 2, "internal/blob/x_test.go": 0, "internal/media/x.go": 0} {
		f, err := parse(path, []byte(spdx+method))
		if err != nil {
			t.Fatal(err)
		}
		if got := openProblems([]*source{f}, map[string]string{}); len(got) != want {
			t.Errorf("%s: got %q, want %d problems", path, got, want)
		}
	}
	f, err := parse("internal/blob/x.go", []byte(spdx+method))
	if err != nil {
		t.Fatal(err)
	}
	got := openProblems([]*source{f}, map[string]string{"internal/blob/x.go Open": "it may", "internal/blob/x.go": "at the top", "internal/blob/y.go f": "it went"})
	if len(got) != 1 || !strings.Contains(got[0], "internal/blob/y.go f") {
		t.Errorf("got %q, want the exception that is not needed", got)
	}
}

// openProblems returns the calls without an exception, and the exceptions
// without a call.
func openProblems(files []*source, exceptions map[string]string) (problems []string) {
	used := map[string]bool{}
	for _, f := range files {
		if f.test || f.foreign || f.pkg == "internal/datadir" {
			continue
		}
		if !slices.Contains(dataDirPackages, f.pkg) {
			if slices.Contains(f.imports, module+"/internal/datadir") {
				problems = append(problems, fmt.Sprintf("%s works in a data directory, and its package is not in dataDirPackages", f.path))
			}
			continue
		}
		byName, dotted := pathCallImports(f)
		for _, p := range dotted {
			problems = append(problems, fmt.Sprintf("%s imports %s without a name, which hides what it opens", f.path, p))
		}
		for _, decl := range f.syntax.Decls {
			where := f.path
			if fn, ok := decl.(*ast.FuncDecl); ok {
				where += " " + fn.Name.Name
			}
			for _, call := range pathCallsIn(decl, byName) {
				if exceptions[where] == "" {
					problems = append(problems, fmt.Sprintf("%s: %s goes past internal/datadir: open it there, or below an os.Root (%s)", where, call.name, f.fset.Position(call.at)))
				}
				used[where] = true
			}
		}
	}
	for where := range exceptions {
		if !used[where] {
			problems = append(problems, fmt.Sprintf("the exception %s is not needed: take it off the list", where))
		}
	}
	slices.Sort(problems)
	return problems
}

// pathCallImports returns the packages with pathCalls that a file imports, by their names
// in the file, and those that it dot-imports.
func pathCallImports(f *source) (byName map[string]string, dotted []string) {
	byName = map[string]string{}
	for i, imp := range f.syntax.Imports {
		p := f.imports[i]
		if _, has := pathCalls[p]; !has {
			continue
		}
		switch {
		case imp.Name == nil:
			byName[path.Base(p)] = p
		case imp.Name.Name == ".":
			dotted = append(dotted, p)
		default:
			byName[imp.Name.Name] = p
		}
	}
	return byName, dotted
}

// A pathCall is one use of a function in pathCalls.
type pathCall struct {
	name string
	at   token.Pos
}

func pathCallsIn(n ast.Node, byName map[string]string) (found []pathCall) {
	ast.Inspect(n, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if x, is := qualifier(sel, ok); is && slices.Contains(pathCalls[byName[x]], sel.Sel.Name) {
			found = append(found, pathCall{path.Base(byName[x]) + "." + sel.Sel.Name, n.Pos()})
		}
		return true
	})
	return found
}
