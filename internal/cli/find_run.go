// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// findRun finds a run by its id, a unique prefix of it, @last or @last-failed.
func (a *app) findRun(ctx context.Context, j store.Reader, name string) (store.Head, error) {
	q := store.Query{Account: a.account, Limit: candidates + 1}
	switch {
	case name == "@last":
		q.Limit = 1
	case name == "@last-failed":
		q.Limit, q.Status = 1, journal.RunFailed.String()
	case strings.HasPrefix(name, "@"):
		return store.Head{}, fault.New(fault.Usage, "%s: there are @last and @last-failed", view.OneLine(name))
	default:
		// Every id begins with run_, and the rest is in capitals.
		q.Prefix = "run_" + strings.ToUpper(strings.TrimPrefix(name, "run_"))
	}
	heads, err := j.List(ctx, q)
	if err == nil && len(heads) == 0 && q.Prefix != "" {
		// The id of a child run begins like that of a root of the same time, so that a prefix
		// names a root first.
		q.All = true
		heads, err = j.List(ctx, q)
		heads = slices.DeleteFunc(heads, func(h store.Head) bool { return wasDeleted(ctx, j, h) })
	}
	if err != nil {
		return store.Head{}, err
	}
	for _, h := range heads {
		if h.Run == q.Prefix {
			return shownHead(ctx, j, h)
		}
	}
	switch {
	case len(heads) == 0 && name == "@last":
		return store.Head{}, fault.New(fault.RunNotFound, "%sthere is no run yet: `%s` starts the first", a.inAccount(), a.hint("run FILE", ""))
	case len(heads) == 0 && name == "@last-failed":
		return store.Head{}, fault.New(fault.RunNotFound, "%sno run has failed: `%s` shows all of them", a.inAccount(), a.hint("runs list", ""))
	case len(heads) == 0:
		return store.Head{}, fault.New(fault.RunNotFound, "%sthere is no run %s: `%s` shows those of %s", a.inAccount(), view.OneLine(name), a.hint("runs list", ""), a.searched())
	case len(heads) > 1:
		return store.Head{}, ambiguous(name, heads)
	}
	return shownHead(ctx, j, heads[0])
}

// wasDeleted reports whether a user has deleted a run, or the one that it is part of.
func wasDeleted(ctx context.Context, j store.Reader, h store.Head) bool {
	if h.Root == "" {
		return h.Deleted != 0
	}
	root, err := j.Head(ctx, store.Key{Account: h.Account, Run: h.Root})
	return root.Deleted != 0 || fault.CodeOf(err) == fault.RunNotFound
}

// searched says where a run was looked for.
func (a *app) searched() string {
	if a.target == nil {
		return "this data directory"
	}
	return "the server"
}

// shownHead returns a head as commands show it.
func shownHead(ctx context.Context, j store.Reader, h store.Head) (store.Head, error) {
	if _, ok := j.(*remote.Server); !ok { // which hides it itself
		masks.NewHeads(j).HideCause(ctx, &h)
	}
	return h, believable(h)
}

// believable returns an error for a damaged head.
func believable(h store.Head) error {
	if h.Damage == "" {
		return nil
	}
	return fault.New(fault.StoreCorrupt, "%s", h.Damage)
}

// candidates is how many runs are listed for an ambiguous prefix.
const candidates = 5

// ambiguous returns an error that lists the runs with a prefix, newest first.
func ambiguous(name string, heads []store.Head) error {
	var list []string
	for _, h := range heads[:min(len(heads), candidates)] {
		list = append(list, fmt.Sprintf("%s (%s)", h.Run, view.Join(", ", view.OneLine(view.Cut(h.Recipe, 32)), viewOfHead(h).Status)))
	}
	if len(heads) > candidates {
		list = append(list, "and more")
	}
	return fault.New(fault.Usage, "%s is the beginning of several run ids, give more letters: %s", view.OneLine(name), strings.Join(list, ", "))
}

// maskOf is masks.Of. What a server sends is masked there.
func maskOf(ctx context.Context, j store.Reader, head store.Head, p *plan.Plan) (*view.Mask, error) {
	if _, ok := j.(*remote.Server); ok {
		return nil, nil
	}
	return masks.Of(ctx, j, head, p)
}

// eachShown is store.EachEvent without the values that the recipe marks as
// writeOnly. It reads from the first event on to know these values.
func eachShown(ctx context.Context, j store.Reader, key store.Key, p *plan.Plan, after uint64, fn func(*journal.Event) error) error {
	head, err := j.Head(ctx, key)
	if err != nil {
		return err
	}
	mask, err := maskOf(ctx, j, head, p)
	if err != nil {
		return err
	}
	from := after
	if mask != nil {
		from = 0
	}
	return store.EachEvent(ctx, j, key, from, func(ev *journal.Event) error {
		if ev = mask.Event(ev); ev.Seq <= after {
			return nil
		}
		return fn(ev)
	})
}

func (a *app) readSide(ctx context.Context, j store.Reader, name string) (*view.Side, error) {
	head, err := a.findRun(ctx, j, name)
	if err != nil {
		return nil, err
	}
	p, err := store.LoadPlan(ctx, j, head)
	if err != nil {
		return nil, err
	}
	s := view.NewSide(p, head.Run, head.Imported())
	return s, eachShown(ctx, j, head.Key, p, 0, s.Apply)
}
