// SPDX-License-Identifier: Apache-2.0

// Package fault defines the error type and the error codes of Roux.
//
// It decides what every published code means: its HTTP status, its cause for
// retry policies, whether another try can help, the exit code of the command
// line, and the sentence that tells a person what to do next. Documentation,
// API descriptions and exit codes are generated from its table ([All]).
//
// It never decides whether something failed, and never formats for a terminal.
// Every package of Roux may import it; it imports none of them.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// A Code names a kind of failure for programs: clients switch on it, retry
// policies list it, so a published code never changes its meaning. A Code is
// itself an error, so errors.Is(err, fault.StepTimeout) needs no sentinel.
type Code string

func (c Code) Error() string { return string(c) }

// An Error says what failed to a program (Code), a person (Msg) and the log (Err).
// Only Code, Msg, OutcomeUnknown, Remedy, Diags, Limit and Quota leave the process.
type Error struct {
	Code Code
	Msg  string
	Err  error
	// Diags are the problems of a source text with their positions.
	Diags []Diagnostic
	// RetryAfterMS is the minimum delay before the next try, in milliseconds, as
	// requested by a provider. 0 = none.
	RetryAfterMS int64
	// OutcomeUnknown says that the effect of the attempt may have happened although the attempt
	// failed. The next attempt has the same effect key then, and there is none if the action may
	// be attempted only once. [Unsure] sets it.
	OutcomeUnknown bool
	// Remedy replaces the remedy of the code where that does not apply.
	Remedy string
	// Limit is set where credits are missing (InsufficientCredits).
	Limit *Limit
	// Quota is set where a quota of the account is reached (QuotaExceeded,
	// RequestRateExceeded).
	Quota *Quota
}

// A Quota is a limit of an account, other than of its credits, that a request would exceed.
type Quota struct {
	// Name is what is limited: "live_runs", "storage_bytes", "requests", "keys", "recipes",
	// "versions", "lenses", "webhooks" or "bulks".
	Name  string `json:"quota"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"`
	// Reset is when more is allowed if nothing is done; zero = waiting alone does not help.
	Reset time.Time `json:"reset,omitzero"`
}

// OverQuota returns the error of a request for one more of what is limited.
func OverQuota(name string, used, limit int, format string, args ...any) *Error {
	e := New(QuotaExceeded, format, args...)
	e.Quota = &Quota{Name: name, Used: int64(used), Limit: int64(limit)}
	return e
}

// A Limit is what keeps a run from the credits that it needs.
type Limit struct {
	// Source is what limits them: "account" (its balance), "run" (maxCredits), "day" (the
	// account's budget of a day) or "key:NAME" (the budget of a key).
	Source  string `json:"limitSource"`
	Missing int64  `json:"missing"` // whole credits
	// Until is when the run may get them if it waits; zero = waiting alone does not help.
	Until time.Time `json:"until,omitzero"`
}

func (e *Error) Error() string {
	msg := e.Msg
	if msg == "" && len(e.Diags) > 0 {
		msg = e.Diags[0].String()
		if n := len(e.Diags) - 1; n > 0 {
			msg += fmt.Sprintf(" (and %d more)", n)
		}
	}
	if msg == "" {
		return string(e.Code)
	}
	return string(e.Code) + ": " + msg
}

// Unwrap returns the error for the log; it is never shown to a client.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, code) report whether an error has a code.
func (e *Error) Is(target error) bool { return target == e.Code }

// New returns an Error with a message for a person.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error that keeps err for the log.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...), Err: err}
}

// Invalid returns code (RecipeInvalid for most callers) with all diagnostics.
func Invalid(code Code, diags []Diagnostic) *Error {
	return &Error{Code: code, Diags: diags}
}

// RemedyOf returns what to do about err: its own remedy, or that of its code.
func RemedyOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Remedy != "" {
		return e.Remedy
	}
	row, _ := Lookup(CodeOf(err))
	return row.Remedy
}

// CodeOf returns the code in err's chain, InternalError if there is none, and
// "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var c Code
	if errors.As(err, &c) {
		return c
	}
	return InternalError
}

// Message returns the text of err for a person: the Msg of the first Error in its chain,
// or else err's own text.
func Message(err error) string {
	var e *Error
	if errors.As(err, &e) {
		if e.Msg != "" {
			return e.Msg
		}
		if len(e.Diags) > 0 {
			return e.Diags[0].Msg
		}
	}
	return err.Error()
}
