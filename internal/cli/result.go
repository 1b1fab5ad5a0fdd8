// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"

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

// resultCredits are those of X153. A run that costs nothing has used only.
type resultCredits struct {
	Reserved  *int64 `json:"reserved,omitempty"`
	Used      int64  `json:"used"`
	Estimated *int64 `json:"estimated,omitempty"`
}

func creditsOf(v *view.Run) resultCredits {
	c := resultCredits{Used: v.Used()}
	if f := v.Funds; f != nil {
		c.Reserved, c.Estimated = &f.Reserved, &f.Estimated
	}
	return c
}

// fundsText describes the credits of a run for people.
func fundsText(used int64, reserved, estimated *int64) string {
	if reserved == nil || estimated == nil {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%d of %d reserved; %d were estimated", used, *reserved, *estimated)
}

var jsonNull = json.RawMessage("null")

// resultOf returns the result of a run. A step of the root scope is listed by its
// id, one of an iteration as loop[3].resize; there are at most view.MaxSteps.
func resultOf(v *view.Run) result {
	steps, _ := v.History.Steps()
	r := result{
		ID: v.ID, Status: v.Status.String(), Outputs: orNull(v.Outputs), Truncated: v.Truncated,
		Steps: make(map[string]resultStep, len(steps)), Credits: creditsOf(v),
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
