// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// maxSteps is how many steps a result lists.
const maxSteps = 1_000

// A runView is what people see of a run while it goes on and after: a fold of
// its journal. The outcomes are journal.History's; what is added here is what a
// display needs: since when, what for, which side.
type runView struct {
	*journal.History
	plan *plan.Plan
	id   string

	recipe   string
	files    []journal.File // that the run was given
	failures bool
	began    bool // an attempt was handed out, or a step completed
	// passed is how many steps failed and were skipped, as their onError says.
	passed      int
	firstPassed string
	gen         int64

	steps   map[string]*stepView
	order   []*stepView
	kept    int
	dropped int // steps of inner scopes that were let go
}

// A stepView is one step instance.
type stepView struct {
	path     string
	ref      journal.Ref
	status   string
	attempts uint32
	micros   int64 // duration once settled
	cost     int64
	began    int64
	code     fault.Code
	message  string
	handled  bool
	note     string // what it waits for, why it is blocked, how far it says it is
	opened   string // which side was taken, how many branches
	summary  string // its output in a few words
	due      int64
	fraction float64
	undone   string // "compensated" or why that failed
	keep     bool
	items    int64  // of a loop; -1 = not known
	begun    int64  // iterations begun
	folded   string // it stands for items that are not listed: what they are
}

func newView(p *plan.Plan, id string) *runView {
	return &runView{History: journal.NewHistory(p, maxSteps), plan: p, id: id, gen: 1, steps: map[string]*stepView{}}
}

// done says that the run has ended, in its present generation.
func (v *runView) done() bool { return v.Ended != 0 }

// open says in a few words at which steps the run is.
func (v *runView) open() string {
	var parts []string
	for _, s := range v.order {
		if v.steps[s.path] != s {
			continue
		}
		switch s.status {
		case "waiting":
			parts = append(parts, join(" ", s.path+" waits", waitingText(s.note, s.due)))
		case "retrying":
			parts = append(parts, s.path+" is tried again at "+stamp(s.due))
		case "queued", "running", "blocked":
			if s.opened == "" && s.items < 0 {
				parts = append(parts, s.path+" is open")
			}
		}
		if len(parts) == 4 {
			parts = append(parts, "…")
			break
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + oneLine(strings.Join(parts, "; "))
}

func (v *runView) step(ref journal.Ref) *stepView {
	path := journal.StepPath(v.plan, ref)
	s := v.steps[path]
	if s == nil {
		s = &stepView{path: path, ref: ref, status: "pending", items: -1, keep: v.kept < maxSteps}
		if s.keep {
			v.kept++
		}
		v.steps[path] = s
		v.order = append(v.order, s)
	}
	return s
}

// settle records how a step ended. Past maxSteps a step of an inner scope is
// let go then, so that a loop over 100,000 items costs its window.
func (v *runView) settle(s *stepView, status string, ev *journal.Event) {
	s.status, s.micros, s.note, s.due = status, ev.Micros(), "", 0
	if s.keep || s.ref.Path == "" {
		return
	}
	delete(v.steps, s.path)
	if v.dropped++; v.dropped%maxSteps == 0 {
		v.order = slices.DeleteFunc(v.order, func(s *stepView) bool { return v.steps[s.path] != s })
	}
}

// apply folds one event.
func (v *runView) apply(ev *journal.Event) error {
	v.Add(ev)
	if ev.Step < 0 {
		return v.applyRun(ev)
	}
	v.began = v.began || ev.Kind == journal.EvNodeStarted || ev.Kind == journal.EvNodeCompleted
	s := v.step(ev.Ref())
	switch ev.Kind {
	case journal.EvNodeReady:
		s.status = "pending"
	case journal.EvNodeQueued:
		s.status = "queued"
	case journal.EvNodeBlocked:
		s.status, s.note = "blocked", strings.Clone(ev.Text)
	case journal.EvNodeStarted:
		s.status, s.attempts, s.note, s.due = "running", ev.Attempt, "", 0
		if s.began == 0 {
			s.began = ev.At
		}
	case journal.EvNodeOpened:
		s.status, s.began = "running", ev.At
		v.applyOpened(s, ev)
	case journal.EvNodeIteration:
		s.begun++
	case journal.EvNodeProgress:
		s.fraction, s.note = ev.Fraction(), strings.Clone(ev.Text)
	case journal.EvNodeWaiting:
		s.status, s.began, s.due, s.note = "waiting", ev.At, ev.Due(), strings.Clone(ev.Text)
	case journal.EvNodeRetried:
		s.status, s.due = "retrying", ev.Due()
		s.failed(ev)
	case journal.EvNodeLost:
		s.status, s.note = "queued", "attempt lost"
	case journal.EvNodeFallback:
		s.note = "fallback"
		s.failed(ev)
	case journal.EvNodeCompleted:
		s.code, s.message, s.cost, s.summary = "", "", ev.Cost(), brief(ev.Data)
		v.settle(s, "completed", ev)
	case journal.EvNodeFailed:
		s.failed(ev)
		s.handled = ev.Handled()
		v.settle(s, failedStatus(ev.Code), ev)
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		status := "skipped"
		if ev.Kind == journal.EvNodeCancelled {
			status = "cancelled"
		}
		if ev.Code != "" {
			s.failed(ev)
			if v.passed == 0 {
				v.firstPassed = s.path
			}
			if status == "skipped" {
				v.passed++
			}
		}
		v.settle(s, status, ev)
		s.note = ev.Reason().String()
	case journal.EvNodeInvalidated:
		*s = stepView{path: s.path, ref: s.ref, status: "invalidated", attempts: s.attempts, keep: s.keep, items: -1}
	case journal.EvNodeCompensated:
		s.undone = "compensated"
		if !ev.Undone() {
			s.undone = fmt.Sprintf("compensation failed: %s: %s", ev.Code, ev.Text)
		}
	}
	return nil
}

func (s *stepView) failed(ev *journal.Event) { s.code, s.message = ev.Code, strings.Clone(ev.Text) }

// failedStatus tells a timeout from other failures: a view, not a status (R4).
func failedStatus(code fault.Code) string {
	if fault.CauseOf(code) == fault.CauseTimeout {
		return "timed_out"
	}
	return "failed"
}

func (v *runView) applyOpened(s *stepView, ev *journal.Event) {
	switch v.plan.Steps[ev.Step].Kind {
	case plan.Condition:
		s.opened = sideText(ev.Side())
	case plan.Parallel:
		s.opened = fmt.Sprintf("%d branches", ev.Branches())
	case plan.Loop:
		s.items = ev.Items()
	}
}

func (v *runView) applyRun(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		var start struct {
			Recipe string         `json:"recipe"`
			Files  []journal.File `json:"files"`
		}
		if err := json.Unmarshal(ev.Data, &start); err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "run %s: its first event cannot be read: %v", v.id, err)
		}
		v.recipe, v.files = start.Recipe, start.Files
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		v.failures = ev.HasFailures()
	case journal.EvRunRetried:
		v.gen = ev.Generation()
	}
	return nil
}
