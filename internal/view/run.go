// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// MaxSteps is how many steps a result lists.
const MaxSteps = 1_000

// A Run is a run as it is displayed, during and after execution. The outcomes come
// from journal.History; Run adds what a display needs, such as times, notes and the
// side that was taken.
type Run struct {
	*journal.History
	Plan *plan.Plan
	ID   string

	Recipe     string
	Place      *journal.Child // in its tree of runs; nil for a root run
	Files      []journal.File // the run's input files
	Account    string
	Funds      *Funds // of a run that its account pays for; nil = it costs nothing
	Generation int64
	Failures   bool // a step failed, whatever the status
	Began      bool // an attempt was dispatched, or a step completed
	Paused     bool // no attempt begins until the run is unpaused
	// Passed is how many steps failed and were then skipped because of their onError, so
	// that the run passed over them.
	Passed      int
	FirstPassed string

	// Children counts the child runs, also those of earlier attempts, by status.
	Children map[string]int

	// ByPath are the steps that are kept. Order has the same steps in the order in
	// which they first appeared, and some that were dropped.
	ByPath map[string]*Step
	Order  []*Step

	kept    int
	dropped int // steps of inner scopes that were dropped
}

// A Step is one step instance. Times are UTC µs, 0 = none.
type Step struct {
	Path     string
	Ref      journal.Ref
	Status   string // a status of R4, or timed_out
	Attempts uint32
	Began    int64
	Micros   int64         // duration once settled
	Due      int64         // when it wakes up or is retried
	Cost     ledger.Amount // of its last completion
	Lost     ledger.Amount // what attempts cost that did not complete it: recorded, not charged
	Code     fault.Code
	Message  string
	Handled  bool    // the failure was handled
	Unknown  bool    // the effect of the attempt that has ended last may have happened
	Repeats  bool    // the effect of an attempt before the one in flight may have happened; both have one effect key
	Note     string  // what it waits for, why it is blocked, or its progress text
	Unfunded bool    // it is blocked because the account has too few credits
	Fraction float64 // how much of its work is done, from 0 to 1
	Opened   string  // which side was taken, or how many branches
	Items    int64   // of a loop; -1 = not known
	Begun    int64   // iterations begun
	Summary  string  // its output in a few words
	Cached   string  // "cached", if its output is that of an earlier attempt
	Undone   string  // "compensated", or why the compensation failed
	Others   string  // set on a step that stands for items that are not listed: describes them
	Child    *Child  // the last child run of a step that runs a recipe
	Job      *Job    // the external job that it waits for; nil = none

	keep    bool
	before  *Child        // before a retry has reset it
	charged ledger.Amount // to be counted when it completes
}

// Funds are the credits of a run that its account pays for (X153).
type Funds struct {
	// Reserved is what is held for the present generation; once it has ended, what was
	// held for it.
	Reserved  int64
	Estimated int64 // when the run started
}

// hold counts what an event holds.
func (f *Funds) hold(ev *journal.Event) {
	switch {
	case f == nil: // an imported journal may contradict itself
	case ev.Kind == journal.EvCreditsReserved:
		f.Reserved = ev.Credits()
	default:
		f.Reserved += ev.Credits()
	}
}

// Unfunded returns a step that waits for credits of the account, or nil.
func (v *Run) Unfunded() *Step {
	for _, s := range v.Order {
		if s.Status == "blocked" && s.Unfunded && v.ByPath[s.Path] == s {
			return s
		}
	}
	return nil
}

// NewRun returns a view of a run of p, without events.
func NewRun(p *plan.Plan, id string) *Run {
	return &Run{History: journal.NewHistory(p, MaxSteps), Plan: p, ID: id, Generation: 1, ByPath: map[string]*Step{}}
}

// Done reports whether the run has ended, in its current generation.
func (v *Run) Done() bool { return v.Ended != 0 }

// Open describes in a few words which steps are open.
func (v *Run) Open() string {
	var parts []string
	for _, s := range v.Order {
		if v.ByPath[s.Path] != s {
			continue
		}
		switch s.Status {
		case "waiting":
			signal, job := s.Note, ""
			if s.Job != nil {
				signal, job = "", "for "+s.WaitsFor()
			}
			parts = append(parts, Join(" ", s.Path+" waits", Join(", ", job, waitingText(signal, s.Due))))
		case "retrying":
			parts = append(parts, s.Path+" is tried again at "+Stamp(s.Due))
		case "queued", "running", "blocked":
			if s.Opened == "" && s.Items < 0 {
				parts = append(parts, s.Path+" is open")
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
	return ": " + OneLine(strings.Join(parts, "; "))
}

func (v *Run) step(ref journal.Ref) *Step {
	path := journal.StepPath(v.Plan, ref)
	s := v.ByPath[path]
	if s == nil {
		s = &Step{Path: path, Ref: ref, Status: "pending", Items: -1, keep: v.kept < MaxSteps}
		if s.keep {
			v.kept++
		}
		v.ByPath[path] = s
		v.Order = append(v.Order, s)
	}
	return s
}

// settle records how a step ended. Beyond MaxSteps it drops a step of an inner scope,
// so that a loop over 100,000 items only needs memory for its window.
func (v *Run) settle(s *Step, status string, ev *journal.Event) {
	s.Status, s.Micros, s.Note, s.Due, s.Job = status, ev.Micros(), "", 0, nil
	if s.keep || s.Ref.Path == "" {
		return
	}
	delete(v.ByPath, s.Path)
	if v.dropped++; v.dropped%MaxSteps == 0 {
		v.Order = slices.DeleteFunc(v.Order, func(s *Step) bool { return v.ByPath[s.Path] != s })
	}
}

// Apply adds the run's next event.
func (v *Run) Apply(ev *journal.Event) error {
	v.Add(ev)
	if ev.Step < 0 {
		return v.applyRun(ev)
	}
	v.Began = v.Began || ev.Kind == journal.EvNodeStarted || ev.Kind == journal.EvChildStarted || ev.Kind == journal.EvNodeCompleted
	s := v.step(ev.Ref())
	s.trackOutcome(ev)
	switch ev.Kind {
	case journal.EvNodeReady:
		s.Status = "pending"
	case journal.EvNodeQueued:
		s.Status = "queued"
	case journal.EvNodeBlocked:
		s.Status, s.Note, s.Unfunded = "blocked", strings.Clone(ev.Text), ev.LacksCredits()
	case journal.EvNodeStarted:
		s.Status, s.Attempts, s.Note, s.Due, s.Job = "running", ev.Attempt, "", 0, nil
		if s.Began == 0 {
			s.Began = ev.At
		}
	case journal.EvChildStarted, journal.EvChildEnded:
		v.applyChild(s, ev)
	case journal.EvNodeOpened:
		s.Status, s.Began = "running", ev.At
		v.applyOpened(s, ev)
	case journal.EvNodeIteration:
		s.Begun++
	case journal.EvNodeProgress:
		s.Fraction, s.Note = ev.Fraction(), strings.Clone(ev.Text)
	case journal.EvNodeWaiting:
		s.Status, s.Began, s.Due, s.Note = "waiting", ev.At, ev.Due(), strings.Clone(ev.Text)
	case journal.EvNodeSubmitted:
		s.Status, s.Due, s.Job = "waiting", jobDue(ev), waitedJob(ev)
	case journal.EvNodeRetried:
		s.Status, s.Due = "retrying", ev.Due()
		s.failed(ev)
	case journal.EvNodeLost:
		s.Status, s.Note = "queued", "attempt lost"
	case journal.EvNodeFallback:
		s.Note = "fallback"
		s.failed(ev)
	case journal.EvNodeCompleted:
		s.Code, s.Message, s.Summary = "", "", Brief(ev.Data)
		if s.Cached = ""; ev.Cached() {
			s.Cached = "cached"
		}
		s.Cost = s.childCost(s.charged.Plus(ledger.Whole(ev.Cost())))
		if s.Child != nil {
			s.Summary = s.Child.summary
		}
		s.charged = 0
		v.settle(s, "completed", ev)
	case journal.EvNodeCharged:
		if ev.Charged() {
			s.charged = ev.Amount()
		} else {
			s.Lost = s.Lost.Plus(ev.Amount())
		}
	case journal.EvNodeFailed:
		s.failed(ev)
		s.Handled = ev.Handled()
		v.settle(s, failedStatus(ev.Code), ev)
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		status := "skipped"
		if ev.Kind == journal.EvNodeCancelled {
			status = "cancelled"
		}
		if ev.Code != "" {
			s.failed(ev)
			if v.Passed == 0 {
				v.FirstPassed = s.Path
			}
			if status == "skipped" {
				v.Passed++
			}
		}
		v.settle(s, status, ev)
		s.Note = ev.Reason().String()
	case journal.EvNodeInvalidated:
		*s = Step{Path: s.Path, Ref: s.Ref, Status: "invalidated", Attempts: s.Attempts, keep: s.keep, Items: -1, before: cmp.Or(s.Child, s.before)}
	case journal.EvNodeCompensated:
		s.Undone = undoneText(ev)
	}
	return nil
}

func (s *Step) failed(ev *journal.Event) { s.Code, s.Message = ev.Code, strings.Clone(ev.Text) }

func (v *Run) applyOpened(s *Step, ev *journal.Event) {
	if v.Plan.Steps[ev.Step].Kind == plan.Loop {
		s.Items = ev.Items()
		return
	}
	s.Opened = openedText(v.Plan, ev)
}

func (v *Run) applyRun(ev *journal.Event) error {
	switch ev.Kind {
	case journal.EvRunStarted:
		var start struct {
			Account string           `json:"account"`
			Recipe  string           `json:"recipe"`
			Files   []journal.File   `json:"files"`
			Credits *journal.Credits `json:"credits"`
			Child   *journal.Child   `json:"child"`
		}
		if err := json.Unmarshal(ev.Data, &start); err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "run %s: its first event cannot be read: %v", v.ID, err)
		}
		v.Recipe, v.Files, v.Account = start.Recipe, start.Files, start.Account
		v.Place = start.Child
		if start.Credits != nil {
			v.Funds = &Funds{Estimated: start.Credits.Estimated}
			if start.Child != nil {
				v.Funds.Reserved = start.Child.Share.Credits
			}
		}
	case journal.EvCreditsReserved, journal.EvCreditsExtended:
		v.Funds.hold(ev)
	case journal.EvCreditsEstimated:
		v.Funds.Estimated = ev.Expected()
	case journal.EvRunResumed:
		place, err := ev.Resumed(v.Place)
		if err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "run %s: %v", v.ID, err)
		}
		if v.Place = place; v.Funds != nil {
			v.Funds.Reserved = place.Share.Credits
		}
	case journal.EvRunExtended:
		if v.Funds != nil && ev.Resource() == journal.CreditsShare {
			v.Funds.Reserved += ev.Added()
		}
	case journal.EvRunCompleted, journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		v.Failures, v.Paused = ev.HasFailures(), false
	case journal.EvRunPaused, journal.EvRunUnpaused:
		v.Paused = ev.Kind == journal.EvRunPaused
	case journal.EvRunRetried:
		v.Generation = ev.Generation()
	}
	return nil
}
