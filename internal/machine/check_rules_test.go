// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// midway is a run whose last turn was full: a and two items of a window of two run, b
// waits for a, and t is due.
func midway(t *testing.T) *Run {
	t.Helper()
	d := drive(t, Prepare(compilePlan(t, `
name: r
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}, dependsOn: [a]}
  - {id: each, loop: {over: '[1, 2, 3]', maxConcurrency: 2, steps: [{id: x, action: {name: work}}]}}
  - {id: c, action: {name: work}, dependsOn: [each]}
  - {id: t, transform: {expression: "1"}, dependsOn: [u]}
  - {id: u, wait: {signal: go}}
`)))
	d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: 0}})
	d.turn.Limit = 1
	d.decide(&Input{Kind: InSignal, Name: "go", Data: []byte(`1`)})
	if d.run.worklist.len() != 1 {
		t.Fatalf("%d steps are due, want t alone", d.run.worklist.len())
	}
	return d.run
}

// waves is a run of two waves, in its first wave.
func waves(t *testing.T) *Run {
	return drive(t, Prepare(compilePlan(t, "name: r\nscheduling: waves\norder: none\nsteps:\n"+
		"  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n  - {id: c, action: {name: work}, dependsOn: [a]}\n"))).run
}

// failing is a run whose first step failed and whose last scopes are being swept.
func failing(t *testing.T) *Run {
	d := drive(t, Prepare(compilePlan(t, "name: r\norder: none\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n")))
	d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: 0}})
	d.turn.Limit = 1
	d.decide(&Input{Kind: InResult, Ref: journal.Ref{Step: 0}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Failed, Err: &Failure{Code: "FILE_INVALID"}})
	return d.run
}

// ended is a run that has completed.
func ended(t *testing.T) *Run {
	return drive(t, Prepare(compilePlan(t, "name: r\nsteps: [{id: a, transform: {expression: '1'}}]\n"))).run
}

// TestCheckRules: Check returns an error when one field of a valid run is changed.
// Every rule of Check has a case.
func TestCheckRules(t *testing.T) {
	step := func(r *Run, id string) *stepState { return &r.root.steps[stepNamed(r.plan, id)] }
	each := func(r *Run) *composite { return r.root.comps[stepNamed(r.plan, "each")] }
	cases := map[string]struct {
		run    func(*testing.T) *Run
		change func(r *Run)
		want   string
	}{
		"bytes of scopes":            {midway, func(r *Run) { r.structMem++ }, "R38: the run counts"},
		"bytes of values":            {midway, func(r *Run) { r.valueMem++ }, "bytes of values and holds"},
		"begun after the end":        {ended, func(r *Run) { r.busy++ }, "R10: the run has ended with 1 steps begun and 0 scopes open"},
		"open after the end":         {ended, func(r *Run) { r.alive++ }, "R10: the run has ended with 0 steps begun and 1 scopes open"},
		"given after the end":        {ended, func(r *Run) { r.given.Steps++ }, "X60: the run has ended with {Credits:0 Steps:1 Memory:0} given to child runs"},
		"given to nobody":            {midway, func(r *Run) { r.given.Memory++ }, "X60: the run counts {Credits:0 Steps:0 Memory:1} as given to child runs, they have"},
		"nothing to wait for":        {waves, func(r *Run) { r.ttlDue, r.busy = 0, 0 }, "I6: the run is dispatching and waits for nothing"},
		"a predecessor too many":     {midway, func(r *Run) { step(r, "b").waiting++ }, "I5: b counts 2 open predecessors, there are 1"},
		"a predecessor too few":      {midway, func(r *Run) { step(r, "b").waiting-- }, "I5: b counts 0 open predecessors, there are 1"},
		"begun too early":            {midway, func(r *Run) { step(r, "b").status = journal.Running }, "I5: b has begun with 1 predecessors open"},
		"due and not listed":         {midway, func(r *Run) { step(r, "t").pos = 0 }, "t is due true and on the worklist false"},
		"listed and running":         {midway, func(r *Run) { step(r, "a").pos = 1 }, "a is due false and on the worklist true"},
		"listed before its time":     {midway, func(r *Run) { step(r, "b").pos = 1 }, "b is due false and on the worklist true"},
		"ready, of a later wave":     {waves, func(r *Run) { s := step(r, "c"); step(r, "a").status, s.waiting = journal.Completed, 0 }, "c is due true and on the worklist false"},
		"items beyond the window":    {midway, func(r *Run) { r.plan.Steps[stepNamed(r.plan, "each")].Concurrency = 1 }, "X59: loop each runs 2 items at once"},
		"a scope too many":           {midway, func(r *Run) { each(r).open++ }, "composite each counts 3 open scopes, there are 2"},
		"a composite that is listed": {midway, func(r *Run) { each(r).pos = 1 }, "composite each is due false and on the worklist true"},
		"a composite that is due":    {midway, func(r *Run) { r.plan.Steps[stepNamed(r.plan, "each")].Concurrency = 9 }, "composite each is due true and on the worklist false"},
		"unsettled steps":            {midway, func(r *Run) { r.root.live++ }, "counts 6 live and 2 children, there are 5 and 2"},
		"open scopes":                {midway, func(r *Run) { r.root.openChildren++ }, "counts 5 live and 3 children, there are 5 and 2"},
		"a scope that is swept":      {failing, func(r *Run) { r.root.pos = 0 }, "sweep is due true and on the worklist false"},
		"a scope that is not swept":  {midway, func(r *Run) { r.root.pos = 1 }, "sweep is due false and on the worklist true"},
	}
	refusals := map[string]error{}
	for name, c := range cases {
		r := c.run(t)
		given := r.valueMem - recountValues(r)
		check := func() error {
			if err := r.Check(); err != nil {
				return err
			}
			return r.CheckValues(given)
		}
		if err := check(); err != nil {
			t.Fatalf("%s: the run without the change: %v", name, err)
		}
		c.change(r)
		err := check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
		refusals[name] = err
	}
	covered(t, rulesIn(t, "check.go"), refusals)
}

// TestAdmits: only the report of a live attempt may change a run whose worklist is
// empty (I3).
func TestAdmits(t *testing.T) {
	w := &fakeEngine{t: t, now: t0}
	w.play(`
name: r
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}}
  - {id: asks, loop: {over: "files[0]", steps: [{id: x, action: {name: work}}]}}
  - {id: each, loop: {over: "[1]", steps: [{id: y, action: {name: work}}]}}
`)
	for _, line := range []string{`start file=ab`, `grant a`, `grant each[0].y`} {
		w.line(line)
	}
	for _, tt := range []struct {
		name string
		in   Input
		want bool
	}{
		{"a result", Input{Kind: InResult, Fence: journal.Fence{Gen: 1, Attempt: 1}}, true},
		{"progress", Input{Kind: InProgress, Fence: journal.Fence{Gen: 1, Attempt: 1}}, true},
		{"a lost worker", Input{Kind: InWorkerLost, Fence: journal.Fence{Gen: 1, Attempt: 1}}, true},
		{"all workers lost", Input{Kind: InWorkerLost, All: true}, true},
		{"another kind", Input{Kind: InCancel}, true},
		{"a result of another attempt", Input{Kind: InResult, Fence: journal.Fence{Gen: 1, Attempt: 2}}, false},
		{"a result of another generation", Input{Kind: InResult, Fence: journal.Fence{Gen: 2, Attempt: 1}}, false},
		{"progress of another attempt", Input{Kind: InProgress, Fence: journal.Fence{Gen: 1, Attempt: 2}}, false},
		{"a lost worker of another attempt", Input{Kind: InWorkerLost, Fence: journal.Fence{Gen: 1, Attempt: 2}}, false},
		{"items that a loop asked for", Input{Kind: InResult, Ref: journal.Ref{Step: w.ref("asks").Step}, Fence: journal.Fence{Gen: 1}}, true},
		{"items that it asked for before", Input{Kind: InResult, Ref: journal.Ref{Step: w.ref("asks").Step}, Fence: journal.Fence{Gen: 2}}, false},
		{"items of a loop that has them", Input{Kind: InResult, Ref: journal.Ref{Step: w.ref("each").Step}, Fence: journal.Fence{Gen: 1}}, false},
		{"a result in an item", Input{Kind: InResult, Ref: w.ref("each[0].y"), Fence: journal.Fence{Gen: 1, Attempt: 1}}, true},
		{"a step that does not run", Input{Kind: InResult, Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Gen: 1, Attempt: 0}}, false},
		{"a step that is not there", Input{Kind: InResult, Ref: journal.Ref{Path: "\x09\x09"}, Fence: journal.Fence{Gen: 1, Attempt: 1}}, false},
	} {
		if got := w.run.Admits(&tt.in); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	d := drive(t, Prepare(compilePlan(t, "name: r\nsteps: [{id: a, action: {name: work}}]\n")))
	d.turn.Limit = 1
	d.decide(&Input{Kind: InCancel})
	if !d.run.Admits(&Input{Kind: InResult, Fence: journal.Fence{Gen: 1, Attempt: 9}}) {
		t.Error("a run with an unfinished turn refuses a report: it must continue that turn")
	}
}

// TestDurations: the event that ends a step has the step's duration, whatever kind the
// step is.
func TestDurations(t *testing.T) {
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play(`
name: r
failure_policy: drain
steps:
  - {id: a, action: {name: work}}
  - {id: b, wait: {duration: 2s}}
  - {id: c, wait: {signal: go}}
  - {id: d, condition: {expression: 'true', then: [{id: dx, action: {name: work}}]}}
  - {id: e, parallel: {branches: [[{id: ex, action: {name: work}}]]}}
  - {id: f, loop: {over: '[1]', steps: [{id: fx, action: {name: work}}]}}
  - {id: g, action: {name: work}, continue_on_error: true}
  - {id: h, condition: {expression: 'false', then: [{id: hx, action: {name: work}}]}}
  - {id: i, action: {name: work}, timeout: 8s, continue_on_error: true}
  - {id: j, loop: {over: "files[0]", steps: [{id: jx, action: {name: work}}]}, continue_on_error: true}
  - {id: z, action: {name: work}}
`)
	for _, line := range []string{`start file=ab`, `after 1s`, `finish a`, `after 2s`, `after 3s`, `signal go data=1`, `after 4s`, `finish d.then.dx`,
		`after 5s`, `finish e[0].ex`, `after 6s`, `finish f[0].fx`, `after 7s`, `fail g code=FILE_INVALID msg=bad`, `after 8s`,
		`after 9s`, `fail j code=FILE_INVALID msg=bad`, `after 10s`, `cancel`} {
		w.line(line)
	}
	want := map[string]int64{"a": 1, "b": 2, "c": 3, "d": 4, "d.then.dx": 4, "e": 5, "e[0].ex": 5, "f": 6, "f[0].fx": 6, "g": 7, "h": 0, "i": 8, "j": 9, "z": 10}
	if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error {
		if ev.Kind != journal.EvNodeCompleted && ev.Kind != journal.EvNodeFailed && ev.Kind != journal.EvNodeCancelled {
			return nil
		}
		name := journal.StepPath(w.prog.plan, ev.Ref())
		if s, ok := want[name]; !ok || ev.M != s*1_000_000 {
			t.Errorf("%s of %s after %d µs, want %d s", ev.Name(), name, ev.M, s)
		}
		delete(want, name)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(want) > 0 {
		t.Errorf("these did not end: %v", want)
	}
}
