// SPDX-License-Identifier: Apache-2.0

package fault

import "errors"

// What a failed attempt has done outside is either known or not. The next attempt has a new
// effect key only if it is known, because a service that honours keys carries out another
// request for each key (I4). An attempt says that it does not know with
// [Error.OutcomeUnknown]; some codes say so themselves.

// Unsure returns err as an *Error that says that the effect of the attempt may have happened
// although the attempt failed: the connection broke after the request was sent, for example.
// Where the request was not sent, or the service has answered it with a failure, the outcome
// is known. nil stays nil.
func Unsure(err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeOf(err), Msg: err.Error(), Err: err}
		var code Code
		if !errors.As(err, &code) {
			e.Code = StepFailed // what an action that returns any other error fails with
		}
	}
	unsure := *e
	unsure.OutcomeUnknown = true
	if err != error(e) { //nolint:errorlint // whether err is e itself
		unsure.Err = err // it wraps e
	}
	return &unsure
}

// OutcomeUnknown reports whether the effect of an attempt that failed with err may have happened:
// the first *Error of err's chain says so, or its code does.
func OutcomeUnknown(err error) bool {
	var e *Error
	if errors.As(err, &e) && e.OutcomeUnknown {
		return true
	}
	return err != nil && EndsUnknown(CodeOf(err))
}

// EndsUnknown reports whether every attempt that ends with the code has an unknown outcome: it
// was cut off, or nobody knows what became of it.
func EndsUnknown(code Code) bool {
	cause := CauseOf(code)
	return cause == CauseTimeout || cause == CauseLost
}

// Answers reports whether an attempt that fails with the code has been told by the service what
// became of the effect key. If not, and an earlier attempt with the key has left its outcome
// unknown, that stays unknown: a service that refuses the connection, or asks to come back
// later, says nothing about the request before.
func Answers(code Code) bool {
	switch code {
	case ServiceUnavailable, ModerationUnavailable, StepFailed, InputContractViolation:
		return false
	}
	cause := CauseOf(code)
	return cause == CauseProvider || cause == CauseContract
}
