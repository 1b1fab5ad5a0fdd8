// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// A Job is a run in the words of orchestration: its status and its shadow graph (X83, X84,
// X196). A job that is asked as of event N is the fold of the first N events.
type Job struct {
	JobID    string `json:"job_id"`
	RecipeID string `json:"recipe_id"`
	// Status is PENDING, QUEUED (over the quota of the account, before the first grant),
	// DISPATCHING, PROCESSING, PREVIEW, COMPLETED, FAILED, CANCELLED or EXPIRED, and DELETED
	// once the run is hidden (X78).
	Status string `json:"status"`
	// WorkflowStatus is RUNNING, WAITING_SINGLE, WAITING_PARALLEL or READY_TO_RESUME; absent
	// once the job has ended.
	WorkflowStatus string `json:"workflow_status,omitempty"`
	ResumeToken    string `json:"resume_token"`
	Event          uint64 `json:"event"` // the last event that the job includes
	Generation     int64  `json:"generation"`

	StepResults         StepOutcomes `json:"step_results"`
	MoreStepResults     int64        `json:"more_step_results,omitempty"`
	OutputsOmitted      int64        `json:"outputs_omitted,omitempty"` // beyond MaxOutputs; they are null
	StepMetadata        StepMetadata `json:"step_metadata"`
	PendingOperations   []*Operation `json:"pending_operations"`
	CompletedOperations []*Operation `json:"completed_operations"` // the last one of each node
	// WaitingFor says what the operations wait for that are outside the run, by operation.
	WaitingFor map[string]*WaitingFor `json:"waiting_for"`

	Error       *Error `json:"error,omitempty"`
	CreatedAt   string `json:"created_at,omitempty"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
	DeletedAt   string `json:"deleted_at,omitempty"`
}

// StepOutcomes are the outcomes of the steps that have completed or were skipped, by path.
type StepOutcomes struct {
	Steps map[string]StepOutcome `json:"steps"`
}

// A StepOutcome is the output of a step that has completed, or says that it was skipped.
type StepOutcome struct {
	Outputs *json.RawMessage `json:"outputs,omitempty"`
	Skipped bool             `json:"skipped,omitempty"`
}

// StepMetadata holds the graph of a job.
type StepMetadata struct {
	WorkflowInstance Graph `json:"workflow_instance"`
}

// A Graph is the instance of a job's graph: a node for each step instance whose scope has
// opened. The id of a node is the path of the step. Of more than MaxSteps nodes it has those
// that are open, those that failed, and then the first.
type Graph struct {
	Nodes          map[string]*Node `json:"nodes"`
	MoreNodes      int64            `json:"more_nodes,omitempty"`
	Edges          []Edge           `json:"edges"`
	MoreEdges      int64            `json:"more_edges,omitempty"`
	IncomingCounts map[string]int   `json:"incoming_counts"` // dependencies that have not settled
	ReadyQueue     []string         `json:"ready_queue"`     // nodes that may begin and have not
	// IsComplete reports whether every node is complete or failed and the ready queue is
	// empty (X86).
	IsComplete bool `json:"is_complete"`
}

// An Edge says that a node waits for another one.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// A Node is a step instance in a graph.
type Node struct {
	Type   string `json:"type"`
	Action string `json:"action,omitempty"`
	Status string `json:"status"`
	// A node that was skipped is complete: the nodes that depend on it go on. One that was
	// cancelled is failed: it did not complete, and will not.
	Complete    bool   `json:"complete"`
	Running     bool   `json:"running"`
	Failed      bool   `json:"failed"`
	RetryCount  int64  `json:"retry_count"`
	Attempt     uint32 `json:"attempt,omitempty"`
	Wave        int32  `json:"wave"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
	DurationMS  int64  `json:"duration_ms,omitempty"`
	Cached      bool   `json:"cached,omitempty"` // it has an earlier result, and its action was not called
	Reason      string `json:"reason,omitempty"` // why it was skipped or cancelled
	Error       *Error `json:"error,omitempty"`
}

// An Operation is what a node does outside the graph: an attempt of an action, a child run
// or a wait.
type Operation struct {
	OperationID string `json:"operation_id"` // path and attempt: "step_2#1"
	NodeID      string `json:"node_id"`
	Type        string `json:"type"` // action, recipe or wait
	Attempt     uint32 `json:"attempt,omitempty"`
	Status      string `json:"status"`
	StartedAt   string `json:"started_at,omitempty"`
	CompletedAt string `json:"completed_at,omitempty"`
}

// WaitingFor is what an operation waits for. Fields that do not apply are absent.
type WaitingFor struct {
	// Provider is that of an external job, "run" for a child run, "signal" or "timer".
	Provider      string `json:"provider"`
	ExternalJobID string `json:"external_job_id,omitempty"` // by its provider; or the child run
	PollingTaskID string `json:"polling_task_id,omitempty"` // the timer, which for a job is its end: operation and time in UTC µs
	Signal        string `json:"signal,omitempty"`
	Until         string `json:"until,omitempty"`
}

// jobStatus is the status of a run in the words of orchestration.
func jobStatus(s journal.RunStatus, deleted bool) string {
	switch {
	case deleted:
		return "DELETED"
	case s == journal.RunRunning:
		return "PROCESSING"
	}
	return strings.ToUpper(s.String())
}

// Job returns the run as it is after the last event. Outputs are null unless the run was
// made to keep them. Later events do not change what is returned, which the caller must not
// modify.
func (r *Run) Job(facts Facts) *Job {
	j := &Job{
		JobID: r.id, RecipeID: cmp.Or(facts.RecipeID, r.recipe), Status: jobStatus(r.status, facts.DeletedAt != 0), ResumeToken: r.ResumeToken(),
		Event: r.last, Generation: r.gen, Error: r.err,
		CreatedAt: stamp(r.created), StartedAt: stamp(r.began), CompletedAt: stamp(r.ended), DeletedAt: stamp(facts.DeletedAt),
		StepResults: StepOutcomes{map[string]StepOutcome{}}, WaitingFor: map[string]*WaitingFor{},
		PendingOperations: []*Operation{}, CompletedOperations: []*Operation{},
		OutputsOmitted: r.unlisted,
	}
	if !r.status.Terminal() {
		j.WorkflowStatus = "RUNNING"
		if wait := r.WaitState(); wait != "none" {
			j.WorkflowStatus = strings.ToUpper(wait)
		}
	}
	nodes := r.instances(func(*scope, *step) bool { return true })
	heap.Sort(nodes, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), journal.Compare(r.plan, a.ref(), b.ref()))
	})
	g := &j.StepMetadata.WorkflowInstance
	g.MoreNodes = r.gone.all + int64(max(0, len(nodes)-MaxSteps))
	nodes = nodes[:min(len(nodes), MaxSteps)]
	heap.Sort(nodes, func(a, b instance) int { return journal.Compare(r.plan, a.ref(), b.ref()) })
	j.MoreStepResults = g.MoreNodes
	r.graph(g, nodes)
	for _, in := range nodes {
		r.outcome(j, in)
		r.operation(j, in)
	}
	return j
}

// rank orders nodes by how much a reader needs them.
func (in instance) rank() int {
	switch {
	case in.step.status.Begun():
		return 0
	case in.step.status == journal.StepFailed:
		return 1
	}
	return 2
}

func (r *Run) graph(g *Graph, nodes []instance) {
	g.Nodes, g.IncomingCounts = make(map[string]*Node, len(nodes)), make(map[string]int, len(nodes))
	g.Edges, g.ReadyQueue = []Edge{}, []string{}
	for _, in := range nodes {
		id := in.path(r.plan)
		g.Nodes[id] = in.node(r.plan)
		open := 0
		for _, pred := range r.plan.Steps[in.ref().Step].Preds {
			from := instance{in.scope, &in.scope.steps[pred-in.scope.g.First], pred - in.scope.g.First}
			if from.step.seen && !from.step.status.Settled() {
				open++
			}
			if len(g.Edges) < MaxEdges {
				g.Edges = append(g.Edges, Edge{from.path(r.plan), id})
			} else {
				g.MoreEdges++
			}
		}
		g.IncomingCounts[id] = open
		if in.ready(open) && !r.status.Terminal() {
			g.ReadyQueue = append(g.ReadyQueue, id)
		}
	}
	root := r.scopes[""]
	g.IsComplete = root != nil && root.open == 0 && r.busy == 0
}

// ready reports whether a node may begin and has not: it waits for an attempt, or for its
// turn.
func (in instance) ready(incoming int) bool {
	switch in.step.status {
	case journal.Queued, journal.Blocked:
		return true
	case journal.Pending, journal.Invalidated:
		return incoming == 0
	}
	return false
}

func (in instance) node(p *plan.Plan) *Node {
	x, s := in.step, &p.Steps[in.ref().Step]
	n := &Node{Type: s.Kind.String(), Status: x.word(), RetryCount: x.retries, Attempt: x.attempt, Wave: s.Wave,
		StartedAt: stamp(x.began), CompletedAt: stamp(x.ended), DurationMS: (x.micros + 500) / 1000, Cached: x.cached, Error: x.err}
	if s.Kind == plan.Action {
		n.Action = p.Actions[s.Action].Name
	}
	switch x.status {
	case journal.Completed, journal.Skipped:
		n.Complete = true
	case journal.StepFailed, journal.Cancelled:
		n.Failed = true
	case journal.Running, journal.Waiting, journal.Retrying:
		n.Running = true
	}
	if x.status == journal.Skipped || x.status == journal.Cancelled {
		n.Reason = x.reason.String()
	}
	return n
}

// outcome adds the outcome of a node that is complete.
func (r *Run) outcome(j *Job, in instance) {
	switch in.step.status {
	case journal.Completed:
		out := json.RawMessage(in.step.output)
		if len(out) == 0 {
			out = json.RawMessage("null")
		}
		j.StepResults.Steps[in.path(r.plan)] = StepOutcome{Outputs: &out}
	case journal.Skipped:
		j.StepResults.Steps[in.path(r.plan)] = StepOutcome{Skipped: true}
	}
}

// operation adds what a node does, or did last, outside the graph.
func (r *Run) operation(j *Job, in instance) {
	x, kind := in.step, r.plan.Steps[in.ref().Step].Kind
	if kind != plan.Action && kind != plan.Recipe && kind != plan.Wait || x.began == 0 {
		return
	}
	op := &Operation{NodeID: in.path(r.plan), Type: kind.String(), Attempt: x.attempt, Status: x.word(), StartedAt: stamp(x.began), CompletedAt: stamp(x.ended)}
	op.OperationID = op.NodeID + "#" + strconv.FormatUint(uint64(max(x.attempt, 1)), 10)
	switch {
	case x.status.Settled():
		j.CompletedOperations = append(j.CompletedOperations, op)
	case x.status == journal.Waiting || x.status == journal.Running && !x.owns:
		j.PendingOperations = append(j.PendingOperations, op)
		if w := x.waitsFor(kind, op.OperationID); w != nil {
			j.WaitingFor[op.OperationID] = w
		}
	}
}

// waitsFor says what an open operation waits for; nil for an attempt that a worker has.
func (x *step) waitsFor(kind plan.Kind, operation string) *WaitingFor {
	switch {
	case kind == plan.Recipe:
		return &WaitingFor{Provider: "run", ExternalJobID: x.run}
	case x.status != journal.Waiting:
		return nil
	}
	w := &WaitingFor{Provider: "timer", Signal: x.note, Until: stamp(x.due)}
	switch {
	case kind == plan.Action:
		w.Provider, w.Signal, w.ExternalJobID = x.note, "", x.run
	case x.note != "":
		w.Provider = "signal"
	}
	if x.due != 0 {
		w.PollingTaskID = operation + "@" + strconv.FormatInt(x.due, 10)
	}
	return w
}
