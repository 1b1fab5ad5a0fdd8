// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"fmt"
	"iter"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A document is one version of a text in an editor. It never changes, so that requests can be answered while
// the next version arrives.
type document struct {
	uri     string
	file    string // the name of its file, as problems have it
	version int
	text    string
	lost    string       // why the text is not kept; "" = it is
	starts  []int        // byte offsets of the lines, as the protocol counts them
	utf8    bool         // positions count bytes, not UTF-16 units
	known   bool         // an earlier version was a recipe or a lens, so this one is meant to be one
	parts   *yamlx.Parts // of the newest version that was read

	told  sync.Once
	kind  kind
	read  sync.Once
	texts *reading
}

func newDocument(uri, file string, version int, text string, utf8 bool) *document {
	d := &document{uri: uri, file: file, version: version, text: text, utf8: utf8, parts: &yamlx.Parts{}}
	if len(text) > form.MaxBytes {
		d.lose(fmt.Sprintf("%s has %d bytes, and the limit is %d: close it, and open it again when it is shorter", file, len(text), form.MaxBytes))
		return d
	}
	at := 0
	d.starts = make([]int, 0, 1+strings.Count(text, "\n"))
	for line := range eachLine(text) {
		d.starts = append(d.starts, at)
		at += len(line)
	}
	return d
}

// like returns a document with a text that is much like that of this one.
func (d *document) like(file string, version int, text string) *document {
	is := newDocument(d.uri, file, version, text, d.utf8)
	is.parts = d.parts
	return is
}

// lose forgets the text, for a reason that the user is told.
func (d *document) lose(why string) { d.text, d.lost, d.starts = "", why, []int{0} }

// reads returns how the text is read: what it has in common with the version that was read last is not parsed again.
func (d *document) reads() form.Options {
	return form.Options{MaxBytes: form.MaxBytes, YAML: d.parts.Parse}
}

// eachLine yields the lines of a text with their line breaks. Behind the last line break there is one more.
func eachLine(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			i := strings.IndexAny(text, "\r\n")
			if i < 0 {
				yield(text)
				return
			}
			if i++; text[i-1] == '\r' && strings.HasPrefix(text[i:], "\n") {
				i++
			}
			if !yield(text[:i]) {
				return
			}
			text = text[i:]
		}
	}
}

// offset returns the byte offset of a position. One beyond the end of a line is the end of that line.
func (d *document) offset(p position) int {
	if p.Line < 0 {
		return 0
	}
	if p.Line >= len(d.starts) {
		return len(d.text)
	}
	at, end := d.starts[p.Line], len(d.text)
	if p.Line+1 < len(d.starts) {
		end = d.starts[p.Line+1]
	}
	return at + d.column(d.text[at:end], p.Character)
}

// column returns the byte offset of a character in a line.
func (d *document) column(line string, character int) int {
	end := len(strings.TrimRight(line, "\r\n"))
	if d.utf8 {
		at := min(max(0, character), end)
		for at > 0 && at < end && !utf8.RuneStart(line[at]) {
			at--
		}
		return at
	}
	at := 0
	for units := character; units > 0 && at < end; {
		r, n := utf8.DecodeRuneInString(line[at:])
		if units--; r > 0xFFFF {
			units--
		}
		at += n
	}
	return at
}

// position returns the position of a byte offset.
func (d *document) position(offset int) position {
	offset = min(max(0, offset), len(d.text))
	line := sort.SearchInts(d.starts, offset+1) - 1
	part := d.text[d.starts[line]:offset]
	if d.utf8 {
		return position{line, len(part)}
	}
	units := 0
	for _, r := range part {
		if units++; r > 0xFFFF {
			units++
		}
	}
	return position{line, units}
}

func (d *document) rangeOf(from, to int) textRange {
	return textRange{d.position(from), d.position(to)}
}

// maxChanging bounds what the changes of one message may cost, in bytes that are copied: a few seconds.
const maxChanging = 4 << 30

// changed returns the document after changes, one after the other.
func (d *document) changed(changes []contentChange, version int) *document {
	text, lost := d.text, d.lost
	for i := len(changes) - 1; i >= 0; i-- {
		if changes[i].Range == nil { // what was before it does not matter
			text, lost, changes = changes[i].Text, "", changes[i+1:]
			break
		}
	}
	ok := true
	if lost == "" && len(changes) > 0 {
		text, ok = d.edited(text, changes)
	}
	is := d.like(d.file, version, text)
	switch {
	case lost != "":
		is.lose(lost)
	case !ok:
		is.lose(fmt.Sprintf("%d changes of %s at once are too many: close it, and open it again", len(changes), d.file))
	}
	return is
}

// edited returns a text after changes of parts of it. It has the lines apart, so that a change costs what the
// lines cost that it touches. ok is false if all of them cost too much.
func (d *document) edited(text string, changes []contentChange) (is string, ok bool) {
	lines := slices.Collect(eachLine(text))
	place := func(p position) (line, column int) {
		switch {
		case p.Line < 0:
			return 0, 0
		case p.Line >= len(lines):
			return len(lines) - 1, len(lines[len(lines)-1])
		}
		return p.Line, d.column(lines[p.Line], p.Character)
	}
	cost := int64(0)
	for _, c := range changes {
		first, from := place(c.Range.Start)
		last, to := place(c.Range.End)
		if last < first || last == first && to < from {
			first, from, last, to = last, to, first, from
		}
		part := lines[first][:from] + c.Text + lines[last][to:]
		if from == 0 && first > 0 && strings.HasSuffix(lines[first-1], "\r") { // a line feed would belong to it
			first--
			part = lines[first] + part
		}
		now := slices.Collect(eachLine(part))
		if last < len(lines)-1 {
			now = now[:len(now)-1] // the part ends with a line break, and the next line is there
		}
		cost += 4 * int64(len(part))
		if len(now) != last+1-first {
			cost += 16 * int64(len(lines)-last)
		}
		if cost > maxChanging {
			return "", false
		}
		lines = slices.Replace(lines, first, last+1, now...)
	}
	return strings.Join(lines, ""), true
}

// fileOf returns the file of a URI, relative to a directory that it is in, as a user would name it. A text
// that is in no file has its URI without the scheme.
func fileOf(uri, dir string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "untitled.yaml"
	}
	if u.Scheme != "file" {
		name := strings.Map(func(r rune) rune {
			if r < ' ' || strings.ContainsRune(`/\:`, r) {
				return '-'
			}
			return r
		}, u.Opaque+u.Path)
		return strings.TrimLeft(name, "-.") + ".yaml"
	}
	path := u.Path
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/")
	}
	path = filepath.FromSlash(path)
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// uriOf returns the URI of a file that a problem names.
func uriOf(file, dir string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	file = filepath.ToSlash(file)
	if !strings.HasPrefix(file, "/") {
		file = "/" + file
	}
	return (&url.URL{Scheme: "file", Path: file}).String()
}
