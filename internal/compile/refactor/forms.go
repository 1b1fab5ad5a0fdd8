// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"bytes"
	"regexp"
	"slices"

	"github.com/roux-engine/roux/internal/compile/dag"
	"github.com/roux-engine/roux/internal/compile/flow"
	"github.com/roux-engine/roux/internal/compile/pipeline"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// A written is how a dialect writes what an extraction makes.
type written struct {
	root   string // pointer of a recipe in its text
	steps  string // the field with its steps
	inline string // the field of a step with a recipe within the text, and within its pointer in the step
	within string

	step func(s *recipe.Step) any
	file func(child string) string // the text of a recipe in a file of its own
	// append adds fields to the recipe of a text.
	append func(m *move, text []byte, fields string) []byte
}

var writtenAs = map[string]*written{
	"recipe": {
		steps: "steps", inline: "inline", within: "/recipe/inline",
		step: func(s *recipe.Step) any { return s }, file: whole, append: atEnd,
	},
	"dag": {
		steps: "nodes", inline: "inline", within: "/config/inline", file: whole, append: atEnd,
		step: func(s *recipe.Step) any {
			return &dag.Node{ID: s.ID, Handler: "recipe", Config: s.Recipe, Dependencies: s.DependsOn, Common: s.Common}
		},
	},
	"flow": {
		steps: "nodes", inline: "inline", within: "/recipe/inline", file: whole, append: atEnd,
		step: func(s *recipe.Step) any {
			return &flow.Node{ID: s.ID, Recipe: s.Recipe, Common: s.Common, DependsOn: s.DependsOn}
		},
	},
	"pipeline": {
		root: "/workflow", steps: "steps", inline: "pipeline", within: "/pipeline", step: stage, append: inWorkflow,
		file: func(child string) string { return "workflow:\n" + shifted(child, 2) },
	},
}

// form returns how the text is written where the steps are: steps within a node of a flow are those of a recipe.
func (m *move) form() *written {
	if m.d.Name == "flow" && m.list.owner != nil {
		return writtenAs["recipe"]
	}
	return writtenAs[m.d.Name]
}

func whole(child string) string { return child }

// stage returns a step as one of a pipeline.
func stage(s *recipe.Step) any {
	st := &pipeline.Stage{Name: s.ID, Type: "transform", DependsOn: s.DependsOn, Common: s.Common}
	if s.Transform != nil {
		st.Expression = s.Transform.Expression
		return st
	}
	st.Type, st.PipelineFile, st.Files = "pipeline", s.Recipe.File, s.Recipe.Files
	if in := s.Recipe.Inline; in != nil {
		st.Pipeline = &pipeline.Workflow{Head: in.Head, Steps: []*pipeline.Stage{}}
	}
	return st
}

// atEnd adds fields at the end of a text.
func atEnd(m *move, text []byte, fields string) []byte {
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, m.breaks("\n")...)
	}
	return append(text, m.breaks("\n"+fields)...)
}

// inWorkflow adds fields at the end of the workflow of a text.
func inWorkflow(m *move, text []byte, fields string) []byte {
	indent := m.source.KeyPos(m.recipe.Ptr+"/steps").Col - 1
	end, inside, at := len(text), false, 0
	for line := range bytes.Lines(text) {
		at += len(line)
		switch {
		case bytes.HasPrefix(line, []byte("workflow:")):
			inside, end = true, at
		case !inside || blank(string(line)) || line[0] == '#':
		case line[0] != ' ' && line[0] != '-':
			inside = false // another field beside it
		default:
			end = at
		}
	}
	rest := text[end:]
	return slices.Concat(atEnd(m, slices.Clone(text[:end]), shifted(fields, indent)), rest)
}

// ofNew is the expression for an output of the new recipe.
func (m *move) ofNew(key string) string {
	if m.d.Name == "pipeline" && !slices.Contains([]string{"output", "result", "status", "error"}, key) {
		return "steps" + member(m.Name) + "." + key
	}
	return "steps" + member(m.Name) + ".output." + key
}

// supply gives the new recipe what its steps use of this one: functions that they call, and inputs that actions have
// by default.
func (m *move) supply(head *recipe.Recipe, body string) {
	texts, calls := []string{body}, map[string]*regexp.Regexp{}
	for name, f := range m.recipe.Functions {
		if f != nil {
			calls[name] = regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\s*\(`)
		}
	}
	for len(texts) > 0 {
		text := texts[0]
		texts = texts[1:]
		for name, call := range calls {
			f := m.recipe.Functions[name]
			if head.Functions[name] != nil || !call.MatchString(text) {
				continue
			}
			if head.Functions == nil {
				head.Functions = map[string]*recipe.Function{}
			}
			head.Functions[name] = f
			texts = append(texts, f.Expression) // which may call others
		}
	}
	for s := range m.inside {
		if s.Action != nil && m.recipe.Providers[s.Action.Name] != nil || s.Recipe != nil && s.Recipe.Inherits(recipe.InheritProviders) {
			head.Providers = m.recipe.Providers
		}
	}
}
