// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// driven is a started run whose steps the test grants and ends.
type driven struct {
	t    *testing.T
	run  *Run
	turn Turn
}

func drive(t *testing.T, p *Program) *driven {
	d := &driven{t: t, run: NewRun(p)}
	d.do(&Input{Kind: InStart, Start: &journal.Start{Run: "run_1", Account: "acct", Seed: 1, Pins: pinsOf(p.plan)}})
	return d
}

// do gives one input to the run and continues it until nothing is left to decide.
func (d *driven) do(in *Input) []journal.Event {
	in.At = t0
	d.run.Decide(in, &d.turn)
	all := slices.Clone(d.turn.Events)
	for slices.ContainsFunc(d.turn.Commands, func(c Command) bool { return c.Kind == CmdContinue }) {
		d.run.Decide(&Input{Kind: InContinue, At: t0}, &d.turn)
		all = append(all, d.turn.Events...)
	}
	return all
}

// end ends the attempt of a step instance with success or failure.
func (d *driven) end(ref journal.Ref, well bool) []journal.Event {
	d.do(&Input{Kind: InGranted, Ref: ref})
	s, i := d.run.at(ref)
	if s == nil {
		return nil
	}
	in := &Input{Kind: InResult, Ref: ref, Fence: journal.Fence{Gen: d.run.gen, Attempt: s.steps[i].attempt}, Outcome: Success, Output: []byte("1")}
	if !well {
		in.Outcome, in.Err = Failed, &Failure{Code: fault.FileInvalid, Msg: "bad"}
	}
	return d.do(in)
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return all
}

// expectJoin states the table of design section 9 independently: after how many
// branches the step is decided, and whether it completes.
func expectJoin(waitFor, strategy string, heard []bool) (decided int, completes bool) {
	someFailed := slices.Contains(heard, false)
	firstFailure, firstSuccess := slices.Index(heard, false)+1, slices.Index(heard, true)+1
	switch waitFor + "/" + strategy {
	case "all/fail_fast": // first failure cancels the rest and fails
		if someFailed {
			return firstFailure, false
		}
		return len(heard), true
	case "all/continue": // waits for all branches; fails if any failed
		return len(heard), !someFailed
	case "all/ignore": // waits for all; completes
		return len(heard), true
	case "any/fail_fast": // first branch to settle decides, either way
		return 1, heard[0]
	case "any/ignore": // first success decides; completes empty when all failed
		if firstSuccess == 0 {
			return len(heard), true
		}
		return firstSuccess, true
	}
	// any/continue and first_success: first success decides; fails when all failed
	if firstSuccess == 0 {
		return len(heard), false
	}
	return firstSuccess, true
}

// TestJoins runs the nine pairs over every outcome of up to four branches in
// every order (X46, X47, X48, X49, X50, X51, X52, R27), against expectJoin.
func TestJoins(t *testing.T) {
	runs := 0
	for _, waitFor := range []string{"all", "any", "first_success"} {
		for _, strategy := range []string{"fail_fast", "continue", "ignore"} {
			for n := 1; n <= 4; n++ {
				var src strings.Builder
				fmt.Fprintf(&src, "name: j\nsteps:\n  - id: p\n    parallel:\n      waitFor: %s\n      failureStrategy: %s\n      branches:\n", waitFor, strategy)
				for k := range n {
					fmt.Fprintf(&src, "        - [{id: b%d, action: {name: work}}]\n", k)
				}
				prog := Prepare(compilePlan(t, src.String()))
				for _, order := range permutations(n) {
					for outcomes := range 1 << n {
						runs++
						oneJoin(t, prog, waitFor, strategy, order, outcomes)
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}

func oneJoin(t *testing.T, prog *Program, waitFor, strategy string, order []int, outcomes int) {
	t.Helper()
	heard := make([]bool, len(order))
	for k, b := range order {
		heard[k] = outcomes>>b&1 == 1
	}
	decided, completes := expectJoin(waitFor, strategy, heard)
	what := fmt.Sprintf("%s/%s of %v heard in order %v", waitFor, strategy, heard, order)
	d := drive(t, prog)
	p := stepNamed(prog.plan, "p")
	for k, b := range order {
		graph := prog.plan.Steps[p].Branches[b]
		events := d.end(journal.Ref{Path: journal.Path("").Child(graph, 0), Step: prog.plan.Graphs[graph].First}, heard[k])
		status := d.run.root.steps[p].status
		switch {
		case k+1 < decided && status != journal.Running:
			t.Fatalf("%s: decided (%s) after %d of %d", what, status, k+1, decided)
		case k+1 == decided && status != map[bool]journal.Status{true: journal.Completed, false: journal.StepFailed}[completes]:
			t.Fatalf("%s: %s after %d, want completes = %v", what, status, k+1, completes)
		case k+1 == decided:
			lost := 0
			for i := range events {
				if events[i].Kind == journal.EvNodeCancelled && journal.Reason(events[i].Flag) == journal.BranchLost {
					lost++
				}
			}
			if lost != len(order)-decided {
				t.Fatalf("%s: %d branches were cancelled, want %d", what, lost, len(order)-decided)
			}
		case k+1 > decided && len(events) > 0:
			t.Fatalf("%s: a branch that comes after the decision changes something", what)
		}
	}
}

// TestF06_JoinsSettle: a join over up to five parents settles in every
// combination of how its parents ended and its policy, in the order of the
// definition and in the opposite one (X120, X121, R8).
func TestF06_JoinsSettle(t *testing.T) {
	type end struct {
		name  string
		apply []journal.Event
		bad   bool // leaves its dependents without a result
	}
	ends := []end{
		{"completed", []journal.Event{{Kind: journal.EvNodeStarted, Attempt: 1}, {Kind: journal.EvNodeCompleted, Data: []byte("1"), Attempt: 1}}, false},
		{"failed", []journal.Event{{Kind: journal.EvNodeStarted, Attempt: 1}, {Kind: journal.EvNodeFailed, Code: fault.FileInvalid, Attempt: 1}}, true},
		{"skipped by its condition", []journal.Event{{Kind: journal.EvNodeSkipped, Flag: uint8(journal.ByCondition)}}, false},
		{"skipped after a failure", []journal.Event{{Kind: journal.EvNodeSkipped, Flag: uint8(journal.ParentFailure)}}, true},
		{"cancelled", []journal.Event{{Kind: journal.EvNodeCancelled, Flag: uint8(journal.RunEnded)}}, true},
	}
	policies := map[string]journal.Status{"propagate": journal.StepFailed, "skip": journal.Skipped, "substitute_default": journal.Queued}
	runs := 0
	for policy, whenBad := range policies {
		for n := 1; n <= 5; n++ {
			var src strings.Builder
			src.WriteString("name: j\norder: none\nfailure_policy: drain\nsteps:\n")
			deps := make([]string, n)
			for k := range n {
				deps[k] = fmt.Sprintf("a%d", k)
				fmt.Fprintf(&src, "  - {id: %s, action: {name: work}}\n", deps[k])
			}
			fmt.Fprintf(&src, "  - {id: j, action: {name: work}, dependsOn: [%s], on_parent_failure: %s}\n", strings.Join(deps, ", "), policy)
			prog := Prepare(compilePlan(t, src.String()))
			total := 1
			for range n {
				total *= len(ends)
			}
			for combination := range total {
				for _, backwards := range []bool{false, true} {
					runs++
					d := drive(t, prog)
					what, bad, c := policy+" over", false, combination
					drawn := make([]end, n)
					for k := range n {
						drawn[k] = ends[c%len(ends)]
						c /= len(ends)
						what, bad = what+", "+drawn[k].name, bad || drawn[k].bad
					}
					for k := range n {
						at := k
						if backwards {
							at = n - 1 - k
						}
						if st := d.run.root.steps[n]; st.status != journal.Pending || st.pos != 0 {
							t.Fatalf("%s: the join moved before its last parent", what)
						}
						for _, ev := range drawn[at].apply {
							ev.Seq, ev.At, ev.Step = d.run.last+1, t0, int32(at)
							if err := d.run.Apply(&ev); err != nil {
								t.Fatal(err)
							}
						}
					}
					d.do(&Input{Kind: InContinue})
					want := journal.Queued
					if bad {
						want = whenBad
					}
					if got := d.run.root.steps[n].status; got != want {
						t.Fatalf("%s: the join is %s, want %s", what, got, want)
					}
					if want != journal.Queued && !d.run.status.Terminal() {
						t.Fatalf("%s: everything has settled and the run is %s", what, d.run.status)
					}
				}
			}
		}
	}
	t.Logf("%d runs", runs)
}

// TestF04_TenThousandParents: the last of 10,000 parents to settle makes their one
// dependent ready, once, in whatever order they settle (I5, X56).
func TestF04_TenThousandParents(t *testing.T) {
	const n = 10_000
	p := &plan.Plan{Graphs: []plan.Graph{{N: n + 1, Owner: plan.None, Out: n, Waves: 2}}, TTLMS: 3_600_000,
		Limits: plan.Limits{TotalSteps: 2 * n, MemoryBytes: 1 << 20}, Actions: []plan.ActionRef{{Name: "work"}}}
	join := plan.Step{ID: "j", Action: 0, Wave: 1}
	none := func(st plan.Step) plan.Step {
		st.Then, st.Else, st.Body, st.Fallback, st.Compensate, st.Slot = plan.None, plan.None, plan.None, plan.None, plan.None, plan.None
		st.Retry.Attempts = 1
		return st
	}
	for k := range int32(n) {
		p.Steps = append(p.Steps, none(plan.Step{ID: fmt.Sprint("a", k), Action: 0, Succs: []int32{n}}))
		join.Preds = append(join.Preds, k)
	}
	p.Steps = append(p.Steps, none(join))
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	d := drive(t, Prepare(p))
	queued := 0
	for k := range int32(n) {
		ref := journal.Ref{Step: k * 7919 % n} // 7919 is coprime to n, so each comes once
		for _, ev := range append(d.end(ref, true), d.end(ref, true)...) {
			if ev.Kind == journal.EvNodeQueued && ev.Step == n {
				queued++
				if k != n-1 {
					t.Fatalf("the join is ready after %d parents", k+1)
				}
			}
		}
	}
	if queued != 1 {
		t.Fatalf("the join was readied %d times", queued)
	}
}
