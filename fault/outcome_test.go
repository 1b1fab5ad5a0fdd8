// SPDX-License-Identifier: Apache-2.0

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// I4: whether an outcome is unknown is said by the first *Error of a chain, or by its code.
func TestI4_OutcomeUnknown(t *testing.T) {
	plain := errors.New("plain")
	down := fault.New(fault.ServiceUnavailable, "down")
	for name, tt := range map[string]struct {
		err     error
		unknown bool
		code    fault.Code
	}{
		"none":               {nil, false, ""},
		"unsure of none":     {fault.Unsure(nil), false, ""},
		"plain":              {plain, false, fault.InternalError},
		"unsure of plain":    {fault.Unsure(plain), true, fault.StepFailed},
		"known":              {down, false, fault.ServiceUnavailable},
		"unsure":             {fault.Unsure(down), true, fault.ServiceUnavailable},
		"unsure of wrapped":  {fault.Unsure(fmt.Errorf("ask: %w", down)), true, fault.ServiceUnavailable},
		"unsure of a code":   {fault.Unsure(fault.ProviderError), true, fault.ProviderError},
		"wrapped":            {fmt.Errorf("ask: %w", fault.Unsure(down)), true, fault.ServiceUnavailable},
		"in another error":   {fault.Wrap(fault.ProviderError, fault.Unsure(down), "no"), false, fault.ProviderError},
		"a timeout":          {fault.StepTimeout, true, fault.StepTimeout},
		"a job that expired": {fault.New(fault.JobExpired, "late"), true, fault.JobExpired},
		"a loss":             {fault.Interrupted, true, fault.Interrupted},
	} {
		if fault.OutcomeUnknown(tt.err) != tt.unknown || fault.CodeOf(tt.err) != tt.code {
			t.Errorf("%s: %v (%s) is unknown %v, want %v, %s", name, tt.err, fault.CodeOf(tt.err), !tt.unknown, tt.unknown, tt.code)
		}
	}
	if down.OutcomeUnknown {
		t.Error("Unsure has changed the error that it was given")
	}
	if err := fault.Unsure(fmt.Errorf("ask: %w", context.Canceled)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not wrap what it is about", err)
	}
}

// I4: what is an answer of the service, and what says nothing about the request before.
func TestI4_Answers(t *testing.T) {
	for code, want := range map[fault.Code]bool{
		fault.ProviderError: true, fault.CommandFailed: true, fault.CommandTemporary: true, "CARD_REFUSED": true, fault.OutputContractViolation: true,
		fault.ServiceUnavailable: false, fault.RateLimited: false, fault.StepFailed: false, fault.HTTPStatus: false, fault.EgressRefused: false, fault.InternalError: false,
		fault.ModerationUnavailable: false, fault.SecretNotFound: false, fault.InputInvalid: false, fault.InputContractViolation: false, fault.StoreFull: false, fault.StepTimeout: false,
	} {
		if fault.Answers(code) != want {
			t.Errorf("%s is an answer: %v", code, !want)
		}
	}
}
