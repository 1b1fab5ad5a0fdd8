// SPDX-License-Identifier: Apache-2.0

// Package extend puts recipes together with those that they extend (X242).
//
// It decides which parts of other texts are parts of a recipe, in which order, and what of it is a clash. What it makes is
// the recipe that somebody would have written in one text, so nothing after it knows that there were several; only places
// are still those of the texts that the parts come from. It never decides what a recipe means (package compile does), and
// reads no file: the caller finds texts.
package extend

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A Text is the text of a recipe. File is its name in diagnostics and identifies it:
// texts with the same File are the same.
type Text struct {
	File string
	Data []byte
	Name string // of a text that has none; "" = that of its file
	// Version is the one that the recipe is registered under, where that may differ from
	// what its text says; "" = it is that of the text.
	Version string
}

// Recipes finds texts: files relative to that of the text that names them, and registered recipes. Errors are of type
// fault.Error.
type Recipes interface {
	File(from, path string) (*Text, error)
	Find(name, version string) (*Text, error)
}

// Options are how texts are found and read. A zero field has the default that its comment names.
type Options struct {
	Form    form.Options // of the text itself; those that it extends have the same bound
	Recipes Recipes      // finds the texts that a text extends. Default: none is found.
}

// Parse is [dialect.Parse] with the parts of what the text extends. The recipe is nil when there are diagnostics, which may
// be those of other texts.
func Parse(file string, data []byte, opt Options) (*recipe.Recipe, *recipe.Source, []fault.Diagnostic) {
	r, src, diags := dialect.Read(file, data, opt.Form)
	if r == nil {
		if recovered := src.Recovered(); recovered != nil {
			if extends(recovered) { // what it lacks may be in those
				return nil, recipe.NewSource(src.Source, nil), diags
			}
			dialect.ReplaceCalls(recovered, src)
		}
		return nil, src, diags
	}
	if diags = complete(r, src, opt); len(diags) > 0 {
		return nil, src, diags
	}
	dialect.ReplaceCalls(r, src)
	return r, src, nil
}

// extends reports whether a recipe says something that this package reads.
func extends(r *recipe.Recipe) bool {
	return r.Extends != nil || len(r.Override)+len(r.TemplateParameters) > 0
}

// eachInline calls f for each recipe within a recipe, and those within those.
func eachInline(r *recipe.Recipe, f func(*recipe.Recipe)) {
	r.EachInline(func(_ *recipe.Step, in *recipe.Recipe) {
		f(in)
		eachInline(in, f)
	})
}
