// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
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

// ResultSchema returns a schema of the output of a step that runs a recipe and takes these
// parts of its result, or nil when it may be anything.
func (r *Recipe) ResultSchema(outputs []plan.ChildOutput) json.RawMessage {
	var whole map[string]any
	if !bytes.Contains(r.OutputSchema, []byte(`"$ref"`)) { // a reference is relative to the whole schema
		v, _ := jsonx.Decode(r.OutputSchema, jsonx.Limits{Bytes: len(r.OutputSchema) + 1})
		whole, _ = v.(map[string]any)
	}
	props := map[string]any{}
	names, closed := r.ResultFields()
	switch {
	case len(outputs) > 0:
		for _, o := range outputs {
			props[o.Name] = schemaAt(whole, o.Path)
		}
	case !closed:
		return nil
	default:
		for _, name := range names {
			props[name] = schemaAt(whole, []string{name})
		}
	}
	raw, err := jsonx.Canonical(map[string]any{"type": "object", "additionalProperties": false, "properties": props})
	if err != nil {
		return nil // the outputSchema is reported where it is compiled
	}
	return raw
}

// schemaAt returns the schema of the value at a path, or one that accepts everything.
func schemaAt(schema map[string]any, path []string) any {
	for _, name := range path {
		props, _ := schema["properties"].(map[string]any)
		schema, _ = props[name].(map[string]any)
	}
	if schema == nil {
		return map[string]any{}
	}
	return schema
}
