// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/starts"
)

// A mapping is what the expressions of a trigger compile to.
type mapping struct {
	when, key, id, parameters *expr.Program // nil = the trigger has none
	tree                      *expr.Tree    // of parameters that are no expression
	// idHeaders may have the id of a delivery, in lower case; the first one that is not empty
	// counts. There are none if id is an expression.
	idHeaders []string
}

// env has the variables of expressions.
var env = &expr.Env{Vars: map[string]json.RawMessage{"body": nil, "headers": nil, "query": nil}}

// compileMapping compiles the expressions of a trigger, or says what is wrong with one.
func compileMapping(s *Spec) (m *mapping, err error) {
	m = new(mapping)
	if m.when, err = expression("when", s.When, "bool"); err != nil {
		return nil, err
	}
	if m.key, err = expression("key", s.Key, ""); err != nil {
		return nil, err
	}
	switch {
	case s.DeliveryID == "":
		m.idHeaders = usualIDs
	case signature.HeaderName(s.DeliveryID): // an expression selects something of a variable, so it has other characters
		m.idHeaders = []string{strings.ToLower(s.DeliveryID)}
	default:
		if m.id, err = expression("deliveryId", s.DeliveryID, ""); err != nil {
			return nil, err
		}
	}
	return m, m.input(s.Parameters)
}

// expression compiles an expression; nil = the field is empty.
func expression(field, src, want string) (*expr.Program, error) {
	if src == "" {
		return nil, nil
	}
	if ps := expr.Check(src, false, env, want); len(ps) > 0 {
		return nil, invalid(field, &ps[0])
	}
	p, err := expr.Compile(src)
	if err != nil {
		return nil, fault.Wrap(fault.RequestInvalid, err, "%s: %s", field, fault.Message(err))
	}
	return p, nil
}

func invalid(field string, p *expr.Problem) error {
	text := p.Msg
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return fault.New(fault.RequestInvalid, "%s%s: column %d: %s", field, p.Pointer, p.Offset+1, text)
}

// input compiles the parameters.
func (m *mapping) input(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) > MaxMapping {
		return fault.New(fault.RequestInvalid, "parameters: want at most %d bytes", MaxMapping)
	}
	var src string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		raw = json.RawMessage(`{"body":"{{ body }}"}`)
	case json.Unmarshal(raw, &src) == nil:
		p, err := expression("parameters", src, "map")
		if m.parameters = p; err == nil && p == nil {
			err = fault.New(fault.RequestInvalid, "parameters: the expression is empty")
		}
		return err
	case raw[0] != '{':
		return fault.New(fault.RequestInvalid, "parameters: want a text with an expression, or an object with templates")
	}
	if ps := expr.CheckTree(raw, env); len(ps) > 0 {
		return invalid("parameters", &ps[0])
	}
	t, err := expr.CompileTree(raw)
	if err != nil {
		return fault.Wrap(fault.RequestInvalid, err, "parameters: %s", fault.Message(err))
	}
	m.tree = t
	return nil
}

// wanted evaluates when.
func (m *mapping) wanted(vars expr.Vars) (bool, error) {
	if m.when == nil {
		return true, nil
	}
	v, err := m.when.Eval(vars)
	if err != nil {
		return false, within("when", err)
	}
	yes, ok := v.(bool)
	if !ok {
		return false, fault.New(fault.TemplateError, "when is %s: want true or false", jsonx.TypeName(v))
	}
	return yes, nil
}

// text evaluates an expression that gives a text; "" = it gives null, or there is none.
func text(field string, p *expr.Program, vars expr.Vars) (string, error) {
	if p == nil {
		return "", nil
	}
	v, err := p.Eval(vars)
	if err != nil {
		return "", within(field, err)
	}
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	return "", fault.New(fault.TemplateError, "%s is %s: want a text or a whole number", field, jsonx.TypeName(v))
}

// keyOf evaluates key.
func (m *mapping) keyOf(vars expr.Vars) (string, error) {
	key, err := text("key", m.key, vars)
	if err == nil && len(key) > maxKey {
		err = fault.New(fault.ValueTooLarge, "key has %d bytes: want at most %d", len(key), maxKey)
	}
	return key, err
}

// inputOf evaluates the parameters.
func (m *mapping) inputOf(vars expr.Vars) (json.RawMessage, error) {
	var v any
	var err error
	if m.parameters != nil {
		v, err = m.parameters.Eval(vars)
	} else {
		v, err = m.tree.Eval(vars)
	}
	if err != nil {
		return nil, within("parameters", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return nil, fault.New(fault.TemplateError, "parameters are %s: want an object with the fields of the recipe's inputSchema", jsonx.TypeName(v))
	}
	data, err := jsonx.Canonical(v)
	if err != nil {
		return nil, fault.Wrap(fault.TemplateError, err, "parameters: %v", err)
	}
	if len(data) > starts.MaxParameters {
		return nil, fault.New(fault.ValueTooLarge, "the parameters have %d bytes: want at most %d; select what the recipe needs", len(data), starts.MaxParameters)
	}
	return data, nil
}

// within adds the field whose evaluation has failed to its error.
func within(field string, err error) error {
	return fault.Wrap(fault.CodeOf(err), err, "%s: %s", field, fault.Message(err))
}
