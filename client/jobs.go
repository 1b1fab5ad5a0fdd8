// SPDX-License-Identifier: Apache-2.0

package client

import "encoding/json"

// A Job is a run with its shadow graph, as of an event (X83, X196). Times are RFC 3339.
type Job struct {
	JobID    string `json:"job_id"`
	RecipeID string `json:"recipe_id"`
	// Status is PENDING, QUEUED, DISPATCHING, PROCESSING, PREVIEW, COMPLETED, FAILED, CANCELLED,
	// EXPIRED or DELETED.
	Status string `json:"status"`
	// WorkflowStatus is RUNNING, WAITING_SINGLE, WAITING_PARALLEL or READY_TO_RESUME; "" once the
	// job has ended.
	WorkflowStatus      string                 `json:"workflow_status,omitempty"`
	ResumeToken         string                 `json:"resume_token"`
	Event               uint64                 `json:"event"` // the last event that the job includes
	Generation          int64                  `json:"generation"`
	StepResults         StepOutcomes           `json:"step_results"`
	MoreStepResults     int64                  `json:"more_step_results,omitempty"`
	OutputsOmitted      int64                  `json:"outputs_omitted,omitempty"`
	StepMetadata        StepMetadata           `json:"step_metadata"`
	PendingOperations   []*Operation           `json:"pending_operations"`
	CompletedOperations []*Operation           `json:"completed_operations"`
	WaitingFor          map[string]*WaitingFor `json:"waiting_for"` // by operation
	Error               *RunError              `json:"error,omitempty"`
	CreatedAt           string                 `json:"created_at,omitempty"`
	StartedAt           string                 `json:"started_at,omitempty"`
	CompletedAt         string                 `json:"completed_at,omitempty"`
	DeletedAt           string                 `json:"deleted_at,omitempty"`
}

// StepOutcomes are the outcomes of steps, by path.
type StepOutcomes struct {
	Steps map[string]StepOutcome `json:"steps"`
}

// A StepOutcome is the output of a step that has completed, or says that it was skipped.
type StepOutcome struct {
	Outputs json.RawMessage `json:"outputs,omitempty"`
	Skipped bool            `json:"skipped,omitempty"`
}

// StepMetadata holds the graph of a job.
type StepMetadata struct {
	WorkflowInstance Graph `json:"workflow_instance"`
}

// A Graph has a node for each step instance whose scope has opened.
type Graph struct {
	Nodes          map[string]*Node `json:"nodes"` // by the path of the step
	MoreNodes      int64            `json:"more_nodes,omitempty"`
	Edges          []Edge           `json:"edges"`
	MoreEdges      int64            `json:"more_edges,omitempty"`
	IncomingCounts map[string]int   `json:"incoming_counts"` // dependencies that have not settled
	ReadyQueue     []string         `json:"ready_queue"`     // nodes that may begin and have not
	IsComplete     bool             `json:"is_complete"`
}

// An Edge says that a node waits for another one.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// A Node is a step instance in a graph.
type Node struct {
	Type        string    `json:"type"`
	Action      string    `json:"action,omitempty"`
	Status      string    `json:"status"`
	Complete    bool      `json:"complete"` // also when it was skipped
	Running     bool      `json:"running"`
	Failed      bool      `json:"failed"` // also when it was cancelled
	RetryCount  int64     `json:"retry_count"`
	Attempt     uint32    `json:"attempt,omitempty"`
	Wave        int32     `json:"wave"`
	StartedAt   string    `json:"started_at,omitempty"`
	CompletedAt string    `json:"completed_at,omitempty"`
	DurationMS  int64     `json:"duration_ms,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Error       *RunError `json:"error,omitempty"`
	Cached      bool      `json:"cached,omitempty"` // it has the result of an earlier call
}

// An Operation is what a node does outside the graph: an attempt, a child run or a wait.
type Operation struct {
	OperationID string `json:"operation_id"`
	NodeID      string `json:"node_id"`
	Type        string `json:"type"` // action, recipe or wait
	Attempt     uint32 `json:"attempt,omitempty"`
	Status      string `json:"status"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

// WaitingFor is what an operation waits for.
type WaitingFor struct {
	Provider      string `json:"provider"`                  // run, signal or timer
	ExternalJobID string `json:"external_job_id,omitempty"` // the child run
	PollingTaskID string `json:"polling_task_id,omitempty"`
	Signal        string `json:"signal,omitempty"`
	Until         string `json:"until,omitempty"`
}
