// SPDX-License-Identifier: Apache-2.0

package actiontest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Published makes [Check] also require what other users of an action need: schemas,
// complete metadata, limits, a cost and at least one example. The actions that come with
// Roux meet these requirements.
func Published() Option { return func(s *settings) { s.published = true } }

// Sample sets the file for a file input of examples, so that they can be run. Without a
// sample such examples are only validated against the schema.
func Sample(input, name string, data []byte) Option {
	return func(s *settings) {
		if s.samples == nil {
			s.samples = map[string]sample{}
		}
		s.samples[input] = sample{name, data}
	}
}

// NoRun prevents [Check] from running examples. It logs the reason, for example that they
// need a service.
func NoRun(reason string) Option { return func(s *settings) { s.noRun = reason } }

// Check checks a declaration: name, semantic version, a sentence that describes it,
// schemas that compile, metadata that other programs can use (X10–X12), a valid duration
// range, and examples that match the input schema. Examples are run if nothing is missing
// for that (see [Sample] and [NoRun]), and every branch condition must return true or
// false for their outputs.
func Check(t testing.TB, act action.Action, opts ...Option) {
	t.Helper()
	s := settingsOf(opts)
	if s.files == nil {
		s.files = NewFiles(t)
	}
	if s.noRun != "" {
		t.Logf("the examples of %s are not run: %s", act.Name, s.noRun)
	}
	c := checker{s: s, act: act}
	c.run()
	for _, p := range c.problems {
		t.Errorf("action %s: %s", act.Name, p)
	}
}

type checker struct {
	s        *settings
	act      action.Action
	problems []string
	input    *jsonschema.Schema
	outputs  []any // of the examples that ran
}

func (c *checker) errorf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

var (
	aliasForm   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	versionForm = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	mimeForm    = regexp.MustCompile(`^(\*|[a-z]+)/(\*|[a-z0-9.+-]+)$`)
	codeForm    = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)
)

func (c *checker) run() {
	a := c.act
	if !catalogue.IsActionName(a.Name) {
		c.errorf("name %q: want a small letter, then up to 63 of a-z, 0-9 and -", a.Name)
	}
	for _, alias := range a.Aliases {
		if !aliasForm.MatchString(alias) || alias == a.Name {
			c.errorf("alias %q: want another name, a small letter, then up to 63 of a-z, 0-9, - and _", alias)
		}
	}
	if !versionForm.MatchString(a.Version) {
		c.errorf(`version %q: want a semantic version such as "1.0.0"`, a.Version)
	}
	if !sentence(a.Description) {
		c.errorf("description %q: want one sentence for people, with its full stop", a.Description)
	}
	if a.Cost < 0 || a.Slots < 0 {
		c.errorf("cost %d, slots %d: want 0 or more", a.Cost, a.Slots)
	}
	if _, err := catalogue.Price(&a); err != nil {
		c.errorf("price %q, cost %d: want one of them, and a price of digits, with at most six more after a point", a.Price, a.Cost)
	}
	if a.Delivery != "" && a.Delivery != action.AtLeastOnce && a.Delivery != action.AtMostOnce {
		c.errorf("delivery %q: want %q, %q or nothing", a.Delivery, action.AtLeastOnce, action.AtMostOnce)
	}
	for _, l := range a.Limits {
		if !sentence(l) {
			c.errorf("limit %q: want a sentence, with its full stop", l)
		}
	}
	for _, code := range a.Faults {
		if !codeForm.MatchString(string(code)) {
			c.errorf("fault code %q: want capitals, digits and _", code)
		}
	}
	c.input = c.schema("input schema", a.Input)
	c.schema("output schema", a.Output)
	c.work()
	c.types("inputTypes", a.Metadata.InputTypes)
	c.types("outputTypes", a.Metadata.OutputTypes)
	c.durations()
	for i, ex := range a.Examples {
		c.example(i, ex)
	}
	c.conditions()
	if c.s.published {
		c.complete()
	}
}

func sentence(s string) bool { return len(s) > 1 && strings.HasSuffix(s, ".") }

func (c *checker) schema(what string, raw json.RawMessage) *jsonschema.Schema {
	if len(raw) == 0 {
		return nil
	}
	sch, err := jsonschema.Compile(raw)
	if err != nil {
		c.errorf("%s: %v", what, err)
		return nil
	}
	var top struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &top) != nil || top.Type != "object" && !strings.HasPrefix(what, "schema of") {
		c.errorf(`%s: want "type": "object" at its top`, what)
	}
	return sch
}

// work checks that there is a function, or an input that names what a durable wait waits
// for.
func (c *checker) work() {
	if c.act.Waits == "" {
		if c.act.Run == nil {
			c.errorf("it has no function Run")
		}
		return
	}
	if c.act.Run != nil {
		c.errorf("it is a durable wait (Waits) and has a function Run, which nobody would call")
	}
	if c.act.Cost != 0 || c.act.Price != "" || len(c.act.Output) > 0 {
		c.errorf("it is a durable wait (Waits), which costs nothing and gives null, and declares a cost or an output")
	}
	var in struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(c.act.Input, &in) != nil || in.Properties[c.act.Waits] == nil {
		c.errorf("Waits names the input %q: want one of %v", c.act.Waits, slices.Sorted(maps.Keys(in.Properties)))
	}
}

func (c *checker) types(what string, defs []action.TypeDefinition) {
	for i, d := range defs {
		if d.Name == "" || d.Description == "" {
			c.errorf("%s[%d] has no name or no description", what, i)
		}
		for _, p := range d.MimeTypes {
			if !mimeForm.MatchString(p) {
				c.errorf(`%s[%d]: %q is no MIME pattern; want one such as "image/png", "image/*" or "*/*"`, what, i, p)
			}
		}
		c.schema(fmt.Sprintf("schema of %s[%d]", what, i), d.Schema)
	}
}

func (c *checker) durations() {
	d := c.act.Metadata.DurationRange
	if d == nil {
		return
	}
	least, err1 := recipe.ParseDuration(d.Min)
	most, err2 := recipe.ParseDuration(d.Max)
	if err1 != nil || err2 != nil || least > most || most == 0 {
		c.errorf(`durationRange %q to %q: want two durations, the shorter first, such as "100ms" and "5s"`, d.Min, d.Max)
	}
}

// example validates an example against the schema, and runs it if possible.
func (c *checker) example(i int, ex action.Example) {
	if ex.Title == "" {
		c.errorf("examples[%d] has no title that says what it is for", i)
	}
	raw, complete, err := c.fill(ex.Input)
	if err != nil {
		c.errorf("examples[%d]: %v", i, err)
		return
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{})
	if err != nil {
		c.errorf("examples[%d]: %v", i, err)
		return
	}
	if c.input != nil {
		for _, bad := range c.input.Validate(v) {
			c.errorf("examples[%d] does not fit the input schema: %s: %s", i, bad.Pointer, bad.Msg)
		}
	}
	if c.act.Waits != "" {
		c.waits(i, v)
	}
	if !complete || c.act.Run == nil || c.s.noRun != "" || len(c.problems) > 0 {
		return
	}
	out, stuck, err := c.s.attempt(c.act, raw)
	if err != nil || stuck {
		c.errorf("examples[%d] %q failed: %v", i, ex.Title, err)
		return
	}
	c.outputs = append(c.outputs, out.Value)
}

// fill replaces "file" by hashes. Inputs without a sample get a hash that no file has, and
// complete is false.
func (c *checker) fill(raw json.RawMessage) (filled json.RawMessage, complete bool, err error) {
	if raw, err = encode(raw); err != nil {
		return nil, false, fmt.Errorf("the input is no JSON object: %w", err)
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{})
	if err != nil {
		return nil, false, err
	}
	obj, complete := v.(map[string]any), true
	for _, field := range jsonschema.FileFields(c.act.Input) {
		if obj[field] != "file" {
			continue
		}
		file, ok := c.s.samples[field]
		if !ok {
			obj[field], complete = "sha256_"+strings.Repeat("0", 64), false
			continue
		}
		info, err := c.s.files.Put(c.s.ctx, strings.NewReader(string(file.data)), file.name, "")
		if err != nil {
			return nil, false, err
		}
		obj[field] = info.Hash
	}
	filled, err = jsonx.Canonical(obj)
	return filled, complete, err
}

// waits checks that an example of a durable wait has a duration or a time.
func (c *checker) waits(i int, input any) {
	text, _ := input.(map[string]any)[c.act.Waits].(string)
	if _, err := recipe.ParseDuration(text); err == nil {
		return
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		c.errorf(`examples[%d]: %s is %q: want a duration such as "90s" or a time such as "2030-01-02T03:04:05Z"`, i, c.act.Waits, text)
	}
}

func (c *checker) conditions() {
	seen := map[string]bool{}
	for _, b := range c.act.Metadata.BranchConditions {
		if b.Name == "" || b.Description == "" || seen[b.Name] {
			c.errorf("branch condition %q: want a name of its own and a description", b.Name)
		}
		seen[b.Name] = true
		p, err := expr.Compile(b.Expression)
		if err != nil {
			c.errorf("branch condition %s: %v", b.Name, err)
			continue
		}
		for i, out := range c.outputs {
			v, err := p.Eval(expr.MapVars{"output": out})
			if _, yes := v.(bool); err != nil || !yes {
				c.errorf("branch condition %s of the output of examples[%d] gave %v, %v: want true or false", b.Name, i, v, err)
			}
		}
	}
}

// complete checks what [Published] requires.
func (c *checker) complete() {
	a, m := c.act, c.act.Metadata
	for _, want := range []struct {
		what string
		has  bool
	}{
		{"an input schema", len(a.Input) > 0},
		{"an output schema", len(a.Output) > 0 || a.Waits != ""},
		{"metadata.inputTypes", len(m.InputTypes) > 0},
		{"metadata.outputTypes", len(m.OutputTypes) > 0},
		{"metadata.parallelizable, true or false", m.Parallelizable != nil},
		{"metadata.durationRange", m.DurationRange != nil},
		{"an example", len(a.Examples) > 0},
		{"a limit, in words", len(a.Limits) > 0},
		{"a cost of 1 or more, or a price", a.Cost > 0 || a.Price != "" || a.Waits != ""},
	} {
		if !want.has {
			c.errorf("a published action needs %s", want.what)
		}
	}
}
