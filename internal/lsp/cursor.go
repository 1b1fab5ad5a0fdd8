// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"path/filepath"
	"strings"

	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
)

// stand is what the text is read with at the place of the cursor. What holds it is where the cursor is, however
// the text is written there: in a block, with escapes, in braces.
const stand = "zqCursorqz"

// A cursor is a place in a document, as the forms and the model see it.
type cursor struct {
	*reading              // of the text with the stand-in
	node     *jsonx.Node  // that holds the cursor
	parent   *jsonx.Node  // nil = the node is the whole text
	pointer  string       // of the node in the text
	spot     form.Spot    // what the form says of the node
	inside   form.Spot    // what it says of the parent
	key      bool         // the cursor is in the name of the node
	text     string       // the name or the text that holds the cursor, without the stand-in
	at       int          // where the cursor is in it, in bytes
	scope    *recipeScope // nil when no recipe could be read
	step     *recipe.Step // in which the cursor is; nil = in none
	frame    *frame       // where the names of the step are looked for
	model    string       // pointer of the node in the model
}

// cursorAt reads the text with the stand-in at an offset. A word that stands alone where fields are wanted is
// read as the name of one. It returns nil when the text cannot be read that way.
func (s *server) cursorAt(d *document, offset int) *cursor {
	file := d.file
	if filepath.Ext(file) == ".json" {
		file += ".yaml" // which reads what has a comma too many, or lacks one
	}
	before, after := d.text[:offset], d.text[offset:]
	for _, with := range []string{stand, stand + ": ", stand + `": "`, stand + `"`, stand + "'"} {
		rest := after
		if with != stand { // what follows on the line belongs to the word
			end := strings.IndexAny(after, "\r\n")
			if end < 0 {
				end = len(after)
			}
			if strings.TrimSpace(strings.TrimLeft(after[:end], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"'},]")) != "" {
				continue
			}
			if with[len(stand)] == ':' {
				rest = after[end:]
			}
		}
		x := &reading{d: d.like(file, d.version, before+with+rest), cache: s.cache}
		x.names()
		if c := x.cursor(); c != nil && (c.key || with != stand || !c.wantsFields(before)) {
			return c
		}
	}
	return nil
}

// wantsFields reports whether the cursor is in a word of its own where an object is wanted.
func (c *cursor) wantsFields(before string) bool {
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return c.node.Style == jsonx.Plain && (c.spot.Object() != "" || c.spot.Map()) && !strings.ContainsAny(strings.TrimLeft(line, "- \t"), ":{")
}

// cursor finds the stand-in in a text that was read with it; nil = it is in none of its values.
func (x *reading) cursor() *cursor {
	if x.tree == nil || len(x.recipes) == 0 {
		return nil
	}
	c := &cursor{reading: x}
	inner := func(doc *jsonx.Node) *form.Form {
		l, _ := dialect.Tell(doc)
		return l.Form
	}
	doc, at := form.Unwrapped(x.tree), ""
	if doc != x.tree {
		at = x.recipes[0].pointer
	}
	f := inner(doc)
	var above []spotted // what the value is in, from the outside inward
	f.Walk(doc, at, inner, func(n *jsonx.Node, pointer string, spot form.Spot) bool {
		for len(above) > 0 && !strings.HasPrefix(pointer, above[len(above)-1].pointer+"/") {
			above = above[:len(above)-1]
		}
		above = append(above, spotted{n, spot, pointer})
		key, value := strings.Contains(n.Key, stand), n.Kind == jsonx.String && strings.Contains(n.Text, stand)
		if c.node != nil || !key && !value {
			return c.node == nil
		}
		c.node, c.pointer, c.spot, c.key = n, pointer, spot, key
		if c.text = n.Text; key {
			c.text = n.Key
		}
		c.at = strings.Index(c.text, stand)
		c.text = strings.Replace(c.text, stand, "", 1)
		if k := len(above) - 2; k >= 0 && above[k].pointer == pointer[:strings.LastIndexByte(pointer, '/')] {
			c.parent, c.inside = above[k].node, above[k].spot
		}
		return false
	})
	if c.node == nil {
		return nil
	}
	c.locate()
	return c
}

type spotted struct {
	node    *jsonx.Node
	spot    form.Spot
	pointer string
}

// locate finds the step that the cursor is in, and the names that it sees.
func (c *cursor) locate() {
	c.scope = c.scopeOf(c.pointer)
	c.model = c.src.ModelPointer(c.pointer)
	best := -1
	for at, s := range c.scope.within {
		for _, pointer := range []string{c.model, c.pointer} {
			if len(at) > best && strings.HasPrefix(pointer, at) && (len(pointer) == len(at) || pointer[len(at)] == '/') {
				best, c.step, c.frame = len(at), s, c.scope.frames[at]
				if pointer == c.pointer && c.model != c.pointer && !strings.HasPrefix(c.model, at) {
					c.model = c.pointer
				}
			}
		}
	}
	if c.step != nil {
		switch body := c.scope.frames[c.step.Ptr+"/loop/steps"]; c.field() {
		case "/loop/while", "/loop/until", "/loop/accumulate/expression": // between its iterations
			if body != nil {
				c.frame = body
			}
		}
	}
	if c.frame == nil {
		c.frame = &frame{names: map[string]*symbol{}}
		for _, s := range c.scope.r.Steps {
			if s != nil && c.scope.frames[s.Ptr] != nil {
				c.frame = c.scope.frames[s.Ptr]
				break
			}
		}
	}
}

// field returns the pointer of the node relative to its step, in words of the model.
func (c *cursor) field() string {
	if c.step == nil {
		return strings.TrimPrefix(c.model, c.scope.r.Ptr)
	}
	return strings.TrimPrefix(c.model, c.step.Ptr)
}
