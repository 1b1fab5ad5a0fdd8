// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/view"
)

// A Problem is the body of an answer that reports an error (RFC 9457).
type Problem struct {
	Type     string `json:"type" doc:"Path of a page that explains the code." example:"/docs/errors#RECIPE_NOT_FOUND"`
	Title    string `json:"title" doc:"What the code means."`
	Status   int    `json:"status" doc:"The HTTP status." example:"404"`
	Detail   string `json:"detail,omitempty" doc:"What was wrong with this request."`
	Instance string `json:"instance,omitempty" doc:"Path of the request."`
	Code     string `json:"code" doc:"For programs; a published code never changes its meaning." example:"RECIPE_NOT_FOUND"`
	Legacy   string `json:"legacyCode,omitempty" doc:"The code E001 to E005 of the same error."`

	Retryable  bool   `json:"retryable" doc:"Whether the same request can succeed later."`
	RetryAfter int    `json:"retryAfter,omitempty" doc:"Seconds to wait before it is sent again."`
	Remedy     string `json:"remedy" doc:"What to do."`
	RequestID  string `json:"requestId" doc:"Names the request in the logs of the server."`

	LimitSource string     `json:"limitSource,omitempty" doc:"What limits the credits: account, run, day or key:ID."`
	Missing     int64      `json:"missing,omitempty" doc:"Credits that are missing."`
	Until       *time.Time `json:"until,omitempty" doc:"When the credits may be there if nothing is done."`

	Quota   string     `json:"quota,omitempty" doc:"Which quota of the account is reached, such as live_runs or storage_bytes."`
	Used    *int64     `json:"used,omitempty" doc:"How much of it is used."`
	Limit   *int64     `json:"limit,omitempty" doc:"How much of it there is."`
	ResetAt *time.Time `json:"resetAt,omitempty" doc:"When more is allowed if nothing is done; absent where waiting alone does not help."`

	Errors []ProblemError `json:"errors,omitempty" doc:"The places that are wrong, as far as known; of a request at most 100."`

	header http.Header
}

// maxPlaces is how many places of one request an answer names.
const maxPlaces = 100

// A ProblemError is one place of a request or of a recipe that is wrong.
type ProblemError struct {
	Pointer string `json:"pointer,omitempty" doc:"JSON pointer into the body, or the name of a parameter."`
	Line    int    `json:"line,omitempty" doc:"In the text of a recipe, from 1."`
	Column  int    `json:"column,omitempty" doc:"In characters, from 1."`
	Code    string `json:"code,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Warning bool   `json:"warning,omitempty" doc:"It does not keep the recipe from running."`
}

// ContentType implements huma.ContentTypeFilter.
func (*Problem) ContentType(string) string { return "application/problem+json" }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Problem describes an error for its client. What is no fault.Error is a defect or a
// failure inside, whose text stays in the log.
func (rt *Router) Problem(ctx context.Context, err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	r := From(ctx)
	code := fault.CodeOf(err)
	switch {
	case errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), new(*fault.Error)):
		err = context.Cause(ctx) // the key was revoked
		code = fault.CodeOf(err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fault.New(fault.ServiceUnavailable, "the server did not answer in time")
		code = fault.ServiceUnavailable
	}
	row, known := fault.Lookup(code)
	if !known {
		row, _ = fault.Lookup(fault.InternalError)
	}
	p = &Problem{
		Type: "/docs/errors#" + string(row.Code), Title: row.Meaning, Status: row.HTTP, Code: string(row.Code), Legacy: row.Legacy,
		Retryable: row.Retryable, Remedy: fault.RemedyOf(err), RequestID: r.ID, Instance: r.Path,
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		rt.cfg.Logger.ErrorContext(ctx, "a request failed inside", "request", r.ID, "operation", r.Operation, "error", err)
		p.Detail = "the request failed inside the server, which logged the reason under its id"
		return p
	}
	if row.HTTP >= http.StatusInternalServerError {
		rt.cfg.Logger.WarnContext(ctx, "a request failed", "request", r.ID, "operation", r.Operation, "code", string(row.Code), "error", err)
	}
	p.Detail = fault.Message(err)
	p.Errors = Places(e.Diags)
	if param := (*paramError)(nil); errors.As(err, &param) {
		p.Errors = append(p.Errors, ProblemError{Pointer: view.OneLine(view.Cut(param.name, 60)), Message: p.Detail})
	}
	if l := e.Limit; l != nil {
		p.LimitSource, p.Missing = l.Source, l.Missing
		if !l.Until.IsZero() {
			at := l.Until.UTC()
			p.Until = &at
		}
	}
	if q := e.Quota; q != nil {
		p.Quota, p.Used, p.Limit = q.Name, &q.Used, &q.Limit
		if !q.Reset.IsZero() {
			at := q.Reset.UTC()
			p.ResetAt = &at
		}
	}
	if e.RetryAfterMS > 0 {
		p.retryAfter(time.Duration(e.RetryAfterMS) * time.Millisecond)
	}
	return p
}

// Late returns the error of a request whose body did not arrive in time, if err is that of
// reading it, and else err.
func (rt *Router) Late(ctx context.Context, err error) error {
	timeout := net.Error(nil)
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return err
	}
	p := rt.Problem(ctx, fault.New(fault.RequestMalformed, "the body did not arrive in time"))
	p.Status = http.StatusRequestTimeout
	return p
}

// retryAfter says when to send the request again.
func (p *Problem) retryAfter(d time.Duration) {
	p.RetryAfter = max(1, int(math.Ceil(d.Seconds())))
	p.Set("Retry-After", strconv.Itoa(p.RetryAfter))
}

// Set sets a header of the answer.
func (p *Problem) Set(name, value string) {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
}

// Places are the problems of a recipe.
func Places(diags []fault.Diagnostic) []ProblemError {
	list := make([]ProblemError, 0, len(diags))
	for _, d := range diags {
		list = append(list, ProblemError{
			Pointer: d.Pointer, Line: d.Pos.Line, Column: d.Pos.Col, Code: string(d.Code), Rule: d.Rule, Message: d.Msg, Hint: d.Hint,
			Warning: d.Severity == fault.SeverityWarning,
		})
	}
	return list
}

// ours replaces an error of the library by a Problem. Values that the client sent are not
// repeated (A20).
func (rt *Router) ours(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	code := fault.RequestInvalid
	switch m.Status {
	case http.StatusBadRequest, http.StatusRequestTimeout:
		code = fault.RequestMalformed
	case http.StatusRequestEntityTooLarge:
		code = fault.RequestTooLarge
	case http.StatusUnsupportedMediaType, http.StatusNotAcceptable:
		code = fault.MediaTypeUnsupported
	case http.StatusInternalServerError:
		code = fault.InternalError
	}
	detail := m.Detail
	if len(m.Errors) == 1 {
		detail = m.Errors[0].Message
	} else if len(m.Errors) > 1 {
		detail = strconv.Itoa(len(m.Errors)) + " places of the request are invalid"
	}
	p := rt.Problem(ctx.Context(), fault.New(code, "%s", detail))
	p.Status = m.Status
	for _, e := range m.Errors[:min(len(m.Errors), maxPlaces)] {
		p.Errors = append(p.Errors, ProblemError{Pointer: pointer(e.Location), Message: e.Message})
	}
	return p, nil
}
