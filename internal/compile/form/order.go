// SPDX-License-Identifier: Apache-2.0

package form

import (
	"slices"

	"github.com/roux-engine/roux/internal/yamlx"
)

// KeyOrder returns the order in which `roux fmt` writes the fields of a text: that of their
// objects.
func (f *Form) KeyOrder() *yamlx.Order {
	o := orderOf(f.root, map[*object]*yamlx.Order{})
	w := f.table.Wrapper
	if w == "" {
		return o
	}
	top := *o
	top.Names = append([]string{w}, o.Names...)
	top.Fields = map[string]*yamlx.Order{w: o}
	for name, below := range o.Fields {
		top.Fields[name] = below
	}
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
		for _, f := range object.fields {
			if slices.Contains(o.Names, f.name) {
				continue
			}
			o.Names = append(o.Names, f.name)
			o.Fields[f.name] = orderOf(f.shape, seen)
		}
	}
	return o
}
