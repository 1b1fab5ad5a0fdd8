// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"net/http"
)

// Workflows are recipes and their runs in the words of graphs of nodes: each has one run at a time. Where a
// method takes an id, it is that of a recipe or its name, with a version or a range after @ if not the newest
// one is meant, or the id of a run.
type Workflows struct{ c *Client }

// A Workflow is a version of a recipe with its newest run.
type Workflow struct {
	ID          string                  `json:"id"` // of the recipe, @ and the version
	Name        string                  `json:"name"`
	Version     string                  `json:"version"`
	ExecutionID string                  `json:"execution_id,omitempty"` // its newest run
	Status      string                  `json:"status"`                 // PENDING, RUNNING, COMPLETED, FAILED or CANCELLED
	Nodes       map[string]WorkflowNode `json:"nodes"`                  // by their ids
	MoreNodes   int64                   `json:"more_nodes,omitempty"`   // that are not listed
	Error       *RunError               `json:"error,omitempty"`
	StartedAt   string                  `json:"started_at,omitempty"`
	CompletedAt string                  `json:"completed_at,omitempty"`
}

// A WorkflowNode is a node of a workflow.
type WorkflowNode struct {
	Status      string    `json:"status"` // one of those of workflows, or SKIPPED
	Attempts    uint32    `json:"attempts,omitempty"`
	StartedAt   string    `json:"started_at,omitempty"`
	CompletedAt string    `json:"completed_at,omitempty"`
	Reason      string    `json:"reason,omitempty"` // why it was skipped or cancelled
	Error       *RunError `json:"error,omitempty"`
}

// A WorkflowTrigger is what a run starts with. Its zero value is enough.
type WorkflowTrigger struct {
	Parameters any               `json:"parameters,omitempty"` // an object; of a run that goes on, fields that are replaced
	FileHashes []string          `json:"fileHashes,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty"`
	Fresh      bool              `json:"fresh,omitempty"` // start a run also if the one before has failed
}

// A WorkflowTriggered says what a trigger has done.
type WorkflowTriggered struct {
	ID          string `json:"id"`
	ExecutionID string `json:"execution_id"`
	Status      string `json:"status"`
	Outcome     string `json:"outcome"` // started, retried (the run that had failed goes on) or active (one was, and nothing has started)
}

// A WorkflowExecution asks for a run of a workflow.
type WorkflowExecution struct {
	WorkflowID string            `json:"workflowId"`
	RootInputs any               `json:"rootInputs,omitempty"` // an object
	FileHashes []string          `json:"fileHashes,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	MaxCredits int64             `json:"maxCredits,omitempty"`
}

// A WorkflowExecuted is the run that was started, or the one that an earlier request with the same key has.
type WorkflowExecuted struct {
	RunID          string `json:"runId"`
	WorkflowID     string `json:"workflowId"`
	Version        string `json:"version"`
	Status         string `json:"status"` // pending, running, completed, failed or cancelled
	IdempotencyKey string `json:"idempotencyKey"`
	EventsURL      string `json:"eventsUrl"`
}

// WorkflowResults are the outputs of the nodes that have completed.
type WorkflowResults struct {
	ID          string                     `json:"id"`
	ExecutionID string                     `json:"execution_id,omitempty"`
	Status      string                     `json:"status"`
	Results     map[string]json.RawMessage `json:"results"`           // by the ids of the nodes
	Omitted     int64                      `json:"omitted,omitempty"` // that are left out, because all together are too large
}

// Create registers a workflow; text is JSON or YAML, of any dialect. A text without a name gets one.
func (w *Workflows) Create(ctx context.Context, text []byte) (*Workflow, error) {
	out := new(Workflow)
	_, err := w.c.do(ctx, at(http.MethodPost, "workflow").text(text, recipeType), out)
	return result(out, err)
}

// Trigger runs a workflow. While it has a run that is active, that is the answer; one that has failed goes on.
func (w *Workflows) Trigger(ctx context.Context, id string, t WorkflowTrigger) (*WorkflowTriggered, error) {
	cl, err := at(http.MethodPost, "workflow", "trigger", id).send(t)
	if err != nil {
		return nil, err
	}
	out := new(WorkflowTriggered)
	_, err = w.c.do(ctx, cl, out)
	return result(out, err)
}

// Execute starts a run. A repeated request has the run that the first one started, for as long as an idempotency
// key is kept. key "" stands for the SHA-256 of the workflow and its inputs.
func (w *Workflows) Execute(ctx context.Context, e WorkflowExecution, key string) (*WorkflowExecuted, error) {
	cl, err := at(http.MethodPost, "execute", "workflows").send(e)
	if err != nil {
		return nil, err
	}
	if key == "" {
		if key, err = derivedKey(e.WorkflowID, orEmpty(e.RootInputs)); err != nil {
			return nil, err
		}
	}
	cl.set("Idempotency-Key", key)
	out := new(WorkflowExecuted)
	_, err = w.c.do(ctx, cl, out)
	return result(out, err)
}

// Get returns a workflow with the state of its newest run.
func (w *Workflows) Get(ctx context.Context, id string) (*Workflow, error) {
	out := new(Workflow)
	_, err := w.c.do(ctx, at(http.MethodGet, "workflows", id), out)
	return result(out, err)
}

// Results returns the outputs of the nodes that have completed.
func (w *Workflows) Results(ctx context.Context, id string) (*WorkflowResults, error) {
	out := new(WorkflowResults)
	_, err := w.c.do(ctx, at(http.MethodGet, "workflows", id, "results"), out)
	return result(out, err)
}
