// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"bytes"
	"cmp"
	"strings"
	"sync"

	"github.com/roux-engine/roux/internal/jsonx"
)

const (
	// minRun is how many bytes the items of a list have at least that are parsed each on its own. In a part of
	// nested times as many, such lists are looked for, too, at most maxNested levels down.
	minRun, nested, maxNested = 512, 8, 8
	// maxTries is how often a text is parsed without lists: some may be no lists.
	maxTries = 3
)

// Parts parses versions of one text. It keeps the trees of the items of lists in the newest version, so that the next
// one costs what has changed. What it returns is always what [Parse] would return, and belongs to the caller. The zero
// value is ready to use, also by several goroutines.
type Parts struct {
	mu    sync.Mutex
	known map[string]*part // by their text; never changed

	minRun int // in place of the constant, for tests
}

// A part is an item of a list. The first line of its text is line 1.
type part struct {
	text  string
	item  *jsonx.Node
	nodes int // in the item
}

// A usage is what of the limits a tree uses.
type usage struct{ tokens, depth int }

// Parse is the function [Parse] for the next version.
func (p *Parts) Parse(data []byte, lim jsonx.Limits) (*jsonx.Node, []*jsonx.Error) {
	if root := p.parse(bytes.TrimPrefix(data, []byte("\ufeff")), defaults(lim)); root != nil {
		return root, nil
	}
	return Parse(data, lim)
}

// parse returns the tree of a text that has no problems; nil = it may have some, or has no long lists.
func (p *Parts) parse(data []byte, lim jsonx.Limits) *jsonx.Node {
	if check(data, lim) != nil || oddBreaks(data) {
		return nil
	}
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	a := &assembly{known: known, used: map[string]*part{}, lim: lim, minRun: cmp.Or(p.minRun, minRun)}
	text := string(data)
	runs := a.runs(text, 0)
	if len(runs) == 0 {
		return nil
	}
	root := a.tree(text, runs)
	if root == nil {
		return nil
	}
	// The library counts levels, too, and in its own way.
	if used, _ := measure(root); used.tokens > lim.Tokens || used.depth > lim.Depth-2 {
		return nil
	}
	p.mu.Lock()
	p.known = a.used
	p.mu.Unlock()
	return root
}

// oddBreaks reports whether a text has line breaks other than those of Unix and Windows.
func oddBreaks(data []byte) bool {
	for _, b := range [...]string{"\u0085", "\u2028", "\u2029"} {
		if bytes.Contains(data, []byte(b)) {
			return true
		}
	}
	return bytes.Count(data, []byte("\r")) != bytes.Count(data, []byte("\r\n"))
}

// measure returns what of the limits a tree uses, and how many nodes it has.
func measure(n *jsonx.Node) (used usage, nodes int) {
	used.tokens, nodes = 1, 1
	for _, c := range n.Children {
		u, k := measure(c)
		used.tokens, used.depth, nodes = used.tokens+u.tokens, max(used.depth, u.depth), nodes+k
		if n.Kind == jsonx.Object {
			used.tokens++ // its name
		}
	}
	if n.Kind == jsonx.Object || n.Kind == jsonx.Array {
		used.depth++
	}
	return used, nodes
}

// An assembly is one version that is put together.
type assembly struct {
	known, used map[string]*part
	lim         jsonx.Limits
	minRun      int
	level       int // how many parts the text is in
}

// tree returns the tree of a text that has those lists; nil = it may have problems.
//
// Items of long lists are parsed each on its own, and the rest with one item, null, in place of all items of a list but
// the last. This gives the tree of the whole text because the parser reads from left to right, and what it knows where
// an item begins depends only on the column: each part is one item when the line behind it begins another one, and in
// the rest there is a list whose first item begins where the null does.
func (a *assembly) tree(text string, runs []run) *jsonx.Node {
	for range maxTries {
		root, problems := parsed([]byte(without(text, runs)), a.lim)
		if root == nil || len(problems) > 0 {
			return nil
		}
		lists := map[jsonx.Pos]*jsonx.Node{}
		find(root, lists)
		kept := runs[:0:0]
		for _, r := range runs {
			if lists[r.first()] != nil {
				kept = append(kept, r)
			}
		}
		if len(kept) < len(runs) { // what looks like a list is within a text
			runs = kept
			continue
		}
		for _, r := range runs {
			if !a.fill(lists[r.first()], text, r) {
				return nil
			}
		}
		return root
	}
	return nil
}

// fill puts the items of a run in the place of the null.
func (a *assembly) fill(list *jsonx.Node, text string, r run) bool {
	last := list.Children[1:]
	list.Children = make([]*jsonx.Node, 0, len(r.items)+len(last))
	line := r.line
	for i, from := range r.items {
		to := r.end
		if i+1 < len(r.items) {
			to = r.items[i+1]
		}
		p := a.part(text[from:to], r.indent)
		if p == nil {
			return false
		}
		list.Children = append(list.Children, p.at(line))
		line += int32(strings.Count(p.text, "\n"))
	}
	list.Children = append(list.Children, last...)
	return true
}

// part returns the part with a text; nil = it may have problems.
func (a *assembly) part(text string, indent int) *part {
	p := a.used[text]
	if p == nil {
		p = a.known[text]
	}
	if p == nil {
		whole := text + strings.Repeat(" ", indent) + "- ~\n"
		var root *jsonx.Node
		if len(text) >= nested*a.minRun && a.level < maxNested {
			a.level++
			root = a.tree(whole, a.runs(whole, 1))
			a.level--
		} else if tree, problems := parsed([]byte(whole), a.lim); len(problems) == 0 {
			root = tree
		}
		if root == nil || root.Kind != jsonx.Array || len(root.Children) != 2 {
			return nil
		}
		p = &part{text: strings.Clone(text), item: root.Children[0]} // else it would keep the whole text
		_, p.nodes = measure(p.item)
	}
	a.used[p.text] = p
	return p
}

// at returns a copy of the item that begins in a line.
func (p *part) at(line int32) *jsonx.Node {
	nodes, children := make([]jsonx.Node, p.nodes), make([]*jsonx.Node, p.nodes-1)
	var put func(n *jsonx.Node) *jsonx.Node
	put = func(n *jsonx.Node) *jsonx.Node {
		is := &nodes[0]
		nodes = nodes[1:]
		*is = *n
		is.Pos.Line += line - 1
		if is.KeyPos.Line > 0 {
			is.KeyPos.Line += line - 1
		}
		if k := len(n.Children); k > 0 {
			is.Children, children = children[:k:k], children[k:]
			for i, c := range n.Children {
				is.Children[i] = put(c)
			}
		}
		return is
	}
	return put(p.item)
}

// A run is items of a list in a text, but the last one.
type run struct {
	line   int32 // of the first item, from 1
	indent int
	items  []int // where they begin
	end    int
}

// runs returns the lists of a text behind some lines that are long, by how its lines are indented. What is within a
// longer one is none.
func (a *assembly) runs(text string, skip int) (runs []run) {
	var r run
	done := func() {
		if k := len(r.items) - 1; k > 0 && r.items[k]-r.items[0] >= a.minRun {
			r.items, r.end = r.items[:k], r.items[k]
			runs = append(runs, r)
		}
		r = run{}
	}
	line := int32(0)
	for at := 0; at < len(text); {
		begin, end := at, len(text)
		if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		at = end
		line++
		words := strings.TrimLeft(text[begin:end], " ")
		indent := end - begin - len(words)
		if int(line) <= skip || strings.TrimLeft(words, "\t\r\n") == "" || words[0] == '#' {
			continue
		}
		item := strings.HasPrefix(words, "- ") || strings.TrimRight(words, "\r\n") == "-"
		if r.items != nil && (indent < r.indent || indent == r.indent && !item) {
			done()
		}
		switch {
		case !item:
		case r.items == nil:
			r = run{line: line, indent: indent, items: []int{begin}}
		case indent == r.indent:
			r.items = append(r.items, begin)
		}
	}
	done()
	return runs
}

// first is where the null begins in what is left of a text without the run.
func (r run) first() jsonx.Pos { return jsonx.Pos{Line: r.line, Col: int32(r.indent) + 3} }

// without returns a text with a null in place of each run. Its lines have the same numbers.
func without(text string, runs []run) string {
	if len(runs) == 0 {
		return text
	}
	var b strings.Builder
	from := 0
	for _, r := range runs {
		b.WriteString(text[from:r.items[0]])
		b.WriteString(strings.Repeat(" ", r.indent) + "- ~")
		b.WriteString(strings.Repeat("\n", strings.Count(text[r.items[0]:r.end], "\n")))
		from = r.end
	}
	b.WriteString(text[from:])
	return b.String()
}

// find finds lists of several items by where the first one begins.
func find(n *jsonx.Node, lists map[jsonx.Pos]*jsonx.Node) {
	if n.Kind == jsonx.Array && len(n.Children) > 1 {
		lists[jsonx.Pos{Line: n.Children[0].Pos.Line, Col: n.Children[0].Pos.Col}] = n
	}
	for _, c := range n.Children {
		find(c, lists)
	}
}
