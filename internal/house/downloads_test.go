// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var downloads = regexp.MustCompile(`(\d+) MB in (\d+) modules`)

// TestDownloads: the download sizes on the pages match the archives of the modules,
// within 3 MB and two modules, because they differ between systems.
func TestDownloads(t *testing.T) {
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	archives := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	measured := map[string]string{
		"modules of the binary":                        measure(t, archives, "-deps", "./cmd/roux"),
		"modules of the tests":                         measure(t, archives, "-deps", "-test", "./..."),
		"modules of a program with actions of its own": measure(t, archives, "-deps", "-test", "./docs/own-action"),
	}
	page := read(t, "docs/dependencies.md")
	for row, want := range measured {
		_, after, _ := strings.Cut(page, "| "+row+" | ")
		said, _, _ := strings.Cut(after, " |")
		if !near(said, want) {
			t.Errorf("docs/dependencies.md: %s: %q, want %s", row, said, want)
		}
	}
	if said := strings.Join(strings.Fields(read(t, "docs/own-action.md")), " "); !near(said, measured["modules of a program with actions of its own"]) {
		t.Errorf("docs/own-action.md says otherwise than %s", measured["modules of a program with actions of its own"])
	}
	total, _, _ := strings.Cut(measured["modules of the binary"], " in ")
	if !strings.Contains(read(t, "README.md"), total+" of modules") {
		t.Errorf("README.md does not say %s of modules", total)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// near reports whether the first download size in text is close to the one in
// want.
func near(text, want string) bool {
	said, of := downloads.FindStringSubmatch(text), downloads.FindStringSubmatch(want)
	if said == nil {
		return false
	}
	return distance(said[1], of[1]) <= 3 && distance(said[2], of[2]) <= 2
}

func distance(a, b string) float64 {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return math.Abs(float64(x - y))
}

// measure returns the size of the archives of all modules with a package that `go list`
// with args lists.
func measure(t *testing.T, archives string, args ...string) string {
	t.Helper()
	format := "{{with .Module}}{{if not .Main}}{{.Path}}@{{.Version}}{{end}}{{end}}"
	cmd := exec.Command("go", append([]string{"list", "-f", format}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	size, seen := int64(0), map[string]bool{}
	for _, module := range strings.Fields(string(out)) {
		if seen[module] {
			continue
		}
		seen[module] = true
		path, version, _ := strings.Cut(escaped(module), "@")
		info, err := os.Stat(filepath.Join(archives, path, "@v", version+".zip"))
		if err != nil {
			t.Skipf("the archives of the modules are not here: %v", err)
		}
		size += info.Size()
	}
	return fmt.Sprintf("%.0f MB in %d modules", float64(size)/1e6, len(seen))
}

// escaped escapes capital letters as the module cache does.
func escaped(module string) string {
	var b strings.Builder
	for _, r := range module {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
