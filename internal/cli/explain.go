// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// An explanation is why a step is where it is: the chain of facts, each with
// the event that proves it.
type explanation struct {
	Run       string    `json:"run"`
	Step      string    `json:"step"`
	Status    string    `json:"status"`
	Imported  bool      `json:"imported,omitempty"` // the run was
	Why       []string  `json:"why"`
	DependsOn []parent  `json:"dependsOn,omitempty"`
	Facts     []factRow `json:"facts"`
	Next      string    `json:"next,omitempty"`
}

type parent struct {
	Step   string `json:"step"`
	Status string `json:"status"`
}

type factRow struct {
	Event uint64 `json:"event"`
	At    string `json:"at"`
	Type  string `json:"type"`
	Text  string `json:"text,omitempty"`
}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain RUN STEP",
		Short:   "Say why a step ran, was skipped, waits or failed",
		Example: "roux explain @last convert\nroux explain @last-failed 'pages[3].resize'",
		Args:    wants(2, 2, "RUN STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				p, err := planOf(ctx, j, head)
				if err != nil {
					return err
				}
				if err := knownStep(p, args[1]); err != nil {
					return err
				}
				ref, err := journal.ParseRef(p, args[1])
				if err != nil {
					return fault.Wrap(fault.StepNotFound, err, "%s is no step but a part of one: name a step in it; `%s` lists them", oneLine(args[1]), a.hint("trace", head.Run))
				}
				x := &explainer{v: newView(p, head.Run), ref: ref}
				if err := eachShown(ctx, j, head.Key, p, 0, x.event); err != nil {
					return err
				}
				e := x.explain()
				e.Imported = head.Imported()
				a.show(e, func() { a.printExplanation(e) })
				return nil
			})
		},
	}
}

// An explainer folds the run and keeps the facts about one step.
type explainer struct {
	v     *runView
	ref   journal.Ref
	facts []factRow
	mine  stepView // the step's state, also when the view lets it go
	seen  bool
}

func (x *explainer) event(ev *journal.Event) error {
	if ev.Ref() == x.ref && len(x.facts) < maxSteps {
		x.facts = append(x.facts, factRow{ev.Seq, stamp(ev.At), ev.Name(), oneLine(eventText(x.v.plan, ev))})
	}
	var before *stepView
	if ev.Ref() == x.ref {
		before = x.v.step(x.ref)
		before.keep = true
	}
	if err := x.v.apply(ev); err != nil {
		return err
	}
	if before != nil {
		x.mine, x.seen = *before, true
	}
	return nil
}

func (x *explainer) explain() *explanation {
	p := x.v.plan
	step := &p.Steps[x.ref.Step]
	e := &explanation{Run: x.v.id, Step: journal.StepPath(p, x.ref), Status: "pending", Facts: x.facts}
	if e.Facts == nil {
		e.Facts = []factRow{}
	}
	if x.seen {
		e.Status = x.mine.status
	}
	unmet := x.parents(e, step)
	x.why(e, step, unmet)
	x.cost(e)
	return e
}

// parents lists what the step waits for; unmet are those that have not settled well.
func (x *explainer) parents(e *explanation, step *plan.Step) (unmet []parent) {
	for _, pred := range step.Preds {
		path := journal.StepPath(x.v.plan, journal.Ref{Path: x.ref.Path, Step: pred})
		par := parent{path, "pending"}
		if s := x.v.steps[path]; s != nil {
			par.Status = s.status
		} else if x.v.dropped > 0 && x.ref.Path != "" {
			par.Status = "settled"
		}
		e.DependsOn = append(e.DependsOn, par)
		if par.Status != "completed" && par.Status != "settled" {
			unmet = append(unmet, par)
		}
	}
	return unmet
}

func (x *explainer) why(e *explanation, step *plan.Step, unmet []parent) {
	because := func(format string, args ...any) { e.Why = append(e.Why, fmt.Sprintf(format, args...)) }
	s := &x.mine
	switch e.Status {
	case "pending":
		x.whyPending(e, because, unmet)
	case "queued":
		because("it is ready and waits for a worker")
	case "blocked":
		because("it is ready but held back: %s", s.note)
	case "running":
		because("what it depends on has settled, and it was given to a worker")
	case "waiting":
		if s.note != "" {
			because("it waits for the signal %q", s.note)
			e.Next = fmt.Sprintf("roux runs signal %s %s", x.v.id, s.note)
		}
		if s.due > 0 {
			because("it waits until %s at most", stamp(s.due))
		}
	case "retrying":
		because("try %d failed with %s: %s", s.attempts, s.code, s.message)
		because("its retry policy tries again at %s", stamp(s.due))
	case "completed":
		because("what it depends on had settled")
		if s.opened != "" {
			because("it went %s", s.opened)
		}
		if s.attempts > 1 {
			because("it took %d tries", s.attempts)
		}
	case "failed", "timed_out":
		because("%s: %s", s.code, s.message)
		if row, ok := fault.Lookup(s.code); ok {
			e.Next = row.Remedy
		}
		if s.handled {
			because("the failure was handled, so the run went on")
		}
	case "skipped":
		x.whySkipped(e, step, because, unmet)
	case "cancelled":
		because("%s", reasonText(s.note))
	case "invalidated":
		because("a retry withdrew its result; it will run again when its turn comes")
	}
	if s.undone != "" {
		because("afterwards: %s", s.undone)
	}
}

func (x *explainer) whyPending(e *explanation, because func(string, ...any), unmet []parent) {
	if owner, state, open := x.closedAbove(); !open {
		because("its scope never opened: %s is %s", owner, state)
		return
	}
	for _, par := range unmet {
		because("it waits for %s, which is %s", par.Step, par.Status)
	}
	if len(unmet) == 0 {
		because("its turn has not come")
	}
	if !x.v.done() && x.v.Status != journal.RunRunning {
		e.Next = "roux resume " + x.v.id
	}
}

// closedAbove finds the nearest step above whose scope holds this one and has
// not opened it.
func (x *explainer) closedAbove() (owner, state string, open bool) {
	path := journal.StepPath(x.v.plan, x.ref)
	for {
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return "", "", true
		}
		path = path[:i]
		if s := x.v.steps[path]; s != nil {
			if s.status == "running" {
				return "", "", true
			}
			return path, join(" ", s.status, s.opened), false
		}
	}
}

func (x *explainer) whySkipped(e *explanation, step *plan.Step, because func(string, ...any), unmet []parent) {
	switch x.mine.note {
	case journal.ByCondition.String():
		if step.When != nil {
			because("its condition `when: %s` was false", oneLine(step.When.Src))
			return
		}
	case journal.ByOnError.String():
		if x.mine.code != "" {
			because("%s: %s", x.mine.code, x.mine.message)
		}
	case journal.ParentFailure.String():
		for _, par := range unmet {
			because("%s, which it depends on, is %s", par.Step, par.Status)
		}
		if len(unmet) > 0 {
			e.Next = fmt.Sprintf("roux explain %s %s", x.v.id, unmet[0].Step)
		}
	}
	because("%s", reasonText(x.mine.note))
}

// reasonText says what a reason of R4 means.
func reasonText(reason string) string {
	switch reason {
	case journal.ByCondition.String():
		return "its condition was false"
	case journal.BranchNotTaken.String():
		return "it is on the side of a condition that was not taken"
	case journal.ParentFailure.String():
		return "something it depends on failed"
	case journal.BranchLost.String():
		return "another branch decided the parallel step first"
	case journal.ByOnError.String():
		return "it failed, and its onError says skip"
	case journal.RunEnded.String():
		return "the run ended before its turn"
	case journal.ByCancel.String():
		return "the run was cancelled or expired"
	}
	return reason
}

func (x *explainer) cost(e *explanation) {
	if x.mine.cost > 0 {
		e.Why = append(e.Why, fmt.Sprintf("it cost %d of the %d credits the run has used", x.mine.cost, x.v.Used))
	}
}

func (a *app) printExplanation(e *explanation) {
	a.text("%s is %s\n", e.Step, e.Status)
	if e.Imported {
		a.text("  in a run that was imported: what it says happened elsewhere, if at all\n")
	}
	for _, w := range e.Why {
		a.text("  because %s\n", oneLine(w))
	}
	if len(e.DependsOn) > 0 {
		a.text("depends on\n")
		for _, p := range e.DependsOn {
			a.text("  %s, %s\n", p.Step, p.Status)
		}
	}
	if len(e.Facts) > 0 {
		a.text("facts\n")
		rows := make([][]string, len(e.Facts))
		for i, f := range e.Facts {
			rows[i] = []string{fmt.Sprintf("  %6d", f.Event), f.At, f.Type, f.Text}
		}
		a.table(rows, 3)
	}
	if e.Next != "" {
		a.text("next: %s\n", oneLine(e.Next))
	}
}
