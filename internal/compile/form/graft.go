// SPDX-License-Identifier: Apache-2.0

package form

import "strings"

// A graft is a part of the model that comes from another text.
type graft struct {
	source *Source
	at     string // its pointer in the model of that text
}

// Graft notes that what the model has at a pointer, with all below it, is what the model of another text has at a pointer,
// so that its places are those of that text.
func (s *Source) Graft(model string, from *Source, at string) {
	if s.grafts == nil {
		s.grafts = map[string]graft{}
	}
	s.grafts[model] = graft{from, at}
}

// in returns the text that has what the model has at a pointer, and its pointer in the model of that text.
func (s *Source) in(pointer string) (*Source, string) {
	for at := len(pointer); at > 0 && len(s.grafts) > 0; at = strings.LastIndexByte(pointer[:at], '/') {
		if g, ok := s.grafts[pointer[:at]]; ok {
			return g.source.in(g.at + pointer[at:])
		}
	}
	return s, pointer
}

// FileOf returns the name of the file that has what the model has at a pointer.
func (s *Source) FileOf(pointer string) string {
	from, _ := s.in(pointer)
	return from.file
}

// SameOrigin reports whether what a model has at a pointer stands at the same place of the same file as what another one
// has.
func (s *Source) SameOrigin(pointer string, other *Source, at string) bool {
	a, p := s.in(pointer)
	b, q := other.in(at)
	return a.file == b.file && a.Pointer(p) == b.Pointer(q)
}

// Given reports whether the text has a field that the model has at a pointer: a dialect may have filled it in.
func (s *Source) Given(pointer string) bool {
	from, at := s.in(pointer)
	return from.tree != nil && from.tree.Find(from.Pointer(at)) != nil
}

// AdoptSemantic adds the problems of SemanticErrors of another text.
func (s *Source) AdoptSemantic(other *Source) {
	s.semantic = append(s.semantic, other.semantic...)
	s.semantic = s.semantic[:min(len(s.semantic), MaxDiagnostics)]
}
