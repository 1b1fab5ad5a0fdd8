// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"net/url"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
)

// A document is one version of a text in an editor. It never changes, so that requests can be answered while
// the next version arrives.
type document struct {
	uri     string
	file    string // the name of its file, as problems have it
	version int
	text    string
	size    int   // of a text that is not kept, because it is too large; 0 = it is kept
	starts  []int // byte offsets of the lines, as the protocol counts them
	utf8    bool  // positions count bytes, not UTF-16 units
	known   bool  // an earlier version was a recipe or a lens, so this one is meant to be one

	told  sync.Once
	kind  kind
	read  sync.Once
	texts *reading
}

func newDocument(uri, file string, version int, text string, utf8 bool) *document {
	d := &document{uri: uri, file: file, version: version, text: text, utf8: utf8, starts: []int{0}}
	if len(text) > form.MaxBytes {
		d.text, d.size = "", len(text)
		return d
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\n', text[i] == '\r' && (i+1 == len(text) || text[i+1] != '\n'):
			d.starts = append(d.starts, i+1)
		}
	}
	return d
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
	end = at + len(strings.TrimRight(d.text[at:end], "\r\n"))
	if d.utf8 {
		at = min(at+max(0, p.Character), end)
		for at > 0 && at < end && !utf8.RuneStart(d.text[at]) {
			at--
		}
		return at
	}
	for units := p.Character; units > 0 && at < end; {
		r, n := utf8.DecodeRuneInString(d.text[at:])
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

// changed returns the document after a change.
func (d *document) changed(c contentChange, version int) *document {
	is := newDocument(d.uri, d.file, version, d.after(c), d.utf8)
	if c.Range != nil && d.size > 0 {
		is.size = max(1, d.size+len(c.Text)) // about: what was replaced is not known
	}
	return is
}

func (d *document) after(c contentChange) string {
	if c.Range == nil {
		return c.Text
	}
	if d.size > 0 {
		return ""
	}
	from, to := d.offset(c.Range.Start), d.offset(c.Range.End)
	if to < from {
		from, to = to, from
	}
	return d.text[:from] + c.Text + d.text[to:]
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
