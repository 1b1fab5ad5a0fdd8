// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

var staticBuild = regexp.MustCompile(`(?m)^CGO_ENABLED=0 go build .* -o roux \./cmd/roux$`)

// TestStaticBinary: the command that the pages show for a portable binary makes one that
// is static, has no symbols and no path of this machine, has the documented size, and
// runs with an empty environment.
func TestStaticBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("not short: it builds the programs of the page")
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh here, for which the pages are written")
	}
	commands := map[string]bool{}
	for _, page := range []string{"../README.md", "../docs/dependencies.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		command := staticBuild.FindString(strings.ReplaceAll(string(text), "\r\n", "\n"))
		if command == "" {
			t.Fatalf("%s shows no command for a static binary", page)
		}
		commands[command] = true
	}
	if len(commands) != 1 {
		t.Fatalf("the pages differ: %v", commands)
	}
	name := filepath.Join(t.TempDir(), "roux")
	for command := range commands {
		cmd := exec.Command("sh", "-euc", strings.Replace(command, "-o roux", "-o '"+name+"'", 1))
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if mb := float64(len(content)) / 1e6; mb < 51 || mb > 56 {
		t.Errorf("the binary has %.1f MB; the pages say 54", mb)
	}
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), here+"/") {
		t.Errorf("the binary names %s", here)
	}
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value != "0" {
			t.Error("the binary was built with cgo")
		}
	}
	cmd := exec.Command(name, "version")
	cmd.Env, cmd.Dir = []string{}, t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "roux") {
		t.Errorf("version: %v\n%s", err, out)
	}
	if runtime.GOOS == "linux" {
		checkELF(t, name)
	}
}

// checkELF fails the test if the binary has a loader, libraries or symbols.
func checkELF(t *testing.T, name string) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is linked dynamically: %v", p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); len(libs) > 0 {
		t.Errorf("the binary wants %v, %v", libs, err)
	}
	for _, s := range f.Sections {
		if s.Name == ".symtab" || strings.Contains(s.Name, "debug_") {
			t.Errorf("the binary has a section %s", s.Name)
		}
	}
}
