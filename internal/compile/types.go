// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// A schemaType is an interned schema. Its id represents it in cache keys: equal schemas
// have equal ids, and 0 is "any type".
type schemaType struct {
	raw json.RawMessage
	id  int
}

func (c *compiler) internType(raw json.RawMessage) schemaType {
	if len(raw) == 0 {
		return schemaType{}
	}
	key := string(raw)
	id, ok := c.typeIDs[key]
	if !ok {
		id = len(c.typeIDs) + 1
		c.typeIDs[key] = id
	}
	return schemaType{raw: raw, id: id}
}

// budgetName is what the run has used and may still spend, in credits.
const (
	budgetName = "budget"
	budgetType = `{"type":"object","properties":{"used":{"type":"number"},"remaining":{"type":"number"}},"required":["used","remaining"],"additionalProperties":false}`
)

func (c *compiler) typeOf(v *plan.Var) schemaType {
	switch v.Kind {
	case plan.VarInput:
		switch v.Name {
		case "input", "inputs":
			return c.inputType()
		case "parameters":
			if c.params == nil {
				t := c.internType(c.p.InputSchema)
				c.params = &t
			}
			return *c.params
		case "fileHashes":
			return c.internType(json.RawMessage(`{"type":"array","items":{"type":"string"}}`))
		case "files":
			return c.internType(filesType)
		}
	case plan.VarIndex:
		return c.internType(json.RawMessage(`{"type":"integer"}`))
	case plan.VarBudget:
		return c.internType(json.RawMessage(budgetType))
	case plan.VarNow, plan.VarSeed:
		return c.internType(json.RawMessage(`{"type":"string"}`))
	case plan.VarItem:
		t, ok := c.items[v.Graph]
		if !ok {
			t = c.itemType(v.Graph)
			c.items[v.Graph] = t
		}
		return t
	case plan.VarStep:
		return c.stepType(v.Index)
	case plan.VarBinding:
		return c.bindingType(v.Graph, v.Index)
	}
	return schemaType{}
}

// itemType returns the type of a loop's items, if the loop is over the files or over a
// list of the input, and only `items` of the list's schema describes its elements.
func (c *compiler) itemType(body int32) schemaType {
	owner := &c.nodes[c.p.Graphs[body].Owner]
	if owner.src == nil || owner.src.Loop == nil {
		return schemaType{}
	}
	name, field, isField := strings.Cut(trimmed(owner.src.Loop.Over), ".")
	raw := json.RawMessage(nil)
	switch {
	case !isField && name == "files":
		raw = filesType
	case isField && !strings.ContainsFunc(field, notWord) && (name == "input" || name == "inputs" || name == "parameters"):
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		}
		if json.Unmarshal(c.p.InputSchema, &schema) != nil {
			return schemaType{} // reported where schemas are compiled
		}
		raw = schema.Properties[field]
	}
	var list map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil || string(list["type"]) != `"array"` {
		return schemaType{} // a text may be the hash of a file, whose items are anything
	}
	for key := range list {
		if !slices.Contains(listKeywords, key) {
			return schemaType{}
		}
	}
	if bytes.Contains(list["items"], []byte(`"$ref"`)) {
		return schemaType{} // a reference is relative to the whole schema
	}
	return c.internType(list["items"])
}

// listKeywords are the keywords beside which `items` describes every element of a list.
var listKeywords = []string{"type", "items", "minItems", "maxItems", "uniqueItems", "title", "description", "default", "examples", "$comment"}

func notWord(r rune) bool { return r > unicode.MaxASCII || !expressions.WordByte(byte(r)) }

// filesType is the type of `files`. What inspection finds depends on the kind of file
// and grows with releases, so extended is any object.
var filesType = json.RawMessage(`{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{
	"hash":{"type":"string"},"name":{"type":"string"},"mimeType":{"type":"string"},"sizeBytes":{"type":"integer"},
	"extended":{"type":"object"}}}}`)

// inputType returns the inputSchema with fileHashes, which every input has.
func (c *compiler) inputType() schemaType {
	if c.input != nil {
		return *c.input
	}
	t := schemaType{}
	v, err := jsonx.Decode(c.p.InputSchema, jsonx.Limits{Bytes: len(c.p.InputSchema) + 1})
	schema, _ := v.(map[string]any)
	if err == nil && schema != nil {
		if props, ok := schema["properties"].(map[string]any); ok {
			if _, ok := props["fileHashes"]; !ok {
				props["fileHashes"] = map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
			}
		}
		if raw, err := jsonx.Canonical(schema); err == nil {
			t = c.internType(raw)
		}
	}
	c.input = &t
	return t
}

// output returns the declaration whose output schema the step's output fits, or nil when
// the output may be anything, such as that of a fallback.
func (c *compiler) output(i int32) *declared {
	st, n := &c.p.Steps[i], &c.nodes[i]
	decl := n.decl
	if st.Kind == plan.Recipe {
		decl = n.result
	}
	if st.Kind != plan.Action && st.Kind != plan.Recipe || decl == nil || len(decl.Output) == 0 || st.OnError == plan.OnErrorFallback {
		return nil
	}
	return decl
}

// stepFields are the fields of a step's object. They are checked when names are resolved
// and not by type. So a step whose output may be anything needs no type; types are the
// expensive part of a compilation.
var stepFields = []string{"error", "output", "result", "status"}

// stepType returns the type of `steps.<id>`.
func (c *compiler) stepType(i int32) schemaType {
	decl := c.output(i)
	if decl == nil {
		return schemaType{}
	}
	if t, ok := c.wrapped[decl]; ok {
		return t
	}
	out := string(decl.Output)
	t := c.internType(json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"output":` + out +
		`,"result":` + out + `,"status":{"type":"string"},"error":{}}}`))
	c.wrapped[decl] = t
	return t
}

// bindingType returns the schema that all steps that bind a slot have in common, else
// any type.
func (c *compiler) bindingType(g, slot int32) schemaType {
	at := graphSlot{g, slot}
	if t, ok := c.slotTypes[at]; ok {
		return t
	}
	by := c.frames[g].by[slot]
	decl, t := c.output(by[0]), schemaType{}
	if decl != nil && !slices.ContainsFunc(by, func(i int32) bool { return c.output(i) != decl }) {
		t = c.internType(decl.Output)
	}
	c.slotTypes[at] = t
	return t
}
