// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// Groups are the groups of a comparison, in the order in which they are shown. Time
// differs between any two runs, so runs that differ only in time are the same.
var Groups = []string{"definition", "inputs", "path", "outputs", "attempts", "credits", "time"}

// maxDifferences bounds how many differences of one group are listed.
const maxDifferences = 200

// A Comparison is the result of comparing two runs.
type Comparison struct {
	Runs     [2]string               `json:"runs"`
	Imported []string                `json:"imported,omitempty"` // which of the runs were imported
	Same     bool                    `json:"same"`
	First    *Divergence             `json:"firstDivergence,omitempty"`
	Groups   map[string][]Difference `json:"groups"`
	Cut      bool                    `json:"truncated,omitempty"`
}

// A Difference is one difference: the place, and the value each run has there; null
// where it has none.
type Difference struct {
	Where string          `json:"where"`
	A     json.RawMessage `json:"a"`
	B     json.RawMessage `json:"b"`
}

// A Divergence is the earliest step that settled differently.
type Divergence struct {
	Step   string    `json:"step"`
	Text   string    `json:"text"`
	Events [2]uint64 `json:"events"` // in each run; 0 = the run did not reach the step
}

// A Side is one of the two runs, built from its journal.
type Side struct {
	*Run
	Imported bool
	start    journal.Start
	results  map[string]*journal.StepResult
	paths    []string
	settled  map[string]uint64 // by path: the event that settled the step
}

// NewSide returns a side for a run of p, without events.
func NewSide(p *plan.Plan, run string, imported bool) *Side {
	return &Side{Run: NewRun(p, run), Imported: imported, settled: map[string]uint64{}}
}

// Apply adds the run's next event.
func (s *Side) Apply(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		if err := json.Unmarshal(ev.Data, &s.start); err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "run %s: its first event cannot be read: %v", s.ID, err)
		}
	case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
		if len(s.settled) < 2*MaxSteps {
			s.settled[journal.StepPath(s.Plan, ev.Ref())] = ev.Seq
		}
	}
	return s.Run.Apply(ev)
}

// Compare compares two runs. only lists the groups to compare; empty = all.
func Compare(a, b *Side, only []string) *Comparison {
	for _, s := range []*Side{a, b} {
		s.results, s.paths = s.History.Steps()
	}
	c := &Comparison{Runs: [2]string{a.ID, b.ID}, Groups: map[string][]Difference{}, Cut: a.Truncated || b.Truncated}
	for _, s := range []*Side{a, b} {
		if s.Imported && !slices.Contains(c.Imported, s.ID) {
			c.Imported = append(c.Imported, s.ID)
		}
	}
	add := func(group, where string, x, y any) {
		if len(only) > 0 && !slices.Contains(only, group) {
			return
		}
		if len(c.Groups[group]) >= maxDifferences {
			c.Cut = true
			return
		}
		c.Groups[group] = append(c.Groups[group], Difference{where, RawOf(x), RawOf(y)})
	}
	if len(only) == 0 || slices.Contains(only, "definition") {
		compareDefinition(a, b, add)
	}
	compareValues("parameters", anyOf(a.start.Parameters), anyOf(b.start.Parameters), func(at string, x, y any) { add("inputs", at, x, y) })
	compareValues("files", filesOf(a), filesOf(b), func(at string, x, y any) { add("inputs", at, x, y) })
	for _, path := range union(a.paths, b.paths) {
		compareStep(path, a.results[path], b.results[path], add)
	}
	if x, y := a.Status.String(), b.Status.String(); x != y {
		add("path", "run", x, y)
	}
	compareValues("run", Decoded(a.Outputs), Decoded(b.Outputs), func(at string, x, y any) { add("outputs", at, x, y) })
	if a.Used() != b.Used() {
		add("credits", "run", a.Used(), b.Used())
	}
	if x, y := a.TookMS(), b.TookMS(); x != y {
		add("time", "run", x, y)
	}
	c.Same = true
	for group := range c.Groups {
		c.Same = c.Same && group == "time"
	}
	if !c.Same {
		c.First = firstOf(a, b)
	}
	return c
}

// compareDefinition compares plans step by step. Labels are not compared, because they
// do not change the meaning.
func compareDefinition(a, b *Side, add func(group, where string, x, y any)) {
	if a.Plan.Hash() == b.Plan.Hash() {
		return
	}
	add("definition", "plan", a.Plan.Hash().String()[:12], b.Plan.Hash().String()[:12])
	x, y := stepsByPlace(a.Plan), stepsByPlace(b.Plan)
	for _, place := range union(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) {
		compareValues(place, x[place], y[place], func(at string, x, y any) { add("definition", at, x, y) })
	}
}

// stepsByPlace returns the fields of each step by its place in the definition, without
// the numbers that only follow from that place.
func stepsByPlace(p *plan.Plan) map[string]any {
	m := make(map[string]any, len(p.Steps))
	for i := range p.Steps {
		raw, err := json.Marshal(&p.Steps[i])
		fields, ok := Decoded(raw).(map[string]any)
		if err != nil || !ok {
			continue
		}
		for _, n := range []string{"id", "graph", "preds", "succs", "wave", "slot", "then", "else", "body", "branches",
			"fallback", "compensate", "action", "paramRef", "keep"} {
			delete(fields, n)
		}
		fields["kind"] = p.Steps[i].Kind.String()
		if n := p.Steps[i].Action; n != plan.None {
			fields["action"] = Join("@", p.Actions[n].Name, p.Actions[n].Version)
		}
		var after []any
		for _, pred := range p.Steps[i].Preds {
			after = append(after, p.Steps[pred].ID)
		}
		fields["after"] = after
		m[placeOf(p, int32(i))] = fields
	}
	return m
}

// placeOf names a step by the steps that own it, as StepPath does.
func placeOf(p *plan.Plan, step int32) string {
	s := &p.Steps[step]
	g := &p.Graphs[s.Graph]
	if g.Owner == plan.None {
		return s.ID
	}
	role := "." + g.Role.String()
	switch g.Role {
	case plan.Body:
		role = "[]"
	case plan.Branch:
		role = fmt.Sprintf("[%d]", g.Ordinal)
	}
	return placeOf(p, g.Owner) + role + "." + s.ID
}

func compareStep(path string, x, y *journal.StepResult, add func(group, where string, x, y any)) {
	switch {
	case x == nil:
		add("path", path, nil, y.Status)
		return
	case y == nil:
		add("path", path, x.Status, nil)
		return
	}
	if x.Status != y.Status || x.Reason != y.Reason {
		add("path", path, Join(": ", x.Status, x.Reason), Join(": ", y.Status, y.Reason))
	}
	if p, q := errorText(x.Error), errorText(y.Error); p != q {
		add("path", path+" error", p, q)
	}
	if !bytes.Equal(x.Output, y.Output) {
		compareValues(path, Decoded(x.Output), Decoded(y.Output), func(at string, x, y any) { add("outputs", at, x, y) })
	}
	if x.Attempts != y.Attempts {
		add("attempts", path, x.Attempts, y.Attempts)
	}
	if math.Abs(x.DurationMS-y.DurationMS) >= 1 {
		add("time", path, x.DurationMS, y.DurationMS)
	}
}

func errorText(e *journal.StepError) string {
	if e == nil {
		return ""
	}
	return e.Code + ": " + e.Message
}

// firstOf returns the earliest step that settled differently: in its status, its error
// or its output.
func firstOf(a, b *Side) *Divergence {
	var first *Divergence
	best := uint64(math.MaxUint64)
	for _, path := range union(a.paths, b.paths) {
		x, y := a.results[path], b.results[path]
		text := ""
		switch {
		case x == nil || y == nil:
			text = "only one of the runs reached it"
		case x.Status != y.Status:
			text = fmt.Sprintf("%s in one, %s in the other", x.Status, y.Status)
		case errorText(x.Error) != errorText(y.Error):
			text = "its error differs"
		case !bytes.Equal(x.Output, y.Output):
			text = "its output differs"
		default:
			continue
		}
		events := [2]uint64{a.settled[path], b.settled[path]}
		at := min(orMax(events[0]), orMax(events[1]))
		if at < best {
			best, first = at, &Divergence{path, text, events}
		}
	}
	return first
}

func orMax(n uint64) uint64 {
	if n == 0 {
		return math.MaxUint64
	}
	return n
}

// TookMS is how long the run took, in ms; 0 if it has not ended.
func (s *Side) TookMS() float64 {
	if s.Ended == 0 {
		return 0
	}
	return millis(s.Ended - s.Started)
}

func filesOf(s *Side) any {
	var list []any
	for _, f := range s.start.Files {
		list = append(list, map[string]any{"hash": f.Hash, "name": f.Name})
	}
	return list
}

// compareValues calls fn for every place in which two JSON values differ; the place is
// written as in an expression.
func compareValues(at string, x, y any, fn func(at string, x, y any)) {
	switch x := x.(type) {
	case map[string]any:
		if y, ok := y.(map[string]any); ok {
			for _, k := range union(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) {
				compareValues(at+"."+k, x[k], y[k], fn)
			}
			return
		}
	case []any:
		if y, ok := y.([]any); ok {
			for i := range max(len(x), len(y)) {
				compareValues(fmt.Sprintf("%s[%d]", at, i), at0(x, i), at0(y, i), fn)
			}
			return
		}
	}
	if !bytes.Equal(RawOf(x), RawOf(y)) {
		fn(at, x, y)
	}
}

func at0(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// union is a, followed by the elements that only b has.
func union(a, b []string) []string {
	have := make(map[string]bool, len(a))
	for _, s := range a {
		have[s] = true
	}
	out := slices.Clone(a)
	for _, s := range b {
		if !have[s] {
			out = append(out, s)
		}
	}
	return out
}

func anyOf(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

// Decoded decodes a recorded value; a value that cannot be decoded is returned as
// text.
func Decoded(raw []byte) any {
	if len(raw) == 0 {
		return nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return string(raw)
	}
	return v
}

// RawOf is a value as JSON, canonical if possible.
func RawOf(v any) json.RawMessage {
	raw, err := jsonx.Canonical(v)
	if err != nil {
		// A plan may contain numbers without a canonical form, such as 0.5 or an int.
		raw, _ = json.Marshal(v)
	}
	return raw
}
