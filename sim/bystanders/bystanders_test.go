// SPDX-License-Identifier: Apache-2.0

package grounds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Check tells what is gone, what is another thing, and what is left, and nothing else.
func TestCheck(t *testing.T) {
	for _, inData := range []bool{true, false} {
		dir, data, recipes := t.TempDir(), t.TempDir(), t.TempDir()
		g, err := Lay(dir, data, recipes, inData)
		if err != nil {
			t.Fatal(err)
		}
		own := filepath.Join(g.spaces, "data_1")
		if inData {
			own = g.spaces
		}
		space := filepath.Join(own, "ws_"+strings.Repeat("a", 40))
		if err := os.MkdirAll(filepath.Join(space, "files", "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := g.Plant(); err != nil || g.Links() != 2 {
			t.Fatalf("%d links, %v", g.Links(), err)
		}
		found := func() (list []string) {
			t.Helper()
			if err := g.Check(func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }); err != nil {
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
			"notes.txt is ":       func() error { return os.WriteFile(filepath.Join(g.beside, "notes.txt"), []byte("other"), 0o600) },
			"fixed.txt is -rw":    func() error { return os.Chmod(filepath.Join(g.beside, "users", "fixed.txt"), 0o600) },
			"to-nothing is gone":  func() error { return os.Remove(filepath.Join(g.spaces, "users", "to-nothing")) },
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
				t.Errorf("%q is not told: %q", what, list)
			}
		}
	}
}
