// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A Problem is the answer of a server that reports an error (RFC 9457). Errors of this package
// that the server has reported wrap one.
type Problem struct {
	Status    int            `json:"status"`
	Code      fault.Code     `json:"code"`
	Title     string         `json:"title"`
	Detail    string         `json:"detail"`
	Remedy    string         `json:"remedy"`
	Retryable bool           `json:"retryable"` // whether the same request can succeed later
	RequestID string         `json:"requestId"` // names the request in the logs of the server
	Errors    []ProblemError `json:"errors"`    // the places that are wrong

	// LimitSource, Missing and Until say what limits the credits (402): account, run, day or
	// key:ID; how many are missing; and when they may be there if nothing is done.
	LimitSource string    `json:"limitSource"`
	Missing     int64     `json:"missing"`
	Until       time.Time `json:"until"`

	// Quota names the quota of the account that is reached, such as live_runs; Used and Limit
	// say how much of it is used and how much there is, and ResetAt when there is more if
	// nothing is done.
	Quota   string    `json:"quota"`
	Used    int64     `json:"used"`
	Limit   int64     `json:"limit"`
	ResetAt time.Time `json:"resetAt"`

	// RetryAfter is how long to wait before the request is sent again; 0 = not said.
	RetryAfter time.Duration `json:"-"`
}

// A ProblemError is one place of a request or of a recipe that is wrong.
type ProblemError struct {
	Pointer string     `json:"pointer,omitempty"` // JSON pointer into the body, or the name of a parameter
	Line    int        `json:"line,omitempty"`    // in the text of a recipe, from 1
	Column  int        `json:"column,omitempty"`  // in characters, from 1
	Code    fault.Code `json:"code,omitempty"`
	Rule    string     `json:"rule,omitempty"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
	Warning bool       `json:"warning,omitempty"` // it does not keep the recipe from running
}

// Diagnostic returns the place as a diagnostic of package fault.
func (e *ProblemError) Diagnostic() fault.Diagnostic {
	d := fault.Diagnostic{Code: e.Code, Rule: e.Rule, Msg: e.Message, Hint: e.Hint, Pointer: e.Pointer, Pos: fault.Pos{Line: e.Line, Col: e.Column}}
	if e.Warning {
		d.Severity = fault.SeverityWarning
	}
	return d
}

func (p *Problem) Error() string {
	text := "the server answered " + strconv.Itoa(p.Status)
	if p.RequestID != "" {
		text += " to the request " + p.RequestID
	}
	return text
}

// maxProblem bounds an error of a server.
const maxProblem = 4 << 20

// problemOf reads the error in an answer.
func problemOf(res *http.Response) error {
	p := &Problem{Retryable: true} // of an answer that does not say
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	data, err := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err != nil || kind != "application/problem+json" || json.Unmarshal(data, p) != nil || p.Code == "" {
		return foreign(res)
	}
	p.Status, p.RetryAfter = res.StatusCode, retryAfter(res.Header, time.Now())
	p.RequestID = cmp.Or(p.RequestID, res.Header.Get("X-Request-Id"))
	return p.fault()
}

// fault returns the error that the server has reported.
func (p *Problem) fault() *fault.Error {
	e := &fault.Error{Code: p.Code, Msg: cmp.Or(p.Detail, p.Title), Remedy: p.Remedy, RetryAfterMS: p.RetryAfter.Milliseconds(), Err: p}
	if p.LimitSource != "" {
		e.Limit = &fault.Limit{Source: p.LimitSource, Missing: p.Missing, Until: p.Until}
	}
	if p.Quota != "" {
		e.Quota = &fault.Quota{Name: p.Quota, Used: p.Used, Limit: p.Limit, Reset: p.ResetAt}
	}
	for i := range p.Errors {
		e.Diags = append(e.Diags, p.Errors[i].Diagnostic())
	}
	return e
}

// foreign describes an error that something else than a server of Roux reports, such as a
// proxy before it.
func foreign(res *http.Response) error {
	p := &Problem{Status: res.StatusCode, Retryable: true, RetryAfter: retryAfter(res.Header, time.Now()), RequestID: res.Header.Get("X-Request-Id"), Code: fault.ServerUnreachable}
	e := &fault.Error{Code: p.Code, Msg: "something at the address of the server answered " + res.Status + ", not as a server of Roux does", RetryAfterMS: p.RetryAfter.Milliseconds(), Err: p}
	e.Remedy = "Check the address of the server, and what is between you and it."
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired:
		e.Code = fault.Unauthorized
	case http.StatusForbidden:
		e.Code = fault.Forbidden
	case http.StatusNotFound:
		e.Code = fault.NotFound
	case http.StatusTooManyRequests:
		e.Code = fault.RequestRateExceeded
	}
	p.Code = e.Code
	return e
}

// retryAfter reads the header Retry-After: seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return time.Duration(min(max(n, 0), math.MaxInt64/int64(time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}
