// SPDX-License-Identifier: Apache-2.0

// Package approvals compiles what a wait asks a person.
//
// It decides what the request says, until when it can be answered, and what applies when nobody does. It
// never decides where a problem is in a text, and fills in no templates: that is done when the wait begins.
package approvals

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// The bounds of what a request says, which package approval checks again at run time, when templates
// have been filled in.
const (
	minRemindMS     = 60_000
	maxApprovalMS   = 366 * 24 * 3_600_000
	maxApprovers    = 50
	maxApproverName = 100
)

// A Compiler compiles approvals, with what the compiler of the whole recipe does for all its parts. What it
// is given pointers for is at these in the recipe.
type Compiler struct {
	Fail, Warn func(rule, ptr, msg, hint string)
	Enum       func(field, got, ptr string, want ...string)   // reports a value that is none of want
	Schema     func(raw []byte, ptr string) []byte            // checks a JSON Schema; nil = there is none, or a problem was reported
	Canonical  func(raw []byte, ptr string) json.RawMessage   // as Schema, of any value
	Duration   func(d recipe.Duration, ptr string) (ms int64) // as Schema, of a duration; 0 instead of nil
	TTLMS      int64                                          // of the run
}

// Parameters returns the parameters of the action that a wait for an approval calls.
func (c *Compiler) Parameters(w *recipe.Wait, at string) map[string]any {
	params := c.text(w.Approval, at+"/approval")
	c.times(w, at, params)
	c.answer(w, at+"/default", params)
	return params
}

// text returns what the request says.
func (c *Compiler) text(a *recipe.Approval, at string) map[string]any {
	params := map[string]any{"title": a.Title}
	if strings.TrimSpace(a.Title) == "" {
		c.Fail("missing-field", at, `an approval needs the field "title"`, "")
	}
	if a.Text != "" {
		params["text"] = a.Text
	}
	if form := c.Schema(a.Form, at+"/form"); form != nil {
		params["form"] = json.RawMessage(form)
		var s struct {
			Type any `json:"type"`
		}
		if err := json.Unmarshal(form, &s); err != nil || s.Type != nil && s.Type != "object" {
			c.Fail("bad-form", at+"/form", "the form is not the schema of an object", `want one with properties, such as {properties: {pages: {type: integer}}}`)
		}
	}
	if value := c.Canonical(a.Value, at+"/value"); value != nil {
		params["value"] = value
	}
	if len(a.Approvers) > maxApprovers {
		c.Fail("too-many", at+"/approvers", fmt.Sprintf("there are %d approvers; want at most %d", len(a.Approvers), maxApprovers), "")
	}
	approvers := make([]any, len(a.Approvers))
	for k, name := range a.Approvers {
		approvers[k] = name
		if name == "" || len(name) > maxApproverName || strings.TrimSpace(name) != name || expr.IsTemplate(name) {
			c.Fail("bad-value", at+"/approvers/"+strconv.Itoa(k), fmt.Sprintf("%q is no approver", name), "want the name of a key, or role:NAME")
		}
	}
	if len(a.Approvers) > 0 {
		params["approvers"] = approvers
	}
	switch a.Reject {
	case "", "continue":
	case "fail":
		params["reject"] = a.Reject
	default:
		c.Enum("reject", a.Reject, at, "continue", "fail")
	}
	return params
}

// times adds until when the request can be answered, and how often people are reminded.
func (c *Compiler) times(w *recipe.Wait, at string, params map[string]any) {
	timeout := c.Duration(w.Timeout, at+"/timeout")
	switch {
	case timeout > maxApprovalMS:
		c.Fail("wait-too-long", at+"/timeout", fmt.Sprintf("the timeout is %s; an approval waits for at most 366 days", plan.FormatMS(timeout)), "")
	case timeout > c.TTLMS:
		c.Warn("timeout-longer", at+"/timeout", fmt.Sprintf("the wait's timeout of %s is longer than the ttl of the run, %s", plan.FormatMS(timeout), plan.FormatMS(c.TTLMS)), "")
	}
	if timeout > 0 {
		params["timeoutMs"] = timeout
	}
	remind := c.Duration(w.Approval.Remind, at+"/approval/remind")
	switch {
	case remind == 0:
		return
	case remind < minRemindMS:
		c.Fail("bad-remind", at+"/approval/remind", fmt.Sprintf("remind is %s; want at least 1m", plan.FormatMS(remind)), "")
	case timeout > 0 && remind >= timeout:
		c.Warn("never-reminds", at+"/approval/remind", fmt.Sprintf("nobody is reminded: remind is %s, and the timeout %s", plan.FormatMS(remind), plan.FormatMS(timeout)), "make remind shorter")
	}
	params["remindMs"] = remind
}

// answer adds the answer that applies at the time-out.
func (c *Compiler) answer(w *recipe.Wait, at string, params map[string]any) {
	raw := c.Canonical(w.Default, at)
	if raw == nil {
		return
	}
	params["default"] = raw
	bad := func(msg, hint string) { c.Fail("bad-default", at, msg, hint) }
	if w.Timeout == "" {
		bad("the default applies at the time-out, and there is none", `give the wait a "timeout"`)
	}
	if v, err := jsonx.Decode(raw, jsonx.Limits{}); err == nil && expr.HasTemplate(v) {
		bad("the default has a template in it, and is known before the run", "write the values themselves")
		return
	}
	var d struct {
		Decision string         `json:"decision"`
		Comment  string         `json:"comment"`
		Values   map[string]any `json:"values"`
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil || d.Decision != "approved" && d.Decision != "rejected" {
		bad("this is no answer", `want {decision: approved} or {decision: rejected}, with "comment" and "values" if need be`)
		return
	}
	form, _ := params["form"].(json.RawMessage)
	if form == nil {
		if len(d.Values) > 0 {
			bad("the default has values, and the approval has no form", "")
		}
		return
	}
	if d.Decision == "rejected" && len(d.Values) == 0 {
		return
	}
	schema, err := jsonschema.Compile(form)
	if err != nil {
		return // reported
	}
	for _, v := range schema.Validate(withDefaults(form, d.Values)) {
		bad(fmt.Sprintf("the values of the default do not fit the form: values%s: %s", v.Pointer, v.Msg), "")
		return
	}
}

// withDefaults returns values with the defaults of a form.
func withDefaults(form json.RawMessage, values map[string]any) map[string]any {
	v, _ := jsonx.Decode(form, jsonx.Limits{})
	schema, _ := v.(map[string]any)
	props, _ := schema["properties"].(map[string]any)
	out := map[string]any{}
	for name, p := range props {
		if prop, _ := p.(map[string]any); prop["default"] != nil {
			out[name] = prop["default"]
		}
	}
	maps.Copy(out, values)
	return out
}
