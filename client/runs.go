// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Runs are the runs of the account, which the server calls executions.
type Runs struct{ c *Client }

// A Run is a run as it stands. Times are RFC 3339, durations ISO 8601; fields that do not
// apply are "".
type Run struct {
	ID              string                 `json:"id"`
	RecipeID        string                 `json:"recipeId"`
	RecipeVersion   string                 `json:"recipeVersion,omitempty"`
	AccountID       string                 `json:"accountId"`
	Status          string                 `json:"status"`    // pending, running, completed, failed or cancelled
	State           string                 `json:"state"`     // the same more exactly, such as queued or expired
	WaitState       string                 `json:"waitState"` // none, waiting_single, waiting_parallel or ready_to_resume
	Progress        Progress               `json:"progress"`
	Credits         RunCredits             `json:"credits"`
	StepResults     map[string]*StepResult `json:"stepResults"` // of the steps that have settled, by path
	MoreStepResults int64                  `json:"moreStepResults,omitempty"`
	Input           RunInput               `json:"input"`
	CreatedAt       string                 `json:"createdAt,omitempty"`
	StartedAt       string                 `json:"startedAt,omitempty"`   // when the first step began
	CompletedAt     string                 `json:"completedAt,omitempty"` // when the run ended, whatever its status
	DeletedAt       string                 `json:"deletedAt,omitempty"`
	ReservationID   string                 `json:"reservationId,omitempty"`
	Generation      int64                  `json:"generation"` // a retry opens the next one
	Paused          bool                   `json:"paused"`
	HasFailures     bool                   `json:"hasFailures"`
	Quarantined     *Quarantine            `json:"quarantined,omitempty"`
	Labels          map[string]string      `json:"labels,omitempty"`
	Error           *RunError              `json:"error,omitempty"`
	Outputs         json.RawMessage        `json:"outputs,omitempty"`
	ResumeToken     string                 `json:"resumeToken"`
	OutputsOmitted  int64                  `json:"outputsOmitted,omitempty"` // outputs of steps that are too many to be listed
	// Steps and Ledger are there only if they were asked for, see [RunParts].
	Steps     []*StepState `json:"steps,omitempty"`
	MoreSteps int64        `json:"moreSteps,omitempty"` // that are too many to be listed
	Ledger    *Bill        `json:"ledger,omitempty"`
}

// Ended reports whether the run has ended.
func (r *Run) Ended() bool {
	return r.Status == "completed" || r.Status == "failed" || r.Status == "cancelled"
}

// Failure returns why the run did not complete, as an error with the code of the run; nil for
// one that has completed, or not ended.
func (r *Run) Failure() error {
	switch {
	case r.Error != nil && r.Status != "completed":
		return &fault.Error{Code: r.Error.Code, Msg: r.Error.Message}
	case r.Status == "cancelled":
		return fault.New(fault.ExecutionCancelled, "the run was cancelled")
	case r.Status == "failed":
		return fault.New(fault.StepFailed, "the run has failed")
	}
	return nil
}

// Progress is how far a run has come.
type Progress struct {
	CurrentStep        string   `json:"currentStep,omitempty"` // the first step that has begun and not settled
	CompletedSteps     []string `json:"completedSteps"`
	MoreCompletedSteps int64    `json:"moreCompletedSteps,omitempty"` // that are too many to be listed
	PercentComplete    int      `json:"percentComplete"`              // 100 only once it has completed
}

// RunCredits are what a run holds, has used and was expected to use.
type RunCredits struct {
	Reserved  int64 `json:"reserved"`
	Used      int64 `json:"used"`
	Estimated int64 `json:"estimated"`
}

// A RunInput is what a run was started with.
type RunInput struct {
	FileHashes []string       `json:"fileHashes"`
	Parameters map[string]any `json:"parameters"`
}

// Quarantine is why a run is quarantined.
type Quarantine struct {
	Reason string `json:"reason"`
}

// A RunError is why a run, or a step, failed.
type RunError struct {
	Code      fault.Code  `json:"code"`
	Message   string      `json:"message"`
	Step      string      `json:"step,omitempty"` // the first step that failed
	Cause     fault.Cause `json:"cause"`
	Retryable bool        `json:"retryable"`
}

// A StepResult is how a step has ended.
type StepResult struct {
	Status        string          `json:"status"` // completed, failed, timed_out, skipped or cancelled
	OutputBinding string          `json:"outputBinding,omitempty"`
	Duration      string          `json:"duration,omitempty"` // "" for a step that did not begin
	CreditsUsed   json.Number     `json:"creditsUsed"`        // up to six decimals
	Attempts      uint32          `json:"attempts,omitempty"`
	Reason        string          `json:"reason,omitempty"` // why it was skipped or cancelled
	Error         *RunError       `json:"error,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
	Cached        bool            `json:"cached,omitempty"` // it has the result of an earlier call
}

// A StepState is a step of a run, whether it has settled or not.
type StepState struct {
	Step        string      `json:"step"` // its path
	Type        string      `json:"type"` // such as action, condition or wait
	Action      string      `json:"action,omitempty"`
	Status      string      `json:"status"`
	Attempts    uint32      `json:"attempts,omitempty"`
	StartedAt   string      `json:"startedAt,omitempty"`
	CompletedAt string      `json:"completedAt,omitempty"` // when it settled, whatever its status
	Duration    string      `json:"duration,omitempty"`    // "" until it has settled
	CreditsUsed json.Number `json:"creditsUsed"`           // up to six decimals
	Reason      string      `json:"reason,omitempty"`      // why it was skipped or cancelled
	Error       *RunError   `json:"error,omitempty"`
	ChildRunID  string      `json:"childRunId,omitempty"` // the run of a nested recipe
	Cached      bool        `json:"cached,omitempty"`     // it has the result of an earlier call
}

// A RunSummary is a run in a list.
type RunSummary struct {
	ID            string            `json:"id"`
	RecipeID      string            `json:"recipeId"`
	RecipeName    string            `json:"recipeName"`
	RecipeVersion string            `json:"recipeVersion,omitempty"`
	Status        string            `json:"status"`
	State         string            `json:"state"`
	ParentRunID   string            `json:"parentRunId,omitempty"` // of a child run
	RootRunID     string            `json:"rootRunId,omitempty"`   // of a child run
	CreditsUsed   int64             `json:"creditsUsed"`
	HasFailures   bool              `json:"hasFailures"`
	Quarantined   bool              `json:"quarantined"`
	ErrorCode     fault.Code        `json:"errorCode,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	DeletedAt     *time.Time        `json:"deletedAt,omitempty"`
	CreatedAt     time.Time         `json:"createdAt"`
	CompletedAt   *time.Time        `json:"completedAt,omitempty"`
}

// RunQuery selects runs. Fields left zero do not restrict.
type RunQuery struct {
	Status        string            // a status, or a state
	Recipe        string            // name or id
	Parent        string            // only child runs of this run
	CreatedAfter  time.Time         // at this time or later
	CreatedBefore time.Time         // before this time
	Text          string            // in recipe, id, error or the value of a label
	Labels        map[string]string // that the run has
	Deleted       bool              // only runs that were deleted, instead of the others
	Fields        []string          // of each run, as JSON names them; others are left zero; nil = all
	PageSize      int               // how many are asked for at once, up to 500; default 50
}

// List returns the runs, the newest first.
func (r *Runs) List(ctx context.Context, q RunQuery) iter.Seq2[RunSummary, error] {
	return list[RunSummary](ctx, r.c, func() *call {
		cl := at(http.MethodGet, "v1", "recipe-executions").with("status", q.Status).with("recipe", q.Recipe).with("parent", q.Parent).
			with("createdAfter", stamp(q.CreatedAfter)).with("createdBefore", stamp(q.CreatedBefore)).with("q", q.Text).with("limit", number(q.PageSize)).with("fields", strings.Join(q.Fields, ","))
		if q.Deleted {
			cl.with("deleted", "true")
		}
		for name, value := range q.Labels {
			cl.query.Set("label."+name, value)
		}
		return cl
	})
}

// at returns a call of an operation on a run.
func (r *Runs) at(method, id string, operation ...string) *call {
	return at(method, append([]string{"v1", "recipe-executions", id}, operation...)...)
}

// run sends a call that is answered with a run.
func (r *Runs) run(ctx context.Context, cl *call) (*Run, error) {
	out := new(Run)
	_, err := r.c.do(ctx, cl, out)
	return result(out, err)
}

// Get returns a run. outputs adds the outputs of its steps.
func (r *Runs) Get(ctx context.Context, id string, outputs bool) (*Run, error) {
	cl := r.at(http.MethodGet, id)
	if outputs {
		cl.with("expand", "outputs")
	}
	return r.run(ctx, cl)
}

// RunParts are what of a run is asked for.
type RunParts struct {
	Outputs bool // the outputs of its steps
	Steps   bool // its steps, those that are open included
	Ledger  bool // what it has cost; the key needs the scope credits:read
	// Fields are the fields of the run, as JSON names them, such as status; others are left
	// zero. nil = all. Naming steps or ledger is enough to get them.
	Fields []string
}

// GetParts returns parts of a run.
func (r *Runs) GetParts(ctx context.Context, id string, p RunParts) (*Run, error) {
	var expand []string
	for _, part := range []struct {
		name string
		want bool
	}{{"outputs", p.Outputs}, {"steps", p.Steps}, {"ledger", p.Ledger}} {
		if part.want {
			expand = append(expand, part.name)
		}
	}
	return r.run(ctx, r.at(http.MethodGet, id).with("expand", strings.Join(expand, ",")).with("fields", strings.Join(p.Fields, ",")))
}

// Delete hides a run that has ended, and removes it when it is no longer kept.
func (r *Runs) Delete(ctx context.Context, id string) error {
	_, err := r.c.do(ctx, r.at(http.MethodDelete, id), nil)
	return err
}

// A Reason goes with a change of a run.
type Reason struct {
	Reason string `json:"reason,omitempty"` // for the journal
	// ResumeToken is that of the run as it was read; a run that has gone on since is
	// fault.Conflict. "" = whatever it does.
	ResumeToken string `json:"resumeToken,omitempty"`
}

func (r *Runs) change(ctx context.Context, cl *call, body any) (*Run, error) {
	cl, err := cl.send(body)
	if err != nil {
		return nil, err
	}
	return r.run(ctx, cl)
}

// Cancel ends a run; what it compensates is compensated first. A run that has ended in
// another way is fault.TooLate.
func (r *Runs) Cancel(ctx context.Context, id string, why Reason) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "cancel"), why)
}

// Stop is Cancel in the words of the flow source (X221).
func (r *Runs) Stop(ctx context.Context, id string, why Reason) (*Run, error) {
	return r.change(ctx, at(http.MethodPost, "execute", "workflows", id, "stop"), why)
}

// Pause lets no further attempt of a run begin.
func (r *Runs) Pause(ctx context.Context, id string, why Reason) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "pause"), why)
}

// Unpause lets a paused run go on.
func (r *Runs) Unpause(ctx context.Context, id string, why Reason) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "unpause"), why)
}

// Release releases a run from quarantine, for a key that administers the server.
func (r *Runs) Release(ctx context.Context, id string, why Reason) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "release"), why)
}

// A Handover is a run that a command hands over to the process that holds the data directory.
// Plan has the form of one release of Roux, which both processes must be of.
type Handover struct {
	Plan       json.RawMessage   `json:"plan"`
	Recipe     string            `json:"recipe,omitempty"` // name, for people
	Version    string            `json:"version,omitempty"`
	Parameters any               `json:"parameters,omitempty"` // what becomes a JSON object
	Files      []HandedFile      `json:"files,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty"`
	NoCache    bool              `json:"noCache,omitempty"`
	Key        string            `json:"key,omitempty"` // a key of the account, whose budget the run spends
	Labels     map[string]string `json:"labels,omitempty"`
}

// A HandedFile is an input file that the account keeps, under its name in the run.
type HandedFile struct {
	Hash string `json:"hash"`
	Name string `json:"name,omitempty"`
}

// HandOver starts a run, over the socket of a data directory only.
func (r *Runs) HandOver(ctx context.Context, h Handover) (*Started, error) {
	cl, err := at(http.MethodPost, "v1", "handovers").send(h)
	if err != nil {
		return nil, err
	}
	out := new(Started)
	_, err = r.c.do(ctx, cl, out)
	return result(out, err)
}

// Continue makes the process that holds a data directory carry on a run which an earlier one
// has left, over its socket only.
func (r *Runs) Continue(ctx context.Context, id string) (*Run, error) {
	return r.run(ctx, r.at(http.MethodPost, id, "continue"))
}

// A RetryRequest says how an ended run runs again.
type RetryRequest struct {
	From        string     `json:"from,omitempty"`  // the step to start from; default: what failed
	Input       any        `json:"input,omitempty"` // fields of the input that are replaced: what becomes a JSON object
	Limits      *RunLimits `json:"limits,omitempty"`
	ResumeToken string     `json:"resumeToken,omitempty"` // see Reason
}

// RunLimits are limits of a run that are raised; 0 = as they are.
type RunLimits struct {
	MaxTotalSteps     int64 `json:"max_total_steps,omitempty"`
	MaxLoopItems      int64 `json:"max_loop_items,omitempty"`
	MemoryLimitMB     int64 `json:"memory_limit_mb,omitempty"`
	MaxExpressionCost int64 `json:"max_expression_cost,omitempty"`
}

// Retry runs an ended run again, in a new generation.
func (r *Runs) Retry(ctx context.Context, id string, req RetryRequest) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "retry"), req)
}

// A Signal is what a wait step waits for.
type Signal struct {
	Name        string `json:"name"`
	Payload     any    `json:"payload,omitempty"`     // the output of the step: what becomes JSON
	ResumeToken string `json:"resumeToken,omitempty"` // see Reason
}

// Signal sends a run a signal.
func (r *Runs) Signal(ctx context.Context, id string, s Signal) (*Run, error) {
	return r.change(ctx, r.at(http.MethodPost, id, "signal"), s)
}

// A Tag is a row that an event of a run appends (X228).
type Tag struct {
	RunID    string         `json:"run_id"`
	NodeID   string         `json:"node_id"` // the path of the step; "" for the run
	Tag      string         `json:"tag"`
	Metadata map[string]any `json:"metadata"`
}

// A RetryPlan is what a retry would do.
type RetryPlan struct {
	ExecutionID      string   `json:"executionId"`
	DryRun           bool     `json:"dryRun"`
	ResumeToken      string   `json:"resumeToken"` // for the retry: fault.Conflict if the run has gone on since
	Generation       int64    `json:"generation"`  // that the retry would open
	Steps            []string `json:"steps"`       // paths of those that would run again
	MoreSteps        int      `json:"moreSteps,omitempty"`
	CreditsEstimated int64    `json:"creditsEstimated"`
	CreditsReserved  int64    `json:"creditsReserved"`
	CreditsAvailable int64    `json:"creditsAvailable"`
	Payable          bool     `json:"payable"`
}

// RetryPlan returns what a retry would run again and what that would cost. It changes nothing.
func (r *Runs) RetryPlan(ctx context.Context, id string, req RetryRequest) (*RetryPlan, error) {
	cl, err := r.at(http.MethodPost, id, "retry").send(struct {
		RetryRequest
		DryRun bool `json:"dryRun"`
	}{req, true})
	if err != nil {
		return nil, err
	}
	out := new(RetryPlan)
	_, err = r.c.do(ctx, cl, out)
	return result(out, err)
}

// Tags returns the tags of a run, the oldest first.
func (r *Runs) Tags(ctx context.Context, id string) iter.Seq2[Tag, error] {
	return list[Tag](ctx, r.c, func() *call { return r.at(http.MethodGet, id, "tags") })
}

// Jobs are the runs of the account in the words of the orchestration source.
type Jobs struct{ c *Client }

func (j *Jobs) job(ctx context.Context, cl *call) (*Job, error) {
	out := new(Job)
	_, err := j.c.do(ctx, cl, out)
	return result(out, err)
}

// Get returns a job as it was after an event; 0 = as it is.
func (j *Jobs) Get(ctx context.Context, id string, event uint64) (*Job, error) {
	return j.job(ctx, at(http.MethodGet, "jobs", id).with("at", number(event)))
}

// Graph returns a job with its shadow graph as it was after an event; 0 = as it is.
func (j *Jobs) Graph(ctx context.Context, id string, event uint64) (*Job, error) {
	return j.job(ctx, at(http.MethodGet, "jobs", id, "graph").with("at", number(event)))
}

// Delete deletes a run that has ended, and returns the job as it is from then on.
func (j *Jobs) Delete(ctx context.Context, id string) (*Job, error) {
	return j.job(ctx, at(http.MethodDelete, "jobs", id))
}
