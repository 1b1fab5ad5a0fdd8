// SPDX-License-Identifier: Apache-2.0

// Package answer makes values that fit JSON Schemas, for actions that are not carried out.
//
// It decides what a value looks like, and knows nothing of what it means or where it goes.
package answer

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Answers makes outputs for actions that are not executed: values that fit their
// output schemas and the contracts of the steps. It knows the form of an output, not
// its meaning.
type Answers struct {
	actions Actions
	files   []string // hashes, the values of fields of format "file"
	known   map[string]*form
	fixed   map[string][]byte // by step
}

// Actions finds actions; nil = there is none.
type Actions interface {
	Find(name, version string) *action.Action
}

// New returns answers for the actions of a catalogue. files are the hashes of files that there are.
// fixed are the outputs, canonical JSON, of some steps; it may be nil.
func New(actions Actions, files []string, fixed map[string][]byte) *Answers {
	return &Answers{actions: actions, files: files, known: map[string]*form{}, fixed: fixed}
}

// A Call is an attempt that wants an output.
type Call struct {
	Step            string // path of the step instance
	Action, Version string
	Contract        []byte // the step's contract of the output, a JSON Schema; nil = none
}

// Complete adds random values for the fields that an input schema requires and given
// lacks. It returns their names.
func (a *Answers) Complete(dice *rand.Rand, schema []byte, given map[string]any) (made []string) {
	f := newForm(schema)
	props, _ := f.root["properties"].(map[string]any)
	required, _ := f.root["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		prop, _ := props[name].(map[string]any)
		if _, has := given[name]; has || name == "" {
			continue
		}
		if v, ok := prop["default"]; ok {
			given[name] = v
		} else if given[name] = "something"; prop != nil {
			given[name] = a.value(dice, f, prop, 1)
		}
		made = append(made, name)
	}
	return made
}

// A form is a JSON Schema that values are drawn for.
type form struct {
	root  map[string]any
	check *jsonschema.Schema
}

func newForm(schema []byte) *form {
	f := &form{}
	if len(schema) == 0 {
		return f
	}
	if v, err := jsonx.Decode(schema, jsonx.Limits{}); err == nil {
		f.root, _ = v.(map[string]any)
	}
	if c, err := jsonschema.Compile(schema); err == nil {
		f.check = c
	}
	return f
}

// Answer makes the output of an attempt, canonical JSON.
func (a *Answers) Answer(dice *rand.Rand, c Call) []byte {
	if out, ok := a.fixed[c.Step[strings.LastIndexByte(c.Step, '.')+1:]]; ok {
		return out
	}
	f := a.form(&c)
	out := []byte(`{}`)
	for range 8 { // draw again when the schema forbids the value in a way that drawing ignores
		v := a.value(dice, f, f.root, 0)
		if _, object := v.(map[string]any); !object {
			v = map[string]any{}
		}
		if raw, err := jsonx.Canonical(v); err == nil {
			out = raw
		}
		if f.check == nil || len(f.check.Validate(v)) == 0 {
			break
		}
	}
	return out
}

// form is the schema of an attempt's output: the action's schema and the step's
// contract. The contract takes precedence for a property that both define.
func (a *Answers) form(c *Call) *form {
	key := c.Action + "@" + c.Version + string(c.Contract)
	f := a.known[key]
	if f == nil {
		var schema []byte
		if act := a.actions.Find(c.Action, c.Version); act != nil {
			schema = act.Output
		}
		f = newForm(schema)
		if len(c.Contract) > 0 {
			f = merged(f, newForm(c.Contract))
		}
		a.known[key] = f
	}
	return f
}

func merged(f, c *form) *form {
	if f.root == nil {
		return c
	}
	out := map[string]any{}
	for k, v := range f.root {
		out[k] = v
	}
	props, required := map[string]any{}, []any{}
	for _, from := range []map[string]any{f.root, c.root} {
		if p, ok := from["properties"].(map[string]any); ok {
			for k, v := range p {
				props[k] = v
			}
		}
		if r, ok := from["required"].([]any); ok {
			required = append(required, r...)
		}
	}
	out["properties"], out["required"] = props, required
	return &form{root: out, check: c.check}
}

const maxNesting = 8

// value draws a value that fits a schema; any value fits where the schema has no
// constraint.
func (a *Answers) value(dice *rand.Rand, f *form, s map[string]any, depth int) any {
	if ref, ok := s["$ref"].(string); ok && depth < maxNesting {
		if def := f.definition(ref); def != nil {
			return a.value(dice, f, def, depth+1)
		}
	}
	if v, ok := s["const"]; ok {
		return v
	}
	if list, ok := s["enum"].([]any); ok && len(list) > 0 {
		return list[dice.IntN(len(list))]
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf"} {
		if list, ok := s[word].([]any); ok && len(list) > 0 {
			if sub, ok := list[dice.IntN(len(list))].(map[string]any); ok && s["type"] == nil {
				return a.value(dice, f, sub, depth+1)
			}
		}
	}
	switch kindOf(dice, s) {
	case "object":
		return a.object(dice, f, s, depth)
	case "array":
		return a.array(dice, f, s, depth)
	case "string":
		return a.text(dice, s)
	case "integer":
		return int64(number(dice, s))
	case "number":
		return number(dice, s)
	case "boolean":
		return dice.IntN(2) == 0
	case "null":
		return nil
	}
	return map[string]any{}
}

// kindOf draws one of the types that a schema allows.
func kindOf(dice *rand.Rand, s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		if name, ok := t[dice.IntN(max(len(t), 1))].(string); ok {
			return name
		}
	}
	switch {
	case s["properties"] != nil:
		return "object"
	case s["items"] != nil:
		return "array"
	}
	return ""
}

func (f *form) definition(ref string) map[string]any {
	path, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	at := f.root
	for name := range strings.SplitSeq(path, "/") {
		at, _ = at[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)].(map[string]any)
	}
	return at
}

func (a *Answers) object(dice *rand.Rand, f *form, s map[string]any, depth int) any {
	out := map[string]any{}
	props, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range sortedKeys(props) {
		wanted := slices.Contains(required, any(name))
		if sub, ok := props[name].(map[string]any); ok && (wanted || depth < maxNesting && dice.IntN(3) > 0) {
			out[name] = a.value(dice, f, sub, depth+1)
		}
	}
	for _, r := range required {
		if name, ok := r.(string); ok && out[name] == nil && props[name] == nil {
			out[name] = "something"
		}
	}
	return out
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (a *Answers) array(dice *rand.Rand, f *form, s map[string]any, depth int) any {
	least := int(bound(s, "minItems", 0))
	n := least
	if depth < maxNesting {
		n += dice.IntN(max(1, min(4, int(bound(s, "maxItems", 1e6))-least+1)))
	}
	items, _ := s["items"].(map[string]any)
	out := make([]any, n)
	for i := range out {
		out[i] = a.value(dice, f, items, depth+1)
	}
	return out
}

var someTexts = []string{"text", "a longer text of some words", "42", "https://example.org/page", "no"}

func (a *Answers) text(dice *rand.Rand, s map[string]any) any {
	switch s["format"] {
	case "file":
		if len(a.files) > 0 {
			return a.files[dice.IntN(len(a.files))]
		}
		return "sha256_" + strings.Repeat("0", 64)
	case "date-time":
		return "2026-01-01T00:00:00Z"
	case "date":
		return "2026-01-01"
	case "uri":
		return "https://example.org/"
	}
	text := someTexts[dice.IntN(len(someTexts))]
	for least := int(bound(s, "minLength", 0)); len(text) < min(least, 4096); {
		text += " " + text
	}
	return text[:min(len(text), int(bound(s, "maxLength", 1e6)))]
}

// number draws a small number within a schema's bounds.
func number(dice *rand.Rand, s map[string]any) float64 {
	least := bound(s, "minimum", bound(s, "exclusiveMinimum", -1)+1)
	most := max(least, bound(s, "maximum", bound(s, "exclusiveMaximum", least+101)-1))
	return least + float64(dice.Int64N(int64(min(most-least, 1e9))+1))
}

// bound reads a number of a schema.
func bound(s map[string]any, name string, otherwise float64) float64 {
	switch n := s[name].(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	case json.Number:
		if v, err := n.Float64(); err == nil {
			return v
		}
	}
	return otherwise
}
