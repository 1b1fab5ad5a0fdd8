// SPDX-License-Identifier: Apache-2.0

package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/sanitize"
	"github.com/roux-engine/roux/internal/view"
)

// inputCheck is a plan's inputSchema, ready to use.
type inputCheck struct {
	schema *jsonschema.Schema
	files  bool // it mentions fileHashes
}

// An Input is what a run begins with.
type Input struct {
	Parameters map[string]any
	Stripped   *journal.Stripped // what the input policy has removed; nil = nothing
}

// Input returns what a run begins with that is given these parameters and files: without what the input policies of the
// plan and of the step that starts it remove, with the defaults of the inputSchema, and checked against that: the
// parameters, and fileHashes if the schema mentions them. A closed schema that does not mention files does not refuse
// them. The parameters do not change.
func (p *Program) Input(params map[string]any, files []journal.File, step sanitize.Policy) (in Input, err error) {
	res, err := sanitize.Policy(p.Plan().InputPolicy).With(step).Apply(params)
	if err != nil {
		return in, err
	}
	in.Parameters = res.Input
	if res.Count > 0 {
		in.Stripped = &journal.Stripped{Count: res.Count, Fields: res.Changed}
	}
	raw := p.Plan().InputSchema
	if len(raw) == 0 {
		return in, nil
	}
	c := p.input.Load()
	if c == nil {
		if c, err = newInputCheck(raw); err != nil {
			return in, err
		}
		p.input.Store(c)
	}
	if in.Parameters, err = c.withDefaults(in.Parameters); err != nil {
		return in, err
	}
	input := in.Parameters
	if _, given := input["fileHashes"]; c.files && !given && len(files) > 0 {
		input = withHashes(input, files)
	}
	if violations := c.schema.Validate(input); len(violations) > 0 {
		return in, p.refusal(input, violations)
	}
	return in, nil
}

// withDefaults returns parameters with the defaults of the schema. The hashes of files are no parameter.
func (c *inputCheck) withDefaults(params map[string]any) (map[string]any, error) {
	v, added, err := c.schema.WithDefaults(params, "fileHashes")
	if err != nil || !added {
		return params, err
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the parameters are no JSON object: %v", err)
	}
	if e := jsonx.Valid(raw, journal.InlineLimits); e != nil {
		return nil, fault.New(fault.InputInvalid, "the input with the defaults of the inputSchema is too large: %v", e)
	}
	m, _ := v.(map[string]any)
	return m, nil
}

func newInputCheck(raw json.RawMessage) (*inputCheck, error) {
	schema, err := jsonschema.Compile(raw)
	if err != nil {
		return nil, fault.Wrap(fault.RecipeInvalid, err, "the recipe's inputSchema cannot be used: %v", err)
	}
	var top struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	_ = json.Unmarshal(raw, &top) // a schema may also be true or false
	_, named := top.Properties["fileHashes"]
	return &inputCheck{schema: schema, files: named || slices.Contains(jsonschema.Required(raw), "fileHashes")}, nil
}

// withHashes returns the parameters with the hashes of the files.
func withHashes(params map[string]any, files []journal.File) map[string]any {
	input := make(map[string]any, len(params)+1)
	maps.Copy(input, params)
	hashes := make([]any, len(files))
	for i := range files {
		hashes[i] = files[i].Hash
	}
	input["fileHashes"] = hashes
	return input
}

// refusal is the error for an input that its schema does not allow.
func (p *Program) refusal(input map[string]any, violations []jsonschema.Violation) error {
	var shown map[string]any
	mask := view.NewMask(p.Plan())
	if mask.MarksInput() {
		shown = mask.Fields(input)
	}
	diags := make([]fault.Diagnostic, len(violations))
	for i, v := range violations {
		msg := v.Msg
		if mask.MarksInput() && mayRevealMasked(shown, &v) {
			msg = "the value, which is not shown because the schema marks it as writeOnly or x-sensitive, does not fit `" + v.Keyword + "`"
		}
		diags[i] = fault.Diagnostic{
			Severity: fault.SeverityError, Code: fault.InputInvalid, Rule: v.Keyword,
			Msg: fmt.Sprintf("input%s: %s", v.Pointer, msg),
		}
	}
	return &fault.Error{Code: fault.InputInvalid, Msg: diags[0].Msg, Diags: diags}
}

// valueFreeKeywords are the schema keywords whose violations reveal nothing of a value
// but its type, size and names.
var valueFreeKeywords = []string{"required", "additionalProperties", "unevaluatedProperties", "type", "minLength", "maxLength",
	"minItems", "maxItems", "minProperties", "maxProperties", "dependentRequired"}

// mayRevealMasked reports whether a violation may reveal a value that the schema marks
// as writeOnly: it is about such a value, or about one that may contain it. shown is
// the input in its masked form.
func mayRevealMasked(shown any, violation *jsonschema.Violation) bool {
	if slices.Contains(valueFreeKeywords, violation.Keyword) {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(violation.Pointer, "/"), "/") {
		switch at := shown.(type) {
		case map[string]any:
			shown = at[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) {
				return true
			}
			shown = at[i]
		}
	}
	switch shown := shown.(type) {
	case map[string]any, []any, nil:
		return true
	case string:
		return strings.Contains(shown, view.Masked)
	}
	return false
}
