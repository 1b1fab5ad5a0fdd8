// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
)

// mocked is the world of a test: its mocks.
type mocked struct {
	mocks *Mocks
	allow []string
	value func(raw json.RawMessage) (any, error) // decodes a value of the test file
	calls map[string]int64                       // by the name of the action
	asked map[string]int                         // how many answers a step or signal has had
	conds map[string]*expr.Program
	lacks []string // signals that were waited for and not sent
}

func newMocked(m *Mocks, allow []string, value func(json.RawMessage) (any, error)) *mocked {
	return &mocked{mocks: m, allow: allow, value: value, calls: map[string]int64{}, asked: map[string]int{}, conds: map[string]*expr.Program{}}
}

// An unmocked error says that a run makes a call that nothing answers.
type unmocked struct{ step, action string }

func (u *unmocked) Error() string {
	if u.action == approval.ActionName {
		return fmt.Sprintf("step %q asks for an approval, and mocks.approvals has no answer to it", u.step)
	}
	return fmt.Sprintf("step %q calls %s, which has effects: answer it in mocks.steps or mocks.actions, or name it in allow", u.step, u.action)
}

// call implements world.
func (m *mocked) call(c *call) (reply, error) {
	name := c.action.Name
	if name == stubAction {
		return m.childRecipe(c)
	}
	m.calls[name]++
	if name == approval.ActionName {
		return m.approve(c)
	}
	for _, answers := range [][]Answer{m.mocks.Steps[c.path], m.mocks.Steps[c.id], m.mocks.Actions[name]} {
		if len(answers) == 0 {
			continue
		}
		a, err := m.pick(c, answers, c.attempt)
		if err != nil || a != nil {
			return m.reply(c, a, err)
		}
	}
	if builtin.Pure(c.action) || slices.Contains(m.allow, name) {
		return reply{}, nil
	}
	return reply{}, &unmocked{c.path, name}
}

// pick returns the answer to the nth try of a call: of those whose conditions hold, the nth, or
// the last if there are fewer. nil = none is for this call.
func (m *mocked) pick(c *call, answers []Answer, n int) (*Answer, error) {
	var fits []*Answer
	for i := range answers {
		a := &answers[i]
		holds, err := m.holds(c, a)
		if err != nil {
			return nil, err
		}
		if holds {
			fits = append(fits, a)
		}
	}
	if len(fits) == 0 {
		return nil, nil
	}
	return fits[min(max(n, 1), len(fits))-1], nil
}

// holds reports whether the condition of an answer is true for a call.
func (m *mocked) holds(c *call, a *Answer) (bool, error) {
	if a.When == "" {
		return true, nil
	}
	prog := m.conds[a.When]
	if prog == nil {
		var err error
		if prog, err = expr.Compile(a.When); err != nil {
			return false, err
		}
		m.conds[a.When] = prog
	}
	input, err := jsonx.Decode(c.input, jsonx.Limits{Bytes: len(c.input) + 1})
	if err != nil {
		return false, err
	}
	v, err := prog.Eval(expr.MapVars{"input": input, "step": c.path, "attempt": int64(c.attempt)})
	if err != nil {
		return false, fault.New(fault.InputInvalid, "the condition `%s` of a mock cannot be evaluated for step %q: %s", view.OneLine(a.When), c.path, fault.Message(err))
	}
	holds, _ := v.(bool)
	return holds, nil
}

// reply is how an answer answers a call.
func (m *mocked) reply(c *call, a *Answer, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	run, err := m.result(c, a)
	if err != nil {
		return reply{}, err
	}
	r := reply{run: run, delay: micros(a.Delay)}
	if a.Job != "" {
		r.run = submits(c)
		r.job = &jobEnd{after: micros(a.Job), run: run}
	}
	return r, nil
}

// submits makes an action that submits an external job.
func submits(c *call) action.Func {
	id := fmt.Sprintf("%s-%d-%d", strings.NewReplacer("/", "-", " ", "-").Replace(c.key.Run+"-"+c.path), c.gen, c.attempt)
	return returns(action.Result{Job: &action.Job{Provider: provider, ID: id, TTL: 366 * 24 * time.Hour}})
}

// result makes an action of an answer.
func (m *mocked) result(c *call, a *Answer) (action.Func, error) {
	if a.Error != nil {
		return fails(a.Error.fault()), nil
	}
	v, err := m.value(a.Output)
	if err != nil {
		return nil, err
	}
	return returns(action.Result{Output: complete(c.action.Output, v), Price: a.Price}), nil
}

// approve answers a step that asks for an approval.
func (m *mocked) approve(c *call) (reply, error) {
	list := m.mocks.Approvals[c.path]
	if list == nil {
		list = m.mocks.Approvals[c.id]
	}
	task := &action.Task{Run: c.key.Run, Step: c.path, Attempt: c.attempt, Account: c.key.Account, EffectKey: fmt.Sprintf("%s/%s/%d/%d", c.key.Run, c.path, c.gen, c.attempt), Input: c.input}
	var answer *approval.Answer
	after := time.Duration(0)
	if len(list) > 0 {
		n := m.asked["approval/"+c.path]
		m.asked["approval/"+c.path]++
		d := &list[min(n, len(list)-1)]
		answer, after = &approval.Answer{Decision: approval.Decision(d.Decision), By: cmp.Or(d.By, "tester"), Comment: d.Comment, Values: d.Values}, time.Duration(micros(d.After))*time.Microsecond
	}
	job, later, result, err := approval.Offline(task, answer, after, c.now)
	if err != nil {
		return reply{run: fails(err)}, nil
	}
	if answer == nil && later == 0 {
		return reply{}, &unmocked{c.path, c.action.Name}
	}
	return reply{run: returns(action.Result{Job: job}), job: &jobEnd{later.Microseconds(), result}}, nil
}

// waiting implements world.
func (m *mocked) waiting(w *wait) (data any, after int64, ok bool, err error) {
	list := m.mocks.Signals[w.signal]
	n := m.asked["signal/"+w.signal]
	m.asked["signal/"+w.signal]++
	if n >= len(list) {
		m.lacks = append(m.lacks, fmt.Sprintf("step %q has waited for the signal %q, which mocks.signals does not send", w.path, w.signal))
		return nil, 0, false, nil
	}
	data, err = m.value(list[n].Data)
	return data, micros(list[n].After), err == nil, err
}

// childRecipe answers in place of a child recipe.
func (m *mocked) childRecipe(c *call) (reply, error) {
	var in struct {
		Recipe string          `json:"recipe"`
		Input  json.RawMessage `json:"input"`
	}
	if err := json.Unmarshal(c.input, &in); err != nil {
		return reply{}, err
	}
	parent := strings.TrimSuffix(c.path, "/"+c.id)
	key := "recipe/" + in.Recipe + "/" + parent
	m.asked[key]++
	asked := *c
	asked.input, asked.path, asked.attempt = in.Input, parent, m.asked[key]
	a, err := m.pick(&asked, m.mocks.Recipes[in.Recipe], asked.attempt)
	if err == nil && a == nil {
		return reply{}, fault.New(fault.InputInvalid, "step %q runs the recipe %q, and no answer of mocks.recipes is for that input", parent, in.Recipe)
	}
	return m.reply(c, a, err)
}

// testSecrets are the secrets of a test.
type testSecrets map[string]string

// Secret implements worker.SecretSource.
func (s testSecrets) Secret(_ context.Context, _, name string) (string, error) {
	if v, ok := s[name]; ok {
		return v, nil
	}
	return "", fault.New(fault.SecretNotFound, "mocks.secrets has no secret %q", name)
}
