// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Approvals are what people are asked.
type Approvals struct{ c *Client }

// An Approval is a request for people. Text, Form, Value and Default are not in lists.
type Approval struct {
	ID          string           `json:"id"`
	Kind        string           `json:"kind"`  // approval or review
	State       string           `json:"state"` // open, approved, rejected, edited, timed_out or cancelled
	Title       string           `json:"title"`
	Text        string           `json:"text,omitempty"`
	Form        json.RawMessage  `json:"form,omitempty"` // JSON Schema of the values of an answer
	Value       json.RawMessage  `json:"value,omitempty"`
	Decisions   []string         `json:"decisions"`           // that are possible
	Approvers   []string         `json:"approvers,omitempty"` // names of keys, and role:NAME; none = every key that may answer approvals
	MayAnswer   bool             `json:"mayAnswer"`           // whether the client's key is one of the approvers
	ExecutionID string           `json:"executionId"`
	Step        string           `json:"step"`
	RequestedAt time.Time        `json:"requestedAt"`
	ExpiresAt   *time.Time       `json:"expiresAt,omitempty"`
	RemindAt    *time.Time       `json:"remindAt,omitempty"`
	Default     *ApprovalDefault `json:"default,omitempty"` // that applies at ExpiresAt
	Answer      *ApprovalAnswer  `json:"answer,omitempty"`
	Pending     bool             `json:"pending,omitempty"` // the answer is stored, and the run goes on later
}

// An ApprovalDefault is the answer that applies at the time-out.
type ApprovalDefault struct {
	Decision string          `json:"decision"`
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty"`
}

// An ApprovalAnswer is what a person has said.
type ApprovalAnswer struct {
	Decision string          `json:"decision"`        // approved, rejected or edited
	By       string          `json:"by"`              // name of the key, or for whom the link was made; default at the time-out
	KeyID    string          `json:"keyId,omitempty"` // of the key, or of the one that has made the link
	Link     bool            `json:"link,omitempty"`
	At       time.Time       `json:"at"`
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty"`
}

// A Decision is the answer to a request.
type Decision struct {
	Decision string `json:"decision"` // approved, rejected, or edited with a Value
	Comment  string `json:"comment,omitempty"`
	Values   any    `json:"values,omitempty"` // fit the form of the request
	Value    any    `json:"value,omitempty"`  // what counts in place of that of the request
}

// A NewApprovalLink is a link that is made.
type NewApprovalLink struct {
	For       string `json:"for"`                 // in whose name it answers
	ExpiresIn string `json:"expiresIn,omitempty"` // such as 24h; default 168h
}

// An ApprovalLink is a link by which one person without a key answers a request, once.
type ApprovalLink struct {
	Path      string    `json:"path"` // with the token, which is shown once
	URL       string    `json:"url,omitempty"`
	For       string    `json:"for"`
	ExpiresAt time.Time `json:"expiresAt"`
}

// List returns what is open in the account, the oldest first.
func (a *Approvals) List(ctx context.Context) iter.Seq2[Approval, error] {
	return list[Approval](ctx, a.c, func() *call { return at(http.MethodGet, "v1", "approvals") })
}

// Get returns a request with what it shows.
func (a *Approvals) Get(ctx context.Context, id string) (*Approval, error) {
	out := new(Approval)
	_, err := a.c.do(ctx, at(http.MethodGet, "v1", "approvals", id), out)
	return result(out, err)
}

// Answer answers a request. The error has the code fault.Conflict if somebody has answered it, and
// fault.TooLate after its time-out.
func (a *Approvals) Answer(ctx context.Context, id string, d Decision) (*Approval, error) {
	cl, err := at(http.MethodPost, "v1", "approvals", id, "answer").send(d)
	if err != nil {
		return nil, err
	}
	out := new(Approval)
	_, err = a.c.do(ctx, cl, out)
	return result(out, err)
}

// Link makes a link by which one person without a key answers a request, once.
func (a *Approvals) Link(ctx context.Context, id string, l NewApprovalLink) (*ApprovalLink, error) {
	cl, err := at(http.MethodPost, "v1", "approvals", id, "link").send(l)
	if err != nil {
		return nil, err
	}
	out := new(ApprovalLink)
	_, err = a.c.do(ctx, cl, out)
	return result(out, err)
}
