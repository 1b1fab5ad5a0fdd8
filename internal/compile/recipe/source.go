// SPDX-License-Identifier: Apache-2.0

package recipe

import "github.com/roux-engine/roux/internal/compile/form"

// A Source is the text of a recipe.
type Source struct {
	*form.Source
	recovered *Recipe
}

// NewSource returns the source of a text. recovered is what could be read of it if it is malformed,
// else nil.
func NewSource(src *form.Source, recovered *Recipe) *Source {
	return &Source{Source: src, recovered: recovered}
}

// Recovered returns what could be read of a malformed text, so that further problems can be found,
// or nil. Fields with problems may be zero or hold values that are not allowed.
func (s *Source) Recovered() *Recipe { return s.recovered }

// Include adds the text of a recipe that this one includes, so that Format can show the
// lines that diagnostics in it point at.
func (s *Source) Include(other *Source) { s.Source.Include(other.Source) }
