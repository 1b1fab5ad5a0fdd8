// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// The groups of a comparison, in the order in which they are shown. Time
// differs between any two runs, so it alone makes no difference.
var diffGroups = []string{"definition", "inputs", "path", "outputs", "attempts", "credits", "time"}

// maxDifferences bounds what is listed of one group.
const maxDifferences = 200

// A compared is what diff found.
type compared struct {
	Runs     [2]string           `json:"runs"`
	Imported []string            `json:"imported,omitempty"` // those of them that were
	Same     bool                `json:"same"`
	First    *firstDifference    `json:"firstDivergence,omitempty"`
	Groups   map[string][]differ `json:"groups"`
	Cut      bool                `json:"truncated,omitempty"`
}

// A differ is one difference: where, and what either run has there; null where
// it has nothing.
type differ struct {
	Where string          `json:"where"`
	A     json.RawMessage `json:"a"`
	B     json.RawMessage `json:"b"`
}

// A firstDifference is the earliest step that went otherwise.
type firstDifference struct {
	Step   string    `json:"step"`
	Text   string    `json:"text"`
	Events [2]uint64 `json:"events"` // in each run; 0 = it never got there
}

func (a *app) diffCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Compare two runs and name where they part",
		Long: "Compare two runs: definition, inputs, the path they took, outputs, attempts, credits and time. The first step that went " +
			"otherwise is named. Exit code 1 when something but time differs.",
		Example: "roux diff @last-failed @last\nroux diff run_01K3 run_01K4 --only outputs,credits",
		Args:    wants(2, 2, "RUN RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, g := range only {
				if !slices.Contains(diffGroups, g) {
					return fault.New(fault.Usage, "--only %s: want some of %s", oneLine(g), strings.Join(diffGroups, ", "))
				}
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				var sides [2]*side
				for i, name := range args {
					var err error
					if sides[i], err = readSide(ctx, j, name); err != nil {
						return err
					}
				}
				c := compare(sides[0], sides[1], only)
				a.show(c, func() { a.printCompared(c, sides) })
				if !c.Same {
					return exit(fault.ExitFailed)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these groups: "+strings.Join(diffGroups, ", "))
	return cmd
}

// A side is one of the two runs.
type side struct {
	id       string
	imported bool
	plan     *plan.Plan
	view     *runView
	start    journal.Start
	steps    map[string]*journal.StepResult
	order    []string
	ended    map[string]uint64 // event that settled a step
}

func readSide(ctx context.Context, j store.Reader, name string) (*side, error) {
	head, err := findRun(ctx, j, name)
	if err != nil {
		return nil, err
	}
	s := &side{id: head.Run, imported: head.Imported(), ended: map[string]uint64{}}
	if s.plan, err = planOf(ctx, j, head); err != nil {
		return nil, err
	}
	s.view = newView(s.plan, head.Run)
	err = eachShown(ctx, j, head.Key, s.plan, 0, func(ev *journal.Event) error {
		switch ev.Kind {
		case journal.EvRunStarted:
			if err := json.Unmarshal(ev.Data, &s.start); err != nil {
				return fault.Wrap(fault.StoreCorrupt, err, "run %s: its first event cannot be read: %v", head.Run, err)
			}
		case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled:
			if len(s.ended) < 2*maxSteps {
				s.ended[journal.StepPath(s.plan, ev.Ref())] = ev.Seq
			}
		}
		return s.view.apply(ev)
	})
	s.steps, s.order = s.view.Steps()
	return s, err
}

// compare finds what differs between two runs.
func compare(a, b *side, only []string) *compared {
	c := &compared{Runs: [2]string{a.id, b.id}, Groups: map[string][]differ{}, Cut: a.view.Truncated || b.view.Truncated}
	for _, s := range []*side{a, b} {
		if s.imported && !slices.Contains(c.Imported, s.id) {
			c.Imported = append(c.Imported, s.id)
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
		c.Groups[group] = append(c.Groups[group], differ{where, rawOf(x), rawOf(y)})
	}
	compareDefinition(a, b, add)
	compareValues("parameters", anyOf(a.start.Parameters), anyOf(b.start.Parameters), func(at string, x, y any) { add("inputs", at, x, y) })
	compareValues("files", filesOf(a), filesOf(b), func(at string, x, y any) { add("inputs", at, x, y) })
	for _, path := range union(a.order, b.order) {
		compareStep(path, a.steps[path], b.steps[path], add)
	}
	if x, y := a.view.Status.String(), b.view.Status.String(); x != y {
		add("path", "run", x, y)
	}
	compareValues("run", decoded(a.view.Outputs), decoded(b.view.Outputs), func(at string, x, y any) { add("outputs", at, x, y) })
	if a.view.Used != b.view.Used {
		add("credits", "run", a.view.Used, b.view.Used)
	}
	if x, y := a.tookMS(), b.tookMS(); x != y {
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

// compareDefinition compares plans step by step; names for people are no part
// of their meaning.
func compareDefinition(a, b *side, add func(group, where string, x, y any)) {
	if a.plan.Hash() == b.plan.Hash() {
		return
	}
	add("definition", "plan", a.plan.Hash().String()[:12], b.plan.Hash().String()[:12])
	x, y := stepsByPlace(a.plan), stepsByPlace(b.plan)
	for _, place := range union(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) {
		compareValues(place, x[place], y[place], func(at string, x, y any) { add("definition", at, x, y) })
	}
}

// stepsByPlace gives what each step says under its place in the definition,
// without the numbers that follow from it.
func stepsByPlace(p *plan.Plan) map[string]any {
	m := make(map[string]any, len(p.Steps))
	for i := range p.Steps {
		raw, err := json.Marshal(&p.Steps[i])
		fields, ok := decoded(raw).(map[string]any)
		if err != nil || !ok {
			continue
		}
		for _, n := range []string{"id", "graph", "preds", "succs", "wave", "slot", "then", "else", "body", "branches",
			"fallback", "compensate", "action", "paramRef", "keep"} {
			delete(fields, n)
		}
		fields["kind"] = p.Steps[i].Kind.String()
		if n := p.Steps[i].Action; n != plan.None {
			fields["action"] = join("@", p.Actions[n].Name, p.Actions[n].Version)
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

// placeOf names a step of a plan by the steps that own it, as StepPath does.
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
		add("path", path, join(": ", x.Status, x.Reason), join(": ", y.Status, y.Reason))
	}
	if p, q := errorText(x.Error), errorText(y.Error); p != q {
		add("path", path+" error", p, q)
	}
	if !bytes.Equal(x.Output, y.Output) {
		compareValues(path, decoded(x.Output), decoded(y.Output), func(at string, x, y any) { add("outputs", at, x, y) })
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

// firstOf names the earliest step that settled otherwise: its status, its error
// or its output.
func firstOf(a, b *side) *firstDifference {
	var first *firstDifference
	best := uint64(math.MaxUint64)
	for _, path := range union(a.order, b.order) {
		x, y := a.steps[path], b.steps[path]
		text := ""
		switch {
		case x == nil || y == nil:
			text = "only one of them got there"
		case x.Status != y.Status:
			text = fmt.Sprintf("%s in one, %s in the other", x.Status, y.Status)
		case errorText(x.Error) != errorText(y.Error):
			text = "it failed for another reason"
		case !bytes.Equal(x.Output, y.Output):
			text = "its output differs"
		default:
			continue
		}
		events := [2]uint64{a.ended[path], b.ended[path]}
		at := min(orMax(events[0]), orMax(events[1]))
		if at < best {
			best, first = at, &firstDifference{path, text, events}
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

func (s *side) tookMS() float64 {
	if s.view.Ended == 0 {
		return 0
	}
	return millis(s.view.Ended - s.view.Started)
}

func filesOf(s *side) any {
	var list []any
	for _, f := range s.start.Files {
		list = append(list, map[string]any{"hash": f.Hash, "name": f.Name})
	}
	return list
}

// compareValues calls fn for every place in which two JSON values differ; a
// place is written as in an expression.
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
	if !bytes.Equal(rawOf(x), rawOf(y)) {
		fn(at, x, y)
	}
}

func at0(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// union is a with what only b has behind it.
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

// decoded is a recorded value; what cannot be read is compared as text.
func decoded(raw []byte) any {
	if len(raw) == 0 {
		return nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return string(raw)
	}
	return v
}

func rawOf(v any) json.RawMessage {
	raw, err := jsonx.Canonical(v)
	if err != nil {
		// A number of a plan, such as 0.5, or an int that is none of JSON's.
		raw, _ = json.Marshal(v)
	}
	return raw
}

func (a *app) printCompared(c *compared, sides [2]*side) {
	rows := make([][]string, 2)
	for i, s := range sides {
		rows[i] = []string{[]string{"a", "b"}[i], s.id, oneLine(s.view.recipe), join(", ", importedWord(s.imported), s.view.Status.String()), took(micros(s.tookMS())), credits(s.view.Used)}
	}
	a.table(rows, 2)
	if c.First != nil {
		a.text("first divergence: %s (%s)\n", oneLine(c.First.Step), c.First.Text)
	}
	for _, g := range diffGroups {
		list := c.Groups[g]
		if len(list) == 0 {
			continue
		}
		a.text("%s\n", g)
		rows := make([][]string, len(list))
		for i, d := range list {
			rows[i] = []string{"  " + oneLine(d.Where), shortValue(g, d.A), "→ " + shortValue(g, d.B)}
		}
		a.table(rows, 2, 1, 0)
	}
	switch {
	case c.Same:
		a.text("the runs are the same but for time\n")
	case c.First != nil:
		a.say("next: %s", a.hint("explain", c.Runs[1]+" "+oneLine(c.First.Step)))
	}
	if c.Cut {
		a.say("more differs than is listed: -o json with --only lists one group at a time")
	}
}

// shortValue is a value in a table cell, with the unit of its group.
func shortValue(group string, raw json.RawMessage) string {
	if string(raw) == "null" {
		return "–"
	}
	var n float64
	if unit := units[group]; unit != nil && json.Unmarshal(raw, &n) == nil {
		return unit(n)
	}
	return cut(oneLine(string(raw)), 48)
}

// units write the numbers of a group for people.
var units = map[string]func(n float64) string{
	"attempts": func(n float64) string { return count(int(n), "attempt") },
	"credits":  func(n float64) string { return count(int(n), "credit") },
	"time":     func(n float64) string { return took(micros(n)) },
}
