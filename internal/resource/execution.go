// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// An Execution is a run in the words of recipes (X99, X193). Times are RFC 3339 in UTC,
// durations ISO 8601.
type Execution struct {
	ID            string `json:"id"`
	RecipeID      string `json:"recipeId"`
	RecipeVersion string `json:"recipeVersion,omitempty"`
	AccountID     string `json:"accountId"`
	// Status is one of five words; State is the status of the run, which may be another:
	//
	//	state                           status
	//	pending, queued                 pending
	//	dispatching, running, preview   running
	//	completed                       completed
	//	failed, expired                 failed
	//	cancelled                       cancelled
	//
	// The code of the error of an expired run is EXECUTION_EXPIRED.
	Status    string   `json:"status"`
	State     string   `json:"state"`
	WaitState string   `json:"waitState"`
	Progress  Progress `json:"progress"`
	Credits   Credits  `json:"credits"`
	// StepResults are the steps that have settled, by path; the path of a step of the root
	// scope is its id. Of more than MaxSteps it has those that failed, and then the first.
	StepResults     map[string]*StepResult `json:"stepResults"`
	MoreStepResults int64                  `json:"moreStepResults,omitempty"`
	Input           Input                  `json:"input"`
	CreatedAt       string                 `json:"createdAt,omitempty"`
	StartedAt       string                 `json:"startedAt,omitempty"`   // when the first step began
	CompletedAt     string                 `json:"completedAt,omitempty"` // when the run ended, whatever its status
	DeletedAt       string                 `json:"deletedAt,omitempty"`
	ReservationID   string                 `json:"reservationId,omitempty"`
	Generation      int64                  `json:"generation"`
	Paused          bool                   `json:"paused"`
	HasFailures     bool                   `json:"hasFailures"`
	Quarantined     *Quarantine            `json:"quarantined,omitempty"`
	Labels          map[string]string      `json:"labels,omitempty"`
	Error           *Error                 `json:"error,omitempty"`
	Outputs         json.RawMessage        `json:"outputs,omitempty"`
	ResumeToken     string                 `json:"resumeToken"`
	OutputsOmitted  int64                  `json:"outputsOmitted,omitempty"` // outputs of steps, beyond MaxOutputs
	// Steps are all steps whose scope has opened, and Ledger what the run has cost. Only an
	// answer that was asked for them has them.
	Steps     []*StepState `json:"steps,omitempty"`
	MoreSteps int64        `json:"moreSteps,omitempty"` // steps that are not listed
	Ledger    *view.Bill   `json:"ledger,omitempty"`
}

// Progress is how far a run has come.
type Progress struct {
	// CurrentStep is the first step of the root scope, in the order of the definition, that
	// has begun and not settled; "" = there is none.
	CurrentStep string `json:"currentStep,omitempty"`
	// CompletedSteps are the paths of the steps that have completed, in that order.
	CompletedSteps     []string `json:"completedSteps"`
	MoreCompletedSteps int64    `json:"moreCompletedSteps,omitempty"`
	PercentComplete    int      `json:"percentComplete"`
}

// Credits are what a run holds, has used and was expected to use, in whole credits (X153).
type Credits struct {
	// Reserved is what is held for the present generation; once it has ended, what was held
	// for it.
	Reserved  int64 `json:"reserved"`
	Used      int64 `json:"used"`
	Estimated int64 `json:"estimated"`
}

// Input is what the run was started with, and what retries have replaced in it.
type Input struct {
	FileHashes []string       `json:"fileHashes"`
	Parameters map[string]any `json:"parameters"`
}

// Quarantine is why a run is quarantined.
type Quarantine struct {
	Reason string `json:"reason"`
}

// A StepResult is how a step instance has ended (X100). Its status is completed, failed,
// timed_out, skipped or cancelled.
type StepResult struct {
	Status        string          `json:"status"`
	OutputBinding string          `json:"outputBinding,omitempty"`
	Duration      string          `json:"duration,omitempty"` // absent for a step that did not begin
	CreditsUsed   ledger.Amount   `json:"creditsUsed"`
	Attempts      uint32          `json:"attempts,omitempty"`
	Cached        bool            `json:"cached,omitempty"` // it has an earlier result, and its action was not called
	Reason        string          `json:"reason,omitempty"` // why it was skipped or cancelled
	Error         *Error          `json:"error,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
}

// ExecutionStatus is the status of a run in the five words of the recipe system. A run
// that is ready to dispatch is running there: the answer to its start says so (X191).
func ExecutionStatus(s journal.RunStatus) string {
	switch s {
	case journal.RunPending, journal.RunQueued:
		return "pending"
	case journal.RunDispatching, journal.RunRunning, journal.RunPreview:
		return "running"
	case journal.RunExpired:
		return "failed"
	}
	return s.String()
}

// StatusOf is ExecutionStatus for a state by its name. A name of none is returned as it is.
func StatusOf(state string) string {
	for s := journal.RunPending; s.Known(); s++ {
		if s.String() == state {
			return ExecutionStatus(s)
		}
	}
	return state
}

// Execution returns the run as it is after the last event. With outputs it has those of
// the steps, if the run was made to keep them. Later events do not change what is returned,
// which the caller must not modify.
func (r *Run) Execution(facts Facts, outputs bool) *Execution {
	e := &Execution{
		ID: r.id, RecipeID: cmp.Or(facts.RecipeID, r.recipe), RecipeVersion: r.version, AccountID: r.account,
		Status: ExecutionStatus(r.status), State: r.status.String(), WaitState: r.WaitState(),
		Credits:   Credits{Reserved: r.reserved, Used: r.used.Ceil(), Estimated: r.estimated},
		Input:     Input{FileHashes: append([]string{}, r.files...), Parameters: r.params},
		CreatedAt: stamp(r.created), StartedAt: stamp(r.began), CompletedAt: stamp(r.ended), DeletedAt: stamp(facts.DeletedAt),
		Generation: r.gen, Paused: r.paused, HasFailures: r.failed, Labels: r.labels, Error: r.err, Outputs: r.result, ResumeToken: r.ResumeToken(),
		StepResults: map[string]*StepResult{},
	}
	if e.Input.Parameters == nil {
		e.Input.Parameters = map[string]any{}
	}
	if r.metered && !r.child {
		e.ReservationID = r.id + "." + strconv.FormatInt(r.gen, 10) // the id of the hold
	}
	if facts.Quarantine != "" {
		e.Quarantined = &Quarantine{facts.Quarantine}
	}
	if outputs {
		e.OutputsOmitted = r.unlisted
	}
	r.results(e, outputs)
	return e
}

// results lists the steps that have settled, and those of them that have completed.
func (r *Run) results(e *Execution, outputs bool) {
	settled := r.instances(func(s *scope, x *step) bool { return !s.skipped && x.status.Settled() })
	heap.Sort(settled, func(a, b instance) int { return cmp.Compare(a.step.settled, b.step.settled) })
	e.Progress.CompletedSteps, e.Progress.PercentComplete = []string{}, r.Percent()
	for _, in := range settled {
		switch {
		case in.step.status != journal.Completed || in.scope.undo:
		case len(e.Progress.CompletedSteps) < MaxSteps:
			e.Progress.CompletedSteps = append(e.Progress.CompletedSteps, in.path(r.plan))
		default:
			e.Progress.MoreCompletedSteps++
		}
	}
	e.Progress.MoreCompletedSteps += r.gone.completed
	if root := r.scopes[""]; root != nil && !r.status.Terminal() {
		if i := slices.IndexFunc(root.steps, func(x step) bool { return x.status.Begun() }); i >= 0 {
			e.Progress.CurrentStep = r.plan.Steps[root.g.First+int32(i)].ID
		}
	}
	e.MoreStepResults = r.gone.all + int64(max(0, len(settled)-MaxSteps))
	if len(settled) > MaxSteps {
		heap.Sort(settled, func(a, b instance) int { return cmp.Compare(a.failed(), b.failed()) })
		settled = settled[:MaxSteps]
	}
	for _, in := range settled {
		e.StepResults[in.path(r.plan)] = in.result(r.plan, outputs)
	}
}

// An instance is a step instance with its scope.
type instance struct {
	scope *scope
	step  *step
	local int32
}

// instances returns the step instances that are known and for which want is true, in no
// particular order.
func (r *Run) instances(want func(*scope, *step) bool) (list []instance) {
	for _, s := range r.scopes {
		for i := range s.steps {
			if x := &s.steps[i]; x.seen && want(s, x) {
				list = append(list, instance{s, x, int32(i)})
			}
		}
	}
	return list
}

func (in instance) ref() journal.Ref {
	return journal.Ref{Path: in.scope.path, Step: in.scope.g.First + in.local}
}

func (in instance) path(p *plan.Plan) string { return journal.StepPath(p, in.ref()) }

// failed is 0 for a step that failed, else 1, so that those that failed come first.
func (in instance) failed() int {
	if in.step.status == journal.StepFailed {
		return 0
	}
	return 1
}

func (in instance) result(p *plan.Plan, outputs bool) *StepResult {
	x := in.step
	res := &StepResult{Status: x.word(), OutputBinding: p.Steps[in.ref().Step].Bind, CreditsUsed: x.cost, Attempts: x.attempt, Cached: x.cached, Error: x.err}
	if x.began != 0 || x.status == journal.Completed {
		res.Duration = duration(x.micros)
	}
	if x.status == journal.Skipped || x.status == journal.Cancelled {
		res.Reason = x.reason.String()
	}
	if outputs {
		res.Output = x.output
	}
	return res
}

// word is the status of a step as it is shown: a failure whose cause is a timeout has a
// word of its own (R4).
func (x *step) word() string {
	if x.status == journal.StepFailed && x.err != nil && x.err.Cause == fault.CauseTimeout {
		return "timed_out"
	}
	return x.status.String()
}
