// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// An unfunded is what a run lacks that waits for credits of its account.
type unfunded struct {
	Account   string `json:"account"`
	Step      string `json:"step"`
	Missing   int64  `json:"missing"` // what the step needs beyond what the run holds
	Available int64  `json:"available"`
	Limit     string `json:"limitSource"`     // account, day or key:NAME
	Until     string `json:"until,omitempty"` // when the budget begins anew that is used up
	Next      string `json:"next"`            // lets the run go on, as by a grant of what the step lacks
	Then      string `json:"then,omitempty"`  // goes on with the run, which no process carries on
}

func (w *unfunded) text() string {
	if w.Limit != "account" {
		text := fmt.Sprintf("%s waits for %s, and the budget has %d left (limitSource %s)", view.OneLine(w.Step), ledger.Credits(w.Missing), max(0, w.Available), w.Limit)
		if w.Until != "" {
			text += "; it begins anew at " + w.Until
		}
		return text
	}
	return fmt.Sprintf("%s waits for %s, and account %s has %d available", view.OneLine(w.Step), ledger.Credits(w.Missing), w.Account, w.Available)
}

// unfunded returns what a run waits for if a step of it lacks credits, else nil.
func (a *app) unfunded(ctx context.Context, r remote.Reader, head store.Head, v *view.Run, s *view.State) (*unfunded, error) {
	step, missing := s.CreditsMissing(v)
	if step == nil || v.Done() || v.Paused {
		return nil, nil
	}
	left, by, err := a.offer(ctx, r, head.Account, s.Key())
	if err != nil {
		return nil, err
	}
	w := &unfunded{Account: head.Account, Step: step.Path, Missing: missing, Available: left, Limit: by.Source()}
	if until := by.Helps(missing); until != 0 {
		w.Until = time.UnixMicro(until).UTC().Format(time.RFC3339)
	}
	held := carriesOn(r)
	root := cmp.Or(head.Root, head.Run) // it goes on with the runs below it
	switch {
	case w.Available < missing && w.Limit != "account":
		w.Next = "raise the limit in `accounts` of the configuration, and start the process again"
		if w.Until != "" {
			w.Next = "wait, or " + w.Next
		}
	case w.Available < missing:
		w.Next = a.hint(fmt.Sprintf("credits grant %d", missing-w.Available), "")
		if !held {
			w.Then = a.hint("resume", root)
		}
	case held:
		return nil, nil // it is about to go on
	default:
		w.Next = a.hint("resume", root)
	}
	return w, nil
}

// offer returns how many credits the runs of an account can use, and what limits them. The
// budgets of a server are not known here.
func (a *app) offer(ctx context.Context, r remote.Reader, name, key string) (int64, ledger.Bound, error) {
	if s, ok := r.(*remote.Server); ok {
		left, err := s.Available(ctx)
		return left, ledger.Bound{}, err
	}
	account, err := r.Account(ctx, name, math.MaxInt64)
	if err != nil {
		return 0, ledger.Bound{}, err
	}
	left, by := ruleOf(a.rules(), name).Budgets.Offer(account, key, max(a.now().UnixMicro(), account.At()))
	return left, by, nil
}

// carriesOn reports whether the process behind a reader carries on runs.
func carriesOn(r store.Reader) bool {
	switch r.(type) {
	case *remote.Holder, *remote.Server:
		return true
	}
	return false
}

// waits returns the state of a run, and what it waits for if a step of it lacks credits.
func (a *app) waits(ctx context.Context, r remote.Reader, head store.Head) (*view.Run, *unfunded, error) {
	v, state, err := stateOf(ctx, r, head)
	if err != nil {
		return nil, nil, err
	}
	w, err := a.unfunded(ctx, r, head, v, state)
	return v, w, err
}

// waitsFor says what a run that has not ended waits for, and which command tells more: for
// credits, or for a child run; "" = for neither.
func (a *app) waitsFor(v *view.Run) string {
	if s := v.Unfunded(); s != nil {
		return fmt.Sprintf("%s %s; `%s` says which grant lets it go on", view.OneLine(s.Path), view.OneLine(s.Note), a.hint("explain", v.ID))
	}
	return a.waitsForChild(v)
}

func (a *app) waitsForChild(v *view.Run) string {
	steps := v.OpenChildren()
	if len(steps) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s waits for run %s", view.OneLine(steps[0].Path), steps[0].Child.Run)
	if n := len(steps) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more steps wait", n)
	}
	return fmt.Sprintf("%s; `%s` says for what that waits", text, a.hint("explain", v.ID))
}
