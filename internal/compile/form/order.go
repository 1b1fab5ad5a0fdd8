// SPDX-License-Identifier: Apache-2.0

package form

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/yamlx"
)

// KeyOrder returns the order in which `roux fmt` writes the fields of a text: that of their
// objects.
func (f *Form) KeyOrder() *yamlx.Order {
	o := orderOf(&shape{form: formObject, object: f.shapes().root}, map[*object]*yamlx.Order{})
	top := *o
	top.Names = append([]string{wrapper}, o.Names...)
	top.Fields = maps.Clone(o.Fields)
	top.Fields[wrapper] = o
	return &top
}

func orderOf(s *shape, seen map[*object]*yamlx.Order) *yamlx.Order {
	switch s.form {
	case formList:
		return &yamlx.Order{Items: orderOf(s.elem, seen)}
	case formVariant: // the fields of all cases, which come in the order of the first that has them
		o := &yamlx.Order{Fields: map[string]*yamlx.Order{}}
		for _, c := range s.rule.Cases {
			below := orderOf(s.cases[c.Value], seen)
			for _, name := range below.Names {
				if o.Fields[name] == nil {
					o.Names = append(o.Names, name)
					o.Fields[name] = below.Fields[name]
				}
			}
		}
		return o
	case formObject:
	default:
		return nil // names that the author chose keep their order
	}
	if o := seen[s.object]; o != nil {
		return o
	}
	o := &yamlx.Order{Fields: map[string]*yamlx.Order{}}
	seen[s.object] = o
	for object := s.object; object != nil; object = object.also {
		for i, f := range object.fields {
			if object.rest != nil && i == object.restAt {
				o.Names = append(o.Names, "")
			}
			if slices.Contains(o.Names, f.name) {
				continue
			}
			o.Names = append(o.Names, f.name)
			o.Fields[f.name] = orderOf(f.shape, seen)
		}
	}
	return o
}
