// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workflows

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
)

// register adds the operations.
func register(rt *rest.Router, cfg Config, accepts []string) {
	s := &server{cfg}
	create := rest.Op("workflows-create", http.MethodPost, "/workflow", "Register a workflow")
	create.Description = "It is validated first: circles, dependencies that do not exist and ids that occur twice are refused. A text without a name gets one that is made of its hash. " +
		"The workflow is a version of a recipe, for all other operations, too."
	create.DefaultStatus, create.MaxBodyBytes = http.StatusCreated, rest.MaxText
	write := rest.Needs(access.RecipesWrite)
	write.Accepts = accepts
	rest.Handle(rt, create, write, s.create)
	trigger := rest.Op("workflows-trigger", http.MethodPost, "/workflow/trigger/{id}", "Run a workflow, or go on with its run that has failed")
	trigger.Description = "A run that has FAILED goes on: its nodes that have not completed run again, and those that have keep their outputs. While a run is active, it is the answer, and nothing starts. Otherwise a run starts."
	trigger.DefaultStatus = http.StatusAccepted
	rest.Handle(rt, trigger, rest.Needs(access.RunsExecute), s.trigger)
	rest.Handle(rt, rest.Op("workflows-get", http.MethodGet, "/workflows/{id}", "Get a workflow with the state of its newest run"), rest.Needs(access.RunsRead), s.get)
	rest.Handle(rt, rest.Op("workflows-results", http.MethodGet, "/workflows/{id}/results", "Get the outputs of the nodes of a workflow that have completed"), rest.Needs(access.RunsRead), s.results)
	execute := rest.Op("workflows-execute", http.MethodPost, "/execute/workflows", "Start a run of a workflow (X103)")
	execute.Description = "A repeated request with the same workflowId and rootInputs, or the same Idempotency-Key, is answered with the run that the first one started. Its events are at /execute/workflows/{id}/events."
	execute.DefaultStatus = http.StatusAccepted
	once := rest.Needs(access.RunsExecute)
	once.Once = rest.OnceItself
	rest.Handle(rt, execute, once, s.execute)
}

type server struct{ cfg Config }

// The statuses of workflows and nodes. SKIPPED is one of nodes only.
const (
	pending   = "PENDING"
	running   = "RUNNING"
	completed = "COMPLETED"
	failed    = "FAILED"
	cancelled = "CANCELLED"
	skipped   = "SKIPPED"
)

// A Workflow is a version of a recipe with its newest run.
type Workflow struct {
	ID          string                   `json:"id" example:"recipe_01K3ABCDEFGHJKMNPQRSTVWXYZ@1.0.0" doc:"What the other operations take, as well as its name, or the id of a run."`
	Name        string                   `json:"name" example:"summarize"`
	Version     string                   `json:"version"`
	ExecutionID string                   `json:"execution_id,omitempty" doc:"Its newest run."`
	Status      string                   `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED" doc:"PENDING until it is triggered."`
	Nodes       map[string]*WorkflowNode `json:"nodes" doc:"By their ids."`
	MoreNodes   int64                    `json:"more_nodes,omitempty" doc:"How many nodes, and steps within nodes, are not listed."`
	Error       *resource.Error          `json:"error,omitempty"`
	StartedAt   string                   `json:"started_at,omitempty"`
	CompletedAt string                   `json:"completed_at,omitempty"`
}

// A WorkflowNode is a node of a workflow.
type WorkflowNode struct {
	Status      string          `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,SKIPPED,CANCELLED"`
	Attempts    uint32          `json:"attempts,omitempty"`
	StartedAt   string          `json:"started_at,omitempty"`
	CompletedAt string          `json:"completed_at,omitempty"`
	Reason      string          `json:"reason,omitempty" doc:"Why it was skipped or cancelled."`
	Error       *resource.Error `json:"error,omitempty"`
}

type textIn struct {
	RawBody []byte `contentType:"application/octet-stream"`
}

type created struct {
	Status   int
	Location string `header:"Location"`
	Body     Workflow
}

// create registers a workflow.
func (s *server) create(ctx context.Context, in *textIn) (*created, error) {
	account := rest.Account(ctx)
	sum := sha256.Sum256(in.RawBody)
	v, existing, _, err := s.cfg.Recipes.Register(ctx, account, registry.Draft{Text: in.RawBody, File: "body", Name: "workflow-" + hex.EncodeToString(sum[:6]), By: account})
	if err != nil {
		return nil, err
	}
	w, _, err := s.find(ctx, v.ID(), false)
	if err != nil {
		return nil, err
	}
	out := &created{Status: http.StatusCreated, Location: "/workflows/" + v.ID(), Body: *w}
	if existing {
		out.Status = http.StatusOK
	}
	return out, nil
}

// A WorkflowPath names a workflow.
type WorkflowPath struct {
	ID string `path:"id" maxLength:"300" doc:"Id or name of a workflow, with a version or a range after @ if not the newest one is meant, or the id of a run."`
}

type found struct{ Body Workflow }

func (s *server) get(ctx context.Context, in *WorkflowPath) (*found, error) {
	w, _, err := s.find(ctx, in.ID, false)
	if err != nil {
		return nil, err
	}
	return &found{*w}, nil
}

// WorkflowResults are the outputs of the nodes of a workflow.
type WorkflowResults struct {
	ID          string                     `json:"id"`
	ExecutionID string                     `json:"execution_id,omitempty"`
	Status      string                     `json:"status" enum:"PENDING,RUNNING,COMPLETED,FAILED,CANCELLED"`
	Results     map[string]json.RawMessage `json:"results" doc:"Of the nodes that have completed, by their ids; a run that goes on, or has failed, has some of them."`
	Omitted     int64                      `json:"omitted,omitempty" doc:"How many are left out, because all together are too large."`
}

type resultsFound struct{ Body WorkflowResults }

func (s *server) results(ctx context.Context, in *WorkflowPath) (*resultsFound, error) {
	w, e, err := s.find(ctx, in.ID, true)
	if err != nil {
		return nil, err
	}
	out := WorkflowResults{ID: w.ID, ExecutionID: w.ExecutionID, Status: w.Status, Results: map[string]json.RawMessage{}}
	if e != nil {
		out.Omitted = e.OutputsOmitted
		for id, r := range e.StepResults {
			if n := w.Nodes[id]; n != nil && n.Status == completed && r.Output != nil {
				out.Results[id] = r.Output
			}
		}
	}
	return &resultsFound{out}, nil
}

// A version is one of a recipe that a request names, with its newest run, or with the run that it names.
type version struct {
	id, name, version string
	compiled          *registry.Compiled // nil if the request names a run
	head              *store.Head        // nil = it has no run
}

// lastRuns is among how many runs of a recipe that of a version is looked for.
const lastRuns = 500

// version finds what a request names.
func (s *server) version(ctx context.Context, id string) (*version, error) {
	account := rest.Account(ctx)
	var noRun error
	if strings.HasPrefix(id, "run_") {
		var head store.Head
		if head, noRun = s.cfg.Engine.Head(ctx, account, id); fault.CodeOf(noRun) != fault.RunNotFound {
			return s.ofRun(ctx, &head, noRun)
		}
	}
	c, err := s.cfg.Recipes.Resolve(ctx, account, id)
	if err != nil {
		return nil, cmp.Or(noRun, err)
	}
	v := &version{id: c.Version.ID(), name: c.Version.Name, version: c.Version.Version, compiled: c}
	heads, _, err := s.cfg.Runs.Search(ctx, store.Query{Account: account, Recipe: v.name, Limit: 1})
	if err == nil && len(heads) > 0 && heads[0].Version != v.version {
		heads, _, err = s.cfg.Runs.Search(ctx, store.Query{Account: account, Recipe: v.name, Limit: lastRuns})
	}
	for i := range heads {
		if heads[i].Version == v.version {
			v.head = &heads[i]
			break
		}
	}
	return v, err
}

// ofRun is the version of a run.
func (s *server) ofRun(ctx context.Context, head *store.Head, err error) (*version, error) {
	if err != nil {
		return nil, err
	}
	id, err := s.cfg.Recipes.ID(ctx, head.Account, head.Recipe)
	return &version{id: id + "@" + head.Version, name: head.Recipe, version: head.Version, head: head}, err
}

// find returns a workflow as it stands, and its run; nil = it has none.
func (s *server) find(ctx context.Context, id string, outputs bool) (*Workflow, *resource.Execution, error) {
	v, err := s.version(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	w := &Workflow{ID: v.id, Name: v.name, Version: v.version, Status: pending, Nodes: map[string]*WorkflowNode{}}
	if v.head == nil {
		root := v.compiled.Plan.Graphs[0]
		for _, st := range v.compiled.Plan.Steps[root.First : root.First+root.N] {
			w.Nodes[st.ID] = &WorkflowNode{Status: pending}
		}
		return w, nil, nil
	}
	e, err := s.cfg.Show(ctx, v.head.Run, outputs)
	if err != nil {
		return nil, nil, err
	}
	w.ExecutionID, w.Status, w.Error, w.StartedAt, w.CompletedAt = e.ID, capitals(e.State), e.Error, e.StartedAt, e.CompletedAt
	w.MoreNodes = e.MoreSteps
	for _, st := range e.Steps {
		if !strings.Contains(st.Step, ".") { // otherwise it is a step within a node
			w.Nodes[st.Step] = &WorkflowNode{Status: statusOf(st.Status), Attempts: st.Attempts, StartedAt: st.StartedAt, CompletedAt: st.CompletedAt, Reason: st.Reason, Error: st.Error}
		}
	}
	return w, e, nil
}

// statusOf is the status of a node for that of a step.
func statusOf(step string) string {
	switch step {
	case "completed":
		return completed
	case "failed", "timed_out":
		return failed
	case "skipped":
		return skipped
	case "cancelled":
		return cancelled
	case "running", "waiting", "retrying":
		return running
	}
	return pending
}

// capitals is the status of a workflow for the state of its run.
func capitals(state string) string { return strings.ToUpper(resource.StatusOf(state)) }
