// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// An outputMark is a schema that marks parts of an output. References in it are resolved in
// root.
type outputMark struct{ root, schema map[string]any }

// Marks reports whether a schema marks values that are not to be shown: as writeOnly, or as
// x-sensitive.
func Marks(schema []byte) bool {
	return bytes.Contains(schema, []byte(`"writeOnly"`)) || bytes.Contains(schema, []byte(`"x-sensitive"`))
}

// marking returns a schema that marks something; nil for any other.
func marking(raw []byte) (schema map[string]any) {
	if !Marks(raw) || json.Unmarshal(raw, &schema) != nil {
		return nil
	}
	return schema
}

// markOutputs finds the steps whose outputs are marked: by the schema of their action, by
// their contract, and by the schema of the run's outputs, where these are made of them.
func (m *Mask) markOutputs(p *plan.Plan) {
	mark := func(step int32, root, schema map[string]any) {
		if m.outputs == nil {
			m.outputs = map[int32][]outputMark{}
		}
		m.outputs[step] = append(m.outputs[step], outputMark{root, schema})
	}
	for i := range p.Steps {
		for _, raw := range [][]byte{p.Steps[i].OutputMarks, p.Steps[i].OutputC} {
			if schema := marking(raw); schema != nil {
				mark(int32(i), schema, schema)
			}
		}
	}
	if m.result == nil || len(p.Graphs) == 0 {
		return
	}
	if out := p.Graphs[0].Out; len(p.Outputs) == 0 && out != plan.None {
		mark(out, m.result, m.result) // the result has the fields of its output
	}
	fields, _ := m.result["properties"].(map[string]any)
	for i := range p.Outputs {
		field, _ := fields[p.Outputs[i].Name].(map[string]any)
		steps, path := selected(p, &p.Outputs[i].Expr)
		if !mayMark(field) || steps == nil {
			continue
		}
		for k := len(path) - 1; k >= 0; k-- {
			field = map[string]any{"properties": map[string]any{path[k]: field}}
		}
		for _, step := range steps {
			mark(step, m.result, field)
		}
	}
}

// mayMark reports whether a part of a schema marks something, or refers to what may.
func mayMark(schema map[string]any) bool {
	raw, err := json.Marshal(schema)
	return err != nil || schema != nil && (Marks(raw) || bytes.Contains(raw, []byte(`"$dynamicRef":`)) || bytes.Contains(raw, []byte(`"$ref":`)))
}

// selected returns the steps whose output an expression selects a part of, and the path of
// that part; nil when the expression does anything else.
func selected(p *plan.Plan, e *plan.Expr) (steps []int32, path []string) {
	if e.Template || len(e.Vars) != 1 {
		return nil, nil
	}
	prog, err := expr.Compile(e.Src)
	if err != nil {
		return nil, nil
	}
	_, path, ok := prog.Selection()
	if !ok {
		return nil, nil
	}
	v := &e.Vars[0]
	switch v.Kind {
	case plan.VarStep:
		if v.Member != "" && len(path) > 0 {
			path = path[1:]
		}
		if len(path) == 0 || path[0] != "output" && path[0] != "result" {
			return nil, nil
		}
		return []int32{v.Index}, path[1:]
	case plan.VarBinding:
		for i := range p.Steps {
			if st := &p.Steps[i]; st.Slot == v.Index && p.Graphs[st.Graph].Frame == v.Graph {
				steps = append(steps, int32(i))
			}
		}
		return steps, path
	}
	return nil, nil
}

// marksOf returns the marks in what an event says of an output; nil if there are none.
func (m *Mask) marksOf(ev *journal.Event) []outputMark {
	if m == nil {
		return nil
	}
	switch ev.Kind {
	case journal.EvRunCompleted, journal.EvRunContract:
		if m.result != nil {
			return []outputMark{{m.result, m.result}}
		}
	case journal.EvNodeCompleted, journal.EvNodePreview, journal.EvContract, journal.EvChildEnded:
		return m.outputs[ev.Step]
	case journal.EvNodeDelta:
		return m.outputs[ev.Step] // a part of a text may belong to any part of the output
	case journal.EvNodeFailed, journal.EvNodeRetried, journal.EvNodeFallback:
		if ev.Code == fault.OutputContractViolation {
			return m.outputs[ev.Step]
		}
	}
	return nil
}

// output masks an event that has an output with marks. It hides the whole of one that has a
// piece of such an output, or that quotes one which violates its contract and so was never
// recorded.
func (m *Mask) output(ev *journal.Event, marks []outputMark) *journal.Event {
	switch ev.Kind {
	case journal.EvRunCompleted, journal.EvNodeCompleted, journal.EvNodePreview, journal.EvChildEnded:
	case journal.EvContract, journal.EvRunContract:
		ev.Data = []byte("[" + maskedJSON + "]")
		return ev
	default:
		ev.Text = Masked
		return ev
	}
	ev.Data = m.rewrite(ev.Data, func(v any) any {
		for _, mark := range marks {
			m.work, m.root = 0, mark.root
			v = m.marked(mark.schema, v, 0)
		}
		m.sortTexts()
		if ev.Kind == journal.EvRunCompleted {
			return m.inside(v)
		}
		return m.value(v)
	})
	if ev.Kind == journal.EvChildEnded {
		ev.Text = m.text(ev.Text)
	}
	return ev
}
