// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// A RunProfile says where the time of one run went (X213). The times of steps that were under way at once are
// added up, so they may be more than the run took.
type RunProfile struct {
	Run      string        `json:"run"`
	Recipe   string        `json:"recipe"`
	Depth    int           `json:"depth"` // in the tree that is profiled: 0 for the run itself
	Status   string        `json:"status"`
	TookMs   float64       `json:"durationMs"`
	OwnMs    float64       `json:"ownMs"`    // of the attempts of its own steps, without those of runs inside it
	WaitMs   float64       `json:"waitMs"`   // of its steps, in the queue, for something outside or before a retry
	Steps    int64         `json:"steps"`    // instances that were begun
	Attempts int64         `json:"attempts"` // runs inside it included, as the attempts that they are
	Credits  ledger.Amount `json:"credits"`  // with those of runs inside it
}

// A StepTime is where the time of one step of a recipe went, in all of its instances, in µs.
type StepTime struct{ Own, Wait int64 }

// A ProfiledChild is a child run, and the step of the parent's plan that has started it.
type ProfiledChild struct {
	Run  string
	Step int32
}

// A Profiler makes the profile of a run from its journal. It holds an entry for each step of the recipe, for each
// step instance that is under way, and for each child run, and nothing for what has ended.
type Profiler struct {
	Plan     *plan.Plan
	Times    []StepTime // by step
	Children []ProfiledChild

	profile    RunProfile
	begun      int64 // UTC µs
	last       int64 // time of the last event
	ended      int64 // 0 = the run goes on
	own, waits int64 // µs
	open       map[journal.Ref]instance
}

// An instance is a step instance that is under way.
type instance struct {
	doing doing
	since int64 // UTC µs
}

// doing is what a step instance does at a time.
type doing uint8

const (
	delegating doing = iota // other steps, or a child run, work for it; or nothing is known
	attempting
	waiting
)

// NewProfiler returns a profiler of a run of p, without events. run has what its head says: its id, its recipe, its
// depth and its status. ended is when it did, in UTC µs; 0 = it goes on.
func NewProfiler(p *plan.Plan, run RunProfile, ended int64) *Profiler {
	return &Profiler{Plan: p, Times: make([]StepTime, len(p.Steps)), open: map[journal.Ref]instance{}, profile: run, ended: ended}
}

// Apply adds the next event.
func (p *Profiler) Apply(ev *journal.Event) error {
	if p.begun == 0 {
		p.begun = ev.At
	}
	p.last = ev.At
	switch {
	case ev.Kind.Ends():
		p.close(ev.At)
	case ev.Step >= 0 && int(ev.Step) < len(p.Plan.Steps):
		p.step(ev)
	}
	return nil
}

func (p *Profiler) step(ev *journal.Event) {
	switch ev.Kind {
	case journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeLost, journal.EvNodeWaiting, journal.EvNodeRetried:
		p.enter(ev, waiting)
	case journal.EvNodeStarted:
		p.profile.Attempts++
		p.enter(ev, attempting)
	case journal.EvNodeSubmitted: // a service carries the attempt out
		p.enter(ev, attempting)
	case journal.EvChildStarted:
		p.profile.Attempts++
		if !ev.GoesOn() { // else it is among them
			p.Children = append(p.Children, ProfiledChild{Run: strings.Clone(ev.Text), Step: ev.Step})
		}
		p.enter(ev, delegating)
	case journal.EvNodeOpened, journal.EvNodeFallback, journal.EvNodeCompensating:
		p.enter(ev, delegating)
	case journal.EvChildEnded:
		p.profile.Credits = p.profile.Credits.Plus(ev.ChildUsed())
	case journal.EvNodeCharged:
		if ev.Charged() {
			p.profile.Credits = p.profile.Credits.Plus(ev.Amount())
		}
	case journal.EvNodeCompleted:
		p.profile.Credits = p.profile.Credits.Plus(ledger.Whole(ev.Cost()))
		p.settle(ev)
	case journal.EvNodeFailed, journal.EvNodeCancelled:
		p.settle(ev)
	case journal.EvNodeSkipped, journal.EvNodeInvalidated:
		p.leave(ev.Ref(), ev.At)
	}
}

// enter begins the next phase of a step instance.
func (p *Profiler) enter(ev *journal.Event, next doing) {
	ref := ev.Ref()
	p.leave(ref, ev.At)
	ref.Path = journal.Path(strings.Clone(string(ref.Path))) // the event is reused
	p.open[ref] = instance{next, ev.At}
}

// settle ends a step instance that did something.
func (p *Profiler) settle(ev *journal.Event) {
	p.leave(ev.Ref(), ev.At)
	p.profile.Steps++
}

// leave ends the phase of a step instance, if one is under way.
func (p *Profiler) leave(ref journal.Ref, at int64) {
	in, ok := p.open[ref]
	if !ok {
		return
	}
	delete(p.open, ref)
	took, times := max(at-in.since, 0), &p.Times[ref.Step] // in an imported journal times may decrease
	switch in.doing {
	case attempting:
		times.Own, p.own = times.Own+took, p.own+took
	case waiting:
		times.Wait, p.waits = times.Wait+took, p.waits+took
	}
}

// close ends everything that is under way.
func (p *Profiler) close(at int64) {
	for ref := range p.open {
		p.leave(ref, at)
		p.profile.Steps++
	}
}

// Profile returns the profile. What is under way lasts until now, or, if no process carries the run on, until the
// last event.
func (p *Profiler) Profile(now int64) RunProfile {
	end := p.ended
	if end == 0 {
		end = max(now, p.last)
	}
	p.close(end)
	out := p.profile
	out.TookMs, out.OwnMs, out.WaitMs = millis(max(end-p.begun, 0)), millis(p.own), millis(p.waits)
	return out
}

// StepFrames are the names of a step and of the steps and sides that it is in, from the outermost inward: where it
// stands in the recipe. The items of a loop share their frames.
func StepFrames(p *plan.Plan, step int32) []string {
	var frames []string
	for owner := step; ; {
		frames = append(frames, p.Steps[owner].ID)
		g := &p.Graphs[p.Steps[owner].Graph]
		if g.Owner < 0 || int(g.Owner) >= len(p.Steps) || len(frames) > 2*len(p.Graphs)+1 { // a plan that was made by hand may own itself
			break
		}
		switch g.Role {
		case plan.Body:
		case plan.Branch:
			frames = append(frames, "["+strconv.Itoa(int(g.Ordinal))+"]")
		default:
			frames = append(frames, g.Role.String())
		}
		owner = g.Owner
	}
	slices.Reverse(frames)
	return frames
}
