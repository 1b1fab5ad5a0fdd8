// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A runExplanation is why a run has its status, and what to do next.
type runExplanation struct {
	Run      string        `json:"run"`
	Status   string        `json:"status"`
	Imported bool          `json:"imported,omitempty"`
	Why      []string      `json:"why"`
	Credits  resultCredits `json:"credits"`
	Waits    *unfunded     `json:"waitsForCredits,omitempty"`
	// Waiting is where the first step stands that is ready and held back, if that is known.
	Waiting *view.Waiting `json:"waiting,omitempty"`
	Next    []string      `json:"next"` // commands, in order
	// Parent and Root are those of a child run. Chain leads from the run to the child runs
	// that it waits for, or through those that failed.
	Parent string       `json:"parentRunId,omitempty"`
	Root   string       `json:"rootRunId,omitempty"`
	Chain  []childCause `json:"chain,omitempty"`
}

func (a *app) explainRun(v *view.Run, head store.Head, waits *unfunded) *runExplanation {
	e := &runExplanation{Parent: head.Parent, Root: head.Root, Run: v.ID, Status: v.Status.String(), Imported: head.Imported(), Why: []string{}, Credits: creditsOf(v), Waits: waits, Next: []string{}}
	because := func(format string, args ...any) { e.Why = append(e.Why, fmt.Sprintf(format, args...)) }
	next := func(command string) { e.Next = append(e.Next, command) }
	switch {
	case head.Quarantine != "" && !e.Imported:
		because("it is quarantined: %s", head.Quarantine)
		next(a.hint("runs release", v.ID))
	case v.Status == journal.RunQueued:
		because("it is queued: account %s has as many live runs as it may have, and it begins when it is its turn", head.Account)
		next(a.hint("runs list", ""))
	case v.Paused:
		because("it is paused: no attempt begins")
		next(a.hint("runs unpause", v.ID))
	case waits != nil:
		because("%s", waits.text())
		next(waits.Next)
		if waits.Then != "" {
			because("no process carries it on")
			next(waits.Then)
		}
	case v.Error != nil && head.Parent != "":
		because("%s: %s", v.Error.Code, v.Error.Message)
		next(a.hint("explain", head.Root)) // a child run is not retried by itself
	case v.Error != nil:
		because("%s: %s", v.Error.Code, v.Error.Message)
		if row, ok := fault.Lookup(fault.Code(v.Error.Code)); ok {
			because("%s", row.Remedy)
		}
		next(a.hint("runs retry", v.ID))
	case v.Done():
		because("every step that it needed has settled")
	default:
		for _, s := range v.Order {
			if v.ByPath[s.Path] == s && s.WaitsFor() != "" {
				because("%s waits for %s%s", s.Path, s.WaitsFor(), upTo(s))
				next(waitCommand(a.hint, v, s))
			}
		}
		held := heldBack(v)
		for _, s := range held[:min(len(held), maxHeld)] {
			because("%s is ready but held back: %s", s.Path, s.Note)
		}
		if n := len(held) - maxHeld; n > 0 {
			because("%s more are held back", view.Count(n, "step"))
		}
		if len(held) > 0 {
			next(a.hint("explain "+v.ID+" "+held[0].Path, ""))
		}
		if len(e.Why) == 0 && len(v.OpenChildren()) == 0 {
			because("it has not ended%s", v.Open())
		}
	}
	if e.Imported { // nothing else is possible before
		e.Next = []string{a.hint("runs adopt", v.ID)}
	}
	return e
}

// maxHeld is how many steps are named that are held back.
const maxHeld = 3

// heldBack returns the steps of a run that are ready and may not begin yet.
func heldBack(v *view.Run) (list []*view.Step) {
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && s.Status == "blocked" {
			list = append(list, s)
		}
	}
	return list
}

// addHolders adds where the first step that is held back stands at this moment.
func (a *app) addHolders(ctx context.Context, r remote.Reader, e *runExplanation, v *view.Run) {
	held := heldBack(v)
	if len(held) == 0 || v.Done() || v.Paused || e.Imported || e.Waits != nil {
		return
	}
	if e.Waiting = a.waitingAt(ctx, r, e.Run, held[0].Path); e.Waiting == nil {
		return
	}
	for _, line := range e.Waiting.Lines() {
		e.Why = append(e.Why, held[0].Path+": "+line)
	}
}

func (a *app) printRunExplanation(e *runExplanation) {
	a.text("%s is %s\n", e.Run, e.Status)
	if e.Imported {
		a.text("  it was imported: what it says happened elsewhere, if at all\n")
	}
	for _, w := range e.Why {
		a.text("  because %s\n", view.OneLine(w))
	}
	switch e.Parent {
	case "":
	case e.Root:
		a.text("  it is a child run of %s\n", e.Parent)
	default:
		a.text("  it is a child run of %s, and part of %s\n", e.Parent, e.Root)
	}
	a.text("credits: %s\n", fundsText(e.Credits.Used, e.Credits.Reserved, e.Credits.Estimated))
	for _, n := range e.Next {
		a.text("next: %s\n", view.OneLine(n))
	}
}
