// SPDX-License-Identifier: Apache-2.0

//go:build !small

package registry

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/compile"
)

// finds is what the references of a recipe stood for.
type finds struct {
	found    []Found
	from     []string                       // the file of each
	includes map[string]map[string]included // by file and by the path that it names
}

// An included is a file that another one names by a path.
type included struct {
	file string
	text [sha256.Size]byte // hash of its text
}

// note keeps what a reference stood for, once.
func (f *finds) note(found Found, file string) {
	if !slices.ContainsFunc(f.found, func(had Found) bool { return had.Kind == found.Kind && had.Ref == found.Ref }) {
		f.found, f.from = append(f.found, found), append(f.from, file)
	}
}

// include keeps that a file includes another one.
func (f *finds) include(file, path string, text *compile.Text) {
	if f.includes == nil {
		f.includes = map[string]map[string]included{}
	}
	if f.includes[file] == nil {
		f.includes[file] = map[string]included{}
	}
	f.includes[file][path] = included{text.File, sha256.Sum256(text.Data)}
}

// Found returns what was found by a name, each reference once. Recipes in files that steps
// name by a path are no references: they count with the texts that include them.
func (f *finds) Found() []Found {
	list := slices.Clone(f.found)
	for i := range list {
		list[i].Files = f.filesOf(f.from[i])
	}
	return list
}

// filesOf returns the hash of the files that a file includes, and of those that they include, each
// once: of the paths as they are named and the hashes of their texts, so that it is the same
// wherever the files lie.
func (f *finds) filesOf(file string) []byte {
	if len(f.includes[file]) == 0 {
		return nil
	}
	h := sha256.New()
	seen := map[string]bool{file: true}
	var add func(file string)
	add = func(file string) {
		for _, path := range slices.Sorted(maps.Keys(f.includes[file])) {
			to := f.includes[file][path]
			h.Write([]byte(path + "\x00"))
			h.Write(to.text[:])
			if !seen[to.file] {
				seen[to.file] = true
				add(to.file)
			}
		}
		h.Write([]byte("\x00")) // the end of a file: no other tree has the same bytes
	}
	add(file)
	return h.Sum(nil)
}
