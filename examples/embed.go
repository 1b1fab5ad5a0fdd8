// SPDX-License-Identifier: Apache-2.0

// Package examples holds the examples as they lie in this directory, embedded
// in the binary for `roux init --example` and `roux demo`.
//
// It decides nothing: what an example is and which files it takes is what the
// comment at the head of its recipe says. A new kind of input file needs its
// pattern in the go:embed line below; the test asks for it.
package examples

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.yaml *.pdf *.jpg receipts
var files embed.FS

// An Example is a recipe of this directory with what it is run on.
type Example struct {
	Name   string // document-digest
	Title  string // the first line of its comment: what it shows
	Recipe string // the name of its file: document-digest.yaml
	// Command is the line that runs it, as a person in a clone would type it:
	// roux run examples/document-digest.yaml --file examples/report.pdf
	Command string
	// Files are the files that Command names beside the recipe, relative to
	// this directory; a pattern names all that it matches.
	Files []string
}

// dir is how commands name this directory.
const dir = "examples/"

// All lists the examples by name.
func All() []Example {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil // an embedded directory can be read
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

// Find returns the example of that name.
func Find(name string) (Example, bool) {
	for _, e := range All() {
		if e.Name == name {
			return e, true
		}
	}
	return Example{}, false
}

// Read returns a file of this directory; fs.ErrNotExist where there is none.
func Read(name string) ([]byte, error) { return files.ReadFile(name) }

// FS holds the files of this directory.
func FS() fs.FS { return files }

// read takes what an example is from the comment at its head.
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
		// A pattern that is none matches nothing; the test asks for its files.
		if matches, _ := fs.Glob(files, name); len(matches) > 0 {
			e.Files = append(e.Files, matches...)
		} else {
			e.Files = append(e.Files, name)
		}
	}
	return e
}
