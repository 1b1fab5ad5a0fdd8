// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// blocks are the kinds and texts of the blocks of the page, in order.
func blocks(t *testing.T) [][]string {
	t.Helper()
	page, err := os.ReadFile("../own-action.md")
	if err != nil {
		t.Fatal(err)
	}
	found := block.FindAllStringSubmatch(strings.ReplaceAll(string(page), "\r\n", "\n"), -1)
	if len(found) < 12 {
		t.Fatalf("%d blocks on the page", len(found))
	}
	return found
}

// named splits a block of a file into the name in its first line and the content.
func named(kind, text string) (name, content string, ok bool) {
	mark := map[string]string{"go": "// ", "yaml": "# "}[kind]
	first, rest, _ := strings.Cut(text, "\n")
	name, ok = strings.CutPrefix(first, mark)
	return name, rest, ok && mark != "" && filepath.Ext(name) == "."+kind
}

// The files compiled here are equal to the last version of each file on the page, and the
// page shows every file of the program completely.
func TestPage(t *testing.T) {
	shown := map[string]string{}
	for _, b := range blocks(t) {
		if b[1] != "go" && b[1] != "yaml" {
			continue
		}
		name, content, ok := named(b[1], b[2])
		if !ok {
			t.Errorf("a block does not begin with the name of its file:\n%s", b[2])
		}
		shown[name] = content
	}
	// The action is as short as the page says.
	_, body, _ := strings.Cut(shown["shorten.go"], "var shorten")
	if n := strings.Count(strings.TrimSpace(body), "\n") + 1; n > 20 {
		t.Errorf("the action has %d lines", n)
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch f.Name() {
		case "doc.go", "main_test.go", "page_test.go":
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		content := strings.TrimPrefix(strings.ReplaceAll(string(text), "\r\n", "\n"), "// SPDX-License-Identifier: Apache-2.0\n\n")
		if shown[f.Name()] != content {
			t.Errorf("the page shows another %s:\n%s", f.Name(), shown[f.Name()])
		}
		delete(shown, f.Name())
	}
	for name := range shown {
		t.Errorf("the page shows %s, which is not compiled here", name)
	}
}

// A reader who pastes the page into an empty directory gets the documented results: files
// are written and commands run in the order of the page. Only the module is taken from
// this clone, and nothing from the network.
func TestStranger(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it builds the programs of the page")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here, for which the pages are written")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// -trimpath and no cgo, as the tests are compiled: so the dependencies come from the cache.
	env := append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOWORK=off", "GOTOOLCHAIN=local")
	said := ""
	for _, b := range blocks(t) {
		switch b[1] {
		case "go", "yaml":
			name, content, _ := named(b[1], b[2])
			if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			script := strings.Replace(b[2], "go get ", "go mod edit -replace github.com/roux-engine/roux='"+root+"'\ngo get ", 1)
			var errs strings.Builder
			cmd := exec.Command("sh", "-eu", "-c", script)
			cmd.Dir, cmd.Env, cmd.Stderr = dir, env, &errs
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s\n%v\n%s%s", b[2], err, out, errs.String())
			}
			said = string(out)
		case "text":
			if !strings.HasSuffix(said, b[2]) {
				t.Errorf("the page shows\n%s\nwant the end of\n%s", b[2], said)
			}
		}
	}
	stripped(t, filepath.Join(dir, "headlines"))
}

// stripped reports an error for anything that a static binary without symbols
// does not have.
func stripped(t *testing.T, name string) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if mb := info.Size() / 1e6; mb < 32 || mb > 42 {
		t.Errorf("%s has %d MB; the page says 37", name, mb)
	}
	if runtime.GOOS != "linux" {
		return
	}
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s is linked dynamically", name)
		}
	}
	if f.Section(".symtab") != nil {
		t.Errorf("%s has symbols", name)
	}
}
