// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/lease"
)

// Schema returns the JSON Schema of roux.yaml and of the user's config.yaml.
func Schema() []byte {
	type object = map[string]any
	closed := func(props object) object {
		return object{"type": "object", "properties": props, "additionalProperties": false}
	}
	all, groups := object{}, map[string]object{}
	for i := range table {
		s := &table[i]
		if s.Secret {
			continue // no file has it
		}
		row := object{"description": s.What + ". Wants " + s.Want + ".", "type": []string{"string", "integer", "boolean"}}
		switch {
		case slices.Equal(s.Enum, trueOrFalse):
			row["enum"] = []any{true, false, "true", "false"}
		case s.Enum != nil:
			row["enum"], row["type"] = s.Enum, "string"
		case s.Table:
			if row["type"] = "object"; s.Key == "workers" { // not in the table of settings: a small binary has no schema
				row["additionalProperties"] = lease.Schema()
			}
		case s.List:
			delete(row, "type")
			row["oneOf"] = []object{{"type": "string"}, {"type": "array", "items": object{"type": "string"}}}
		}
		group, name, inner := strings.Cut(s.Key, ".")
		if !inner {
			all[s.Key] = row
			continue
		}
		if groups[group] == nil {
			groups[group] = object{}
			all[group] = closed(groups[group])
		}
		groups[group][name] = row
	}
	root := closed(all)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Settings of Roux"
	root["description"] = "roux.yaml of a project, config.yaml of a user. `roux config explain KEY` says which value counts."
	root["type"] = []string{"object", "null"}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil // nothing here fails to encode
	}
	return append(text, '\n')
}
