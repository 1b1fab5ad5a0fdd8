// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// composed is a run in which every kind of composite is open, except a compensation.
func composed(t *testing.T) *Run {
	t.Helper()
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play(`
name: r
scheduling: waves
order: none
steps:
  - {id: a, action: {name: work}, outputBinding: made, compensate: {action: {name: undo}}}
  - {id: c, condition: {expression: 'true', then: [{id: cx, action: {name: work}}]}}
  - {id: p, parallel: {branches: [[{id: px, action: {name: work}}], [{id: py, action: {name: work}}]]}}
  - {id: l, loop: {over: '[1, 2]', steps: [{id: lx, action: {name: work}}]}}
  - {id: f, action: {name: work}, onError: {strategy: fallback, fallbackStep: {id: g, action: {name: work}}}}
  - {id: z, action: {name: work}, dependsOn: [a]}
  - {id: m, loop: {over: '[1]', until: 'false', accumulate: {as: n, expression: n}, steps: [{id: mx, action: {name: work}}]}}
`)
	for _, line := range []string{`start`, `finish a`, `fail f code=FILE_INVALID msg=bad`} {
		w.line(line)
	}
	return w.run
}

// TestRestoreRefuses: a snapshot that no run of the plan can have is rejected with a
// message that names the fault. Every such message has a case.
func TestRestoreRefuses(t *testing.T) {
	comp := func(r *Run, id string) *composite { return r.root.comps[stepNamed(r.plan, id)] }
	// move moves a composite from one step to another.
	move := func(from, to string) func(*Run) {
		return func(r *Run) {
			c := comp(r, from)
			delete(r.root.comps, stepNamed(r.plan, from))
			r.root.comps[stepNamed(r.plan, to)] = c
			for path, s := range r.scopes { // of what it owned
				if s.parent == r.root {
					delete(r.scopes, path)
				}
			}
		}
	}
	cases := map[string]struct {
		change func(r *Run)
		want   string
	}{
		"a run status":            {func(r *Run) { r.status = journal.RunExpired + 1 }, "an unknown run status"},
		"a step's status":         {func(r *Run) { r.root.steps[0].status = journal.Invalidated + 1 }, "an unknown status"},
		"a graph":                 {func(r *Run) { r.root.graph = 1 }, "a scope that does not fit the plan"},
		"a graph beyond the plan": {func(r *Run) { r.root.graph = int32(len(r.plan.Graphs)) }, "a scope that does not fit the plan"},
		"a scope inside of another": {func(r *Run) {
			var in, of *scope
			for _, s := range r.scopes {
				switch r.plan.Steps[s.owner].ID {
				case "l":
					in = s
				case "c":
					of = s
				}
			}
			in.parent = of
		}, "a scope that does not fit the plan"},
		"a step before the first": {func(r *Run) { r.root.comps[-1] = comp(r, "c") }, "a composite of a step that does not exist"},
		"a step behind the last":  {func(r *Run) { r.root.comps[r.root.g.N] = comp(r, "c") }, "a composite of a step that does not exist"},
		"a failed step before":    {func(r *Run) { r.root.failed = -2 }, "a failed step of another scope"},
		"a failed step behind":    {func(r *Run) { r.root.failed = r.root.g.N }, "a failed step of another scope"},
		"too many bindings":       {func(r *Run) { r.root.slots = make([]*value, r.root.g.Slots+1) }, "a wrong number of bindings"},
		"a wave before the first": {func(r *Run) { r.root.wave = -1 }, "a wave that does not exist"},
		"a wave behind the last":  {func(r *Run) { r.root.wave = r.root.g.Waves }, "a wave that does not exist"},

		"a condition's scope for an action":   {move("c", "a"), `a composite that step "a" cannot have`},
		"branches for an action":              {move("p", "a"), `a composite that step "a" cannot have`},
		"items for an action":                 {move("l", "a"), `a composite that step "a" cannot have`},
		"a fallback for a step without":       {move("f", "z"), `a composite that step "z" cannot have`},
		"a compensation for a step without":   {func(r *Run) { comp(r, "c").kind = compensationComposite }, `a composite that step "c" cannot have`},
		"a kind of composite":                 {func(r *Run) { comp(r, "c").kind = 99 }, `a composite that step "c" cannot have`},
		"a loop without its state":            {func(r *Run) { comp(r, "l").loop = nil }, `a composite that step "l" cannot have`},
		"a condition with items":              {func(r *Run) { comp(r, "c").loop = comp(r, "l").loop }, `a composite that step "c" cannot have`},
		"a parallel step without branches":    {func(r *Run) { comp(r, "p").branches = nil }, `a composite that step "p" cannot have`},
		"a condition with branches":           {func(r *Run) { comp(r, "c").branches = comp(r, "p").branches }, `a composite that step "c" cannot have`},
		"a branch too few":                    {func(r *Run) { comp(r, "p").branches = comp(r, "p").branches[:1] }, `a composite that step "p" cannot have`},
		"outputs of items that did not begin": {func(r *Run) { comp(r, "l").loop.outs = make([]*value, 2) }, `a composite that step "l" cannot have`},
		"items without a list":                {func(r *Run) { comp(r, "l").loop.list = nil }, `a composite that step "l" cannot have`},

		"a loop that has no rounds":               {func(r *Run) { comp(r, "l").loop.rounds = new(plan.Rounds) }, `a composite that step "l" cannot have`},
		"a loop without its rounds":               {func(r *Run) { comp(r, "m").loop.rounds = nil }, `a composite that step "m" cannot have`},
		"an iteration that is not there":          {func(r *Run) { comp(r, "m").loop.completed = []int64{7} }, "an iteration that has completed and is not there"},
		"an iteration that is open and completed": {func(r *Run) { comp(r, "m").loop.completed = []int64{0} }, "an iteration that has completed and is not there"},

		"a job of a step that is none": {func(r *Run) { r.root.jobs = map[int32]jobName{stepNamed(r.plan, "c"): {"acme", "j1"}} }, "a job of no action"},

		"an entry of a step behind the last":   {func(r *Run) { r.worklist.push(entry{scope: r.root, step: r.root.g.N, kind: stepEntry}) }, "a worklist entry without a scope"},
		"an entry of a kind":                   {func(r *Run) { r.worklist.push(entry{scope: r.root, step: 0, kind: 9}) }, "a worklist entry of an unknown kind"},
		"an entry of a step that is none":      {func(r *Run) { r.worklist.push(entry{scope: r.root, step: -1, kind: stepEntry}) }, "a worklist entry of an unknown kind"},
		"an entry of a composite that is none": {func(r *Run) { r.worklist.push(entry{scope: r.root, step: 0, kind: compositeEntry}) }, "a worklist entry of an unknown kind"},
	}
	refusals := map[string]error{}
	for name, c := range cases {
		r := composed(t)
		if _, err := Restore(r.prog, r.Snapshot(nil)); err != nil {
			t.Fatalf("%s: the snapshot without the change: %v", name, err)
		}
		c.change(r)
		_, err := Restore(r.prog, r.Snapshot(nil))
		refusals[name] = err
		if fault.CodeOf(err) != fault.StoreCorrupt || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: refused with %v, want %q", name, err, c.want)
		}
	}

	// Snapshots that Snapshot cannot write.
	r := composed(t)
	state := r.Snapshot(nil)
	_, refusals["a byte too many"] = Restore(r.prog, append(state[:len(state):len(state)], 1, 1, 0, 0, 0, 0, 0))
	r.root.jobs = map[int32]jobName{0: {"acme", "j1"}}
	withJob := r.Snapshot(nil)
	_, refusals["a job too many"] = Restore(r.prog, append(withJob[:len(withJob):len(withJob)], 0))
	const jobBytes = len("\x00\x00\x04acme\x02j1")
	for name, of := range map[string][2]uint64{"a job of a scope that is none": {99, 0}, "a job of a step behind": {0, uint64(r.root.g.N)}} {
		w := writer{withJob[: len(withJob)-jobBytes : len(withJob)-jobBytes]}
		w.uint(of[0])
		w.uint(of[1])
		w.str("acme")
		w.str("j1")
		_, refusals[name] = Restore(r.prog, w.buf)
	}
	_, refusals["a byte after the jobs that are none"] = Restore(r.prog, append(withJob[:len(withJob):len(withJob)], 0, 0, 0))
	resumes := writer{withJob[:len(withJob):len(withJob)]}
	for _, n := range []uint64{0, 1, 99, 0} { // nothing used before, one child run, of a scope that is none
		resumes.uint(n)
	}
	resumes.str("run_2")
	_, refusals["a child run of a scope that is none"] = Restore(r.prog, resumes.buf)
	r.root.jobs = nil
	w := writer{}
	w.uint(1)
	w.int(t0)
	w.byte(byte(journal.RunRunning))
	w.uint(1)
	w.byte(0)
	w.byte(0)
	w.uint(1000) // bytes of a code
	_, refusals["a text that is cut"] = Restore(r.prog, w.buf)
	w.buf = w.buf[:len(w.buf)-2]
	w.str("")
	w.str("")
	w.int(-1)
	w.bool(false)
	for range 4 {
		w.int(0)
	}
	w.bool(false)
	w.uint(1000) // edits
	_, refusals["a count beyond the end"] = Restore(r.prog, w.buf)
	for name, want := range map[string]string{"a byte too many": "a list of no jobs", "a job too many": "truncated number", "a byte after the jobs that are none": "bytes left over", "a child run of a scope that is none": "a child run of no recipe",
		"a job of a scope that is none": "a job of no action", "a job of a step behind": "a job of no action", "a text that is cut": "truncated bytes", "a count beyond the end": "impossible count 1000"} {
		if err := refusals[name]; fault.CodeOf(err) != fault.StoreCorrupt || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: refused with %v, want %q", name, err, want)
		}
	}
	delete(refusals, "a text that is cut") // a rule of the decoder
	delete(refusals, "a job too many")     // likewise

	back, err := Restore(r.prog, state)
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range back.Missing() {
		if err := back.Supply(&journal.Event{Seq: seq, Kind: journal.EvNodeOpened, Data: []byte(`[]`)}); err != nil && strings.Contains(err.Error(), "holds no item") {
			refusals["a list without the item"] = err
		}
	}
	covered(t, rulesIn(t, "restore.go"), refusals)
}

// The items of a list that a snapshot refers to are requested also where an iteration
// began after the snapshot. Each iteration gets its own item.
func TestItemsOfANamedList(t *testing.T) {
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play(`
name: r
steps:
  - {id: a, action: {name: work}}
  - {id: l, loop: {over: 'steps.a.output', maxConcurrency: 1, steps: [{id: x, action: {name: work, parameters: {text: '{{ item }}'}}}]}}
`)
	w.line(`start`)
	w.line(`finish a output=["one","two","three"]`)
	state, seen := w.run.Snapshot(nil), w.run.Last()
	w.line(`finish l[0].x`)
	back, err := Restore(w.prog, state)
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error {
		if ev.Seq <= seen {
			return nil
		}
		return back.Apply(ev)
	}); err != nil {
		t.Fatal(err)
	}
	if err := supplyAll(back, w.led.frames); err != nil {
		t.Fatal(err)
	}
	task := back.Task(w.ref("l[1].x"), journal.Fence{Gen: 1, Attempt: 1})
	if task == nil {
		t.Fatal("the second item is not under way")
	}
	if input, _, fail := task.Render(); fail != nil || string(input) != `{"text":"two"}` {
		t.Errorf("the second item's input is %s, %+v", input, fail)
	}
}
