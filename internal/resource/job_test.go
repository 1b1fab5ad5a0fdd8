// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// X78: the statuses of a job. R2: PROCESSING is running; DELETED is that a job was hidden
// (X98), whatever its status.
func TestX78_JobStatuses(t *testing.T) {
	var got []string
	for s := journal.RunPending; s.Known(); s++ {
		got = append(got, jobStatus(s, false))
	}
	if want := strings.Fields("PENDING QUEUED DISPATCHING PROCESSING PREVIEW COMPLETED FAILED CANCELLED EXPIRED"); !slices.Equal(got, want) {
		t.Errorf("the statuses are %v, want %v", got, want)
	}
	p := play(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n", nil)
	if j := p.run.Job(Facts{DeletedAt: t0}); j.Status != "DELETED" || j.DeletedAt == "" {
		t.Errorf("a hidden job is %s, deleted at %q", j.Status, j.DeletedAt)
	}
}

// X78, X79, X80: the statuses that a job has had, by the events that change them: queued
// over the quota, dispatching, processing, and a preview from which work goes on.
func TestX79_StatusesInOrder(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n", nil)
	p.do(&machine.Input{Kind: machine.InResult, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: machine.Preview, Output: []byte("1")})
	p.result("a", "2", "")
	p.result("b", "3", "")
	r, last, seen := NewRun(p.plan, "run_1", false), "", []string{}
	for i := range p.all {
		if err := r.Apply(&p.all[i]); err != nil {
			t.Fatal(err)
		}
		if s := r.Job(Facts{}).Status; s != last {
			if last = s; p.all[i].Step >= 0 {
				t.Errorf("X80: event %d of a step changed the status", i+1)
			}
			seen = append(seen, s)
		}
	}
	if got := strings.Join(seen, " "); got != "DISPATCHING PROCESSING PREVIEW PROCESSING COMPLETED" {
		t.Errorf("the job was %s", got)
	}
}

// X83, X85, X86, X196: the shadow graph of a fan-out and fan-in, event by event: what is
// ready, what is counted, and when it is complete.
func TestX83_Graph(t *testing.T) {
	p := play(t, `
name: r
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}, dependsOn: [a], retryPolicy: {maxAttempts: 2, initialDelay: 1s}}
  - {id: c, when: "false", action: {name: work}, dependsOn: [a]}
  - {id: d, action: {name: work}, dependsOn: [b, c]}
`, nil)
	graph := func() *Graph { return &p.run.Job(Facts{}).StepMetadata.WorkflowInstance }
	if g := graph(); !reflect.DeepEqual(g.IncomingCounts, map[string]int{"a": 0, "b": 1, "c": 1, "d": 2}) || !g.Nodes["a"].Running || g.Nodes["b"].Running || g.IsComplete || len(g.ReadyQueue) != 0 {
		t.Errorf("X83: at first the graph is %s", text(t, g))
	}
	if g := graph(); !slices.Equal(g.Edges, []Edge{{"a", "b"}, {"a", "c"}, {"b", "d"}, {"c", "d"}}) {
		t.Errorf("X83: the edges are %v", g.Edges)
	}
	p.hold = true
	p.after(time.Second)
	p.result("a", `{"n":1}`, "")
	j := p.run.Job(Facts{})
	g := &j.StepMetadata.WorkflowInstance
	if !slices.Equal(g.ReadyQueue, []string{"b"}) || !reflect.DeepEqual(g.IncomingCounts, map[string]int{"a": 0, "b": 0, "c": 0, "d": 1}) {
		t.Errorf("X85: after a the graph is %s", text(t, g))
	}
	if n := g.Nodes["a"]; !n.Complete || n.Running || n.DurationMS != 1000 || n.StartedAt == "" || n.CompletedAt == "" || n.Type != "action" || n.Action != "work" {
		t.Errorf("X83: the node a is %+v", n)
	}
	if n := g.Nodes["c"]; !n.Complete || n.Status != "skipped" || n.Reason != "condition" {
		t.Errorf("X83: the node c is %+v", n)
	}
	out, err := json.Marshal(j.StepResults)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"steps":{"a":{"outputs":{"n":1}},"c":{"skipped":true}}}`; string(out) != want {
		t.Errorf("X83: step_results are %s, want %s", out, want)
	}
	p.hold = false
	p.grant(journal.Ref{Step: 1})
	p.result("b", "", fault.ServiceUnavailable)
	if n := graph().Nodes["b"]; n.RetryCount != 1 || n.Status != "retrying" || n.Error == nil {
		t.Errorf("X83: the node b is %+v", n)
	}
	p.after(2 * time.Second)
	p.result("b", "1", "")
	p.result("d", "", fault.FileInvalid)
	j = p.run.Job(Facts{})
	g = &j.StepMetadata.WorkflowInstance
	if !g.IsComplete || !g.Nodes["d"].Failed || j.Status != "FAILED" || j.WorkflowStatus != "" || len(j.PendingOperations) != 0 || len(j.CompletedOperations) != 3 {
		t.Errorf("X86: at the end the job is %s", text(t, j))
	}
}

// X83: an attempt that was lost counts as a retry, unless an orderly stop handed it back.
func TestX83_RetryCount(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n", nil)
	for i, tt := range []struct {
		text string
		want int64
	}{{"stopping", 0}, {"", 1}} {
		p.do(&machine.Input{Kind: machine.InWorkerLost, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: uint32(i + 1)}, Text: tt.text})
		if n := p.run.Job(Facts{}).StepMetadata.WorkflowInstance.Nodes["a"]; n.RetryCount != tt.want || n.Attempt != uint32(i+2) || !n.Running {
			t.Errorf("after %d attempts that were lost: %+v", i+1, n)
		}
	}
}

// X84: what a job waits for, operation by operation, its workflow status, and a token that
// changes with every resume.
func TestX84_Waiting(t *testing.T) {
	p := play(t, `
name: r
order: none
steps:
  - {id: nap, wait: {duration: 1h}}
  - {id: ask, wait: {signal: go}}
  - {id: work, action: {name: work}}
  - {id: below, recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}}}
`, nil)
	j := p.run.Job(Facts{})
	if j.WorkflowStatus != "RUNNING" || len(j.PendingOperations) != 4 || len(j.WaitingFor) != 3 {
		t.Errorf("X84: while an action runs the job is %s", text(t, j))
	}
	child := p.todo["below"].Child
	if w := j.WaitingFor["below#1"]; w == nil || w.Provider != "run" || w.ExternalJobID != child {
		t.Errorf("X84: the child run is waited for as %+v", w)
	}
	p.result("work", "1", "")
	p.child("below", &machine.ChildEnd{Status: journal.RunCompleted, Outputs: []byte(`{}`)})
	j = p.run.Job(Facts{})
	if j.WorkflowStatus != "WAITING_PARALLEL" || len(j.PendingOperations) != 2 || len(j.CompletedOperations) != 2 {
		t.Errorf("X84: while two steps wait the job is %s", text(t, j))
	}
	if w := j.WaitingFor["ask#1"]; w == nil || w.Provider != "signal" || w.Signal != "go" || w.Until != "" {
		t.Errorf("X84: the signal is waited for as %+v", w)
	}
	if w := j.WaitingFor["nap#1"]; w == nil || w.Provider != "timer" || w.Until != journal.Time(t0+3_600_000_000) || w.PollingTaskID == "" {
		t.Errorf("X84: the timer is waited for as %+v", w)
	}
	before := j.ResumeToken
	p.do(&machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte("1")})
	if j = p.run.Job(Facts{}); j.WorkflowStatus != "WAITING_SINGLE" || j.ResumeToken == before || !strings.HasPrefix(j.ResumeToken, "1.") {
		t.Errorf("X84: while one step waits the job is %s, the token was %s", text(t, j), before)
	}
}

// X196: a job as of event N is the fold of the first N events. Nodes of nested scopes have
// the path of their scope (R1).
func TestX196_AsOfAnEvent(t *testing.T) {
	p, events := thaw(t, "nested")
	whole := fold(t, p, events)
	for n := 1; n <= len(events); n++ {
		j := fold(t, p, events[:n]).Job(Facts{})
		if j.Event != uint64(n) || j.ResumeToken != fmt.Sprintf("1.%d", n) {
			t.Fatalf("the job as of event %d includes event %d, token %s", n, j.Event, j.ResumeToken)
		}
	}
	g := &whole.Job(Facts{}).StepMetadata.WorkflowInstance
	want := []string{"outer"}
	for _, i := range []string{"0", "1"} {
		want = append(want, "outer["+i+"].inner", "outer["+i+"].inner[0].x", "outer["+i+"].inner[1].x", "outer["+i+"].t")
	}
	if got := keys(g.Nodes); !slices.Equal(got, want) {
		t.Errorf("the nodes are %v, want %v", got, want)
	}
	if !slices.Contains(g.Edges, Edge{"outer[1].t", "outer[1].inner"}) {
		t.Errorf("the edges are %v", g.Edges)
	}
}

// The nodes of the side of a condition that was not taken are skipped (X44).
func TestX83_NotTaken(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: c, condition: {expression: \"true\", then: [{id: y, action: {name: work}}], else: [{id: n, fail: {}}]}}\n", nil)
	j := p.run.Job(Facts{})
	if n := j.StepMetadata.WorkflowInstance.Nodes["c.else.n"]; n == nil || !n.Complete || n.Reason != "branch_not_taken" || !j.StepResults.Steps["c.else.n"].Skipped {
		t.Errorf("the job is %s", text(t, j))
	}
	if e := p.run.Execution(Facts{}, false); len(e.StepResults) != 0 {
		t.Errorf("a step that has no instance has a result: %s", text(t, e))
	}
}

// A plan with more steps than a list has: open and failed nodes are listed before others.
func TestMoreNodesThanAreListed(t *testing.T) {
	var src strings.Builder
	src.WriteString("name: r\norder: none\nfailure_policy: drain\nsteps:\n")
	const n = MaxSteps + 200
	for i := range n {
		fmt.Fprintf(&src, "  - {id: s%04d, action: {name: work}}\n", i)
	}
	fmt.Fprintf(&src, "  - {id: last, action: {name: work}, dependsOn: [s0000]}\n")
	p := play(t, src.String(), nil)
	for i := range n - 1 {
		code := fault.Code("")
		if i == n-2 {
			code = fault.FileInvalid
		}
		p.result(fmt.Sprintf("s%04d", i), "1", code)
	}
	e, j := p.run.Execution(Facts{}, false), p.run.Job(Facts{})
	g := &j.StepMetadata.WorkflowInstance
	if len(g.Nodes) != MaxSteps || g.MoreNodes != 201 || g.Nodes["s1199"] == nil || g.Nodes["s1198"] == nil || g.Nodes["last"] == nil {
		t.Errorf("%d nodes and %d more", len(g.Nodes), g.MoreNodes)
	}
	if len(e.StepResults) != MaxSteps || e.MoreStepResults != 199 || e.StepResults["s1198"] == nil || e.Progress.MoreCompletedSteps != 198 {
		t.Errorf("%d results and %d more, %d more completed", len(e.StepResults), e.MoreStepResults, e.Progress.MoreCompletedSteps)
	}
}

// Outputs are kept up to a bound, and a job says how many were not.
func TestOutputsAreBounded(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: l, loop: {over: \"[1,2,3,4,5,6,7,8,9,10]\", failureStrategy: ignore, steps: [{id: x, action: {name: work}}]}}\n", nil)
	big := `"` + strings.Repeat("x", 1<<20-100) + `"`
	for i := range 10 {
		p.result(fmt.Sprintf("l[%d].x", i), big, "")
	}
	j := p.run.Job(Facts{})
	if p.run.bytes > MaxOutputs || j.OutputsOmitted != 2 || string(*j.StepResults.Steps["l[9].x"].Outputs) != "null" || len(*j.StepResults.Steps["l[0].x"].Outputs) != len(big) {
		t.Errorf("%d bytes are kept, %d outputs are not", p.run.bytes, j.OutputsOmitted)
	}
	if e := p.run.Execution(Facts{}, true); e.OutputsOmitted != 2 {
		t.Errorf("an execution lacks %d outputs", e.OutputsOmitted)
	}
}
