// SPDX-License-Identifier: Apache-2.0

package expr

import (
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
)

const (
	// schemaURL names the schema to itself: references begin there.
	schemaURL = "mem:///schema.json"
	// maxSteps bounds one validation, in applications of a subschema to a
	// value. References let a small schema ask for exponentially many, so the
	// bound is lower for small values: every part of a value may meet every
	// subschema a few times, and freeSteps come on top.
	maxSteps  = 1_000_000
	freeSteps = 10_000
	// maxPatternWork bounds one match of a pattern, in instructions × bytes.
	maxPatternWork = 50_000_000
)

// A Schema is a compiled contract: JSON Schema 2020-12 with assertions of the
// known formats and of the format "file". It is safe for concurrent use.
type Schema struct {
	// A validation counts its steps in the compiled schema, so each one has a
	// compiled schema for itself.
	pool sync.Pool
	// quick says yes to most values that fit; nil = it does not know the schema.
	quick *quickSchema
}

// A Violation is one way in which a value does not fit a contract.
type Violation struct {
	Pointer string // of the value (RFC 6901); "" is the whole
	Keyword string // of the schema, such as "required"
	Msg     string
}

// CompileSchema compiles a contract. A reference may lead to the schema itself
// or to a published meta-schema; nothing is ever loaded.
func CompileSchema(raw []byte) (*Schema, error) {
	first, err := compileSchema(raw)
	if err != nil {
		return nil, err
	}
	s := &Schema{}
	if doc, err := decodeJSON(raw); err == nil {
		s.quick = quickOf(doc)
	}
	s.pool.New = func() any {
		// It compiled before, so it compiles again.
		c, _ := compileSchema(raw)
		return c
	}
	s.pool.Put(first)
	return s, nil
}

type compiledSchema struct {
	*jsonschema.Schema
	size  int // subschemas
	steps int // left of this validation
}

func compileSchema(raw []byte) (*compiledSchema, error) {
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, fault.Wrap(fault.RecipeInvalid, err, "the schema is no JSON: %v", err)
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fault.New(fault.RecipeInvalid, "a schema is an object or a boolean, got %s", typeName(doc))
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

// schemaError says what is wrong with a schema, without the names that only we
// have given it.
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

// noLoader refuses every reference that leads outside.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("schemas are not loaded from elsewhere (%s): put it under $defs", url)
}

// stepCounter is an extension without keywords: the library calls it whenever
// it applies a subschema to a value.
type stepCounter struct{ of *compiledSchema }

// errSteps ends a validation that takes too many steps.
var errSteps = errors.New("too many steps")

// Validate implements jsonschema.SchemaExt.
func (s stepCounter) Validate(*jsonschema.ValidatorContext, any) {
	if s.of.steps--; s.of.steps < 0 {
		panic(errSteps)
	}
}

// Validate checks a JSON value; of a jsonx.Large in it only the type. It returns all violations, ordered by pointer;
// nil means that the value fits.
func (s *Schema) Validate(v any) []Violation {
	if s.quick != nil && s.quick.fits(v) {
		return nil
	}
	c := s.pool.Get().(*compiledSchema)
	defer s.pool.Put(c)
	return c.check(v)
}

func (c *compiledSchema) check(v any) (out []Violation) {
	limit := min(maxSteps, freeSteps+nativeParts(v, maxSteps)*(c.size+16))
	c.steps = limit
	defer func() {
		switch e := recover(); e {
		case nil:
		case errSteps:
			out = []Violation{{Keyword: "$ref", Msg: fmt.Sprintf("checking the value takes more than %d steps: the schema refers to itself too often", limit)}}
		default:
			panic(e)
		}
	}()
	large := map[string]bool{}
	if holds(v) {
		v = standIns(v, "", large)
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

// standIns puts an empty text or list where a large one is, so that its type is
// checked and its content, which is not here, is not; large notes the places.
func standIns(v any, at string, large map[string]bool) any {
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
			out[i] = standIns(e, at+"/"+strconv.Itoa(i), large)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = standIns(e, at+"/"+escapePointer(k), large)
		}
		return out
	}
	return v
}

// A boundedRegexp is a pattern that refuses texts too long for its size.
type boundedRegexp struct {
	pattern
	src string
}

func compileRegexp(s string) (jsonschema.Regexp, error) {
	p, err := compilePattern(s)
	if err != nil {
		return nil, err
	}
	return boundedRegexp{p, s}, nil
}

func (b boundedRegexp) String() string { return b.src }

// MatchString reports a match; a text that would take too long has none.
func (b boundedRegexp) MatchString(s string) bool {
	return len(s)*b.insts <= maxPatternWork && b.re.MatchString(s)
}

var fileHash = regexp.MustCompile(`^sha256_[0-9a-f]{64}$`)

// validateFile checks the name of a file: files are addressed by content.
func validateFile(v any) error {
	s, ok := v.(string)
	if ok && !fileHash.MatchString(s) {
		return errors.New(`want "sha256_" and 64 hexadecimal digits`)
	}
	return nil
}

// objectSchema reads the parts of a schema that describe an object.
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

// Required returns the top-level required properties, sorted.
func Required(raw []byte) []string {
	var s objectSchema
	if json.Unmarshal(raw, &s) != nil {
		return nil
	}
	slices.Sort(s.Required)
	return slices.Compact(s.Required)
}
