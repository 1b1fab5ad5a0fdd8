// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// parts are what of a run an answer has.
type parts struct {
	outputs, steps, ledger bool     // besides what every answer has
	fields                 []string // nil = all
}

var (
	expansions      = []string{"outputs", "steps", "ledger"}
	executionFields = jsonNames(reflect.TypeFor[resource.Execution]())
	summaryFields   = jsonNames(reflect.TypeFor[ExecutionSummary]())
)

// jsonNames are the names of the fields of a type in JSON.
func jsonNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// partsOf reads the parameters expand and fields. A field that needs to be asked for, such as
// steps, need not be in both.
func partsOf(expand, fields string) (p parts, err error) {
	more, err := namesOf("expand", expand, expansions)
	if err != nil {
		return p, err
	}
	if p.fields, err = namesOf("fields", fields, executionFields); err != nil {
		return p, err
	}
	p.outputs = slices.Contains(more, "outputs")
	if p.fields != nil {
		more = p.fields
	}
	p.steps, p.ledger = slices.Contains(more, "steps"), slices.Contains(more, "ledger")
	return p, nil
}

// namesOf reads a list of names that are separated by commas.
func namesOf(parameter, text string, known []string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		if near := spell.Nearest(name, known); near != "" {
			return nil, fault.New(fault.RequestInvalid, "%s: one of the names is unknown; did you mean %q? There are %s", parameter, near, strings.Join(known, ", "))
		}
		return nil, fault.New(fault.RequestInvalid, "%s: one of the names is unknown; there are %s, separated by commas", parameter, strings.Join(known, ", "))
	}
	return names, nil
}

// pick returns the fields of an object that have one of some names, in the order of all names.
func pick(object []byte, names, all []string) ([]byte, error) {
	var have map[string]json.RawMessage
	if err := json.Unmarshal(object, &have); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for _, name := range all {
		value, ok := have[name]
		if !ok || !slices.Contains(names, name) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + name + `":`)
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// partSchema describes an object of which an answer may have some fields only.
func partSchema(r huma.Registry, t reflect.Type, name string) *huma.Schema {
	whole := r.Schema(t, true, name)
	if r.Map()[name+"Part"] == nil {
		part := *r.SchemaFromRef(whole.Ref)
		part.Required, part.Description = nil, "The fields that the parameter fields asks for."
		r.Map()[name+"Part"] = &part
	}
	return &huma.Schema{AnyOf: []*huma.Schema{whole, {Ref: whole.Ref + "Part"}}}
}

// shownBody is an execution, or the fields of it that were asked for.
type shownBody struct{ executionBody }

// Schema implements huma.SchemaProvider.
func (shownBody) Schema(r huma.Registry) *huma.Schema {
	return partSchema(r, reflect.TypeFor[resource.Execution](), "Execution")
}

// ShownSummary is a run in a list, or the fields of it that were asked for.
type ShownSummary struct {
	ExecutionSummary
	fields []string
}

// Schema implements huma.SchemaProvider.
func (ShownSummary) Schema(r huma.Registry) *huma.Schema {
	return partSchema(r, reflect.TypeFor[ExecutionSummary](), "ExecutionSummary")
}

// MarshalJSON implements json.Marshaler.
func (s ShownSummary) MarshalJSON() ([]byte, error) {
	data, err := jsonx.Marshal(s.ExecutionSummary)
	if err != nil || s.fields == nil {
		return data, err
	}
	return pick(data, s.fields, summaryFields)
}

// shown returns a run as it stands, with the parts that were asked for.
func (s *Server) shown(ctx context.Context, run string, p parts) (*executionBody, error) {
	if !p.steps && !p.ledger && p.fields == nil {
		return s.execution(ctx, run, p.outputs)
	}
	head, facts, err := s.headOf(ctx, run)
	if err != nil {
		return nil, err
	}
	bill, err := s.billFor(ctx, &head, p)
	if err != nil {
		return nil, err
	}
	var out *executionBody
	err = s.views.with(ctx, s, &head, p.outputs, func(f *folded) error {
		e := f.run.Execution(facts, p.outputs)
		if e.Ledger = bill; p.steps {
			e.Steps, e.MoreSteps = f.run.Steps()
		}
		data, err := jsonx.Marshal(e)
		if err == nil && p.fields != nil {
			data, err = pick(data, p.fields, executionFields)
		}
		out = &executionBody{JSON: data, last: f.run.Last(), status: e.Status, state: e.State}
		return err
	})
	return out, err
}

// billFor returns the ledger of a run, if an answer has it. It needs the scope that the ledger
// has as an operation of its own (A05).
func (s *Server) billFor(ctx context.Context, head *store.Head, p parts) (*view.Bill, error) {
	if !p.ledger {
		return nil, nil
	}
	if err := access.From(ctx).Check(access.CreditsRead); err != nil {
		return nil, err
	}
	return s.billOf(ctx, head)
}
