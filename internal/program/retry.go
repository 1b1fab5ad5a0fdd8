// SPDX-License-Identifier: Apache-2.0

package program

import (
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// maxTurns bounds how many turns of a retry are decided to find what it resets. A turn has up
// to machine.MaxEvents events.
const maxTurns = 20

// A RetryRequest says how a run is reopened. Zero fields change nothing.
type RetryRequest struct {
	// From is the step to start from. Default: what failed.
	From string
	// Edits replaces fields of the run's input.
	Edits map[string]any
	// Limits raises limits of the run, up to those of the server.
	Limits plan.Limits
}

// Input is the request as an input of the run. most are the limits of the server.
func (req *RetryRequest) Input(most plan.Limits) (m machine.Input, err error) {
	m = machine.Input{Kind: machine.InRetry, Name: req.From, Limits: &req.Limits}
	if err := CheckLimits(req.Limits, most); err != nil || len(req.Edits) == 0 {
		return m, err
	}
	if m.Data, err = jsonx.Canonical(req.Edits); err != nil {
		return m, fault.Wrap(fault.InputInvalid, err, "the edited input is no JSON object: %v", err)
	}
	m.Kind = machine.InEdit
	return m, nil
}

// Retried decides a retry of a run on the copy that the caller owns, and returns what it
// resets. from and edits are those of [RetryRequest], now is the time in UTC µs. It
// decides as if the account could pay. Nothing of it is stored.
func Retried(run *machine.Run, from string, edits map[string]any, now int64) (*view.Reset, error) {
	in := &machine.Input{Kind: machine.InRetry, Name: from, At: now, Available: math.MaxInt64}
	if len(edits) > 0 {
		raw, err := jsonx.Canonical(edits)
		if err != nil {
			return nil, err
		}
		in.Kind, in.Data = machine.InEdit, raw
	}
	reset := &view.Reset{Plan: run.Plan()}
	for range maxTurns {
		var t machine.Turn
		run.Decide(in, &t)
		if t.Err != nil {
			return nil, t.Err
		}
		for i := range t.Events {
			reset.Apply(&t.Events[i])
		}
		if len(t.Events) == 0 {
			break
		}
		in = &machine.Input{Kind: machine.InContinue, At: now}
	}
	return reset, nil
}
