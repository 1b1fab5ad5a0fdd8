// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
	"go.yaml.in/yaml/v4"
)

// The rules that exist only for YAML; the others are those of jsonx.
const (
	ruleAlias  = "alias"
	ruleAnchor = "anchor"
	ruleTag    = "tag"
	ruleMerge  = "merge-key"
	ruleKey    = "key"
)

// A walker converts the library's tree into ours and refuses what we do not support.
type walker struct {
	text     *Text
	lim      jsonx.Limits
	left     int
	path     jsonx.Path
	problems []*jsonx.Error
	fatal    *jsonx.Error

	// The last line that was searched. Without it, each scalar of a long line would
	// cause a search from the start of the line.
	lineNo int
	line   string
	lineAt int // byte offset in line of column col
	col    int
}

func (w *walker) problem(rule string, pos jsonx.Pos, msg, hint string) {
	if len(w.problems) < jsonx.MaxProblems {
		w.problems = append(w.problems, &jsonx.Error{Rule: rule, Msg: msg, Hint: hint, Pos: pos, Pointer: w.path.Pointer()})
	}
}

// from returns the rest of a line, beginning at a column.
func (w *walker) from(line, col int) string {
	if w.lineNo != line || col < w.col {
		if w.lineNo != line {
			w.line = w.text.Line(line)
		}
		w.lineNo, w.lineAt, w.col = line, 0, 1
	}
	for ; w.col < col && w.lineAt < len(w.line); w.col++ {
		_, n := utf8.DecodeRuneInString(w.line[w.lineAt:])
		w.lineAt += n
	}
	return w.line[w.lineAt:]
}

func (w *walker) count() bool {
	if w.left--; w.left < 0 && w.fatal == nil {
		w.fatal = tooMany(w.lim)
	}
	return w.fatal == nil
}

func (w *walker) node(y *yaml.Node, depth int) *jsonx.Node {
	n := &jsonx.Node{Pos: jsonx.Pos{Line: int32(y.Line), Col: int32(y.Column), Len: 1}}
	if last := w.text.Lines(); y.Line > last {
		// The library places a missing value after the end of the text.
		n.Pos.Line, n.Pos.Col = int32(last), int32(utf8.RuneCountInString(w.text.Line(last))+1)
		y.Line, y.Column = last, int(n.Pos.Col)
	}
	if !w.count() {
		return n
	}
	if w.unsupported(y, n.Pos) {
		n.Kind = jsonx.Refused
		return n
	}
	switch y.Kind {
	case yaml.ScalarNode:
		w.scalar(y, n)
	case yaml.SequenceNode:
		n.Kind = jsonx.Array
		if w.open(depth, n.Pos) {
			w.items(y, n, depth)
		}
	case yaml.MappingNode:
		n.Kind = jsonx.Object
		if w.open(depth, n.Pos) {
			w.members(y, n, depth)
		}
	}
	return n
}

func (w *walker) open(depth int, pos jsonx.Pos) bool {
	if depth >= w.lim.Depth && w.fatal == nil {
		w.fatal = &jsonx.Error{
			Rule: jsonx.RuleLimit, Pos: pos, Pointer: w.path.Pointer(),
			Msg: fmt.Sprintf("lists and mappings are nested more than %d deep", w.lim.Depth),
		}
	}
	return w.fatal == nil
}

// unsupported refuses what JSON cannot express: aliases, anchors, tags.
func (w *walker) unsupported(y *yaml.Node, pos jsonx.Pos) bool {
	switch rest := w.from(y.Line, y.Column); {
	case y.Kind == yaml.AliasNode:
		pos.Len = length(len(y.Value) + 1)
		w.problem(ruleAlias, pos, fmt.Sprintf("aliases such as *%s are not supported", y.Value), "write the value out")
	case y.Anchor != "":
		pos.Len = length(len(y.Anchor) + 1)
		w.problem(ruleAnchor, pos, fmt.Sprintf("anchors such as &%s are not supported", y.Anchor), "remove it, and write the value out where it is used")
	case y.Style&yaml.TaggedStyle != 0 || strings.HasPrefix(rest, "!"):
		tag, _, _ := strings.Cut(rest, " ")
		pos.Len = length(utf8.RuneCountInString(tag))
		w.problem(ruleTag, pos, fmt.Sprintf("tags such as %q are not supported", tag), "remove it; quotes make a string")
	default:
		return false
	}
	return true
}

func length(n int) int32 { return int32(max(1, n)) }

func (w *walker) items(y *yaml.Node, n *jsonx.Node, depth int) {
	for i, item := range y.Content {
		w.path.PushIndex(i)
		n.Children = append(n.Children, w.node(item, depth+1))
		w.path.Pop()
		if w.fatal != nil {
			return
		}
	}
}

func (w *walker) members(y *yaml.Node, n *jsonx.Node, depth int) {
	var names jsonx.NameSet
	for i := 0; i+1 < len(y.Content); i += 2 {
		k := y.Content[i]
		if !w.count() {
			return
		}
		name, pos, ok := w.key(k)
		w.path.Push(name)
		if ok {
			if first, again := names.Add(name, pos); again && len(w.problems) < jsonx.MaxProblems {
				e := jsonx.Duplicate(name, pos, first)
				e.Pointer = w.path.Pointer()
				w.problems = append(w.problems, e)
			}
		}
		c := w.node(y.Content[i+1], depth+1)
		w.path.Pop()
		if w.fatal != nil {
			return
		}
		if ok {
			c.Key, c.KeyPos = name, pos
			n.Children = append(n.Children, c)
		}
	}
	if len(n.Children) == 0 && len(y.Content) > 0 {
		n.Kind = jsonx.Refused // such as a template without quotes: {{ x }}
	}
}

// key returns a name, which is the text of a scalar as written: `404:` and `on:` are the
// names "404" and "on".
func (w *walker) key(k *yaml.Node) (name string, pos jsonx.Pos, ok bool) {
	pos = jsonx.Pos{Line: int32(k.Line), Col: int32(k.Column), Len: 1}
	if w.unsupported(k, pos) {
		return "", pos, false
	}
	plain := k.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	switch {
	case k.Kind != yaml.ScalarNode:
		w.problem(ruleKey, pos, "a name must be text, not a list or mapping", "templates such as {{ x }} need quotes")
		return "", pos, false
	case plain && k.Value == "<<":
		pos.Len = 2
		w.problem(ruleMerge, pos, "merge keys (<<) are not supported", "write the fields out")
		return "", pos, false
	case plain && k.Value == "":
		w.problem(ruleKey, pos, "a name is missing here", "")
		return "", pos, false
	}
	pos.Len = w.extent(k)
	return k.Value, pos, true
}

func (w *walker) scalar(y *yaml.Node, n *jsonx.Node) {
	n.Pos.Len = w.extent(y)
	n.Text = y.Value
	switch {
	case y.Style&yaml.DoubleQuotedStyle != 0:
		n.Kind, n.Style = jsonx.String, jsonx.Quoted
	case y.Style&yaml.SingleQuotedStyle != 0:
		n.Kind, n.Style = jsonx.String, jsonx.Single
	case y.Style&yaml.LiteralStyle != 0:
		n.Kind, n.Style = jsonx.String, jsonx.Literal
	case y.Style&yaml.FoldedStyle != 0:
		n.Kind, n.Style = jsonx.String, jsonx.Folded
	default:
		if msg, hint := resolve(y.Value, n); msg != "" {
			n.Kind = jsonx.Refused
			w.problem(jsonx.RuleNumber, n.Pos, msg, hint)
		}
	}
}

// extent returns how many characters of its first line a scalar covers.
func (w *walker) extent(y *yaml.Node) int32 {
	rest := w.from(y.Line, y.Column)
	switch {
	case y.Style&yaml.DoubleQuotedStyle != 0:
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return length(utf8.RuneCountInString(rest[:i+1]))
			}
		}
	case y.Style&yaml.SingleQuotedStyle != 0:
		for i := 1; i < len(rest); i++ {
			if rest[i] == '\'' {
				if i+1 < len(rest) && rest[i+1] == '\'' {
					i++
					continue
				}
				return length(utf8.RuneCountInString(rest[:i+1]))
			}
		}
	case y.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return 1
	case strings.HasPrefix(rest, y.Value):
		return length(utf8.RuneCountInString(y.Value))
	}
	return length(utf8.RuneCountInString(strings.TrimRight(rest, " \t")))
}
