// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// explainedRuns is how many child runs the explanation of a run looks into.
const explainedRuns = 8

// A childCause is a child run on the way from a run to what it waits for, or to the step
// that made it fail.
type childCause struct {
	Parent  string        `json:"parentRunId"`
	Step    string        `json:"step"` // of the parent
	Run     string        `json:"run"`
	Recipe  string        `json:"recipe"`
	Status  string        `json:"status"`
	Credits ledger.Amount `json:"credits"` // what it costs its parent
}

// belowExplainer adds to the explanation of a run what its child runs say.
type belowExplainer struct {
	app  *app
	r    store.Reader
	e    *runExplanation
	left int
}

func (x *belowExplainer) because(format string, args ...any) {
	x.e.Why = append(x.e.Why, fmt.Sprintf(format, args...))
}

// explainBelow explains a run by its child runs: which inner step failed, or what they
// wait for.
func (a *app) explainBelow(ctx context.Context, r store.Reader, e *runExplanation, head store.Head, v *view.Run) error {
	x := &belowExplainer{app: a, r: r, e: e, left: explainedRuns}
	if v.Error != nil {
		return x.failure(ctx, head, v)
	}
	if v.Done() {
		return nil
	}
	return x.open(ctx, head, v)
}

// child reads the child run of a step; ok is false when its journal is not here.
func (x *belowExplainer) child(ctx context.Context, head store.Head, s *view.Step) (inner store.Head, v *view.Run, waits *unfunded, ok bool, err error) {
	inner, err = x.r.Head(ctx, store.Key{Account: head.Account, Run: s.Child.Run})
	if fault.CodeOf(err) == fault.RunNotFound {
		return inner, nil, nil, false, nil
	}
	if err != nil {
		return inner, nil, nil, false, err
	}
	if r, ok := x.r.(remote.Reader); ok {
		v, waits, err = x.app.waits(ctx, r, inner)
	} else {
		v, _, err = stateOf(ctx, x.r, inner)
	}
	return inner, v, waits, err == nil, err
}

// chain records a child run of the explanation.
func (x *belowExplainer) chain(head store.Head, s *view.Step) {
	x.e.Chain = append(x.e.Chain, childCause{head.Run, s.Path, s.Child.Run, s.Child.Recipe, s.Child.Status, s.Child.Used})
}

// failure follows the failed steps from run to run.
func (x *belowExplainer) failure(ctx context.Context, head store.Head, v *view.Run) error {
	for depth := 0; v != nil; depth++ {
		s := v.FailedStep()
		switch {
		case s == nil:
			return nil
		case s.Child == nil:
			if depth > 0 {
				x.because("in run %s, step %s failed: %s: %s", head.Run, s.Path, s.Code, s.Message)
				if s.Cost > 0 || s.Lost > 0 {
					x.because("its attempts cost %s", view.Join(", and ", view.Credits(s.Cost), notCharged(s.Lost)))
				}
			}
			return nil
		}
		x.because("step %s ran recipe %s as run %s, which is %s and cost %s", s.Path, s.Child.Recipe, s.Child.Run, s.Child.Status, creditsText(s.Child.Used))
		x.chain(head, s)
		inner, below, _, ok, err := x.child(ctx, head, s)
		if err != nil || !ok {
			return err
		}
		head, v = inner, below
	}
	return nil
}

func notCharged(n ledger.Amount) string {
	if n == 0 {
		return ""
	}
	return view.Credits(n) + " that are not charged"
}

func creditsText(n ledger.Amount) string {
	if n == 0 {
		return "nothing"
	}
	return view.Credits(n)
}

// open says what the child runs of a run wait for, and how each goes on.
func (x *belowExplainer) open(ctx context.Context, head store.Head, v *view.Run) error {
	steps := v.OpenChildren()
	for i, s := range steps {
		if x.left == 0 {
			x.because("run %s waits for %s more", head.Run, view.Count(len(steps)-i, "child run"))
			return nil
		}
		x.left--
		x.because("step %s waits for run %s of recipe %s", s.Path, s.Child.Run, s.Child.Recipe)
		x.chain(head, s)
		inner, below, waits, ok, err := x.child(ctx, head, s)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		x.waits(below, waits)
		if err := x.open(ctx, inner, below); err != nil {
			return err
		}
	}
	return nil
}

// waits says what a child run itself waits for.
func (x *belowExplainer) waits(v *view.Run, waits *unfunded) {
	next := func(command string) { x.e.Next = append(x.e.Next, command) }
	if v.Paused {
		x.because("run %s is paused: no attempt begins", v.ID)
		next(x.app.hint("runs unpause", v.ID))
	}
	if waits != nil {
		x.because("in run %s, %s", v.ID, waits.text())
		next(waits.Next)
		if waits.Then != "" && !slices.Contains(x.e.Next, waits.Then) {
			x.because("no process carries it on")
			next(waits.Then)
		}
	}
	for _, s := range v.Order {
		if v.ByPath[s.Path] == s && s.WaitsFor() != "" {
			x.because("in run %s, %s waits for %s%s", v.ID, s.Path, s.WaitsFor(), upTo(s))
			next(waitCommand(x.app.hint, v, s))
		}
	}
}

// signalBelow adds to a refused signal which child runs of the run wait for one.
func (a *app) signalBelow(ctx context.Context, r store.Reader, head store.Head, refused error) error {
	v, _, err := stateOf(ctx, r, head)
	if err != nil || len(v.OpenChildren()) == 0 {
		return refused
	}
	e := &runExplanation{}
	if err := a.explainBelow(ctx, r, e, head, v); err != nil || len(e.Next) == 0 {
		return refused
	}
	return fault.New(fault.CodeOf(refused), "%s; a child run waits: `%s`", fault.Message(refused), e.Next[0])
}
