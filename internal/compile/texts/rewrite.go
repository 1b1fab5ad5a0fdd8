// SPDX-License-Identifier: Apache-2.0

package texts

import (
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
)

// A Rewriter replaces parts of the code in the texts of a recipe: in the placeholders and blocks of its
// templates, and in its expressions.
type Rewriter struct {
	// Code returns what is replaced in an expression or between a pair of braces, in order.
	Code func(at Place, code string) []Replacement
	// Templates is set if expressions stay as they are.
	Templates bool
	// Source learns where the texts differ; nil = nobody has to know.
	Source *form.Source
}

// A Replacement replaces the bytes of a text from From to To.
type Replacement struct {
	From, To int
	With     string
}

// A Place is where code is: in the text at a pointer, after so many characters.
type Place struct {
	Pointer string
	Offset  int
}

// Recipe rewrites the texts of a recipe, but not those of recipes within it.
func (w *Rewriter) Recipe(r *recipe.Recipe) {
	Code(r, func(t *Text) {
		switch {
		case t.Kind == Template:
			t.Source = w.text(t.Source, t.Pointer, expr.Code(t.Source))
		case !w.Templates:
			t.Source = w.text(t.Source, t.Pointer, []expr.Span{{From: 0, To: len(t.Source)}})
		}
	})
}

// text replaces in the parts of a text that are code.
func (w *Rewriter) text(text, at string, code []expr.Span) string {
	var b strings.Builder
	var edits []form.Edit
	done, length := 0, 0 // of text in bytes, and of the new one in characters
	keep := func(until int) {
		b.WriteString(text[done:until])
		length += utf8.RuneCountInString(text[done:until])
		done = until
	}
	place, until := Place{Pointer: at}, 0
	for _, part := range code {
		place.Offset, until = place.Offset+utf8.RuneCountInString(text[until:part.From]), part.From
		for _, r := range w.Code(place, text[part.From:part.To]) {
			keep(part.From + r.From)
			is := utf8.RuneCountInString(r.With)
			edits = append(edits, form.Edit{At: length, Is: is, Was: utf8.RuneCountInString(text[part.From+r.From : part.From+r.To])})
			b.WriteString(r.With)
			length, done = length+is, part.From+r.To
		}
	}
	if edits == nil {
		return text
	}
	keep(len(text))
	if w.Source != nil {
		w.Source.Edit(at, edits)
	}
	return b.String()
}
