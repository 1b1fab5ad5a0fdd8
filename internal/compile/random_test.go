// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A drawing generates random recipes of nested scopes that read and bind a few names. Many
// of them do not compile; enough do.
type drawing struct {
	t     *rapid.T
	made  int
	ids   []string // of the steps that are complete, which others may name
	depth int
	loops int
	left  int
}

var boundNames = []string{"a", "b", "c"}

func drawRecipe(t *rapid.T) *recipe.Recipe {
	d := &drawing{t: t, left: 14}
	r := &recipe.Recipe{Head: recipe.Head{Name: "random"}, Settings: recipe.Settings{Order: rapid.SampledFrom([]string{"", "sequence", "none"}).Draw(t, "order")}}
	for _, name := range boundNames {
		if rapid.IntRange(0, 3).Draw(t, "bound first") > 0 {
			d.made++
			d.ids = append(d.ids, fmt.Sprintf("s%d", d.made))
			r.Steps = append(r.Steps, &recipe.Step{ID: d.ids[len(d.ids)-1], Transform: &recipe.Transform{Expression: "[]", OutputBinding: name}})
		}
	}
	r.Steps = append(r.Steps, d.steps(1, 6)...)
	if rapid.Bool().Draw(t, "has outputs") {
		r.Outputs = map[string]string{"o": d.expression()}
	}
	return r
}

func (d *drawing) steps(least, most int) []*recipe.Step {
	n := rapid.IntRange(least, most).Draw(d.t, "steps")
	out := []*recipe.Step{}
	var here []string
	for range n {
		s := d.step()
		if len(here) > 0 && rapid.IntRange(0, 3).Draw(d.t, "depends") == 0 {
			on := rapid.SliceOfNDistinct(rapid.SampledFrom(here), 0, min(2, len(here)), rapid.ID[string]).Draw(d.t, "on")
			s.DependsOn = &on
		}
		here = append(here, s.ID)
		out = append(out, s)
	}
	return out
}

func (d *drawing) step() *recipe.Step {
	d.made++
	s := &recipe.Step{ID: fmt.Sprintf("s%d", d.made)}
	d.left--
	if rapid.IntRange(0, 5).Draw(d.t, "when") == 0 {
		s.When = d.expression() + " != []"
	}
	kind := rapid.IntRange(0, 9).Draw(d.t, "kind")
	if d.depth >= 3 || d.left <= 0 {
		kind = min(kind, 5)
	}
	d.depth++
	switch {
	case kind <= 3:
		s.Transform = &recipe.Transform{Expression: d.expression()}
	case kind <= 5:
		if s.Action = (&recipe.Action{Name: "echo"}); rapid.IntRange(0, 3).Draw(d.t, "runs a recipe") == 0 {
			s.Action, s.Recipe = nil, d.child()
		}
		s.InputBindings = map[string]recipe.Binding{"x": {Expression: d.expression()}}
		switch rapid.IntRange(0, 5).Draw(d.t, "on error") {
		case 0:
			s.ContinueOnError = true
		case 1:
			s.OnError = &recipe.OnError{Strategy: "skip"}
		case 2:
			s.OnError = &recipe.OnError{Strategy: "fallback", FallbackStep: d.step()}
		case 3:
			s.Compensate = &recipe.Compensate{Action: &recipe.Action{Name: "echo"}, InputBindings: map[string]recipe.Binding{"x": {Expression: d.expression()}}}
		}
	case kind <= 7:
		s.Condition = &recipe.Condition{Expression: d.expression() + " != []", Then: d.steps(0, 2)}
		if rapid.Bool().Draw(d.t, "else") {
			s.Condition.Else = d.steps(1, 2)
			if rapid.IntRange(0, 3).Draw(d.t, "ends") == 0 {
				s.Condition.Else = []*recipe.Step{{Fail: &recipe.Fail{}}}
			}
		}
	case kind == 8:
		s.Parallel = &recipe.Parallel{
			WaitFor:         rapid.SampledFrom([]string{"all", "any", "first_success"}).Draw(d.t, "wait for"),
			FailureStrategy: rapid.SampledFrom([]string{"fail_fast", "ignore"}).Draw(d.t, "strategy"),
		}
		for range rapid.IntRange(1, 3).Draw(d.t, "branches") {
			s.Parallel.Branches = append(s.Parallel.Branches, d.steps(1, 2))
		}
	default:
		d.loops++
		s.Loop = &recipe.Loop{Over: d.expression(), Steps: d.steps(1, 3)}
		d.loops--
	}
	d.depth--
	if rapid.IntRange(0, 1).Draw(d.t, "binds") == 0 {
		s.OutputBinding = rapid.SampledFrom(boundNames).Draw(d.t, "name")
	}
	d.ids = append(d.ids, s.ID)
	return s
}

// child draws which recipe a step runs, and its input.
func (d *drawing) child() *recipe.Child {
	k := &recipe.Child{Ref: "other@1"}
	if rapid.Bool().Draw(d.t, "inline") {
		inner := rapid.SampledFrom([]string{"1", "input.x", "[input.y]"}).Draw(d.t, "inner")
		k = &recipe.Child{Inline: &recipe.Recipe{Head: recipe.Head{Name: "inner"}, Steps: []*recipe.Step{{Transform: &recipe.Transform{Expression: inner, OutputBinding: "o"}}}}}
		if rapid.Bool().Draw(d.t, "takes a part") {
			k.Outputs = []*recipe.Output{{Path: "o", As: "p"}}
		}
	}
	if rapid.Bool().Draw(d.t, "has fixed inputs") {
		k.Inputs = map[string]json.RawMessage{"y": json.RawMessage(`"{{ ` + d.expression() + ` }}"`), "z": json.RawMessage("1")}
	}
	if rapid.Bool().Draw(d.t, "has files") {
		k.Files = d.expression()
	}
	return k
}

func (d *drawing) expression() string {
	var refs []string
	for range rapid.IntRange(0, 2).Draw(d.t, "refs") {
		switch k := rapid.IntRange(0, 7).Draw(d.t, "ref"); {
		case k <= 3:
			refs = append(refs, rapid.SampledFrom(boundNames).Draw(d.t, "binding"))
		case k == 4 && len(d.ids) > 0 && rapid.IntRange(0, 2).Draw(d.t, "any step") == 0:
			refs = append(refs, "steps."+rapid.SampledFrom(d.ids).Draw(d.t, "step")+".output")
		case k == 5 && d.loops > 0:
			refs = append(refs, "item")
		default:
			refs = append(refs, "input.x")
		}
	}
	return "[" + strings.Join(refs, ", ") + "]"
}
