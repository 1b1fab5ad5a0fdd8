// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/roux-engine/roux/internal/spell"
)

// nameKnown adds to errors about fields that a body must not have what the object has
// instead: the name that was probably meant, or all names. What the client sent is not
// repeated; the location says where it is.
func nameKnown(registry huma.Registry, body *huma.Schema, errs []error) {
	for _, err := range errs {
		d, ok := err.(*huma.ErrorDetail) //nolint:errorlint // it is what Validate makes, never wrapped
		if !ok || d.Message != validation.MsgUnexpectedProperty {
			continue
		}
		names, got := fieldsAt(registry, body, strings.TrimPrefix(d.Location, "body."))
		if near := spell.Nearest(got, names); near != "" {
			d.Message += fmt.Sprintf("; did you mean %q?", near)
		} else if len(names) > 0 {
			d.Message += "; the fields are " + strings.Join(names, ", ")
		}
	}
}

// fieldsAt returns the fields of the object at a location, and the rest of the location,
// which is the name that it does not have.
func fieldsAt(registry huma.Registry, s *huma.Schema, location string) (names []string, rest string) {
	for {
		for s.Ref != "" {
			s = registry.SchemaFromRef(s.Ref)
		}
		name, below, found := strings.Cut(location, ".")
		name, _, isItem := strings.Cut(name, "[")
		next := s.Properties[name]
		if next == nil {
			next, _ = s.AdditionalProperties.(*huma.Schema)
		}
		if !found || next == nil {
			return slices.Sorted(maps.Keys(s.Properties)), location
		}
		if isItem && next.Items != nil {
			next = next.Items
		}
		s, location = next, below
	}
}
