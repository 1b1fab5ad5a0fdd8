// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/view"
)

// A result is the object that `run -o json` writes. Its fields only grow.
type result struct {
	ID        string                `json:"id"`
	Status    string                `json:"status"`
	Outputs   json.RawMessage       `json:"outputs"`
	Error     *resultError          `json:"error"`
	Steps     map[string]resultStep `json:"steps"`
	Credits   resultCredits         `json:"credits"`
	Saved     []saved               `json:"saved,omitempty"`
	Truncated bool                  `json:"truncated,omitempty"`
}

type resultError struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

type resultStep struct {
	Status     string          `json:"status"`
	Output     json.RawMessage `json:"output"`
	Attempts   int             `json:"attempts"`
	DurationMs float64         `json:"durationMs"`
	// Error is why the step failed. It is set even if onError or a policy let the run
	// continue.
	Error  *journal.StepError `json:"error,omitempty"`
	Reason string             `json:"reason,omitempty"` // why it was skipped or cancelled
	// FailedAttempts are the attempts that did not complete the step.
	FailedAttempts []journal.FailedAttempt `json:"failedAttempts,omitempty"`
}

type resultCredits struct {
	Used int64 `json:"used"`
}

var jsonNull = json.RawMessage("null")

// resultOf returns the result of a run. A step of the root scope is listed by its
// id, one of an iteration as loop[3].resize; there are at most view.MaxSteps.
func resultOf(v *view.Run) result {
	steps, _ := v.History.Steps()
	r := result{
		ID: v.ID, Status: v.Status.String(), Outputs: orNull(v.Outputs), Truncated: v.Truncated,
		Steps: make(map[string]resultStep, len(steps)), Credits: resultCredits{v.Used()},
	}
	if v.Error != nil {
		r.Error = &resultError{fault.Code(v.Error.Code), v.Error.Message}
	}
	for path, s := range steps {
		r.Steps[path] = resultStep{s.Status, orNull(s.Output), s.Attempts, s.DurationMS, s.Error, s.Reason, s.FailedAttempts}
	}
	return r
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return jsonNull
	}
	return raw
}

// exitOf returns the exit code for a run that has ended.
func exitOf(v *view.Run) int {
	switch v.Status {
	case journal.RunCompleted:
		return fault.ExitOK
	case journal.RunCancelled:
		return fault.ExitCancelled
	}
	if v.Error != nil && !v.Began {
		// A limit that its recipe can set was exceeded before anything ran.
		if code := fault.Code(v.Error.Code); raisedBy[code] != "" {
			return fault.ExitBeforeRun(code)
		}
	}
	return fault.ExitFailed
}
