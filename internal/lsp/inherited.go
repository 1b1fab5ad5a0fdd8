// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/roux-engine/roux/internal/compile/extend"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// entryOfExtends matches the pointers of the names of texts that a recipe extends.
var entryOfExtends = regexp.MustCompile(`^/extends/\d+(/file|/ref)?$`)

// inheritedStep returns the places of a step that a text has from one that it extends, and whose id is at an offset.
func (s *server) inheritedStep(d *document, offset int) (list []location) {
	x := s.reading(d)
	recipes := s.cfg.Options(d.file).Recipes
	id := idAt(d.text, offset)
	if id == "" || recipes == nil || len(x.recipes) == 0 || len(x.recipes[0].r.Extends) == 0 {
		return nil
	}
	r, src, _ := extend.Parse(filepath.ToSlash(d.file), []byte(d.text), extend.Options{Form: d.reads(), Recipes: recipes})
	if r == nil {
		return nil
	}
	r.Each(func(st *recipe.Step) {
		if at := src.Pos(st.Ptr + "/id"); st.ID == id && at.File != src.File() && at.Line > 0 {
			from := position{at.Line - 1, at.Col - 1}
			list = append(list, location{uriOf(at.File, s.cfg.Dir), textRange{from, position{from.Line, from.Character + at.Len}}})
		}
	})
	return list
}

// idAt returns the id of a step that may be at an offset of a text, or "".
func idAt(text string, offset int) string {
	within := func(c byte) bool {
		return c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	}
	from, to := min(offset, len(text)), min(offset, len(text))
	for from > 0 && within(text[from-1]) {
		from--
	}
	for to < len(text) && within(text[to]) {
		to++
	}
	return strings.Trim(text[from:to], "-")
}
