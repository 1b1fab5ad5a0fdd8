// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

// dice let rapid decide what a recipe looks like.
type dice struct{ t *rapid.T }

func (d dice) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "dice") }

// A wild run is one of a random recipe, with failures, losses, late results, cancels and
// retries at random. It is folded twice: as ever, and by a run that keeps no iteration once
// it has ended.
type wild struct {
	t           *rapid.T
	plan        *plan.Plan
	m           *machine.Run
	ever, tight *Run
	public      *journal.Renderer
	now         int64
	exact       bool // the two agree about every number
	last        []*machine.Input
}

func newWild(t *rapid.T) *wild {
	src, err := json.Marshal(sample.Recipe(dice{t}, sample.Shape{Written: true, Steps: rapid.IntRange(1, 14).Draw(t, "steps"), Depth: 3,
		Actions: []string{"work", "work", "once"}, Undo: "undo", Sleep: "sleep", Signals: []string{"go"}, Recipes: 10}))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("recipe: %s", src)
	p := compiled(t, string(src))
	w := &wild{t: t, plan: p, m: machine.NewRun(machine.Prepare(p)), ever: NewRun(p, "run_1", true), tight: NewRun(p, "run_1", true),
		public: journal.NewRenderer(p, "run_1"), now: t0, exact: true}
	w.tight.kept = MaxSteps
	for i := range p.Steps { // what is inside an iteration that was forgotten is not counted step by step
		s := &p.Steps[i]
		w.exact = w.exact && (!w.ever.many[s.Graph] || len(s.Graphs()) == 0)
	}
	st := &journal.Start{Run: "run_1", Account: "a", Recipe: "drawn", Seed: 3,
		Parameters: map[string]any{"zero": int64(0), "list": []any{int64(1), "two", int64(3)}, "file": "sha256_0000000000000000000000000000000000000000000000000000000000000001", "when": "2024-01-15T10:32:00Z"}}
	for _, a := range p.Actions {
		st.Pins = append(st.Pins, journal.Pin{Name: a.Name, Version: "1.0.0", Cost: 2, Once: a.Name == "once"})
	}
	if rapid.Bool().Draw(t, "metered") {
		st.Credits = &journal.Credits{Estimated: 4, Reserved: 5, Most: 1000, Policy: ledger.RefundUnused}
	}
	w.do(&machine.Input{Kind: machine.InStart, Start: st})
	return w
}

func (w *wild) do(in *machine.Input) {
	in.At, in.Available = w.now, 1<<40
	var turn machine.Turn
	w.m.Decide(in, &turn)
	for i := range turn.Events {
		ev := &turn.Events[i]
		for _, r := range []*Run{w.ever, w.tight} {
			if err := r.Apply(ev); err != nil {
				w.t.Fatal(err)
			}
			check(w.t, r)
		}
		if env := w.public.Render(ev); ev.Step >= 0 && env.Correlation.ParentEventID == 0 || env.Correlation.ParentEventID >= ev.Seq {
			w.t.Fatalf("X179: event %d (%s) was caused by event %d", ev.Seq, ev.Name(), env.Correlation.ParentEventID)
		}
	}
	for _, c := range turn.Commands {
		if c.Kind == machine.CmdContinue {
			w.do(&machine.Input{Kind: machine.InContinue})
			return
		}
	}
	w.compare()
}

// compare compares the two folds with each other and with the machine.
func (w *wild) compare() {
	for _, r := range []*Run{w.ever, w.tight} {
		if r.WaitState() != w.m.WaitState() || r.ResumeToken() != w.m.ResumeToken() || r.status != w.m.Status() || r.used.Ceil() != w.m.Used() {
			w.t.Fatalf("after event %d the run is %s, %s, used %s; the machine has %s, %s, used %d",
				r.last, r.status, r.WaitState(), r.used, w.m.Status(), w.m.WaitState(), w.m.Used())
		}
	}
	if !w.exact {
		return
	}
	a, b := w.ever, w.tight
	if a.weight != b.weight || a.done != b.done || a.peak != b.peak {
		w.t.Fatalf("after event %d: known %d and %d, settled %d and %d, %d and %d percent", a.last, a.weight, b.weight, a.done, b.done, a.peak, b.peak)
	}
	if x, y := a.settledSteps(), b.settledSteps(); x != y {
		w.t.Fatalf("after event %d: %+v steps have settled, and %+v for a run that forgets", a.last, x, y)
	}
}

// settledSteps counts the settled steps, those that are not kept included.
func (r *Run) settledSteps() tally {
	t := r.gone
	if root := r.scopes[""]; root != nil {
		t.add(root.tally(), 1)
	}
	return t
}

// check recomputes what a run counts event by event.
func check(t rapid.TB, r *Run) {
	t.Helper()
	var busy, waiting, working int
	var bytes int64
	for _, s := range r.scopes {
		open := 0
		for i := range s.steps {
			x := &s.steps[i]
			bytes += int64(len(x.output))
			if s.skipped || !x.seen {
				continue
			}
			if !x.status.Settled() {
				open++
			}
			switch {
			case !x.status.Begun():
				continue
			case x.status == journal.Waiting:
				waiting++
			case !x.owns:
				working++
			}
			busy++
		}
		deep := s.open
		for in := range s.inside {
			deep += in.deep
		}
		if open != s.open || deep != s.deep {
			t.Fatalf("after event %d: %d steps of %q are open, with those inside %d; counted %d, %d", r.last, open, journal.ScopePath(r.plan, s.path), deep, s.open, s.deep)
		}
		if s.parent != nil {
			if _, ok := s.parent.inside[s]; !ok || r.scopes[s.parent.path] != s.parent {
				t.Fatalf("after event %d: %q is in no scope", r.last, journal.ScopePath(r.plan, s.path))
			}
		}
	}
	if busy != r.busy || waiting != r.waiting || working != r.working || bytes != r.bytes {
		t.Fatalf("after event %d: %d begun, %d wait, %d work, %d bytes; counted %d, %d, %d, %d", r.last, busy, waiting, working, bytes, r.busy, r.waiting, r.working, r.bytes)
	}
	var weight, done int64
	if root := r.scopes[""]; root != nil {
		for i := range root.steps {
			weight, done = weight+root.steps[i].weight, done+root.steps[i].done
		}
	}
	if weight != r.weight || done != r.done || done < 0 {
		t.Fatalf("after event %d: known %d, settled %d; counted %d, %d", r.last, weight, done, r.weight, r.done)
	}
}

// carryOut carries out a command of the machine, well or not.
func (w *wild) carryOut(cmd machine.Command, well bool) {
	switch cmd.Kind {
	case machine.CmdAcquire:
		in := &machine.Input{Kind: machine.InGranted, Ref: cmd.Ref}
		if w.plan.Steps[cmd.Ref.Step].Kind == plan.Recipe {
			in.Child = &machine.ChildGrant{}
		} else if !well && rapid.IntRange(0, 4).Draw(w.t, "held") == 0 {
			in = &machine.Input{Kind: machine.InHeld, Ref: cmd.Ref, Text: "slots"}
		}
		w.do(in)
	case machine.CmdDispatch:
		in := &machine.Input{Kind: machine.InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: machine.Success, Cost: 2, Output: []byte(`{"ok":true}`)}
		if task := w.m.Task(cmd.Ref, cmd.Fence); task != nil {
			if _, _, f := task.Render(); f != nil {
				in.Outcome, in.Err = machine.Failed, f
			}
		}
		if !well {
			switch rapid.IntRange(0, 5).Draw(w.t, "outcome") {
			case 0:
				in.Outcome, in.Err = machine.Failed, &machine.Failure{Code: fault.ServiceUnavailable, Msg: "down"}
			case 1:
				in.Outcome, in.Err = machine.Failed, &machine.Failure{Code: fault.FileInvalid, Msg: "bad"}
			case 2:
				in = &machine.Input{Kind: machine.InWorkerLost, Ref: cmd.Ref, Fence: cmd.Fence}
			}
		}
		w.last = append(w.last, in)
		w.do(in)
	case machine.CmdNeedItems:
		w.do(&machine.Input{Kind: machine.InItems, Ref: cmd.Ref, Items: &machine.Items{From: cmd.From, List: [][]byte{[]byte(`1`), []byte(`2`)}}, More: cmd.From < 3})
	case machine.CmdCollect:
		w.do(&machine.Input{Kind: machine.InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: machine.Success, Output: []byte(`1`)})
	case machine.CmdChild, machine.CmdCancelChild:
		end := &machine.ChildEnd{Status: journal.RunCompleted, Outputs: []byte(`{"k":1}`), Steps: 1}
		if cmd.Kind == machine.CmdCancelChild {
			end = &machine.ChildEnd{Status: journal.RunCancelled, Code: fault.ExecutionCancelled, Msg: "asked to"}
		} else if !well && rapid.Bool().Draw(w.t, "child fails") {
			end = &machine.ChildEnd{Status: journal.RunFailed, Code: fault.FileInvalid, Msg: "bad", Recipe: "below"}
		}
		w.do(&machine.Input{Kind: machine.InChildEnded, Ref: cmd.Ref, Fence: cmd.Fence, End: end})
	}
}

// X83, X84, X100, X179: runs of random recipes. Whatever happens, what a fold counts event by
// event is what its steps are, it agrees with the machine about what the run is and waits
// for, and a fold that forgets iterations counts like one that keeps them.
func TestRandomRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWild(t)
		retries := 3
		for range rapid.IntRange(0, 120).Draw(t, "moves") {
			owed := w.m.Owed(nil)
			switch k := rapid.IntRange(0, 19).Draw(t, "what"); {
			case w.m.Status().Terminal() && retries > 0:
				retries--
				w.do(&machine.Input{Kind: machine.InRetry, Name: rapid.SampledFrom([]string{"", "", w.plan.Steps[0].ID}).Draw(t, "from")})
			case k < 13 && len(owed) > 0:
				w.carryOut(owed[rapid.IntRange(0, len(owed)-1).Draw(t, "which")], false)
			case k < 15 && len(w.last) > 0:
				again := *w.last[rapid.IntRange(0, len(w.last)-1).Draw(t, "again")]
				w.do(&again)
			case k < 18:
				w.now += rapid.Int64Range(0, 60_000_000).Draw(t, "later")
				w.do(&machine.Input{Kind: machine.InTimer})
			case k == 18:
				w.do(&machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte(`1`)})
			case rapid.IntRange(0, 5).Draw(t, "cancel") == 0:
				w.do(&machine.Input{Kind: machine.InCancel})
			}
		}
		for n := 0; !w.m.Status().Terminal() && n < 5_000; n++ {
			if owed := w.m.Owed(nil); len(owed) > 0 {
				w.carryOut(owed[0], true)
			} else if due := w.m.NextDue(); due > 0 {
				w.now = max(w.now, due)
				w.do(&machine.Input{Kind: machine.InTimer})
			}
		}
		if !w.m.Status().Terminal() {
			t.Fatal("the run does not end")
		}
		if w.ever.done != w.ever.weight || w.ever.busy != 0 || !w.ever.Job(Facts{}).StepMetadata.WorkflowInstance.IsComplete {
			t.Fatalf("at the end %d of %d known steps have settled, %d are open", w.ever.done, w.ever.weight, w.ever.busy)
		}
		if n := len(w.tight.scopes); n > len(w.plan.Graphs) {
			t.Fatalf("at the end %d scopes are kept of %d graphs", n, len(w.plan.Graphs))
		}
	})
}
