// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/jsonx"
)

// ResultFields returns the fields of the result of the recipe (R41), sorted; closed is
// false when it may have others.
func (r *Recipe) ResultFields() (names []string, closed bool) {
	if len(r.Outputs) > 0 {
		return slices.Sorted(maps.Keys(r.Outputs)), true
	}
	if len(r.OutputSchema) > 0 {
		v, _ := jsonx.Decode(r.OutputSchema, jsonx.Limits{Bytes: len(r.OutputSchema) + 1})
		schema, _ := v.(map[string]any)
		props, _ := schema["properties"].(map[string]any)
		_, patterns := schema["patternProperties"]
		return slices.Sorted(maps.Keys(props)), schema["additionalProperties"] == false && !patterns
	}
	bound := map[string]bool{}
	if r.Result == "steps" {
		closed = true
		for _, s := range r.Steps {
			if closed = closed && s.ID != ""; s.ID != "" { // another one has an id that is generated
				bound[s.ID] = true
			}
		}
		return slices.Sorted(maps.Keys(bound)), closed
	}
	eachBinding(r.Steps, func(name string) { bound[name] = true })
	return slices.Sorted(maps.Keys(bound)), true
}

// eachBinding calls fn for each name that steps bind in the frame of the root: all but
// those in a loop body.
func eachBinding(steps []*Step, fn func(name string)) {
	for _, s := range steps {
		if s.OutputBinding != "" {
			fn(s.OutputBinding)
		}
		if t := s.Transform; t != nil && t.OutputBinding != "" {
			fn(t.OutputBinding)
		}
		for _, inner := range s.Scopes() {
			eachBinding(inner, fn)
		}
	}
}
