// SPDX-License-Identifier: Apache-2.0

// Package approvals is what people are asked, over HTTP: lists of requests, their answers, and the
// pages of the links by which somebody without a key answers one.
//
// It decides what requests look like and what a page shows. Package approval decides which answer
// counts, package access who has a key. Tokens of links are in paths only, which no log has.
package approvals

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/rest"
)

// linkPath begins the paths of links.
const linkPath = "/v1/approval-links/"

type server struct {
	rest    *rest.Router
	manager *approval.Manager
	address func() string
}

// Register adds the operations of approvals to a router. address returns where people reach the
// server, such as https://roux.example.com; "" = it is not known.
func Register(rt *rest.Router, m *approval.Manager, address func() string) {
	s := &server{rest: rt, manager: m, address: address}
	read, write := rest.Needs(access.ApprovalsRead), rest.Needs(access.ApprovalsWrite)
	rest.Handle(rt, rest.Op("approvals-list", http.MethodGet, "/v1/approvals", "List what people are asked in the account and have not answered, the oldest first"), read, s.list)
	rest.Handle(rt, rest.Op("approvals-get", http.MethodGet, "/v1/approvals/{id}", "Get a request with what it shows; who has answered it is known for 30 days"), read, s.get)
	answer := rest.Op("approvals-answer", http.MethodPost, "/v1/approvals/{id}/answer", "Answer a request: the first answer counts")
	answer.Description = "The answer is in the name of the key. If somebody else has answered, it is a CONFLICT, which says who and when; after the time-out it is TOO_LATE."
	answer.MaxBodyBytes = approval.MaxHeld + approval.MaxValues + 1<<20
	rest.Handle(rt, answer, write, s.answer)
	link := rest.Op("approvals-link", http.MethodPost, "/v1/approvals/{id}/link", "Make a link by which one person without a key answers a request, once")
	link.DefaultStatus = http.StatusCreated
	link.Description = "Whoever has the link can answer, in the name that it is for. It is shown once and is not stored."
	once := write
	once.Once = rest.OnceNever
	rest.Handle(rt, link, once, s.link)
	page := rest.Policy{Public: true, Produces: []string{"text/html"}, Accepts: []string{"application/x-www-form-urlencoded"}, Once: rest.OnceNot}
	open := rest.Op("approvals-open", http.MethodGet, linkPath+"{token}", "The page of a link (HTML); it decides nothing")
	rest.Pages(&open, http.StatusNotFound, http.StatusConflict, http.StatusGone)
	rest.Handle(rt, open, page, s.open)
	decide := rest.Op("approvals-decide", http.MethodPost, linkPath+"{token}", "Answer a request by its link, from its page (HTML)")
	decide.MaxBodyBytes = approval.MaxValues + approval.MaxComment + 64<<10
	rest.Pages(&decide, http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusUnprocessableEntity)
	rest.Handle(rt, decide, page, s.decide)
}

// An ApprovalAnswer is what a person has said.
type ApprovalAnswer struct {
	Decision string          `json:"decision" enum:"approved,rejected,edited"`
	By       string          `json:"by" doc:"Name of the key, or for whom the link was made; default at the time-out."`
	KeyID    string          `json:"keyId,omitempty" doc:"Id of the key, or of the one that has made the link."`
	Link     bool            `json:"link,omitempty" doc:"It was given by a link."`
	At       time.Time       `json:"at"`
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty" doc:"What was filled in, an object."`
}

// An ApprovalDefault is the answer that applies at the time-out.
type ApprovalDefault struct {
	Decision string          `json:"decision" enum:"approved,rejected,edited"`
	Comment  string          `json:"comment,omitempty"`
	Values   json.RawMessage `json:"values,omitempty"`
}

// An ApprovalResource is a request for people. Text, form, value and default are not in lists.
type ApprovalResource struct {
	ID          string           `json:"id" example:"apr_4G0M2OB1C5JQ6D8R3F7H9K2L1N"`
	Kind        string           `json:"kind" doc:"approval, which a recipe waits for, or review, which holds a value back."`
	State       string           `json:"state" enum:"open,approved,rejected,edited,timed_out,cancelled" doc:"cancelled = its step no longer waits."`
	Title       string           `json:"title"`
	Text        string           `json:"text,omitempty"`
	Form        json.RawMessage  `json:"form,omitempty" doc:"JSON Schema of the values of an answer."`
	Value       json.RawMessage  `json:"value,omitempty" doc:"What is shown. That of a review is for those who may answer."`
	Decisions   []string         `json:"decisions" doc:"That are possible."`
	Approvers   []string         `json:"approvers,omitempty" doc:"Names of keys, and role:NAME. Absent: every key with the scope approvals:write."`
	MayAnswer   bool             `json:"mayAnswer" doc:"Whether the key of the request is one of the approvers."`
	ExecutionID string           `json:"executionId"`
	Step        string           `json:"step"`
	RequestedAt time.Time        `json:"requestedAt"`
	ExpiresAt   *time.Time       `json:"expiresAt,omitempty" doc:"Absent: when the run ends."`
	RemindAt    *time.Time       `json:"remindAt,omitempty" doc:"When those who watch the run are told again."`
	Default     *ApprovalDefault `json:"default,omitempty" doc:"The answer that applies at expiresAt. Absent: the step fails with WAIT_TIMEOUT."`
	Answer      *ApprovalAnswer  `json:"answer,omitempty"`
	Pending     bool             `json:"pending,omitempty" doc:"The answer is stored, and the run goes on when a process carries it on."`
}

func resourceOf(i *approval.Info) ApprovalResource {
	out := ApprovalResource{
		ID: i.ID, Kind: i.Kind, State: i.State, Title: i.Title, Text: i.Text, Form: i.Form, Value: i.Value, Approvers: i.Approvers, MayAnswer: i.May,
		ExecutionID: i.Run, Step: i.Step, RequestedAt: rest.Stamp(i.Asked), ExpiresAt: rest.StampOr(i.Due), RemindAt: rest.StampOr(i.NextAt),
	}
	for _, d := range i.Decisions {
		out.Decisions = append(out.Decisions, string(d))
	}
	if d := i.Default; d != nil {
		out.Default = &ApprovalDefault{string(d.Decision), d.Comment, d.Values}
	}
	if a := i.Answer; a != nil {
		out.Answer = &ApprovalAnswer{string(a.Decision), a.By, a.Key, a.Link, rest.Stamp(a.At), a.Comment, a.Values}
	}
	return out
}

// person is who makes a request.
func person(ctx context.Context) *approval.Person {
	p := access.From(ctx)
	// Where no key is needed, whoever asks could change the data directory itself.
	return &approval.Person{Account: p.Account, Name: p.Name, Key: p.Key, Role: string(p.Role), Trusted: p.Key == ""}
}

// ApprovalPath names a request.
type ApprovalPath struct {
	ID string `path:"id" doc:"Id of a request." maxLength:"64"`
}

type found struct{ Body ApprovalResource }

func (s *server) list(ctx context.Context, in *rest.Paging) (*rest.Listed[ApprovalResource], error) {
	list := "approvals " + rest.Account(ctx)
	place, err := s.rest.Place(list, in.Cursor)
	if err != nil {
		return nil, err
	}
	all, next, err := s.manager.List(ctx, person(ctx), place, in.Limit)
	if err != nil {
		return nil, err
	}
	data := make([]ApprovalResource, len(all))
	for i, one := range all {
		data[i] = resourceOf(one)
	}
	return rest.PageOf(ctx, s.rest, list, next, data), nil
}

func (s *server) get(ctx context.Context, in *ApprovalPath) (*found, error) {
	i, err := s.manager.Get(ctx, person(ctx), in.ID)
	if err != nil {
		return nil, err
	}
	return &found{resourceOf(i)}, nil
}

// A NewApprovalAnswer is what a request says of an answer.
type NewApprovalAnswer struct {
	Decision string          `json:"decision" enum:"approved,rejected,edited"`
	Comment  string          `json:"comment,omitempty" maxLength:"4096"`
	Values   json.RawMessage `json:"values,omitempty" doc:"An object that fits the form of the request. Who rejects need not give one."`
	Value    json.RawMessage `json:"value,omitempty" doc:"With edited: what counts in place of the value of the request."`
}

type answerIn struct {
	ApprovalPath
	Body NewApprovalAnswer
}

func (s *server) answer(ctx context.Context, in *answerIn) (*found, error) {
	b := &in.Body
	rest.Waits(ctx)
	out, err := s.manager.Answer(ctx, person(ctx), in.ID, &approval.Answer{Decision: approval.Decision(b.Decision), Comment: b.Comment, Values: b.Values, Value: b.Value})
	if err != nil {
		return nil, err
	}
	r := resourceOf(out.Info)
	r.Pending = out.Later
	return &found{r}, nil
}

// A NewApprovalLink is what a request says of a link.
type NewApprovalLink struct {
	For       string `json:"for" minLength:"1" maxLength:"100" doc:"In whose name it answers." example:"ana@example.com"`
	ExpiresIn string `json:"expiresIn,omitempty" maxLength:"30" doc:"How long it is valid, at most 720h and until the request expires. Default 168h." example:"24h"`
}

// An ApprovalLink is a link by which one person answers a request, once.
type ApprovalLink struct {
	Path      string    `json:"path" doc:"Of the page, with the token. It is shown once." example:"/v1/approval-links/4hMl2…"`
	URL       string    `json:"url,omitempty" doc:"Of the page, if the configuration says where people reach the server."`
	For       string    `json:"for"`
	ExpiresAt time.Time `json:"expiresAt"`
}

type linkIn struct {
	ApprovalPath
	Body NewApprovalLink
}

func (s *server) link(ctx context.Context, in *linkIn) (*struct{ Body ApprovalLink }, error) {
	life, err := rest.Duration("expiresIn", in.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	l, err := s.manager.Link(ctx, person(ctx), in.ID, in.Body.For, life)
	if err != nil {
		return nil, err
	}
	out := ApprovalLink{Path: linkPath + l.Token, For: in.Body.For, ExpiresAt: rest.Stamp(l.Expires)}
	if base := s.address(); base != "" {
		out.URL = base + out.Path
	}
	return &struct{ Body ApprovalLink }{out}, nil
}

// A page is an answer in HTML.
type page struct {
	Status       int
	ContentType  string `header:"Content-Type"`
	Policy       string `header:"Content-Security-Policy"`
	Referrer     string `header:"Referrer-Policy"`
	Robots       string `header:"X-Robots-Tag"`
	FrameOptions string `header:"X-Frame-Options"`
	Body         []byte
}

// pageOf is a page that runs nothing, loads nothing, is in no frame, and sends its form back to the
// server only.
func pageOf(status int, body []byte) *page {
	return &page{
		status, "text/html; charset=utf-8",
		"default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"same-origin", "noindex, nofollow", "DENY", body,
	}
}

type linkPathIn struct {
	Token string `path:"token" doc:"What the link proves itself with." maxLength:"64"`
}

func (s *server) open(ctx context.Context, in *linkPathIn) (*page, error) {
	l, err := s.manager.Open(ctx, in.Token)
	if err != nil {
		return s.refused(err)
	}
	return pageOf(http.StatusOK, formPage(l, nil, "")), nil
}

type decideIn struct {
	Token   string `path:"token" doc:"What the link proves itself with." maxLength:"64"`
	RawBody []byte `contentType:"application/x-www-form-urlencoded"`
}

func (s *server) decide(ctx context.Context, in *decideIn) (*page, error) {
	l, err := s.manager.Open(ctx, in.Token)
	if err != nil {
		return s.refused(err)
	}
	given, a, err := readForm(l, in.RawBody)
	if err == nil {
		rest.Waits(ctx)
		_, err = s.manager.AnswerByLink(ctx, in.Token, a)
	}
	switch fault.CodeOf(err) {
	case "":
		return pageOf(http.StatusOK, donePage(l, a)), nil
	case fault.InputInvalid:
		return pageOf(http.StatusUnprocessableEntity, formPage(l, given, strings.TrimPrefix(strings.TrimPrefix(fault.Message(err), "values: "), "values/"))), nil
	}
	return s.refused(err)
}

// refused is the page of a link by which nothing can be answered. Errors of the server itself are
// problem documents as everywhere.
func (s *server) refused(err error) (*page, error) {
	switch fault.CodeOf(err) {
	case fault.NotFound:
		return pageOf(http.StatusNotFound, messagePage("The link is not valid", "It is incomplete, or it was never made. Ask whoever has sent it for another one.")), nil
	case fault.Conflict:
		return pageOf(http.StatusConflict, messagePage("It is answered", sentence(fault.Message(err)))), nil
	case fault.TooLate:
		return pageOf(http.StatusGone, messagePage("It is too late", sentence(fault.Message(err)))), nil
	}
	return nil, err
}
