// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A draft is the text of a test file that is being changed. An edit replaces the smallest part of
// the text that it can, and counts only if the text then means what it is to mean and nothing else
// has changed: so a place that is written in an unusual way is left alone, and never spoiled.
type draft struct {
	file  string
	json  bool
	text  []byte
	lines []string // with their line breaks
	tree  *jsonx.Node
}

// newDraft returns a draft, or nil if the text cannot be read.
func newDraft(file string, text []byte) *draft {
	d := &draft{file: file, json: strings.EqualFold(filepath.Ext(file), ".json"), text: text, lines: strings.SplitAfter(string(text), "\n")}
	if d.tree = d.read(text); d.tree == nil {
		return nil
	}
	return d
}

func (d *draft) read(text []byte) *jsonx.Node {
	tree, dec := form.Read(d.file, text, form.Options{MaxBytes: MaxSource})
	if tree == nil || len(dec.Diagnostics()) > 0 {
		return nil
	}
	return form.Unwrapped(tree)
}

// set replaces the value at a pointer, or adds it to the object around it.
func (d *draft) set(pointer string, v any) ([]byte, bool) {
	want, ok := setIn(d.tree.Value(), tokens(pointer), v)
	if !ok {
		return nil, false
	}
	for _, out := range d.candidates(pointer, v) {
		if tree := d.read(out); tree != nil && reflect.DeepEqual(tree.Value(), want) {
			return out, true
		}
	}
	return nil, false
}

// with returns the value at the pointer up with another value at a pointer below it.
func (d *draft) with(pointer string, v any, up string) (any, bool) {
	n := d.tree.Find(up)
	if n == nil {
		return nil, false
	}
	return setIn(n.Value(), tokens(strings.TrimPrefix(pointer, up)), v)
}

func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	return strings.Split(pointer[1:], "/")
}

// setIn returns a value with another one at a place within it.
func setIn(v any, path []string, to any) (any, bool) {
	if len(path) == 0 {
		return plain(to), true
	}
	switch at := v.(type) {
	case map[string]any:
		out, name := maps.Clone(at), jsonx.UnescapeToken(path[0])
		below, ok := setIn(at[name], path[1:], to)
		if _, has := at[name]; !has && len(path) > 1 {
			return nil, false
		}
		out[name] = below
		return out, ok
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(at) {
			return nil, false
		}
		out := slices.Clone(at)
		below, ok := setIn(at[i], path[1:], to)
		out[i] = below
		return out, ok
	}
	return nil, false
}

// plain is a value as the decoder of texts returns it.
func plain(v any) any { return view.Decoded(view.RawOf(v)) }

// candidates are texts that may have a value at a pointer, the best first.
func (d *draft) candidates(pointer string, v any) (list [][]byte) {
	n := d.tree.Find(pointer)
	if n == nil {
		return d.additions(pointer, v)
	}
	from := d.offset(n.Pos)
	switch {
	case n.Kind == jsonx.Object || n.Kind == jsonx.Array:
		if to := d.closing(from); to > 0 {
			for _, text := range d.inline(v) {
				list = append(list, d.splice(from, to, text))
			}
		}
	case n.Style != jsonx.Literal && n.Style != jsonx.Folded:
		to := d.offset(jsonx.Pos{Line: n.Pos.Line, Col: n.Pos.Col + n.Pos.Len})
		for _, text := range d.inline(v) {
			list = append(list, d.splice(from, to, text))
		}
	}
	if n.Key == "" || d.json {
		return list
	}
	// The value is written below its name, or is to be.
	key := d.offset(n.KeyPos)
	if colon := strings.IndexByte(string(d.text[key:]), ':'); colon >= 0 {
		from, to := key+colon+1, d.blockEnd(n)
		indent := int(n.KeyPos.Col) - 1
		list = append(list, d.splice(from, to, d.block(v, indent+2)))
	}
	return list
}

// additions are texts with a further field in an object.
func (d *draft) additions(pointer string, v any) (list [][]byte) {
	at := strings.LastIndexByte(pointer, '/')
	parent, name := d.tree.Find(pointer[:at]), jsonx.UnescapeToken(pointer[at+1:])
	if parent == nil || parent.Kind != jsonx.Object {
		return nil
	}
	from := d.offset(parent.Pos)
	if from < len(d.text) && d.text[from] == '{' {
		if end := d.closing(from); end > 0 {
			comma := ", "
			if len(parent.Children) == 0 {
				comma = ""
			}
			for _, text := range d.inline(v) {
				list = append(list, d.splice(end-1, end-1, comma+d.name(name)+": "+text))
			}
		}
		return list
	}
	if len(parent.Children) == 0 {
		return nil
	}
	last := parent.Children[len(parent.Children)-1]
	indent := int(last.KeyPos.Col) - 1
	end := d.blockEnd(last)
	text := strings.Repeat(" ", indent) + d.name(name) + ":" + d.block(v, indent+2)
	return append(list, d.splice(end, end, "\n"+text))
}

// splice replaces a part of the text.
func (d *draft) splice(from, to int, text string) []byte {
	return slices.Concat(d.text[:from], []byte(text), d.text[to:])
}

// offset is the place of a position in the text.
func (d *draft) offset(p jsonx.Pos) int {
	at := 0
	for i := 0; i < int(p.Line)-1 && i < len(d.lines); i++ {
		at += len(d.lines[i])
	}
	if int(p.Line)-1 >= len(d.lines) {
		return at
	}
	line := d.lines[p.Line-1]
	for col := 1; col < int(p.Col) && line != ""; col++ {
		_, n := utf8.DecodeRuneInString(line)
		at, line = at+n, line[n:]
	}
	return at
}

// closing returns where the list or object ends that begins with a bracket at from; 0 if there is
// no bracket.
func (d *draft) closing(from int) int {
	if from >= len(d.text) || d.text[from] != '{' && d.text[from] != '[' {
		return 0
	}
	depth, quote := 0, byte(0)
	for i := from; i < len(d.text); i++ {
		c := d.text[i]
		switch {
		case quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' && strings.IndexByte(" ,:[{", d.text[i-1]) >= 0:
			quote = c
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// blockEnd is the end of the last line of a field, without its line break. Lines below it with
// only comments or blanks are not part of it.
func (d *draft) blockEnd(n *jsonx.Node) int {
	indent := int(n.KeyPos.Col) - 1
	last := int(n.KeyPos.Line) - 1
	for i := last + 1; i < len(d.lines); i++ {
		text := strings.TrimRight(d.lines[i], "\r\n")
		rest := strings.TrimLeft(text, " ")
		if rest == "" || rest[0] == '#' {
			continue
		}
		if in := len(text) - len(rest); in < indent || in == indent && (n.Kind != jsonx.Array || !strings.HasPrefix(rest, "-")) {
			break
		}
		last = i
	}
	at := 0
	for _, l := range d.lines[:last+1] {
		at += len(l)
	}
	return at - len(d.lines[last]) + len(strings.TrimRight(d.lines[last], "\r\n"))
}

// block writes a value behind the colon of its name: on the same line, or on lines below it.
func (d *draft) block(v any, indent int) string {
	text := strings.TrimSuffix(string(yamlOf(v)), "\n")
	switch plain(v).(type) {
	case map[string]any, []any:
		if text != "{}" && text != "[]" {
			margin := "\n" + strings.Repeat(" ", indent)
			return margin + strings.ReplaceAll(text, "\n", margin)
		}
	}
	return " " + text
}

// inline writes a value on one line, in the ways that there are.
func (d *draft) inline(v any) []string {
	raw := string(view.RawOf(v))
	if d.json {
		return []string{raw}
	}
	list := []string{flow(plain(v)), raw}
	if text := string(bytes.TrimSuffix(yamlOf(v), []byte("\n"))); !strings.Contains(text, "\n") {
		list = append([]string{text}, list...)
	}
	return list
}

// name writes the name of a field.
func (d *draft) name(name string) string {
	if d.json {
		return strconv.Quote(name)
	}
	return flow(name)
}

// word is text that needs no quotes in YAML.
var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)

// flow writes a value in the flow style of YAML.
func flow(v any) string {
	switch v := v.(type) {
	case string:
		if n, problems := yamlx.Parse([]byte(v), jsonx.Limits{}); word.MatchString(v) && len(problems) == 0 && n.Kind == jsonx.String {
			return v
		}
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = flow(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, flow(name)+": "+flow(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(raw)
}
