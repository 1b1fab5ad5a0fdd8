// SPDX-License-Identifier: Apache-2.0

package refactor

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// write makes the texts.
func (m *move) write() (*Result, error) {
	from, to, col, err := m.lines()
	if err != nil {
		return nil, err
	}
	between, err := m.takeEdges()
	if err != nil {
		return nil, err
	}
	if err := m.bindInputs(); err != nil {
		return nil, err
	}
	if err := m.editNames(); err != nil {
		return nil, err
	}
	start, end := m.line(from), m.line(to)
	body := string(apply(m.Bytes, m.edits, start, end))
	child, err := m.child(shifted(strings.ReplaceAll(body, "\r\n", "\n"), 2-col), between)
	if err != nil {
		return nil, err
	}
	step, err := m.step(child)
	if err != nil {
		return nil, err
	}
	text := slices.Concat(apply(m.Bytes, m.edits, 0, start), []byte(m.breaks(shifted(step, col))), apply(m.Bytes, m.edits, end, len(m.Bytes)))
	if text, err = m.withResults(text); err != nil {
		return nil, err
	}
	res := &Result{Text: text, New: []byte(m.form().file(child)), Steps: len(m.inside)}
	if m.Path == "" {
		res.New = nil
	}
	for _, c := range m.inputs {
		res.Inputs = append(res.Inputs, c.key)
	}
	for _, c := range m.outputs {
		res.Outputs = append(res.Outputs, c.key)
	}
	slices.Sort(res.Inputs)
	slices.Sort(res.Outputs)
	return res, nil
}

// shifted indents each line of a text, or with n < 0 removes spaces.
func shifted(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		switch {
		case strings.TrimSpace(line) == "":
		case n >= 0:
			lines[i] = strings.Repeat(" ", n) + line
		default:
			indent := len(line) - len(strings.TrimLeft(line, " "))
			lines[i] = line[min(-n, indent):]
		}
	}
	text = strings.Join(lines, "")
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// child returns the text of the new recipe.
func (m *move) child(body, edges string) (string, error) {
	head := &recipe.Recipe{
		Head:     recipe.Head{Name: m.Name, Description: fmt.Sprintf("What the steps %s to %s of %s do.", m.First, m.Last, m.recipe.Name)},
		Settings: m.settings(),
	}
	if m.First == m.Last {
		head.Description = fmt.Sprintf("What the step %s of %s does.", m.First, m.recipe.Name)
	}
	if len(m.inputs) > 0 {
		required, props := []string{}, map[string]any{}
		for _, c := range m.inputs {
			required = append(required, c.key)
			props[c.key] = map[string]any{}
			if field, ok := strings.CutPrefix(c.source, "input."); ok {
				props[c.key] = schemaOf(m.recipe.InputSchema, field)
			}
		}
		slices.Sort(required)
		raw, err := jsonx.Marshal(struct {
			Type     string         `json:"type"`
			Required []string       `json:"required"`
			Props    map[string]any `json:"properties"`
		}{"object", required, props})
		if err != nil {
			return "", err
		}
		head.InputSchema = raw
	}
	m.supply(head, body)
	text, err := m.encode(head)
	if err != nil {
		return "", err
	}
	out := text + "\n" + m.form().steps + ":\n" + body
	switch {
	case !m.flow():
	case edges == "":
		out += "\nedges: []\n"
	default:
		out += "\nedges:\n" + edges
	}
	if len(m.outputs) > 0 {
		outputs := map[string]string{}
		for _, c := range m.outputs {
			outputs[c.key] = c.source
		}
		more, err := encoded(map[string]any{"outputs": outputs})
		if err != nil {
			return "", err
		}
		out += "\n" + more
	}
	return out, nil
}

// settings returns the settings under which the steps mean the same.
func (m *move) settings() recipe.Settings {
	r := m.recipe
	s := recipe.Settings{
		Order: r.Order, Scheduling: r.Scheduling, FailurePolicy: r.FailurePolicy, OnUpstreamFailure: r.OnUpstreamFailure,
		ServiceRetry: r.ServiceRetry, TTL: r.TTL,
	}
	if m.list.branch {
		s.Order = "sequence"
	}
	if l := r.Limits; l != nil {
		s.Limits = &recipe.Limits{MaxLoopItems: l.MaxLoopItems, MaxScopeDepth: l.MaxScopeDepth, MaxExpressionCost: l.MaxExpressionCost}
		if *s.Limits == (recipe.Limits{}) {
			s.Limits = nil
		}
	}
	if m.d.Name == "dag" { // whose defaults are not written
		if s.Order == "none" {
			s.Order = ""
		}
		if s.OnUpstreamFailure == "fail" {
			s.OnUpstreamFailure = ""
		}
		if p := s.ServiceRetry; p != nil && p.MaxAttempts == 3 && p.InitialDelay == "1s" && p.MaxDelay == "60s" && p.BackoffMultiplier == 2 && p.Jitter == nil && p.RetryableErrors == nil {
			s.ServiceRetry = nil
		}
		return s
	}
	if m.flow() {
		s.ResultRule = r.ResultRule
		for _, f := range []struct {
			is  *string
			def string
		}{{&s.Order, "none"}, {&s.FailurePolicy, "drain"}, {&s.OnUpstreamFailure, "fail"}, {&s.ResultRule, "leaves"}} {
			if *f.is == f.def {
				*f.is = ""
			}
		}
		return s
	}
	if s.Order == "sequence" {
		s.Order = ""
	}
	return s
}

// encode writes the head of a recipe: everything but its steps.
func (m *move) encode(r *recipe.Recipe) (string, error) {
	return encoded(struct {
		recipe.Head
		recipe.Settings
	}{r.Head, r.Settings})
}

// encoded writes a value as YAML.
func encoded(v any) (string, error) {
	raw, err := jsonx.Marshal(v)
	if err != nil {
		return "", err
	}
	n, problems := yamlx.Parse(raw, jsonx.Limits{Bytes: len(raw) + 1, Tokens: len(raw) + 1})
	if len(problems) > 0 {
		return "", problems[0]
	}
	return string(yamlx.Encode(n)), nil
}

// step returns the text of the step that takes the place of those that move.
func (m *move) step(child string) (string, error) {
	k := &recipe.Child{File: m.Path}
	if m.files {
		k.Files = "fileHashes"
	}
	s := &recipe.Step{ID: m.Name, Recipe: k, DependsOn: m.depends}
	if len(m.inputs) > 0 {
		s.InputBindings = map[string]recipe.Binding{}
		for _, c := range m.inputs {
			if strings.HasPrefix(c.source, byEdges) {
				continue
			}
			s.InputBindings[c.key] = recipe.Binding{Expression: c.source}
		}
	}
	if m.bound() {
		s.OutputBinding = m.bind
	}
	if m.Path == "" {
		k.Inline = &recipe.Recipe{Head: recipe.Head{Name: "@"}}
	}
	text, err := encoded([]any{m.form().step(s)})
	if err != nil {
		return "", err
	}
	if m.Path == "" {
		text = inlined(text, child, m.form().inline)
	}
	if m.trailer {
		of := m.ofNew(m.output("steps."+m.list.steps[m.last].ID+".output", ""))
		last, err := encoded([]any{m.form().step(&recipe.Step{ID: m.freeID(m.Name + "-output"), Transform: &recipe.Transform{Expression: of}})})
		if err != nil {
			return "", err
		}
		text += last
	}
	return text, nil
}

// bound reports whether others read what the steps bind.
func (m *move) bound() bool {
	if m.results && m.recipe.Result != "steps" {
		return true
	}
	return slices.ContainsFunc(m.rewrites, func(r rewrite) bool { return !r.inside && strings.HasPrefix(r.to, m.bind+".") })
}

func (m *move) freeID(id string) string {
	for m.byID[id] != nil {
		id += "-2"
	}
	return id
}

// inlined puts the new recipe into the step that runs it, with its comments.
func inlined(step, child, field string) string {
	var out strings.Builder
	lines := strings.SplitAfter(step, "\n")
	for i := 0; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		if !strings.HasPrefix(text, field+":") {
			out.WriteString(lines[i])
			continue
		}
		indent := len(lines[i]) - len(text)
		out.WriteString(strings.Repeat(" ", indent) + field + ":\n" + shifted(child, indent+2))
		for i+1 < len(lines) && len(lines[i+1])-len(strings.TrimLeft(lines[i+1], " ")) > indent && lines[i+1] != "" {
			i++ // what stands for the recipe
		}
	}
	return out.String()
}

// withResults writes out the result of the recipe, which follows from its steps otherwise.
func (m *move) withResults(text []byte) ([]byte, error) {
	if !m.results {
		return text, nil
	}
	if at := m.recipe.Ptr + "/outputs"; m.source.Tree().Find(m.source.Pointer(at)) != nil {
		return nil, refuse("the result of the recipe has to be written out, and its outputs are there and empty").in(at).
			advising("Remove them, or say with them what the result is.")
	}
	outputs := map[string]string{}
	key := map[string]string{}
	for _, c := range m.outputs {
		key[c.source] = c.key
	}
	if m.recipe.Result == "steps" {
		for i, s := range m.list.steps {
			outputs[s.ID] = "steps" + member(s.ID) + ".output"
			if i >= m.first && i <= m.last {
				outputs[s.ID] = m.ofNew(key["steps"+member(s.ID)+".output"])
			}
		}
	} else {
		for name, b := range m.frames[nil] {
			outputs[name] = name
			if b.in {
				outputs[name] = m.bind + "." + key[name]
			}
		}
	}
	more, err := encoded(map[string]any{"outputs": outputs})
	if err != nil {
		return nil, err
	}
	return m.form().append(m, text, more), nil
}

// breaks gives a text the line breaks of the recipe.
func (m *move) breaks(text string) string {
	if bytes.Contains(m.Bytes, []byte("\r\n")) {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
