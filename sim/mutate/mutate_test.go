// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const source = `package sum

// Sum adds what is positive. Nothing tests Idle.
func Sum(list []int) (n int) {
	for _, v := range list {
		if v > 0 {
			n += v
		}
	}
	return n
}

func Idle(n int) bool { return n == 7 }

func (s *Set) Full() bool {
	if !s.open && true {
		panic("1" + "2")
	}
	failpoint.Pass(3)
	return false
}

type Set struct{ open bool }

type points struct{}

func (points) Pass(int) {}

var failpoint points
`

// TestMutants: every kind of change is found, is identified by what it changes, and
// gives valid Go. The arguments of panic are not changed.
func TestMutants(t *testing.T) {
	found, err := mutantsIn("internal/sum/sum.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, m := range found {
		keys = append(keys, strings.TrimPrefix(m.key(), "internal/sum "))
		if _, err := m.apply([]byte(source)); err != nil {
			t.Errorf("%s: %v", m.key(), err)
		}
	}
	want := []string{
		"Sum: if v > 0 {: negated",
		"Sum: if v > 0 {: > becomes >=",
		"Sum: if v > 0 {: 0 becomes 1",
		"Sum: n += v: += becomes -=",
		"Sum: n += v: removed: n += v",
		"Idle: func Idle(n int) bool { return n == 7 }: == becomes !=",
		"Idle: func Idle(n int) bool { return n == 7 }: 7 becomes 8",
		"Set.Full: if !s.open && true {: negated",
		"Set.Full: if !s.open && true {: && becomes ||",
		"Set.Full: if !s.open && true {: ! removed",
		"Set.Full: if !s.open && true {: true becomes false",
		"Set.Full: return false: false becomes true",
	}
	if !slices.Equal(keys, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(keys, "\n"), strings.Join(want, "\n"))
	}
	if at := found[0].place(); at != "internal/sum/sum.go:6" {
		t.Errorf("the first is at %s", at)
	}
}

// TestHarness tries every mutant of a small module. Mutants that a test checks are
// killed, so is an endless loop; mutants that no test checks survive; those judged
// equivalent do not count.
func TestHarness(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a test binary for each mutant: -short leaves that out")
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.test/m\n\ngo 1.26\n",
		"internal/sum/sum.go": strings.ReplaceAll(source, "v > 0", "v > 0 && v != 5"),
		"internal/sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n" +
			"\tif got := Sum([]int{-1, 1, 2, 5}); got != 3 {\n\t\tt.Error(got)\n\t}\n}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, err := newHarness(t.Context(), root, "sum", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	var out bytes.Buffer
	judged := map[string]string{"internal/sum Idle: func Idle(n int) bool { return n == 7 }: 7 becomes 8": "as an example"}
	got, err := h.play(t.Context(), &out, options{workers: 2}, time.Now().Add(time.Hour), judged)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Idle: func Idle(n int) bool { return n == 7 }: == becomes !=", "> becomes >=", "Set.Full: if !s.open && true {: negated"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the survivors lack %q", want)
		}
	}
	if strings.Contains(out.String(), "n += v: removed") || got.equivalent != 1 || got.killed < 6 || got.survived < 6 {
		t.Errorf("%+v\n%s", got, out.String())
	}
}

// TestEquivalentFile: each key comes after a reason and still identifies a mutant.
func TestEquivalentFile(t *testing.T) {
	judged, err := readEquivalent("testdata/equivalent.txt")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for key := range judged {
		dir, _, _ := strings.Cut(key, " ")
		if known[dir] {
			continue
		}
		known[dir] = true
		files, err := filepath.Glob(filepath.Join("../..", filepath.FromSlash(dir), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found, err := mutantsIn(strings.TrimPrefix(filepath.ToSlash(file), "../../"), text)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range found {
				known[m.key()] = true
			}
		}
	}
	for key := range judged {
		if !known[key] {
			t.Errorf("%q names no mutant any more: judge it anew", key)
		}
	}
}
