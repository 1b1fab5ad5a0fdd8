// SPDX-License-Identifier: Apache-2.0

package bystanders

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Check reports what is gone, what has changed, and what is left, and nothing else.
func TestCheck(t *testing.T) {
	for _, inData := range []bool{true, false} {
		dir, data, recipes := t.TempDir(), t.TempDir(), t.TempDir()
		f, err := Lay(dir, data, recipes, inData)
		if err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(f.workspaces, "data_1")
		if inData {
			own = f.workspaces
		}
		space := filepath.Join(own, "ws_"+strings.Repeat("a", 40))
		if err := os.MkdirAll(filepath.Join(space, "files", "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := f.Plant(); err != nil || f.Links() != 6 { // three in each directory
			t.Fatalf("%d links, %v", f.Links(), err)
		}
		if err := f.plantIn(own, filepath.Base(space)); err != nil || f.Links() != 6 {
			t.Fatalf("after another process: %d links, %v", f.Links(), err)
		}
		found := func() (list []string) {
			t.Helper()
			if err := f.Check(func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }); err != nil {
				t.Fatal(err)
			}
			slices.Sort(list)
			return list
		}
		if list := found(); len(list) != 1 || !strings.Contains(list[0], "files is left") {
			t.Errorf("the files of a workspace are there: %q", list)
		}
		if err := os.RemoveAll(filepath.Join(space, "files")); err != nil {
			t.Fatal(err)
		}
		if list := found(); len(list) != 0 {
			t.Errorf("nothing is left: %q", list)
		}
		for what, does := range map[string]func() error{
			"aaa is gone":         func() error { return os.RemoveAll(space) },
			"notes.txt is ":       func() error { return os.WriteFile(filepath.Join(f.beside, "notes.txt"), []byte("other"), 0o600) },
			"fixed.txt is -rw":    func() error { return os.Chmod(filepath.Join(f.beside, "users", "fixed.txt"), 0o600) },
			"to-nothing is gone":  func() error { return os.Remove(filepath.Join(f.workspaces, "users", "to-nothing")) },
			"recipe.yaml is left": func() error { return os.WriteFile(filepath.Join(recipes, "recipe.yaml"), nil, 0o600) },
			"put-1 is left": func() error {
				return errors.Join(os.MkdirAll(filepath.Join(data, "files", "tmp"), 0o700), os.WriteFile(filepath.Join(data, "files", "tmp", "put-1"), nil, 0o600))
			},
			foreign(3) + "/run is ": func() error { return os.Truncate(filepath.Join(own, foreign(3), "run"), 0) },
		} {
			if err := does(); err != nil {
				t.Fatal(err)
			}
			if list := found(); !slices.ContainsFunc(list, func(l string) bool { return strings.Contains(l, what) }) {
				t.Errorf("%q is not reported: %q", what, list)
			}
		}
	}
}
