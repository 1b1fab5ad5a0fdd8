// SPDX-License-Identifier: Apache-2.0

package dialect

import "github.com/roux-engine/roux/internal/compile/form"

type m = map[string]any

// Schema returns the JSON Schema of the dialect, for editors. Recipes within a text may have any
// dialect that this program reads.
func (l *Dialect) Schema() []byte {
	var choices []form.Choice
	for _, c := range all {
		choices = append(choices, form.Choice{Name: c.Name, Form: c.Form, When: c.when()})
	}
	return l.Form.Schema("Roux "+l.Name, "A text of Roux: "+l.What+".", choices)
}

// when is the schema of documents that are in this dialect, as [tell] finds out; nil = all others are.
func (l *Dialect) when() m {
	if l == recipes {
		return nil
	}
	not := []any{m{"required": []string{"dialect"}, "properties": m{"dialect": m{"type": "string"}}}}
	for _, mark := range marks {
		has := m{"required": []string{mark.key}}
		if mark.dialect != l.Name {
			not = append(not, has)
			continue
		}
		has["not"] = m{"anyOf": not}
		return m{"anyOf": []any{m{"required": []string{"dialect"}, "properties": m{"dialect": m{"const": l.Name}}}, has}}
	}
	panic("dialect: no field tells " + l.Name)
}
