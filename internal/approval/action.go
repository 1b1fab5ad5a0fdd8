// SPDX-License-Identifier: Apache-2.0

package approval

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
)

// input is what a recipe says of an approval; compile has checked what does not depend on the run.
type input struct {
	Title     text            `json:"title"`
	Text      text            `json:"text"`
	Form      json.RawMessage `json:"form"`
	Value     json.RawMessage `json:"value"`
	Approvers []string        `json:"approvers"`
	RemindMS  int64           `json:"remindMs"`
	TimeoutMS int64           `json:"timeoutMs"`
	Reject    string          `json:"reject"`
	Default   *struct {
		Decision Decision        `json:"decision"`
		Comment  string          `json:"comment"`
		Values   json.RawMessage `json:"values"`
	} `json:"default"`
}

// text is a text of a template, which may have become another value.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(raw []byte) error {
	if raw[0] != '"' {
		*t = text(raw)
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// options are those of a request of a recipe.
type options struct {
	FailOnReject bool `json:"failOnReject,omitempty"`
}

// Action declares what the steps of recipes call that wait for an approval. Recipes cannot name it:
// they say `wait: {approval: …}`. It asks nobody; that of a manager does.
func Action() action.Action {
	return action.Action{
		Name: ActionName, Version: "1.0.0", Description: "Asks a person, and waits for the answer.", Provider: jobs.People,
		Output: json.RawMessage(outputSchema),
		Faults: []fault.Code{fault.ApprovalRejected, fault.WaitTimeout},
		Run: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New(fault.NotAvailable, "nobody can be asked here")
		},
	}
}

// ActionName is the name of the action, which is no name that a recipe can use.
const ActionName = "@approval"

const outputSchema = `{"type":"object","required":["decision","by","at","comment","values"],"properties":{
"decision":{"type":"string","enum":["approved","rejected"],"description":"What was decided."},
"by":{"type":"string","description":"Name of the key that has answered, or for whom its link was made; default at the time-out."},
"at":{"type":"string","format":"date-time"},
"comment":{"type":"string"},
"values":{"type":"object","description":"What was filled in, which fits the form."}}}`

// Action is the action that asks.
func (m *Manager) Action() action.Action {
	a := Action()
	a.Run = m.ask
	return a
}

func (m *Manager) ask(ctx context.Context, t *action.Task) (action.Result, error) {
	r, err := requestOf(t)
	if err != nil {
		return action.Result{}, err
	}
	job, err := m.Submit(ctx, t, r)
	return action.Result{Job: job}, err
}

// requestOf returns what a step asks.
func requestOf(t *action.Task) (*Request, error) {
	var in input
	if err := t.Decode(&in); err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "what the step asks cannot be read: %v", err)
	}
	opts, err := json.Marshal(options{FailOnReject: in.Reject == "fail"})
	if err != nil {
		return nil, err
	}
	r := &Request{
		Kind: KindApproval, Title: oneLine(string(in.Title)), Text: string(in.Text), Form: in.Form, Value: in.Value, Approvers: in.Approvers,
		Timeout: time.Duration(in.TimeoutMS) * time.Millisecond, Remind: time.Duration(in.RemindMS) * time.Millisecond, Options: opts,
	}
	if d := in.Default; d != nil {
		r.Default = &Answer{Decision: d.Decision, Comment: d.Comment, Values: d.Values}
	}
	return r, nil
}

// oneLine makes a title of a text, which may come from a value of any length.
func oneLine(text string) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > MaxTitle {
		runes = append(runes[:MaxTitle-1], '…')
	}
	return string(runes)
}

// output is the output of a step that has waited for an approval.
type output struct {
	Decision Decision        `json:"decision"`
	By       string          `json:"by"`
	At       string          `json:"at"`
	Comment  string          `json:"comment"`
	Values   json.RawMessage `json:"values"`
}

// approvalResult is the Result of the requests of recipes.
func approvalResult(_ context.Context, r *Request, a *Answer, _ *action.Task) (action.Result, error) {
	var opts options
	_ = json.Unmarshal(r.Options, &opts) // as ask has made them
	if a.Decision == Rejected && opts.FailOnReject {
		text := a.By + " has rejected it"
		if a.Comment != "" {
			text += ": " + a.Comment
		}
		return action.Result{}, fault.New(fault.ApprovalRejected, "%q: %s", r.Title, text)
	}
	return action.Result{Output: output{a.Decision, a.By, stamp(a.At), a.Comment, a.Values}}, nil
}
