// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"encoding/json"

	"github.com/roux-engine/roux/internal/jsonx"
)

// maxComplete bounds how deep an output is completed.
const maxComplete = 20

// complete adds to an output the fields that a schema requires and that it lacks: their default,
// or the empty value of their type. A mock then states what its test is about, and no more. What
// does not fit the schema for another reason stays as it is, and fails its step.
func complete(schema json.RawMessage, v any) any {
	if len(schema) == 0 {
		return v
	}
	s, err := jsonx.Decode(schema, jsonx.Limits{})
	if err != nil {
		return v // the action could not have been declared
	}
	if v == nil {
		v = map[string]any{}
	}
	return completed(s, v, 0)
}

func completed(schema, v any, depth int) any {
	s, _ := schema.(map[string]any)
	object, ok := v.(map[string]any)
	if !ok || s == nil || depth > maxComplete {
		return v
	}
	props, _ := s["properties"].(map[string]any)
	for name, prop := range props {
		if given, has := object[name]; has {
			object[name] = completed(prop, given, depth+1)
		}
	}
	required, _ := s["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		prop, known := props[name].(map[string]any)
		if _, has := object[name]; !has && known {
			object[name] = completed(prop, emptyOf(prop), depth+1)
		}
	}
	return object
}

// emptyOf is a value of a schema that says as little as possible.
func emptyOf(s map[string]any) any {
	if v, ok := s["default"]; ok {
		return v
	}
	if v, ok := s["const"]; ok {
		return v
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[0]
	}
	kind, _ := s["type"].(string)
	if list, ok := s["type"].([]any); ok && len(list) > 0 {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "string":
		return ""
	case "integer", "number":
		if low, ok := s["minimum"]; ok {
			return low
		}
		return int64(0)
	case "boolean":
		return false
	case "array":
		return []any{}
	case "object":
		return map[string]any{}
	}
	return nil
}
