// SPDX-License-Identifier: Apache-2.0

// Command supply lists the modules that are linked into a binary, with their licences
// and checksums. It writes the list as a bill of materials (CycloneDX) and fails if a
// module has a licence that is not allowed, is not pinned by go.sum, or was replaced.
//
//	go run ./supply -binary bin/roux -out dist/roux.cdx.json
//
// It decides nothing about the code, and uses only the go command of this machine, not
// the network.
package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	binary := flag.String("binary", "", "the binary to describe")
	out := flag.String("out", "", "where the bill of materials goes; none is written without it")
	dirty := flag.Bool("dirty", false, "take a binary that was built from changed or unknown sources")
	flag.Parse()
	if err := run(*binary, *out, *dirty, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "supply:", err)
		os.Exit(1)
	}
}

func run(binary, out string, dirty bool, w io.Writer) error {
	if binary == "" {
		return errors.New("name a binary with -binary")
	}
	b, err := describe(binary)
	if err != nil {
		return err
	}
	problems := b.problems()
	if !dirty {
		problems = append(problems, b.notReproducible()...)
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	licences := map[string]int{}
	for i := range b.modules {
		licences[strings.Join(b.modules[i].licences, ", ")]++
	}
	fmt.Fprintf(w, "%s: %d modules, all pinned; licences %v\n", binary, len(b.modules), licences)
	if out == "" {
		return nil
	}
	text, err := b.sbom()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(out), 0o755)
	}
	if err == nil {
		err = os.WriteFile(out, text, 0o644)
	}
	if err == nil {
		fmt.Fprintf(w, "wrote %s\n", out)
	}
	return err
}

// A bill is the content of a binary.
type bill struct {
	main     string // path of our module
	version  string
	compiler string
	settings map[string]string // of the build
	sum      string            // SHA-256 of the binary
	modules  []module
}

type module struct {
	path, version string
	sum           string // recorded in the binary
	pinned        string // recorded in go.sum; "" = not recorded
	replaced      string // the module that replaces it
	licences      []string
	unknown       []string // licence files with an unknown text
}

// describe reads the binary, go.sum, and the licences in the module cache.
func describe(binary string) (*bill, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	b := &bill{main: info.Main.Path, version: info.Main.Version, compiler: info.GoVersion, settings: map[string]string{}}
	for _, s := range info.Settings {
		b.settings[s.Key] = s.Value
	}
	if b.sum, err = fileSum(binary); err != nil {
		return nil, err
	}
	pins, dirs, err := modulePins()
	if err != nil {
		return nil, err
	}
	for _, d := range info.Deps {
		m := module{path: d.Path, version: d.Version, sum: d.Sum, pinned: pins[d.Path+" "+d.Version]}
		if d.Replace != nil {
			m.replaced = d.Replace.Path + " " + d.Replace.Version
		}
		if m.licences, m.unknown, err = licencesIn(d.Path, dirs[d.Path]); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Path, err)
		}
		b.modules = append(b.modules, m)
	}
	slices.SortFunc(b.modules, func(x, y module) int { return strings.Compare(x.path, y.path) })
	return b, nil
}

// modulePins returns the checksums in go.sum and the directories of the
// modules.
func modulePins() (pins, dirs map[string]string, err error) {
	cmd := exec.Command("go", "list", "-mod=readonly", "-m", "-json=Path,Dir", "all")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w: %s", err, complaints.String())
	}
	dirs = map[string]string{}
	root := ""
	for dec := json.NewDecoder(bytes.NewReader(text)); ; {
		var m struct{ Path, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		if root == "" {
			root = m.Dir // our own module comes first
		}
		dirs[m.Path] = m.Dir
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, nil, err
	}
	pins = map[string]string{}
	for line := range strings.Lines(string(sums)) {
		if f := strings.Fields(line); len(f) == 3 {
			pins[f[0]+" "+f[1]] = f[2]
		}
	}
	return pins, dirs, nil
}

// problems returns the reasons not to ship a binary.
func (b *bill) problems() (out []string) {
	for i := range b.modules {
		m := &b.modules[i]
		name := m.path + " " + m.version
		switch {
		case m.replaced != "":
			out = append(out, fmt.Sprintf("%s was replaced by %s", name, m.replaced))
			continue
		case m.pinned == "":
			out = append(out, name+" has no checksum in go.sum")
		case m.sum != m.pinned:
			out = append(out, fmt.Sprintf("%s is linked as %s and pinned as %s", name, m.sum, m.pinned))
		}
		if len(m.licences) == 0 && len(m.unknown) == 0 {
			out = append(out, name+" comes without a licence")
		}
		for _, file := range m.unknown {
			out = append(out, fmt.Sprintf("%s: the text of %s is no licence that is known here", name, file))
		}
		for _, l := range m.licences {
			if !slices.Contains(allowed, l) {
				out = append(out, fmt.Sprintf("%s is under %s; allowed are %s", name, l, strings.Join(allowed, ", ")))
			}
		}
	}
	return out
}

// notReproducible returns the reasons why the build cannot be reproduced.
func (b *bill) notReproducible() (out []string) {
	if b.settings["-trimpath"] != "true" {
		out = append(out, "the binary was built without -trimpath: it depends on where")
	}
	if b.settings["CGO_ENABLED"] != "0" {
		out = append(out, "the binary was built with cgo: it depends on this machine's libraries")
	}
	if b.settings["vcs.revision"] == "" {
		out = append(out, "the binary does not say which commit it is")
	}
	if b.settings["vcs.modified"] == "true" {
		out = append(out, "the binary was built from sources that are in no commit")
	}
	return out
}
