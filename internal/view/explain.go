// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// An Explanation is why a step has its status: a chain of facts, each with the event
// that proves it.
type Explanation struct {
	Run       string       `json:"run"`
	Step      string       `json:"step"`
	Status    string       `json:"status"`
	Imported  bool         `json:"imported,omitempty"` // the run was imported
	Why       []string     `json:"why"`
	DependsOn []Dependency `json:"dependsOn,omitempty"`
	Facts     []Fact       `json:"facts"`
	Waiting   *Waiting     `json:"waiting,omitempty"` // where it stands at this moment, if it is known
	Next      string       `json:"next,omitempty"`
}

// A Dependency is a step that must settle first, and its status.
type Dependency struct {
	Step   string `json:"step"`
	Status string `json:"status"`
}

// A Fact is an event about the step.
type Fact struct {
	Event uint64 `json:"event"`
	At    string `json:"at"`
	Type  string `json:"type"`
	Text  string `json:"text,omitempty"`
}

// An Explainer follows a run and keeps the facts about one step.
type Explainer struct {
	run   *Run
	ref   journal.Ref
	facts []Fact
	mine  Step // the step's state, kept even when the run's view drops the step
	seen  bool
}

// NewExplainer returns an explainer for a step of a run of p.
func NewExplainer(p *plan.Plan, run string, ref journal.Ref) *Explainer {
	return &Explainer{run: NewRun(p, run), ref: ref}
}

// Apply adds the run's next event.
func (x *Explainer) Apply(ev *journal.Event) error {
	if ev.Ref() == x.ref && len(x.facts) < MaxSteps {
		x.facts = append(x.facts, Fact{ev.Seq, Stamp(ev.At), ev.Name(), OneLine(EventText(x.run.Plan, ev))})
	}
	var before *Step
	if ev.Ref() == x.ref {
		before = x.run.step(x.ref)
		before.keep = true
	}
	if err := x.run.Apply(ev); err != nil {
		return err
	}
	if before != nil {
		x.mine, x.seen = *before, true
	}
	return nil
}

// Explain explains the step's status after the events so far.
func (x *Explainer) Explain() *Explanation {
	p := x.run.Plan
	step := &p.Steps[x.ref.Step]
	e := &Explanation{Run: x.run.ID, Step: journal.StepPath(p, x.ref), Status: "pending", Facts: x.facts}
	if e.Facts == nil {
		e.Facts = []Fact{}
	}
	if x.seen {
		e.Status = x.mine.Status
	}
	unmet := x.parents(e, step)
	x.why(e, step, unmet)
	x.cost(e)
	return e
}

// parents adds the step's dependencies to e; unmet are those that have not settled
// well.
func (x *Explainer) parents(e *Explanation, step *plan.Step) (unmet []Dependency) {
	for _, pred := range step.Preds {
		path := journal.StepPath(x.run.Plan, journal.Ref{Path: x.ref.Path, Step: pred})
		par := Dependency{path, "pending"}
		if s := x.run.ByPath[path]; s != nil {
			par.Status = s.Status
		} else if x.run.dropped > 0 && x.ref.Path != "" {
			par.Status = "settled"
		}
		e.DependsOn = append(e.DependsOn, par)
		if par.Status != "completed" && par.Status != "settled" {
			unmet = append(unmet, par)
		}
	}
	return unmet
}

func (x *Explainer) why(e *Explanation, step *plan.Step, unmet []Dependency) {
	because := func(format string, args ...any) { e.Why = append(e.Why, fmt.Sprintf(format, args...)) }
	s := &x.mine
	switch e.Status {
	case "pending":
		x.whyPending(e, because, unmet)
	case "queued":
		because("it is ready and waits for a worker")
	case "blocked":
		because("it is ready but held back: %s", s.Note)
	case "running":
		if c := s.Child; c != nil {
			because("it runs recipe %s as run %s, which has not ended", c.Recipe, c.Run)
			e.Next = "roux explain " + c.Run
			break
		}
		because("what it depends on has settled, and it was given to a worker")
	case "waiting":
		switch {
		case s.Job != nil && s.Job.Person:
			because("it waits for %s", s.WaitsFor())
			e.Next = "roux approvals show " + s.Job.ID
		case s.Job != nil:
			because("it waits for %s", s.WaitsFor())
			e.Next = "roux jobs show " + s.Job.Provider + "/" + s.Job.ID
		case s.Note != "":
			because("it waits for the signal %q", s.Note)
			e.Next = fmt.Sprintf("roux runs signal %s %s", x.run.ID, s.Note)
		}
		if s.Due > 0 {
			because("it waits until %s at most", Stamp(s.Due))
		}
	case "retrying":
		because("try %d failed with %s: %s", s.Attempts, s.Code, s.Message)
		because("its retry policy tries again at %s", Stamp(s.Due))
	case "completed":
		because("what it depends on had settled")
		if s.Opened != "" {
			because("it went %s", s.Opened)
		}
		if s.Attempts > 1 {
			because("it took %d tries", s.Attempts)
		}
		if s.Cached != "" {
			because("it has the result of an earlier attempt with the same input, so its action was not called")
		}
	case "failed", "timed_out":
		because("%s: %s", s.Code, s.Message)
		if row, ok := fault.Lookup(s.Code); ok {
			e.Next = row.Remedy
		}
		if s.Handled {
			because("the failure was handled, so the run went on")
		}
	case "skipped":
		x.whySkipped(e, step, because, unmet)
	case "cancelled":
		because("%s", reasonText(s.Note))
	case "invalidated":
		because("a retry withdrew its result; it will run again when its turn comes")
	}
	if s.Undone != "" {
		because("afterwards: %s", s.Undone)
	}
	x.whyUnknown(e, because)
}

// trackOutcome follows whether the effects of a step's attempts are known.
func (s *Step) trackOutcome(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvNodeStarted:
		s.Unknown, s.Repeats = false, ev.Unknown
	case journal.EvNodeRetried, journal.EvNodeLost, journal.EvNodeFallback, journal.EvNodeFailed, journal.EvNodeSkipped:
		s.Repeats = false
		if ev.Attempt > 0 {
			s.Unknown = ev.OutcomeUnknown()
		}
	case journal.EvNodeCompleted, journal.EvNodeCompensated:
		s.Unknown, s.Repeats = false, false
	}
}

// whyUnknown says that the effect of an attempt may have happened, and what follows from that.
func (x *Explainer) whyUnknown(e *Explanation, because func(string, ...any)) {
	s := &x.mine
	switch {
	case x.run.Plan.Steps[x.ref.Step].Kind != plan.Action:
	case s.Repeats:
		because("what a try before this one has asked for may have happened: both have the same effect key")
	case s.Unknown && (e.Status == "retrying" || e.Status == "queued" || e.Status == "blocked"):
		because("the outcome of try %d is unknown: what it has asked for may have happened, so the next try has the same effect key", s.Attempts)
	case s.Unknown:
		because("the outcome of try %d is unknown: what it has asked for may have happened; a retry of the run asks with the same effect key", s.Attempts)
	}
}

func (x *Explainer) whyPending(e *Explanation, because func(string, ...any), unmet []Dependency) {
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
	if !x.run.Done() && x.run.Status != journal.RunRunning {
		e.Next = "roux resume " + x.run.ID
	}
}

// closedAbove finds the nearest owning step whose scope contains this step and has not
// opened; open is true when there is none.
func (x *Explainer) closedAbove() (owner, state string, open bool) {
	path := journal.StepPath(x.run.Plan, x.ref)
	for {
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return "", "", true
		}
		path = path[:i]
		if s := x.run.ByPath[path]; s != nil {
			if s.Status == "running" {
				return "", "", true
			}
			return path, Join(" ", s.Status, s.Opened), false
		}
	}
}

func (x *Explainer) whySkipped(e *Explanation, step *plan.Step, because func(string, ...any), unmet []Dependency) {
	switch x.mine.Note {
	case journal.ByCondition.String():
		if step.When != nil {
			because("its condition `when: %s` was false", OneLine(step.When.Src))
			return
		}
	case journal.ByOnError.String():
		if x.mine.Code != "" {
			because("%s: %s", x.mine.Code, x.mine.Message)
		}
	case journal.ParentFailure.String():
		for _, par := range unmet {
			because("%s, which it depends on, is %s", par.Step, par.Status)
		}
		if len(unmet) > 0 {
			e.Next = fmt.Sprintf("roux explain %s %s", x.run.ID, unmet[0].Step)
		}
	}
	because("%s", reasonText(x.mine.Note))
}

func (x *Explainer) cost(e *Explanation) {
	if c := x.mine.Child; c != nil && c.End != 0 {
		e.Why = append(e.Why, fmt.Sprintf("it ran recipe %s as run %s, which is %s after %s", c.Recipe, c.Run, c.Status, Took(time.Duration(c.End-c.Begin)*time.Microsecond)))
		if c.Status != "completed" {
			e.Next = "roux explain " + c.Run
		}
	}
	if x.mine.Cost > 0 {
		e.Why = append(e.Why, fmt.Sprintf("it cost %s of the %d credits the run has used", x.mine.Cost, x.run.Used()))
	}
	if x.mine.Lost > 0 {
		e.Why = append(e.Why, fmt.Sprintf("attempts that did not complete it cost %s, which is not charged", x.mine.Lost))
	}
}

// Subjects returns the steps that an explanation of the run is about: the one with a path, or
// for "" the first that failed, or those that are open.
func (v *Run) Subjects(step string) ([]journal.Ref, error) {
	if step != "" {
		ref, err := journal.ParseRef(v.Plan, step)
		if err != nil {
			return nil, fault.Wrap(fault.StepNotFound, err, "step: the run has no step of that path")
		}
		return []journal.Ref{ref}, nil
	}
	var refs []journal.Ref
	for _, x := range v.Order {
		if v.ByPath[x.Path] != x { // an earlier instance of the step
			continue
		}
		switch x.Status {
		case "failed", "timed_out":
			if v.Error == nil || len(refs) > 0 {
				continue
			}
		case "blocked", "queued", "running", "waiting", "retrying":
			if v.Done() {
				continue
			}
		default:
			continue
		}
		ref, err := journal.ParseRef(v.Plan, x.Path)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}
