// SPDX-License-Identifier: Apache-2.0

// Package examples has the examples of this directory, embedded in the binary
// for `roux init --example` and `roux demo`.
//
// It decides nothing: the comment at the head of a recipe describes the example
// and names its files. A new type of input file needs its pattern in the go:embed
// line of all.go; a test checks that. A small binary only has what `roux doctor` reads.
package examples

import (
	"io/fs"
	"path"
	"strings"
)

// An Example is a recipe of this directory with its input files.
type Example struct {
	Name   string // document-digest
	Title  string // the first line of its comment
	Recipe string // file name: document-digest.yaml
	// Command is the command that runs it from a clone: roux run
	// examples/document-digest.yaml --file examples/report.pdf
	Command string
	// Files are the files that Command names other than the recipe, relative to
	// this directory; a pattern stands for all files it matches.
	Files []string
}

// dir is the name of this directory in commands.
const dir = "examples/"

// All returns the examples, sorted by name.
func All() []Example {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil // an embedded directory can always be read
	}
	var list []Example
	for _, e := range entries {
		if path.Ext(e.Name()) != ".yaml" {
			continue
		}
		if text, err := files.ReadFile(e.Name()); err == nil {
			list = append(list, read(e.Name(), string(text)))
		}
	}
	return list
}

// Find returns the example with a name.
func Find(name string) (Example, bool) {
	for _, e := range All() {
		if e.Name == name {
			return e, true
		}
	}
	return Example{}, false
}

// Read returns a file of this directory, or fs.ErrNotExist.
func Read(name string) ([]byte, error) { return files.ReadFile(name) }

// FS has the files of this directory.
func FS() fs.FS { return files }

// read returns an example from the comment at the head of its recipe.
func read(file, text string) Example {
	e := Example{Name: strings.TrimSuffix(file, ".yaml"), Recipe: file}
	for line := range strings.Lines(text) {
		line, ok := strings.CutPrefix(line, "#")
		if !ok {
			break
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "yaml-language-server:") || line == "":
		case strings.HasPrefix(line, "roux run "):
			if e.Command == "" {
				e.Command = line
			}
		case e.Title == "":
			e.Title = line
		}
	}
	for _, word := range strings.Fields(e.Command) {
		word = strings.Trim(word, `'"@`)
		name, ok := strings.CutPrefix(word, dir)
		if !ok || name == file {
			continue
		}
		// An invalid pattern matches nothing; a test checks for the files.
		if matches, _ := fs.Glob(files, name); len(matches) > 0 {
			e.Files = append(e.Files, matches...)
		} else {
			e.Files = append(e.Files, name)
		}
	}
	return e
}
