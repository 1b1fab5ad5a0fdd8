// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// schemaTypes converts JSON Schemas into types for the checker. An object that declares
// properties becomes a type with these fields; everything else stays dynamic, so that the
// checker never refuses what could work at run time. It is for one check and not safe for
// concurrent use.
type schemaTypes struct {
	*registry
	objects map[string]*objectType
	// missing are the fields that the checker asked for and no type has, in order.
	missing []missingField
}

type missingField struct {
	object *objectType
	field  string
}

// An objectType is one object of a schema.
type objectType struct {
	name   string
	root   *schemaDoc
	fields map[string]json.RawMessage
	// rest is the type of other fields; nil = other fields are not allowed.
	rest *types.Type
}

func (o *objectType) names() []string { return slices.Sorted(maps.Keys(o.fields)) }

// A schemaDoc resolves references within one schema.
type schemaDoc struct {
	raw json.RawMessage
}

func newSchemaTypes() *schemaTypes {
	return &schemaTypes{registry: base().CELTypeAdapter().(*registry), objects: map[string]*objectType{}}
}

// A schemaNode holds the keywords that are relevant for types.
type schemaNode struct {
	Type       json.RawMessage            `json:"type"`
	Ref        string                     `json:"$ref"`
	Properties map[string]json.RawMessage `json:"properties"`
	Additional json.RawMessage            `json:"additionalProperties"`
	Patterns   json.RawMessage            `json:"patternProperties"`
	Items      json.RawMessage            `json:"items"`
	Prefix     json.RawMessage            `json:"prefixItems"`
}

// openKeywords are keywords that can add fields or change the type.
var openKeywords = []string{"anyOf", "oneOf", "allOf", "if", "not", "$dynamicRef", "dependentSchemas"}

// typeOf returns the type of a schema. name is the name of the value in messages.
func (t *schemaTypes) typeOf(name string, raw json.RawMessage, root *schemaDoc, depth int) *types.Type {
	if raw == nil || depth > maxDepth {
		return types.DynType
	}
	var keys map[string]json.RawMessage
	var n schemaNode
	if json.Unmarshal(raw, &keys) != nil || json.Unmarshal(raw, &n) != nil {
		return types.DynType // true, false, or not a schema, which is reported elsewhere
	}
	isOpen := slices.ContainsFunc(openKeywords, func(k string) bool { _, ok := keys[k]; return ok })
	if n.Ref != "" {
		target := root.resolve(n.Ref)
		if target == nil || n.Properties != nil || isOpen {
			return types.DynType
		}
		return t.typeOf(name, target, root, depth+1)
	}
	kind, nullable := singleType(n.Type)
	if kind == "" && n.Properties != nil && n.Type == nil {
		kind = "object"
	}
	switch {
	case kind == "object":
		return t.object(name, &n, root, isOpen, depth)
	case isOpen || nullable:
		return types.DynType
	case kind == "string":
		return types.StringType
	case kind == "integer":
		return types.IntType
	case kind == "boolean":
		return types.BoolType
	case kind == "array":
		if n.Prefix != nil {
			return types.NewListType(types.DynType)
		}
		return types.NewListType(t.typeOf(name+"[]", n.Items, root, depth+1))
	}
	// A number may be an integer or a double at run time, and the checker does not allow
	// null to be compared with other types.
	return types.DynType
}

func (t *schemaTypes) object(name string, n *schemaNode, root *schemaDoc, isOpen bool, depth int) *types.Type {
	var rest *types.Type
	switch extra := strings.TrimSpace(string(n.Additional)); {
	case isOpen || n.Patterns != nil || extra == "true":
		rest = types.DynType
	case extra == "false":
	case extra != "":
		rest = t.typeOf(name+".*", n.Additional, root, depth+1)
	}
	if n.Properties == nil && (rest != nil || n.Additional == nil) {
		if rest == nil {
			rest = types.DynType
		}
		return types.NewMapType(types.StringType, rest)
	}
	// No type has the name of a variable: a second use of the variable in an expression
	// would be taken for the type.
	typeName := name + "-"
	for t.objects[typeName] != nil {
		typeName += "'"
	}
	t.objects[typeName] = &objectType{name: name, root: root, fields: n.Properties, rest: rest}
	return types.NewObjectType(typeName)
}

// singleType returns the one type that a schema allows besides null, or "" for several or
// any.
func singleType(raw json.RawMessage) (kind string, nullable bool) {
	if json.Unmarshal(raw, &kind) == nil {
		return kind, false
	}
	var several []string
	if json.Unmarshal(raw, &several) != nil {
		return "", false
	}
	for _, s := range several {
		switch {
		case s == "null":
			nullable = true
		case kind == "":
			kind = s
		default:
			return "", nullable
		}
	}
	return kind, nullable
}

// resolve resolves a reference within the document: "#" or "#/a/b".
func (d *schemaDoc) resolve(refText string) json.RawMessage {
	path, ok := strings.CutPrefix(refText, "#")
	if !ok || path != "" && path[0] != '/' {
		return nil
	}
	at := d.raw
	for _, tok := range strings.Split(path, "/")[1:] {
		tok = strings.ReplaceAll(strings.ReplaceAll(tok, "~1", "/"), "~0", "~")
		var m map[string]json.RawMessage
		if json.Unmarshal(at, &m) != nil || m[tok] == nil {
			return nil
		}
		at = m[tok]
	}
	return at
}

// FindStructType implements types.Provider.
func (t *schemaTypes) FindStructType(name string) (*types.Type, bool) {
	if _, ok := t.objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return t.registry.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (t *schemaTypes) FindStructFieldNames(name string) ([]string, bool) {
	if o, ok := t.objects[name]; ok {
		return o.names(), true
	}
	return t.registry.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (t *schemaTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	o, ok := t.objects[name]
	if !ok {
		return t.registry.FindStructFieldType(name, field)
	}
	typ := o.rest
	if raw, ok := o.fields[field]; ok {
		typ = t.typeOf(o.name+"."+field, raw, o.root, 0)
	}
	if typ == nil {
		t.missing = append(t.missing, missingField{o, field})
		return nil, false
	}
	// Checked expressions of this provider are never evaluated: programs are
	// compiled without types, from the same source.
	return &types.FieldType{
		Type:    typ,
		IsSet:   func(any) bool { return false },
		GetFrom: func(any) (any, error) { return nil, errMissing },
	}, true
}

// variable declares one variable by its schema.
func (t *schemaTypes) variable(name string, raw json.RawMessage) cel.EnvOption {
	return cel.Variable(name, t.typeOf(name, raw, &schemaDoc{raw}, 0))
}
