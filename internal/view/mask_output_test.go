// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

const tokenSchema = `{"properties": {"token": {"$ref": "#/$defs/hidden"}}, "$defs": {"hidden": {"x-sensitive": true}}}`

// outputsPlan has a step with marks by its action, one by its contract, one whose output
// becomes a marked output of the run, and one that marks nothing.
func outputsPlan() *plan.Plan {
	return &plan.Plan{
		Graphs:       []plan.Graph{{N: 4, Owner: plan.None, Out: plan.None}},
		OutputSchema: json.RawMessage(`{"properties": {"key": {"writeOnly": true}, "open": {}}}`),
		Steps: []plan.Step{
			{ID: "a", OutputMarks: json.RawMessage(tokenSchema), Slot: plan.None},
			{ID: "b", OutputC: json.RawMessage(tokenSchema), Slot: plan.None},
			{ID: "c", Bind: "made", Slot: 0},
			{ID: "d", Slot: plan.None},
		},
		Outputs: []plan.Binding{
			{Name: "key", Expr: plan.Expr{Src: "made.deep.key", Vars: []plan.Var{{Name: "made", Kind: plan.VarBinding}}}},
			{Name: "open", Expr: plan.Expr{Src: "steps.d.output", Vars: []plan.Var{{Name: "steps", Member: "d", Kind: plan.VarStep, Index: 3}}}},
		},
	}
}

// TestMaskedOutputs: a marked part of an output is masked where it is made, and from then on
// wherever it is passed on.
func TestMaskedOutputs(t *testing.T) {
	for _, tt := range []struct{ name, kind, data, want string }{
		{"by the action", "a", `{"token":"hush-1","b":1}`, `{"b":1,"token":"[masked]"}`},
		{"by the contract", "b", `{"token":{"x":"hush-2"}}`, `{"token":"[masked]"}`},
		{"by the output that it becomes", "c", `{"deep":{"key":"hush-3","n":1},"key":"seen"}`, `{"deep":{"key":"[masked]","n":1},"key":"seen"}`},
		{"not marked", "d", `{"key":"seen","token":"seen"}`, `{"key":"seen","token":"seen"}`},
	} {
		for _, kind := range []journal.EventKind{journal.EvNodeCompleted, journal.EvNodePreview, journal.EvChildEnded} {
			m := NewMask(outputsPlan())
			step := int32(strings.Index("abcd", tt.kind))
			if got := m.Event(&journal.Event{Kind: kind, Step: step, Data: []byte(tt.data)}); string(got.Data) != tt.want {
				t.Errorf("%s, %v: got %s", tt.name, kind, got.Data)
			}
			later := m.Event(&journal.Event{Kind: journal.EvNodeLog, Step: 3, Text: "hush-1 hush-2 hush-3", Data: []byte(tt.data)})
			if strings.Contains(tt.data, "hush") == (later.Text == "hush-1 hush-2 hush-3") || strings.Contains(string(later.Data), "hush") {
				t.Errorf("%s, later: %s, %s", tt.name, later.Text, later.Data)
			}
		}
	}
	m := NewMask(outputsPlan())
	end := m.Event(&journal.Event{Kind: journal.EvRunCompleted, Data: []byte(`{"key":"hush-4","open":"hush-4 and more"}`)})
	if want := `{"key":"[masked]","open":"[masked] and more"}`; string(end.Data) != want {
		t.Errorf("the outputs of the run: %s", end.Data)
	}
	for _, ev := range []journal.Event{
		{Kind: journal.EvContract, Step: 0, Text: "output", Data: []byte(`["/token: hush is not a number"]`)},
		{Kind: journal.EvRunContract, Text: "output", Data: []byte(`["/key: hush"]`)},
		{Kind: journal.EvNodeFailed, Step: 1, Code: fault.OutputContractViolation, Text: "hush is wrong"},
		{Kind: journal.EvNodeRetried, Step: 1, Code: fault.OutputContractViolation, Text: "hush is wrong"},
		{Kind: journal.EvNodeDelta, Step: 0, Text: "hush"},
	} {
		if got := m.Event(&ev); strings.Contains(string(got.Data)+got.Text, "hush") {
			t.Errorf("%v shows %s %s", ev.Kind, got.Data, got.Text)
		}
	}
	if got := m.Event(&journal.Event{Kind: journal.EvNodeFailed, Step: 3, Code: fault.OutputContractViolation, Text: "seen"}); got.Text != "seen" {
		t.Errorf("a step without marks: %s", got.Text)
	}
	if got := m.Event(&journal.Event{Kind: journal.EvNodeDelta, Step: 3, Text: "seen"}); got.Text != "seen" {
		t.Errorf("a stream without marks: %s", got.Text)
	}
}

// TestLastOutputIsTheResult: without outputs the fields of outputSchema come from the last
// step.
func TestLastOutputIsTheResult(t *testing.T) {
	p := &plan.Plan{Graphs: []plan.Graph{{N: 1, Out: 0}}, Steps: []plan.Step{{Slot: plan.None}}, OutputSchema: json.RawMessage(tokenSchema)}
	if got := NewMask(p).Event(&journal.Event{Kind: journal.EvNodeCompleted, Data: []byte(`{"token":"hush"}`)}); string(got.Data) != `{"token":"[masked]"}` {
		t.Errorf("got %s", got.Data)
	}
}

// TestSensitiveMeansWriteOnly: the two marks mean the same in an input.
func TestSensitiveMeansWriteOnly(t *testing.T) {
	start, later := masked(t, `{"properties": {"a": {"x-sensitive": true}, "b": {"x-sensitive": false}}}`, `{"a": "hush", "b": "seen"}`, `{"x":"hush seen"}`)
	if start != `{"a":"[masked]","b":"seen"}` || later != `{"x":"[masked] seen"}` {
		t.Errorf("%s, %s", start, later)
	}
}
