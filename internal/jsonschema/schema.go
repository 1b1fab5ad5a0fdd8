// SPDX-License-Identifier: Apache-2.0

// Package jsonschema compiles JSON Schemas and validates values.
//
// It decides what a schema means here: JSON Schema 2020-12, with assertions of the
// known formats and the format "file" for the hash of a file. It decides what one
// validation may cost and what its messages say. It never loads a schema from
// elsewhere, and it does not look at the content of a large value, which is in a file.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/pattern"
)

const (
	// schemaURL is the base URL of the schema's own references.
	schemaURL = "mem:///schema.json"
	// maxSteps bounds one validation; a step applies a subschema to a value.
	// References let a small schema cause exponentially many steps, so the
	// bound is lower for small values: freeSteps, and for each part of the
	// value (see jsonx.Parts) one step per subschema and 16 more.
	maxSteps  = 1_000_000
	freeSteps = 10_000
	// maxPatternWork bounds one match of a pattern, in instructions × bytes.
	maxPatternWork = 50_000_000
)

// A Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	// pool holds compiled schemas. A validation counts its steps in the compiled
	// schema, so concurrent validations need one each.
	pool sync.Pool
	// fast accepts most values that fit; nil when it does not support the schema.
	fast *fastSchema
	// defaults is set if there may be defaults.
	defaults bool
}

// A Violation is one way in which a value does not fit a schema.
type Violation struct {
	Pointer string // of the value (RFC 6901); "" is the whole
	Keyword string // of the schema, such as "required"
	Msg     string
}

// Compile compiles a schema. A reference may point into the schema itself or to a
// published meta-schema; nothing is ever loaded.
func Compile(raw []byte) (*Schema, error) {
	first, err := compile(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{defaults: bytes.Contains(raw, []byte(`"default"`))}
	if doc, err := jsonx.DecodeLenient(raw); err == nil {
		s.fast = compileFast(doc)
	}
	s.pool.New = func() any {
		// It compiled above, so it compiles again.
		c, _ := compile(raw)
		return c
	}
	s.pool.Put(first)
	return s, nil
}

type compiledSchema struct {
	*jsonschema.Schema
	size  int // subschemas
	steps int // left of this validation
	taken int // by the last validation
}

func compile(raw []byte) (*compiledSchema, error) {
	doc, err := jsonx.DecodeLenient(raw)
	if err != nil {
		return nil, fault.Wrap(fault.RecipeInvalid, err, "the schema is no JSON: %v", err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fault.New(fault.RecipeInvalid, "a schema is an object or a boolean, got %s", jsonx.TypeName(doc))
	}
	out := &compiledSchema{}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: "file", Validate: validateFile})
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(compileRegexp)
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "mem:///steps",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			out.size++
			return stepCounter{out}, nil
		},
	})
	c.AssertVocabs()
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, schemaError(err)
	}
	if out.Schema, err = c.Compile(schemaURL); err != nil {
		return nil, schemaError(err)
	}
	return out, nil
}

// schemaError explains what is wrong with a schema, without our internal URLs.
func schemaError(err error) error {
	msg := err.Error()
	var bad *jsonschema.SchemaValidationError
	if errors.As(err, &bad) {
		var inner *jsonschema.ValidationError
		if errors.As(bad.Err, &inner) {
			if vs := violations(inner); len(vs) > 0 {
				msg = vs[0].Pointer + ": " + vs[0].Msg
			}
		}
	}
	for _, ours := range []string{schemaURL + "#", schemaURL, "mem:///"} {
		msg = strings.ReplaceAll(msg, ours, "")
	}
	return fault.Wrap(fault.RecipeInvalid, err, "the schema is not valid: %s", msg)
}

// noLoader refuses every reference to another document.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("schemas are not loaded from elsewhere (%s): put it under $defs", url)
}

// A stepCounter is an extension without keywords. The library calls it each time
// it applies a subschema to a value.
type stepCounter struct{ of *compiledSchema }

// errSteps is the panic that ends a validation of too many steps.
var errSteps = errors.New("too many steps")

// Validate implements jsonschema.SchemaExt.
func (s stepCounter) Validate(*jsonschema.ValidatorContext, any) {
	if s.of.steps--; s.of.steps < 0 {
		panic(errSteps)
	}
}

// Validate checks a JSON value; of a jsonx.Large it checks only the type. It returns
// all violations, ordered by pointer, or nil when the value fits.
func (s *Schema) Validate(v any) []Violation {
	if s.fast != nil && s.fast.fits(v) {
		return nil
	}
	c := s.pool.Get().(*compiledSchema)
	defer s.pool.Put(c)
	return c.check(v)
}

func (c *compiledSchema) check(v any) (out []Violation) {
	limit := min(maxSteps, freeSteps+jsonx.Parts(v, maxSteps)*(c.size+16))
	c.steps = limit
	defer func() {
		c.taken = limit - c.steps
		switch e := recover(); e {
		case nil:
		case errSteps:
			out = []Violation{{Keyword: "$ref", Msg: fmt.Sprintf("checking the value takes more than %d steps: the schema refers to itself too often", limit)}}
		default:
			panic(e)
		}
	}()
	large := map[string]bool{}
	if jsonx.HasLarge(v) {
		v = withoutLarge(v, "", large)
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(c.Schema.Validate(v), &invalid) {
		return nil
	}
	out = violations(invalid)
	if len(large) > 0 {
		out = slices.DeleteFunc(out, func(v Violation) bool { return large[v.Pointer] && v.Keyword != "type" })
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// withoutLarge replaces each large value by an empty text or list, so that its type is
// checked and its content, which is in a file, is not. It adds their pointers to large.
func withoutLarge(v any, at string, large map[string]bool) any {
	switch x := v.(type) {
	case jsonx.Large:
		large[at] = true
		if x.List {
			return []any{}
		}
		return ""
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = withoutLarge(e, at+"/"+strconv.Itoa(i), large)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = withoutLarge(e, at+"/"+jsonx.EscapeToken(k), large)
		}
		return out
	}
	return v
}

// A boundedRegexp is a pattern that does not match texts too long for its size.
type boundedRegexp struct {
	pattern.Pattern
	src string
}

func compileRegexp(s string) (jsonschema.Regexp, error) {
	p, err := pattern.Compile(s)
	if err != nil {
		return nil, err
	}
	return boundedRegexp{p, s}, nil
}

func (b boundedRegexp) String() string { return b.src }

// MatchString reports whether s matches; a text that would take too long does not.
func (b boundedRegexp) MatchString(s string) bool {
	return len(s)*b.Insts <= maxPatternWork && b.Pattern.MatchString(s)
}

var fileHash = regexp.MustCompile(`^sha256_[0-9a-f]{64}$`)

// validateFile checks that a string is the hash of a file: files are addressed by
// content.
func validateFile(v any) error {
	s, ok := v.(string)
	if ok && !fileHash.MatchString(s) {
		return errors.New(`want "sha256_" and 64 hexadecimal digits`)
	}
	return nil
}

// objectSchema is the part of a schema that describes an object.
type objectSchema struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
}

// FileFields returns the top-level properties of format "file", sorted.
func FileFields(raw []byte) []string {
	var s objectSchema
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var p struct {
			Format string `json:"format"`
		}
		if json.Unmarshal(s.Properties[name], &p) == nil && p.Format == "file" {
			out = append(out, name)
		}
	}
	return out
}

// FileLists returns the top-level properties that are lists of values of format "file", sorted.
func FileLists(raw []byte) []string {
	var s objectSchema
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var p struct {
			Items struct {
				Format string `json:"format"`
			} `json:"items"`
		}
		if json.Unmarshal(s.Properties[name], &p) == nil && p.Items.Format == "file" {
			out = append(out, name)
		}
	}
	return out
}

// Required returns the top-level required properties, sorted.
func Required(raw []byte) []string {
	var s objectSchema
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	slices.Sort(s.Required)
	return slices.Compact(s.Required)
}

// Type returns the type that a schema requires, or "" when it allows several.
func Type(raw []byte) string {
	var s struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(raw, &s) // a schema may be true or false
	name, _ := s.Type.(string)
	return name
}

// OfField returns the canonical schema of objects that have a field whose value fits a canonical schema.
func OfField(name string, raw []byte) []byte {
	v, _ := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if schema, ok := v.(map[string]any); ok && schema["$id"] == nil {
		id := "urn:roux:field"
		for bytes.Contains(raw, []byte(id)) {
			id += "-"
		}
		schema["$id"] = id // its references are relative to itself
	}
	out, _ := jsonx.Canonical(map[string]any{"type": "object", "required": []any{name}, "properties": map[string]any{name: v}})
	return out
}

// MayHave reports whether objects that fit a schema may have a field, as far as its first level says it.
func MayHave(raw []byte, field string) bool {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Additional json.RawMessage            `json:"additionalProperties"`
	}
	if json.Unmarshal(raw, &s) != nil {
		return true
	}
	_, has := s.Properties[field]
	return has || string(bytes.TrimSpace(s.Additional)) != "false"
}
