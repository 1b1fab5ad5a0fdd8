// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/view"
)

// sourceRecipe has the five steps of the recipe in the source. The run that converts is a
// child run, whose first attempt fails after it has used 40 credits.
const sourceRecipe = `
name: pdf-to-translated-markdown
steps:
  - {id: step_1, action: {name: work}, outputBinding: inspection}
  - id: step_2
    condition:
      expression: inspection.pageCount <= 100
      then:
        - id: step_2a
          recipe: {inline: {name: convert, steps: [{id: k, transform: {expression: "1"}}]}}
          retryPolicy: {maxAttempts: 3, initialDelay: 1s}
          outputBinding: markdown
      else: [{id: step_2b, fail: {}}]
  - {id: step_3, action: {name: work}, outputBinding: translated}
`

// X193, X99, X100, X153: the example of the source, of a run of five steps.
func TestX193_TheExampleOfTheSource(t *testing.T) {
	p := play(t, sourceRecipe, func(st *journal.Start) {
		st.Credits = &journal.Credits{Estimated: 120, Reserved: 150, Most: 1000, Policy: ledger.RefundUnused}
		st.Files = []journal.File{{Hash: "sha256_abc"}}
		st.Parameters = map[string]any{"upscaleFactor": int64(4)}
	})
	if e := p.run.Execution(Facts{}, false); e.Status != "running" || e.Progress.PercentComplete != 0 || e.Progress.CurrentStep != "step_1" {
		t.Errorf("at first the run is %+v", e)
	}
	p.after(1500 * time.Millisecond)
	p.result("step_1", `{"pageCount":7}`, "")
	p.child("step_2.then.step_2a", &machine.ChildEnd{Status: journal.RunFailed, Used: 40 * ledger.Credit, Steps: 1, Code: fault.ServiceUnavailable, Msg: "down", Recipe: "convert"})
	p.after(2 * time.Second)
	e := p.run.Execution(Facts{RecipeID: "recipe_abc123"}, false)
	var got map[string]any
	if err := json.Unmarshal([]byte(text(t, e)), &got); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(`{
		"id": "run_1", "recipeId": "recipe_abc123", "status": "running",
		"progress": {"currentStep": "step_2", "completedSteps": ["step_1"], "percentComplete": 40},
		"credits": {"reserved": 150, "used": 45, "estimated": 120},
		"stepResults": {"step_1": {"status": "completed", "outputBinding": "inspection", "duration": "PT1.5S", "creditsUsed": 5, "attempts": 1}},
		"startedAt": "2024-01-15T10:30:00.000000Z",
		"recipeVersion": "1.0.0", "accountId": "acct", "state": "running", "waitState": "none",
		"input": {"fileHashes": ["sha256_abc"], "parameters": {"upscaleFactor": 4}},
		"createdAt": "2024-01-15T10:30:00.000000Z", "reservationId": "run_1.1",
		"generation": 1, "paused": false, "hasFailures": false
	}`), &want); err != nil {
		t.Fatal(err)
	}
	want["resumeToken"] = p.m.ResumeToken()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", text(t, e))
	}

	p.child("step_2.then.step_2a", &machine.ChildEnd{Status: journal.RunCompleted, Used: 60 * ledger.Credit / 8, Outputs: []byte(`{"k":1}`)})
	p.result("step_3", `{"wordCount":12}`, "")
	e = p.run.Execution(Facts{}, true)
	if e.Status != "completed" || e.Progress.PercentComplete != 100 || e.Progress.CurrentStep != "" || e.CompletedAt == "" || e.HasFailures {
		t.Errorf("at the end the run is %s", text(t, e))
	}
	if got := strings.Join(e.Progress.CompletedSteps, " "); got != "step_1 step_2.then.step_2a step_2 step_3" {
		t.Errorf("completed: %s", got)
	}
	if e.Credits.Used != 58 || e.StepResults["step_2.then.step_2a"].CreditsUsed != 47_500_000 {
		t.Errorf("used %d, step_2a %s", e.Credits.Used, e.StepResults["step_2.then.step_2a"].CreditsUsed)
	}
	for path, want := range map[string]string{"step_1": `{"pageCount":7}`, "step_2.then.step_2a": `{"k":1}`, "step_2": `{"k":1}`, "step_3": `{"wordCount":12}`} {
		if got := string(e.StepResults[path].Output); got != want {
			t.Errorf("the output of %s is %s, want %s", path, got, want)
		}
	}
	if got := p.run.Execution(Facts{}, false).StepResults["step_1"].Output; got != nil {
		t.Errorf("an output that nobody asked for: %s", got)
	}
}

// X193: status has the five words of the source, state ours (R2).
func TestX193_Statuses(t *testing.T) {
	want := map[journal.RunStatus]string{
		journal.RunPending: "pending", journal.RunQueued: "pending", journal.RunDispatching: "running",
		journal.RunRunning: "running", journal.RunPreview: "running", journal.RunCompleted: "completed",
		journal.RunFailed: "failed", journal.RunCancelled: "cancelled", journal.RunExpired: "failed",
	}
	for s := journal.RunPending; s.Known(); s++ {
		if got := ExecutionStatus(s); got != want[s] {
			t.Errorf("%s is %q, want %q", s, got, want[s])
		}
	}
	p := play(t, "name: r\nttl: 1h\nsteps:\n  - {id: a, action: {name: work}}\n", nil)
	p.after(2 * time.Hour)
	e := p.run.Execution(Facts{Quarantine: "it panicked", DeletedAt: t0}, false)
	if e.Status != "failed" || e.State != "expired" || e.Error == nil || e.Error.Code != fault.ExecutionExpired || e.Error.Cause != fault.CauseTimeout {
		t.Errorf("an expired run is %s", text(t, e))
	}
	if e.Quarantined == nil || e.Quarantined.Reason != "it panicked" || e.DeletedAt == "" || e.ReservationID != "" || e.Progress.PercentComplete == 100 {
		t.Errorf("an expired run is %s", text(t, e))
	}
}

// X99: the error of a failed run names the step, and that of a step is with the step.
func TestX99_Errors(t *testing.T) {
	p := play(t, "name: r\norder: none\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}, dependsOn: [a]}\n", func(st *journal.Start) { st.Labels = map[string]string{"team": "x"} })
	p.result("a", "", fault.FileInvalid)
	e := p.run.Execution(Facts{}, false)
	if e.Status != "failed" || e.Error == nil || e.Error.Step != "a" || e.Error.Code != fault.FileInvalid || e.Error.Retryable || !e.HasFailures || e.Labels["team"] != "x" {
		t.Errorf("the run is %s", text(t, e))
	}
	if a, b := e.StepResults["a"], e.StepResults["b"]; a.Status != "failed" || a.Error.Message != "it went wrong" || b.Status != "skipped" || b.Reason == "" || b.Duration != "" {
		t.Errorf("the steps are %s", text(t, e.StepResults))
	}
	p.do(&machine.Input{Kind: machine.InRetry})
	e = p.run.Execution(Facts{}, false)
	if e.Generation != 2 || e.Error != nil || e.CompletedAt != "" || len(e.StepResults) != 0 || e.Progress.PercentComplete != 0 {
		t.Errorf("after a retry the run is %s", text(t, e))
	}
}

// X100: percentComplete is settled ÷ known steps, never falls, and is 100 only at the end.
func TestX100_PercentComplete(t *testing.T) {
	p := play(t, `
name: r
steps:
  - {id: a, action: {name: work}}
  - {id: skipped, when: "false", action: {name: work}}
  - {id: l, loop: {over: "[1, 2, 3, 4, 5]", steps: [{id: x, action: {name: work}}, {id: y, action: {name: work}}]}}
  - {id: z, action: {name: work}}
`, nil)
	percent := func(want int) {
		t.Helper()
		if got := p.run.Percent(); got != want {
			t.Errorf("%d percent, want %d", got, want)
		}
	}
	percent(0)
	p.result("a", "1", "")
	percent(50) // the loop opens in the turn that settles the step before it: 2 of 4
	p.result("l[0].x", "1", "")
	p.result("l[0].y", "1", "")
	percent(50) // 4 of 14 now that the items are known, which is less
	for _, path := range []string{"l[1].x", "l[1].y", "l[2].x", "l[2].y", "l[3].x", "l[3].y"} {
		p.result(path, "1", "")
	}
	percent(71) // 10 of 14
	p.result("l[4].x", "1", "")
	p.result("l[4].y", "1", "")
	percent(92) // 13 of 14
	p.result("z", "1", "")
	percent(100)
}

// R5: a retry of a loop whose iterations were forgotten counts them again, and no step twice.
func TestRetryOfALoop(t *testing.T) {
	p := play(t, `
name: r
steps:
  - {id: a, action: {name: work}}
  - {id: l, loop: {over: "[1, 2, 3, 4]", maxConcurrency: 2, failureStrategy: continue, steps: [{id: x, action: {name: work}}, {id: y, action: {name: work}}]}}
`, nil)
	p.run.kept = MaxSteps // no iteration is kept any more
	p.result("a", "1", "")
	for _, path := range []string{"l[0].x", "l[1].x", "l[0].y", "l[1].y", "l[2].x", "l[3].x", "l[2].y", "l[3].y"} {
		code := fault.Code("")
		if path == "l[1].y" {
			code = fault.FileInvalid
		}
		p.result(path, "1", code)
	}
	if p.m.Status() != journal.RunFailed || len(p.run.scopes) != 1 || p.run.gone != (tally{all: 8, completed: 7}) {
		t.Errorf("the run is %s; %d scopes are kept, %+v are not", p.m.Status(), len(p.run.scopes), p.run.gone)
	}
	p.do(&machine.Input{Kind: machine.InRetry})
	if j := p.run.Job(Facts{}); p.run.weight != 10 || p.run.done != 8 || p.run.gone != (tally{all: 7, completed: 7}) || !j.StepMetadata.WorkflowInstance.Nodes["l[1].y"].Running || j.StepMetadata.WorkflowInstance.IncomingCounts["l[1].y"] != 0 {
		t.Errorf("known %d, settled %d, %+v; %s", p.run.weight, p.run.done, p.run.gone, text(t, j))
	}
	p.result("l[1].y", "1", "")
	if p.run.done != 10 || p.run.weight != 10 || p.run.busy != 0 || p.run.status != journal.RunCompleted || len(p.run.scopes) != 1 || p.run.gone != (tally{all: 8, completed: 8}) {
		t.Errorf("%s: known %d, settled %d, %d open, %+v", p.run.status, p.run.weight, p.run.done, p.run.busy, p.run.gone)
	}
}

// A loop that failed early is reopened: its first item stays settled, and those that never
// began are no longer counted as settled.
func TestRetryOfALoopThatFailedEarly(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: l, loop: {over: \"[1, 2, 3, 4, 5]\", steps: [{id: x, action: {name: work}}]}}\n", nil)
	p.result("l[0].x", "1", "")
	p.result("l[1].x", "", fault.FileInvalid)
	if p.run.weight != 6 || p.run.done != 6 || p.run.Percent() > 99 {
		t.Errorf("known %d, settled %d, %d percent", p.run.weight, p.run.done, p.run.Percent())
	}
	p.do(&machine.Input{Kind: machine.InRetry})
	if p.run.weight != 6 || p.run.done != 1 || p.run.Percent() != 16 {
		t.Errorf("after a retry: known %d, settled %d, %d percent", p.run.weight, p.run.done, p.run.Percent())
	}
	for _, path := range []string{"l[1].x", "l[2].x", "l[3].x", "l[4].x"} {
		p.result(path, "1", "")
	}
	if p.run.weight != 6 || p.run.done != 6 || p.run.Percent() != 100 {
		t.Errorf("at the end: known %d, settled %d, %d percent", p.run.weight, p.run.done, p.run.Percent())
	}
}

// A queued run waits for its turn and for nothing else; one may be paused.
func TestQueuedAndPaused(t *testing.T) {
	p := play(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n", nil)
	r := fold(t, p.plan, p.all[:1])
	if err := r.Apply(&journal.Event{Seq: 2, Step: -1, Kind: journal.EvRunStatus, Flag: uint8(journal.RunQueued), N: int64(journal.RunDispatching)}); err != nil {
		t.Fatal(err)
	}
	if e, j := r.Execution(Facts{}, false), r.Job(Facts{}); e.WaitState != "none" || e.Status != "pending" || e.State != "queued" || e.StartedAt != "" || j.Status != "QUEUED" || j.WorkflowStatus != "RUNNING" {
		t.Errorf("a queued run is %s, %s", text(t, e), text(t, j))
	}
	p.do(&machine.Input{Kind: machine.InPause, Text: "too expensive"})
	if e := p.run.Execution(Facts{}, false); !e.Paused {
		t.Errorf("a paused run is %s", text(t, e))
	}
	p.do(&machine.Input{Kind: machine.InUnpause})
	if e := p.run.Execution(Facts{}, false); e.Paused {
		t.Errorf("a run that goes on is %s", text(t, e))
	}
}

// The fields of an execution are spelled as in the source, and none in another case.
func TestX193_Fields(t *testing.T) {
	var names []string
	var walk func(reflect.Type)
	seen := map[reflect.Type]bool{}
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Map || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.PkgPath() != reflect.TypeFor[Execution]().PkgPath() {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			names = append(names, name)
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[Execution]())
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "_-") || name[:1] != strings.ToLower(name[:1]) {
			t.Errorf("%q is not in camel case", name)
		}
	}
	for _, want := range strings.Fields(`id recipeId recipeVersion accountId status state waitState progress currentStep completedSteps percentComplete
		credits reserved used estimated stepResults outputBinding duration creditsUsed error output input startedAt completedAt createdAt
		reservationId generation paused hasFailures quarantined labels code message step outputs resumeToken`) {
		if !slices.Contains(names, want) {
			t.Errorf("no field is called %s", want)
		}
	}
}

// A loop over a million items needs no memory for each of them: what is listed is bounded,
// and the list says how many more there are.
func TestAMillionItems(t *testing.T) {
	const items = 1_000_000
	p := compiled(t, "name: r\nsteps:\n  - {id: l, loop: {over: input.list, steps: [{id: x, action: {name: work}}]}}\n")
	start, err := journal.EncodeStart(&journal.Start{Run: "run_1", Recipe: "r"})
	if err != nil {
		t.Fatal(err)
	}
	r, public := NewRun(p, "run_1", true), journal.NewRenderer(p, "run_1")
	seq := uint64(0)
	apply := func(ev journal.Event) {
		seq++
		ev.Seq, ev.At = seq, t0
		public.Note(&ev)
		if err := r.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	apply(journal.Event{Kind: journal.EvRunStarted, Step: -1, Data: start})
	apply(journal.Event{Kind: journal.EvNodeOpened, N: items})
	body := p.Steps[0].Body
	for i := range int64(items) {
		path := journal.Path("").Child(body, i)
		apply(journal.Event{Kind: journal.EvNodeIteration, N: i})
		apply(journal.Event{Kind: journal.EvNodeStarted, Step: 1, Path: path, Attempt: 1})
		apply(journal.Event{Kind: journal.EvNodeCompleted, Step: 1, Path: path, Attempt: 1, Data: []byte("1")})
	}
	apply(journal.Event{Kind: journal.EvNodeIgnored, Step: 1, Path: journal.Path("").Child(body, items-1), Attempt: 1}) // a late result
	if len(r.scopes) != MaxSteps+1 || r.bytes != MaxSteps {
		t.Errorf("%d scopes and %d bytes are kept", len(r.scopes), r.bytes)
	}
	e, j := r.Execution(Facts{}, false), r.Job(Facts{})
	if len(e.StepResults) != MaxSteps || e.MoreStepResults != items-MaxSteps || len(e.Progress.CompletedSteps) != MaxSteps || e.Progress.MoreCompletedSteps != items-MaxSteps {
		t.Errorf("%d results and %d more, %d completed and %d more", len(e.StepResults), e.MoreStepResults, len(e.Progress.CompletedSteps), e.Progress.MoreCompletedSteps)
	}
	g := &j.StepMetadata.WorkflowInstance
	if len(g.Nodes) != MaxSteps || g.MoreNodes != items+1-MaxSteps || !g.Nodes["l"].Running || g.IsComplete || r.Percent() != 99 {
		t.Errorf("%d nodes and %d more, %d percent", len(g.Nodes), g.MoreNodes, r.Percent())
	}
}

// Masked values are in no form of a run, as the events are masked before they are applied.
func TestMasking(t *testing.T) {
	p := play(t, `
name: r
inputSchema: {type: object, properties: {pin: {type: string, writeOnly: true}}}
steps:
  - {id: a, action: {name: work, parameters: {pin: "{{ input.pin }}"}}, outputBinding: made}
  - {id: b, wait: {signal: go}}
`, func(st *journal.Start) { st.Parameters = map[string]any{"pin": "hush-hush"} })
	p.do(&machine.Input{Kind: machine.InProgress, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Progress: &machine.Progress{Kind: machine.ProgressDelta, Text: "it is hush-hush"}})
	p.result("a", `{"copy":"hush-hush","text":"the pin is hush-hush"}`, "")
	for _, masked := range []bool{false, true} {
		r, mask, public := NewRun(p.plan, "run_1", true), view.NewMask(p.plan), journal.NewRenderer(p.plan, "run_1")
		var join Coalescer
		all := ""
		for i := range p.all {
			ev := &p.all[i]
			if masked {
				ev = mask.Event(ev)
			}
			if err := r.Apply(ev); err != nil {
				t.Fatal(err)
			}
			all += text(t, Tags(p.plan, "run_1", ev)) + text(t, join.Add(ev, public.Render(ev)))
		}
		all += text(t, r.Execution(Facts{}, true)) + text(t, r.Job(Facts{}))
		if found := strings.Contains(all, "hush-hush"); found == masked {
			t.Errorf("masked %v: the value is shown: %v", masked, found)
		}
	}
}

// A mask that cannot read the first event leaves it empty: the run is shown without it.
func TestUnreadableStart(t *testing.T) {
	p, events := thaw(t, "everything")
	events = slices.Clone(events)
	events[0].Data = nil
	e := fold(t, p, events).Execution(Facts{RecipeID: "recipe_1"}, false)
	if e.RecipeID != "recipe_1" || e.AccountID != "" || e.CreatedAt == "" || len(e.StepResults) == 0 {
		t.Errorf("the run is %s", text(t, e))
	}
}

// Impossible events are refused, and change nothing.
func TestImpossibleEvents(t *testing.T) {
	p, events := thaw(t, "everything")
	r := NewRun(p, "run_1", false)
	for _, ev := range []journal.Event{
		{Seq: 1, Kind: journal.EvNodeQueued},
		{Seq: 2, Kind: journal.EvRunStarted, Step: -1},
		{Seq: 1, Kind: journal.EvRunStarted, Step: -1, Data: []byte("{")},
		{Seq: 1, Kind: journal.EvNodeQueued, Step: 99},
	} {
		if err := r.Apply(&ev); fault.CodeOf(err) != fault.StoreCorrupt || r.Last() != 0 {
			t.Errorf("event %d %s: %v", ev.Seq, ev.Name(), err)
		}
	}
	if err := r.Apply(&events[0]); err != nil {
		t.Fatal(err)
	}
	for _, ev := range []journal.Event{
		{Seq: 2, Kind: journal.EvNodeQueued, Path: "\xff"},
		{Seq: 2, Kind: journal.EvNodeQueued, Path: journal.Path("").Child(1, 0), Step: 0},
		{Seq: 2, Kind: journal.EvNodeQueued, Step: int32(len(p.Steps) - 1), Path: ""},
	} {
		if err := r.Apply(&ev); fault.CodeOf(err) != fault.StoreCorrupt || r.Last() != 1 {
			t.Errorf("path %x, step %d: %v", ev.Path, ev.Step, err)
		}
	}
}

// An imported journal may contradict itself: nothing is counted twice, and nothing panics.
func TestContradictions(t *testing.T) {
	p, events := thaw(t, "everything")
	r := fold(t, p, events[:1])
	seq := uint64(1)
	for step := range p.Graphs[0].N {
		for _, kind := range journal.Kinds() {
			if kind < journal.EvNodeReady {
				continue
			}
			seq++
			if err := r.Apply(&journal.Event{Seq: seq, Kind: kind, Step: step, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
			check(t, r)
			r.Execution(Facts{}, true)
			r.Job(Facts{})
		}
	}
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
