// SPDX-License-Identifier: Apache-2.0

// Package yamlx parses and formats YAML text within limits.
//
// It decides which texts are YAML here: one document of mappings, lists and scalars,
// without aliases, anchors, tags, merge keys and duplicate keys, within limits on bytes,
// depth and tokens that are checked before the text is parsed. It decides what a plain
// scalar is ([resolve]): what YAML 1.2 and JSON agree on, otherwise a string; it refuses
// text that YAML parsers read as different numbers. [Parts] does the same for versions of one
// text, at the cost of what has changed. Its result is the tree of jsonx, so
// that a definition has the same meaning in both languages.
//
// It never interprets values, knows no schema and does no I/O.
package yamlx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
	"go.yaml.in/yaml/v4"
)

// Parse parses data into a tree with positions. Limits are as in jsonx, but the default of
// Tokens is Bytes/8, because YAML needs more memory per value. As in jsonx, the tree is nil
// when parsing could not continue, and a tree that is returned with problems is only for
// finding further ones.
func Parse(data []byte, lim jsonx.Limits) (*jsonx.Node, []*jsonx.Error) {
	lim = defaults(lim)
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := check(data, lim); err != nil {
		return nil, []*jsonx.Error{err}
	}
	return parsed(data, lim)
}

// parsed parses a text that was checked.
func parsed(data []byte, lim jsonx.Limits) (*jsonx.Node, []*jsonx.Error) {
	doc, err := load(data, lim)
	if err != nil {
		return nil, []*jsonx.Error{err}
	}
	w := &walker{text: NewText(data), lim: lim, left: lim.Tokens}
	root := w.node(doc, 0)
	if w.fatal != nil {
		return nil, append(w.problems, w.fatal)
	}
	return root, w.problems
}

func defaults(lim jsonx.Limits) jsonx.Limits {
	if lim.Bytes == 0 {
		lim.Bytes = jsonx.DefaultBytes
	}
	if lim.Depth == 0 {
		lim.Depth = jsonx.DefaultDepth
	}
	if lim.Tokens == 0 {
		lim.Tokens = lim.Bytes/8 + 1
	}
	return lim
}

// check enforces the limits that can be checked before parsing. The library builds its
// whole tree before its nodes can be counted, so check counts indicators, which bounds the
// tokens: every value but the first needs an indicator of its own, and a text with n
// indicators has at most 3(n+1) names and values.
func check(data []byte, lim jsonx.Limits) *jsonx.Error {
	if len(data) > lim.Bytes {
		return &jsonx.Error{Rule: jsonx.RuleLimit, Msg: fmt.Sprintf("the text has %d bytes, the limit is %d", len(data), lim.Bytes)}
	}
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n <= 1 {
				break
			}
			at += n
		}
		return &jsonx.Error{Rule: jsonx.RuleEncoding, Msg: "the text is not valid UTF-8 here", Pos: NewText(data).At(at, 1)}
	}
	for i, c := range data {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7F {
			return &jsonx.Error{
				Rule: jsonx.RuleSyntax, Pos: NewText(data).At(i, 1),
				Msg:  fmt.Sprintf("the control character %U is not allowed in YAML", c),
				Hint: `write it as "\u....", in double quotes`,
			}
		}
	}
	if indicators(data) > lim.Tokens {
		return tooMany(lim)
	}
	return nil
}

func tooMany(lim jsonx.Limits) *jsonx.Error {
	return &jsonx.Error{
		Rule: jsonx.RuleLimit,
		Msg:  fmt.Sprintf("the text holds more than %d names and values", lim.Tokens),
		Hint: "pass large data as a file",
	}
}

// indicators counts the characters that can begin or separate values. A comma does so only
// inside brackets. Where those end depends on quotes and comments, so commas count from the
// first bracket on.
func indicators(data []byte) int {
	n, flow := 0, false
	for i, c := range data {
		switch c {
		case '[', '{':
			flow = true
			n++
		case ',':
			if flow {
				n++
			}
		case ':', '-', '?':
			// Inside brackets, no space is needed after a colon.
			if flow || i+1 == len(data) || strings.IndexByte(" \t\r\n", data[i+1]) >= 0 {
				n++
			}
		}
	}
	return n
}

// limits makes the library stop at our maximum depth, and records that it did.
type limits struct {
	depth int
	hit   bool
}

func (l *limits) CheckDepth(depth int, _ *yaml.DepthContext) error {
	if l.hit = depth > l.depth; l.hit {
		return errors.New("too deep")
	}
	return nil
}

// CheckAlias is never called, because aliases are refused before they are expanded.
func (l *limits) CheckAlias(int, int) error { return nil }

// load parses a single document with the library.
func load(data []byte, lim jsonx.Limits) (doc *yaml.Node, problem *jsonx.Error) {
	// The library uses panics internally. One that it does not recover would let an
	// untrusted text end the process.
	defer func() {
		if p := recover(); p != nil {
			doc, problem = nil, &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: "this is not YAML that can be read"}
		}
	}()
	guard := &limits{depth: lim.Depth}
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(guard))
	if err != nil {
		return nil, &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: err.Error()}
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF):
		return nil, &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: "the text is empty", Pos: jsonx.Pos{Line: 1, Col: 1, Len: 1}}
	case err != nil:
		return nil, syntax(err, data, guard)
	}
	switch err := loader.Load(&second); {
	case err == nil:
		pos := jsonx.Pos{Line: int32(second.Line), Col: int32(second.Column), Len: 1}
		return nil, &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: "a second document begins here; a text holds one", Pos: pos}
	case !errors.Is(err, io.EOF):
		return nil, syntax(err, data, guard)
	}
	if first.Kind != yaml.DocumentNode || len(first.Content) != 1 {
		return nil, &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: "the text is empty", Pos: jsonx.Pos{Line: 1, Col: 1, Len: 1}}
	}
	return first.Content[0], nil
}

// syntax converts an error of the library into a jsonx.Error.
func syntax(err error, data []byte, guard *limits) *jsonx.Error {
	e := &jsonx.Error{Rule: jsonx.RuleSyntax, Msg: err.Error()}
	var lerr *yaml.LoadError
	if errors.As(err, &lerr) {
		e.Msg = lerr.Message
		if lerr.ContextMsg != "" {
			e.Msg += " " + lerr.ContextMsg
		}
		mark := lerr.Mark
		if mark.Line == 0 {
			mark = lerr.ContextMark
		}
		e.Pos = jsonx.Pos{Line: int32(mark.Line), Col: int32(mark.Column), Len: 1}
	}
	text := NewText(data)
	line := text.Line(int(e.Pos.Line))
	for n := text.Lines(); int(e.Pos.Line) >= n && line == "" && n > 0; n-- {
		// An error at the end of the text is reported after the last word.
		if last := strings.TrimRight(text.Line(n), " \t"); last != "" {
			line, e.Pos.Line, e.Pos.Col = last, int32(n), int32(utf8.RuneCountInString(last)+1)
			break
		}
		e.Pos.Line = int32(n)
	}
	switch {
	case guard.hit:
		e.Rule, e.Msg = jsonx.RuleLimit, fmt.Sprintf("lists and mappings are nested more than %d deep", guard.depth)
	case strings.Contains(e.Msg, "cannot start any token") && strings.HasPrefix(fromColumn(line, int(e.Pos.Col)), "\t"),
		strings.Contains(e.Msg, "tab"):
		e.Msg, e.Hint = "a tab indents this line", "YAML is indented with spaces"
	case strings.HasPrefix(e.Msg, "unknown anchor"):
		e.Rule, e.Msg, e.Hint = ruleAlias, "aliases (*name) are not supported", "write the value out; text that begins with * needs quotes"
	case strings.Contains(e.Msg, "mapping values are not allowed"):
		e.Msg, e.Hint = "this value contains a second `: `", "put the value in quotes"
	case strings.Contains(e.Msg, "cannot start any token"):
		e.Msg, e.Hint = "a value cannot begin with this character", "put the value in quotes"
	case strings.HasPrefix(e.Msg, "did not find expected") && strings.IndexAny(fromColumn(line, int(e.Pos.Col)), "[{.") == 0:
		e.Hint = "an expression with brackets needs quotes"
	}
	return e
}

// fromColumn returns the rest of a line from column col (from 1, in characters).
func fromColumn(line string, col int) string {
	for ; col > 1 && line != ""; col-- {
		_, n := utf8.DecodeRuneInString(line)
		line = line[n:]
	}
	return line
}
