// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"slices"

	"github.com/roux-engine/roux/internal/yamlx"
)

// KeyOrder returns the order in which `roux fmt` writes the fields of a recipe: that of
// the model, except that what a reader needs first comes first: inputs before the steps
// that use them, the condition of a step before what the step does.
func KeyOrder() *yamlx.Order {
	o := orderOf(root, map[*object]*yamlx.Order{})
	top := *o
	top.Names = append([]string{"plan_definition"}, o.Names...)
	top.Fields = map[string]*yamlx.Order{"plan_definition": o}
	for name, below := range o.Fields {
		top.Fields[name] = below
	}
	return &top
}

// movedUp lists, by type, fields that are written before another field.
var movedUp = map[string][][2]string{
	"Recipe": {{"dialect", "name"}, {"inputSchema", "steps"}},
	"Step":   {{"when", "action"}, {"dependsOn", "action"}},
	"Loop":   {{"maxConcurrency", "steps"}, {"failureStrategy", "steps"}},
}

func orderOf(s *shape, seen map[*object]*yamlx.Order) *yamlx.Order {
	switch s.form {
	case formList:
		return &yamlx.Order{Items: orderOf(s.elem, seen)}
	case formObject:
	default:
		return nil // names that the author chose keep their order
	}
	if o := seen[s.object]; o != nil {
		return o
	}
	o := &yamlx.Order{Fields: map[string]*yamlx.Order{}}
	seen[s.object] = o
	for _, f := range s.object.fields {
		o.Names = append(o.Names, f.name)
		o.Fields[f.name] = orderOf(f.shape, seen)
	}
	for _, pair := range movedUp[s.object.name] {
		from := slices.Index(o.Names, pair[0])
		o.Names = slices.Delete(o.Names, from, from+1)
		o.Names = slices.Insert(o.Names, slices.Index(o.Names, pair[1]), pair[0])
	}
	return o
}
