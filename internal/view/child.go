// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A Child is the child run of a step, as the journal of the parent has it.
type Child struct {
	Run    string        `json:"run"`
	Recipe string        `json:"recipe"`
	Status string        `json:"status"`
	Try    uint32        `json:"attempt"`
	Used   ledger.Amount `json:"credits"`         // what it costs its parent
	Steps  int64         `json:"steps,omitempty"` // that it and those below it began
	TookMs float64       `json:"durationMs"`      // 0 while it runs
	Begin  int64         `json:"-"`               // UTC µs
	End    int64         `json:"-"`               // UTC µs; 0 while it runs

	// Trace is the child run itself, if a trace expands it.
	Trace *Trace `json:"trace,omitempty"`

	summary string
}

// newChild is the child run that an event starts.
func newChild(p *plan.Plan, ev *journal.Event) *Child {
	return &Child{Run: strings.Clone(ev.Text), Recipe: ChildRecipe(p, ev.Step), Status: journal.RunRunning.String(), Try: ev.Attempt, Begin: ev.At}
}

// resume records that the child run goes on, as another attempt of its step.
func (c *Child) resume(ev *journal.Event) {
	c.Status, c.Try, c.End, c.TookMs = journal.RunRunning.String(), ev.Attempt, 0, 0
}

// end records how the child run ended.
func (c *Child) end(ev *journal.Event) {
	c.Status, c.End = ev.ChildStatus().String(), ev.At
	c.Used, c.Steps = c.Used.Plus(ev.ChildUsed()), c.Steps+ev.ChildSteps() // of all its attempts
	c.TookMs, c.summary = millis(c.End-c.Begin), Brief(ev.Data)
}

// Text describes the child run in a few words.
func (c *Child) Text() string { return Join(" ", "run "+c.Run, c.Status) }

// ChildRecipe is the recipe that a step runs, as the plan refers to it; "" = none.
func ChildRecipe(p *plan.Plan, step int32) string {
	s := &p.Steps[step]
	if s.Kind != plan.Recipe || s.Child == nil {
		return ""
	}
	return p.Children[s.Child.Ref].String()
}

// applyChild applies the start or the end of a child run.
func (v *Run) applyChild(s *Step, ev *journal.Event) {
	switch ev.Kind {
	case journal.EvChildStarted:
		s.Status, s.Attempts, s.Note, s.Due = "running", ev.Attempt, "", 0
		if s.Began == 0 {
			s.Began = ev.At
		}
		if last := cmp.Or(s.Child, s.before); last != nil && ev.GoesOn() && last.Run == ev.Text {
			v.count(last.Status, -1)
			last.resume(ev)
			s.Child = last
		} else {
			s.Child = newChild(v.Plan, ev)
		}
		v.count(s.Child.Status, 1)
	case journal.EvChildEnded:
		if s.Child == nil {
			return // an imported journal may contradict itself
		}
		v.count(s.Child.Status, -1)
		s.Child.end(ev)
		v.count(s.Child.Status, 1)
		s.Cost = s.Cost.Plus(ev.ChildUsed())
	}
}

// count adds n to the child runs of a status.
func (v *Run) count(status string, n int) {
	if v.Children == nil {
		v.Children = map[string]int{}
	}
	if v.Children[status] += n; v.Children[status] == 0 {
		delete(v.Children, status)
	}
}

// ChildrenText counts the child runs by status, for people; "" = there are none.
func (v *Run) ChildrenText() string {
	total, parts := 0, []string{}
	for _, status := range slices.Sorted(maps.Keys(v.Children)) {
		total += v.Children[status]
		parts = append(parts, fmt.Sprintf("%d %s", v.Children[status], status))
	}
	if total == 0 {
		return ""
	}
	return Count(total, "run") + ": " + strings.Join(parts, ", ")
}

// OpenChildren are the steps that wait for a child run.
func (v *Run) OpenChildren() (steps []*Step) {
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && s.Child != nil && s.Child.End == 0 && s.Status == "running" {
			steps = append(steps, s)
		}
	}
	return steps
}

// FailedStep is the step whose failure made the run fail: the innermost one, nil = none.
func (v *Run) FailedStep() (step *Step) {
	if v.Error == nil {
		return nil
	}
	best := -1
	for _, s := range v.Order {
		if v.ByPath[s.Path] != s || s.Status != "failed" && s.Status != "timed_out" || s.Handled {
			continue
		}
		// The message of a run is that of the step that failed it.
		rank := len(s.Path)
		if strings.Contains(v.Error.Message, s.Message) {
			rank += 1 << 20
		}
		if rank > best {
			step, best = s, rank
		}
	}
	return step
}

// startedChildText describes the start of a child run, or that it goes on, for its parent or itself.
func startedChildText(p *plan.Plan, ev *journal.Event) string {
	if ev.Kind == journal.EvRunResumed {
		return fmt.Sprintf("as attempt %d of the step that started it", ev.Attempt)
	}
	as := "as run " + ev.Text
	if ev.GoesOn() {
		as = "goes on in run " + ev.Text
	}
	return Join(" ", "recipe "+OneLine(ChildRecipe(p, ev.Step)), as, tryText(ev.Attempt))
}

// pinnedText describes what an expression names.
func pinnedText(ev *journal.Event) string {
	ref, tree, err := ev.Pinned()
	if err != nil {
		return ""
	}
	found := tree.Recipe(ref)
	if found.By == plan.ByText {
		return "the recipe " + OneLine(found.Name) + " that a step has made"
	}
	return OneLine(ref) + " is version " + cmp.Or(found.Version, "0.0.0") + " of " + OneLine(found.Name)
}

// endedChildText describes the end of a child run.
func endedChildText(ev *journal.Event) string {
	if ev.Code != "" {
		return Join("; ", Join(": ", ev.ChildStatus().String(), string(ev.Code), ev.Text), Credits(ev.ChildUsed()))
	}
	return Join("  ", ev.ChildStatus().String(), Credits(ev.ChildUsed()), Brief(ev.Data))
}

// extendedText describes what was added to the share of a child run.
func extendedText(ev *journal.Event) string {
	switch ev.Resource() {
	case journal.CreditsShare:
		return "its share grows by " + ledger.Credits(ev.Added())
	case journal.StepsShare:
		return "its share grows by " + Count(int(ev.Added()), "step")
	}
	return "its share grows by " + Bytes(ev.Added()) + " of memory"
}

// childCost is what a completed step has cost: what its own attempt cost, or its child
// runs.
func (s *Step) childCost(own ledger.Amount) ledger.Amount {
	if s.Child != nil {
		return s.Cost
	}
	return own
}

// startRun adds a child run to a span. One that goes on is there, and becomes the last.
func (s *Span) startRun(c *Child, ev *journal.Event) {
	if i := slices.IndexFunc(s.Runs, func(old *Child) bool { return old.Run == c.Run }); i >= 0 {
		c = s.Runs[i]
		c.resume(ev)
		s.Runs = slices.Delete(s.Runs, i, i+1)
	}
	s.Runs = append(s.Runs, c)
}

// Runs lists the child runs of a trace, in the order in which a trace expands them: first
// those that failed, then those that go on, then the others.
func (t *Trace) Runs() (list []*Child) {
	var add func(spans []*Span)
	add = func(spans []*Span) {
		for _, s := range spans {
			list = append(list, s.Runs...)
			add(s.Children)
		}
	}
	add(t.Steps)
	slices.SortStableFunc(list, func(a, b *Child) int { return childRank(a.Status) - childRank(b.Status) })
	return list
}

func childRank(status string) int {
	switch status {
	case journal.RunFailed.String(), journal.RunExpired.String():
		return 0
	case journal.RunRunning.String():
		return 1
	case journal.RunCancelled.String():
		return 2
	}
	return 3
}

// Related is what an event says of other runs: the start of a root run fixes what its tree
// has in common, and the start of a child run names it.
func Related(ev *journal.Event) (tree *journal.Tree, child string) {
	switch ev.Kind {
	case journal.EvRunStarted:
		if st, err := journal.DecodeStart(ev.Data); err == nil {
			tree = st.Tree
		}
	case journal.EvChildStarted:
		child = strings.Clone(ev.Text)
	}
	return tree, child
}
