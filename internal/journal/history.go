// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// History is the outcome of every step instance of a run, computed from its events. It
// is shown when a run has ended. Unlike a machine.Run it keeps scopes that have
// closed; it decides nothing.
type History struct {
	plan  *plan.Plan
	max   int
	steps map[Ref]*StepResult
	order []Ref
	used  ledger.Amount
	// Truncated reports that there were more step instances than max.
	Truncated bool
	Status    RunStatus
	Outputs   json.RawMessage
	Error     *StepError
	Events    uint64
	Started   int64 // UTC µs
	Ended     int64 // 0 while live
}

// StepError is an error as it is shown.
type StepError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// StepResult is the outcome of one step instance.
type StepResult struct {
	Status     string          `json:"status"`
	Output     json.RawMessage `json:"output"`
	Error      *StepError      `json:"error,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Attempts   int             `json:"attempts"`
	DurationMS float64         `json:"durationMs"`
	// FailedAttempts are the attempts that failed or were lost, at most the first 20
	// of a generation.
	FailedAttempts []FailedAttempt `json:"failedAttempts,omitempty"`

	ended bool // it has settled and was not reset since
}

// A FailedAttempt is an attempt that did not complete its step.
type FailedAttempt struct {
	Attempt int    `json:"attempt"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

const maxFailedAttempts = 20

// attempt records how an attempt ended that did not complete its step.
func (res *StepResult) attempt(ev *Event) {
	f := FailedAttempt{int(ev.Attempt), string(ev.Code), ev.Text}
	switch {
	case ev.Attempt == 0 || len(res.FailedAttempts) >= maxFailedAttempts:
		return
	case ev.Kind == EvNodeLost && ev.HandedBack():
		f.Code, f.Message = string(fault.Interrupted), "an orderly stop handed it back"
	case ev.Kind == EvNodeLost:
		f.Code, f.Message = string(fault.Interrupted), "it was lost"
	case ev.Code == "":
		return
	}
	res.FailedAttempts = append(res.FailedAttempts, f)
}

// NewHistory returns a history that keeps at most maxSteps step instances; 0 = no
// bound.
func NewHistory(p *plan.Plan, maxSteps int) *History {
	return &History{plan: p, max: maxSteps, steps: make(map[Ref]*StepResult)}
}

// Used is what the steps cost, in credits, rounded up once.
func (h *History) Used() int64 { return h.used.Ceil() }

// Add adds the next event of the run.
func (h *History) Add(ev *Event) {
	h.Events = ev.Seq
	if ev.Step < 0 {
		h.addRun(ev)
		return
	}
	h.used = h.used.Plus(ev.Spent(h.plan))
	res := h.result(ev.Ref())
	if res == nil {
		return
	}
	switch ev.Kind {
	case EvNodeReady, EvNodeQueued, EvNodeOpened, EvNodeWaiting, EvNodeCompleted, EvNodeFailed, EvNodeSkipped, EvNodeCancelled:
		if res.ended { // the scope around it was opened again, so this is a new instance
			*res = StepResult{}
		}
	}
	switch ev.Kind {
	case EvNodeRetried, EvNodeLost, EvNodeFallback, EvNodeFailed, EvNodeSkipped:
		res.attempt(ev)
		res.Output = nil // of a child run that ended too late for its step
	case EvNodeCancelled:
		res.Output = nil
	}
	switch ev.Kind {
	case EvNodeReady:
	case EvNodeQueued, EvNodeLost:
		res.Status = Queued.String()
	case EvNodeBlocked:
		res.Status = Blocked.String()
	case EvNodeStarted:
		res.Status, res.Attempts = Running.String(), int(ev.Attempt)
	case EvNodeOpened:
		res.Status = Running.String()
	case EvChildStarted:
		res.Status, res.Attempts = Running.String(), int(ev.Attempt)
	case EvChildEnded:
		res.Output = bytes.Clone(ev.Data)
	case EvNodeFallback:
		res.Status, res.Error = Running.String(), &StepError{string(ev.Code), ev.Text}
	case EvNodeWaiting, EvNodeSubmitted:
		res.Status = Waiting.String()
	case EvNodeRetried:
		res.Status, res.Error = Retrying.String(), &StepError{string(ev.Code), ev.Text}
	case EvNodeCompleted:
		output := bytes.Clone(ev.Data)
		if ev.FromInner() {
			if output = h.innerOutput(ev.Ref()); output == nil {
				output = res.Output // of its child run
			}
		}
		*res = StepResult{Status: Completed.String(), Output: output, Attempts: res.Attempts, DurationMS: ms(ev.Micros()),
			FailedAttempts: res.FailedAttempts}
	case EvNodeFailed:
		res.Status, res.Error, res.DurationMS = StepFailed.String(), &StepError{string(ev.Code), ev.Text}, ms(ev.Micros())
	case EvNodeSkipped:
		res.Status, res.Reason = Skipped.String(), ev.Reason().String()
		if ev.Code != "" {
			res.Error = &StepError{string(ev.Code), ev.Text}
		}
	case EvNodeCancelled:
		res.Status, res.Reason, res.DurationMS = Cancelled.String(), ev.Reason().String(), ms(ev.Micros())
	case EvNodeInvalidated:
		*res = StepResult{Status: Invalidated.String(), Attempts: res.Attempts}
	}
	switch ev.Kind {
	case EvNodeCompleted, EvNodeFailed, EvNodeSkipped, EvNodeCancelled:
		res.ended = true
	}
}

// InCompensation reports whether a scope is that of a compensation, or inside one.
func InCompensation(p *plan.Plan, path Path) bool {
	var buf [8]Level
	levels, _ := path.Levels(p, buf[:0])
	for _, l := range levels {
		if p.Graphs[l.Graph].Role == plan.Compensation {
			return true
		}
	}
	return false
}

func ms(us int64) float64 { return float64(us) / 1000 }

func (h *History) addRun(ev *Event) {
	switch ev.Kind {
	case EvRunStarted:
		h.Status, h.Started = RunDispatching, ev.At
	case EvRunStatus:
		h.Status = ev.Status()
	case EvRunRetried:
		h.Status, h.Error, h.Outputs, h.Ended = RunDispatching, nil, nil, 0
	case EvRunCompleted:
		h.Status, h.Outputs, h.Ended = RunCompleted, bytes.Clone(ev.Data), ev.At
	case EvRunFailed, EvRunCancelled, EvRunExpired:
		h.Status, h.Error, h.Ended = ev.Kind.EndStatus(), &StepError{string(ev.Code), ev.Text}, ev.At
	}
}

func (h *History) result(ref Ref) *StepResult {
	if res := h.steps[ref]; res != nil {
		return res
	}
	if h.max > 0 && len(h.order) >= h.max {
		h.Truncated = true
		return nil
	}
	res := new(StepResult)
	h.steps[ref] = res
	h.order = append(h.order, ref)
	return res
}

// innerOutput is the output of a condition or fallback: the output of the last step of
// the scope it opened.
func (h *History) innerOutput(ref Ref) json.RawMessage {
	step := &h.plan.Steps[ref.Step]
	for _, g := range [...]int32{step.Fallback, step.Then, step.Else} {
		if g == plan.None || h.plan.Graphs[g].Out == plan.None {
			continue
		}
		inner := h.steps[Ref{Path: ref.Path.Child(g, 0), Step: h.plan.Graphs[g].Out}]
		if inner != nil && inner.Status == Completed.String() {
			return inner.Output
		}
	}
	return nil
}

// Steps returns the results by path, and the paths in the order in which the steps
// first appeared.
func (h *History) Steps() (map[string]*StepResult, []string) {
	m := make(map[string]*StepResult, len(h.order))
	paths := make([]string, 0, len(h.order))
	for _, ref := range h.order {
		p := StepPath(h.plan, ref)
		m[p] = h.steps[ref]
		paths = append(paths, p)
	}
	return m, slices.Clip(paths)
}
