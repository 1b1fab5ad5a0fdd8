// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// Drawn is a Source of random recipes. Number n is the same recipe in every process.
// Neighbouring numbers cover every kind of step and every policy (sample.Recipe). Most
// recipes are small; one in forty is wide, one in forty deep.
type Drawn struct{}

// streamOfCases separates the random numbers of a case from those of a schedule.
const streamOfCases = 0x5ca1ab1e

// drawnLimits keep drawn recipes small, because a loop in a loop could fill the
// memory. A retry may raise them a little.
var drawnLimits = compile.Limits{Default: plan.Limits{TotalSteps: 1_000}}

// Case draws recipe n. A recipe that does not compile is a bug of the generator or of
// the compiler, and an error.
func (Drawn) Case(n uint64) (*Case, error) {
	dice := rand.New(rand.NewPCG(n, streamOfCases))
	r := sample.Recipe(dice, shapeOf(n, dice))
	estimate(n, r)
	registered := drawLibrary(n)
	nest(n, r, registered)
	text, sources, err := writeCase(n, r, registered)
	if err != nil {
		return nil, fmt.Errorf("case %d: %w", n, err)
	}
	p, others, err := sources.compile(text)
	if err != nil {
		return nil, fmt.Errorf("case %d: %w", n, err)
	}
	later, err := sources.revise(n, text)
	if err != nil {
		return nil, fmt.Errorf("case %d: %w", n, err)
	}
	list := drawFile(dice)
	c := &Case{
		Name: fmt.Sprintf("drawn %d", n), Recipe: text.Data, Plan: p, Others: others, Later: later, text: text, sources: sources, Actions: drawnActions, Prices: drawnPrices, Pays: true, Scheduled: true,
		Parameters: map[string]any{
			"zero": int64(0), "list": []any{int64(1), "two"}, "file": list.Hash,
			"when": drawnWhen,
		},
		Files:   []File{list},
		Signals: drawnSignals,
		Edits:   []map[string]any{{"zero": int64(1)}, {"list": []any{}, "gone": "here"}, {"list": []any{}}, {"other": true}},
		From:    stepsOf(p, dice),
		Answer:  drawAnswer,
	}
	switch dice.IntN(40) {
	case 0:
		c.Files = nil // the file is missing
	case 1:
		if !loopsInside(p) { // they would fill the memory, and each check reads it all again
			c.Answer = drawLarge
		}
	}
	return c, nil
}

// loopsInside reports whether a loop of a plan contains a loop or a child run.
func loopsInside(p *plan.Plan) bool {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Kind != plan.Loop && s.Kind != plan.Recipe {
			continue
		}
		for g := p.Steps[i].Graph; p.Graphs[g].Owner >= 0; g = p.Steps[p.Graphs[g].Owner].Graph {
			if p.Graphs[g].Role == plan.Body {
				return true
			}
		}
	}
	return false
}

// estimate makes two recipes of three expect less than they cost, so that their runs
// ask for more credits. It draws nothing: worlds whose accounts do not pay stay as they
// were.
func estimate(n uint64, r *recipe.Recipe) {
	r.CreditPolicy = []string{"refund_unused", "refund_all", "no_refund"}[n%3]
	if n%3 > 0 {
		r.CreditEstimation = &recipe.CreditEstimation{Strategy: "calculated", Formula: fmt.Sprint(n % 7), MaxCredits: 10 + int64(n%90)}
	}
}

// drawnWhen is input.when: 75 seconds after the clock of a World begins.
const drawnWhen = "2026-01-01T00:01:15Z"

var drawnSignals = []string{"go", "more"}

func shapeOf(n uint64, dice *rand.Rand) sample.Shape {
	s := sample.Shape{
		Steps: 14 + dice.IntN(44), Width: 7 + dice.IntN(16), Depth: 1 + dice.IntN(4),
		Actions: []string{"work", "work", "work", "work", "once", "slotted", "provided", "alone"},
		Undo:    "undo", Sleep: "sleep", Lens: "ask", Signals: drawnSignals,
	}
	switch n % 40 {
	case 17:
		s.Steps, s.Width, s.Depth = 200, 200, 1
	case 23:
		s.Steps, s.Width, s.Depth = 50, 2, 24
	case 29:
		s.Steps, s.Width = 1+dice.IntN(3), 0
	case 7, 13, 31, 37: // none of the seeds kept from before this option is among them
		s.Rebind = 50
	}
	if inherits(n) {
		s.Recipes = 30
	}
	return s
}

// drawnLenses are the lenses that steps name.
var drawnLenses = catalogue.NewLenses(&catalogue.Lens{ID: "ask", Version: "1", Template: "{{ q }} of {{ list }}"})

// drawnActions differ in every property that the engine and the machine depend on.
var drawnActions = func() *catalogue.Catalogue {
	anything := json.RawMessage(`{"type":"object"}`)
	return catalogue.New(
		&action.Action{Name: "work", Version: "1.0.0", Input: anything, Cost: 2},
		&action.Action{Name: "once", Version: "1.0.0", Input: anything, Delivery: action.AtMostOnce},
		&action.Action{Name: "undo", Version: "1.0.0", Input: anything, Cost: 1},
		&action.Action{Name: "slotted", Version: "1.0.0", Input: anything, Slots: 2, Price: "0.4"},
		&action.Action{Name: "provided", Version: "1.0.0", Input: anything, Provider: "far", Price: "0.000001"},
		&action.Action{Name: "alone", Version: "1.0.0", Input: anything, Slots: 1},
		&action.Action{
			Name: "sleep", Version: "1.0.0", Waits: "duration",
			Input: json.RawMessage(`{"type":"object","required":["duration"],"properties":{"duration":{"type":"string"}}}`),
		},
	)
}()

// drawFile draws the contents of input.file: a list in one of the three forms,
// sometimes longer than one window of items, and sometimes not a list at all.
func drawFile(dice *rand.Rand) File {
	n := dice.IntN(8)
	if dice.IntN(25) == 0 {
		n = 300
	}
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(`{"n":%d}`, i))
	}
	f := File{Name: "list.json", MimeType: "application/json", Data: []byte("[" + strings.Join(items, ",") + "]")}
	switch dice.IntN(8) {
	case 0, 1, 2:
		f = File{Name: "list.jsonl", MimeType: "application/jsonl", Data: []byte(strings.Join(items, "\n") + "\n")}
	case 3:
		f = File{Name: "list.csv", MimeType: "text/csv", Data: []byte("n\n" + strings.Repeat("7\n", n))}
	case 4:
		f.Data = append(f.Data[:len(f.Data)-1], ", 1"...) // truncated
	}
	f.Hash = fmt.Sprintf("sha256_%x", sha256.Sum256(f.Data))
	return f
}

// stepsOf returns a few steps that a user may retry from: steps that own others, which
// then start over with everything they own, other steps of the root, and one inner
// step.
func stepsOf(p *plan.Plan, dice *rand.Rand) []string {
	root := &p.Graphs[0]
	var owners, from []string
	for i := range root.N {
		if st := &p.Steps[root.First+i]; len(st.Graphs()) > 0 && st.Kind != plan.Action {
			owners = append(owners, st.ID)
		}
	}
	for range min(3, len(owners)) {
		from = append(from, owners[dice.IntN(len(owners))])
	}
	for range 2 {
		from = append(from, p.Steps[root.First+int32(dice.IntN(int(root.N)))].ID)
	}
	return append(from, p.Steps[dice.IntN(len(p.Steps))].ID)
}

// drawAnswer makes the output of a successful attempt: usually an object, as contracts
// require.
func drawAnswer(dice *rand.Rand, _ *machine.Task, _ []byte) []byte {
	return []byte([]string{`{"ok":true}`, `{"ok":true}`, `{"n":[1,2,{"x":null}]}`, `{"text":"` + strings.Repeat("long ", 40) + `"}`,
		`[1,"two"]`, `"text"`, `7`, `null`}[dice.IntN(8)])
}

// drawLarge makes outputs of which only a few fit in memory together, so that loops
// spill and request that their outputs are collected.
func drawLarge(dice *rand.Rand, t *machine.Task, input []byte) []byte {
	if dice.IntN(3) == 0 {
		return drawAnswer(dice, t, input)
	}
	return []byte(`{"large":"` + strings.Repeat("x", 200_000+dice.IntN(400_000)) + `"}`)
}
