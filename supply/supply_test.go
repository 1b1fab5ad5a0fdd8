// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func built(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "roux")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "../cmd/roux")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return path
}

// A32: every module in the binary is pinned, matches its checksum, and has an allowed
// licence; the bill of materials lists all of them and is reproducible.
func TestA32_TheBinaryIsWhatItSays(t *testing.T) {
	path := built(t)
	b, err := describe(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range b.problems() {
		t.Error(p)
	}
	said, err := exec.Command("go", "version", "-m", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var bom cycloneDX
	text, err := b.sbom()
	if err == nil {
		err = json.Unmarshal(text, &bom)
	}
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, c := range bom.Components {
		if named[c.Name+" "+c.Version] = true; len(c.Licenses) == 0 {
			t.Errorf("the bill gives no licence for %s", c.Name)
		}
	}
	deps := 0
	for line := range strings.Lines(string(said)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "dep" {
			if deps++; !named[f[1]+" "+f[2]] {
				t.Errorf("the bill does not name %s %s", f[1], f[2])
			}
		}
	}
	if deps < 20 || len(bom.Components) != deps+1 || len(bom.Dependencies[0].DependsOn) != deps+1 {
		t.Errorf("the bill has %d components for %d modules and the standard library", len(bom.Components), deps)
	}
	if again, err := b.sbom(); err != nil || !bytes.Equal(text, again) {
		t.Errorf("the second bill differs from the first: %v", err)
	}
	if bom.Metadata.Component.Hashes[0].Content != b.sum || !strings.HasPrefix(bom.SerialNumber, "urn:uuid:"+b.sum[:8]) {
		t.Errorf("the bill is of another binary: %+v", bom.Metadata.Component)
	}
	documented(t, b)
}

// documented compares the licences in docs/dependencies.md with those of the
// modules.
func documented(t *testing.T, b *bill) {
	t.Helper()
	page, err := os.ReadFile("../docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		i := slices.IndexFunc(b.modules, func(m module) bool { return strings.Contains(cells[1], "`"+m.path+"`") })
		if i < 0 {
			continue
		}
		rows++
		for _, l := range b.modules[i].licences {
			if l != "blessing" && !strings.Contains(cells[3], l) {
				t.Errorf("%s is under %v, docs/dependencies.md says %s", b.modules[i].path, b.modules[i].licences, cells[3])
			}
		}
	}
	if rows < 15 {
		t.Errorf("docs/dependencies.md has %d of the linked modules", rows)
	}
}

// A32: the licences are the same on platforms that this test does not run on.
func TestA32_LicencesOnEveryPlatform(t *testing.T) {
	for _, target := range []string{"linux/arm64", "darwin/arm64", "windows/amd64"} {
		t.Run(target, func(t *testing.T) {
			system, arch, _ := strings.Cut(target, "/")
			cmd := exec.Command("go", "list", "-deps", "-json=Module", "../cmd/roux")
			cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
			text, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for dec := json.NewDecoder(bytes.NewReader(text)); ; {
				var p struct {
					Module *struct {
						Path, Dir string
						Main      bool
					}
				}
				if err := dec.Decode(&p); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if p.Module == nil || p.Module.Main || seen[p.Module.Path] {
					continue
				}
				seen[p.Module.Path] = true
				m := module{path: p.Module.Path, sum: "-", pinned: "-"}
				if m.licences, m.unknown, err = licencesIn(m.path, p.Module.Dir); err != nil {
					t.Fatal(err)
				}
				for _, problem := range (&bill{modules: []module{m}}).problems() {
					t.Error(problem)
				}
			}
			if len(seen) < 20 {
				t.Errorf("%d modules are linked", len(seen))
			}
		})
	}
}

// A32: replaced, unpinned and unlicensed modules are refused by name.
func TestA32_WhatIsRefused(t *testing.T) {
	whole := module{path: "example.org/m", version: "v1.0.0", sum: "h1:x", pinned: "h1:x", licences: []string{"MIT"}}
	if p := (&bill{modules: []module{whole}}).problems(); len(p) != 0 {
		t.Fatalf("a whole module is refused: %v", p)
	}
	for want, spoil := range map[string]func(*module){
		"was replaced by example.org/fork v2": func(m *module) { m.replaced = "example.org/fork v2" },
		"no checksum in go.sum":               func(m *module) { m.pinned = "" },
		"linked as h1:y and pinned as h1:x":   func(m *module) { m.sum = "h1:y" },
		"without a licence":                   func(m *module) { m.licences = nil },
		"no licence that is known":            func(m *module) { m.unknown = []string{"LICENSE"} },
		"is under AGPL":                       func(m *module) { m.licences = classify("GNU AFFERO\n GENERAL PUBLIC LICENSE Version 3") },
		"is under MPL-2.0":                    func(m *module) { m.licences = classify("// Mozilla Public\n// License Version 2.0") },
		"is under GPL":                        func(m *module) { m.licences = []string{"GPL", "MIT"} },
	} {
		m := whole
		spoil(&m)
		if p := (&bill{modules: []module{m}}).problems(); len(p) == 0 || !strings.Contains(strings.Join(p, "\n"), want) {
			t.Errorf("want %q, got %v", want, p)
		}
	}
	clean := map[string]string{"-trimpath": "true", "CGO_ENABLED": "0", "vcs.revision": "abc", "vcs.modified": "false"}
	if p := (&bill{settings: clean}).notReproducible(); len(p) != 0 {
		t.Errorf("a clean build is refused: %v", p)
	}
	for key, value := range map[string]string{"-trimpath": "", "CGO_ENABLED": "1", "vcs.revision": "", "vcs.modified": "true"} {
		spoilt := map[string]string{}
		for k, v := range clean {
			spoilt[k] = v
		}
		spoilt[key] = value
		if p := (&bill{settings: spoilt}).notReproducible(); len(p) != 1 {
			t.Errorf("%s=%s: %v", key, value, p)
		}
	}
	if err := run("supply_test.go", "", false, io.Discard); err == nil {
		t.Error("a text is described as a binary")
	}
}
