// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A recording is what the journal of a run, and those of the runs below it, say of the run.
type recording struct {
	view.Given
	head   store.Head
	side   *view.Side
	masked *view.Side // the same as it may be shown
	mask   *view.Mask
	calls  map[string][]*view.Call // by path; that of a call of a child run begins with the path of its step
	// byInput are the same by the action and the hash of the input.
	byInput map[string][]*view.Call
	waits   map[string]bool // the signals that steps have waited for
	lost    map[string]bool // paths with attempts that were lost
}

// record reads a run.
func record(ctx context.Context, r store.Reader, head store.Head) (*recording, error) {
	rec := &recording{head: head, calls: map[string][]*view.Call{}, byInput: map[string][]*view.Call{}, waits: map[string]bool{}}
	p, err := store.LoadPlan(ctx, r, head)
	if err != nil {
		return nil, err
	}
	if rec.mask, err = masks.Of(ctx, r, head, p); err != nil {
		return nil, err
	}
	rec.side = view.NewSide(p, head.Run, false)
	if rec.masked = rec.side; rec.mask != nil {
		rec.masked = view.NewSide(p, head.Run, false)
	}
	calls := view.NewCalls(p)
	err = store.EachEvent(ctx, r, head.Key, 0, func(ev *journal.Event) error {
		err := errors.Join(rec.Given.Apply(ev), calls.Apply(ev), rec.side.Apply(ev))
		if err != nil || rec.mask == nil {
			return err
		}
		return rec.masked.Apply(rec.mask.Event(ev))
	})
	if err != nil {
		return nil, err
	}
	if rec.Start == nil {
		return nil, fault.New(fault.StoreCorrupt, "run %s has no start", head.Run)
	}
	rec.lost = calls.Lost
	return rec, rec.add(ctx, r, calls, "")
}

// add adds the calls of a run whose steps are below a path, and those of its child runs.
func (rec *recording) add(ctx context.Context, r store.Reader, calls *view.Calls, above string) error {
	maps.Copy(rec.waits, calls.Waits)
	for _, path := range slices.Sorted(maps.Keys(calls.ByPath)) {
		list := calls.ByPath[path]
		rec.calls[above+path] = list
		for _, c := range list {
			c.Path = above + c.Path
			if c.InputHash != "" {
				key := c.Action + "\x00" + c.InputHash
				rec.byInput[key] = append(rec.byInput[key], c)
			}
		}
	}
	for _, run := range slices.Sorted(maps.Keys(calls.Children)) {
		head, err := r.Head(ctx, store.Key{Account: rec.head.Account, Run: run})
		if errors.Is(err, fault.RunNotFound) {
			continue // it is no longer kept: its calls are not known
		}
		if err != nil {
			return err
		}
		p, err := store.LoadPlan(ctx, r, head)
		if err != nil {
			return err
		}
		child := view.NewCalls(p)
		if err := store.EachEvent(ctx, r, head.Key, 0, child.Apply); err != nil {
			return err
		}
		if err := rec.add(ctx, r, child, above+calls.Children[run]+"/"); err != nil {
			return err
		}
	}
	return nil
}

// find returns the recorded call for a call, and whether its input is the same. nil = no such
// call was recorded.
func (rec *recording) find(c *call) (found *view.Call, same bool) {
	nth := func(list []*view.Call) *view.Call { return list[min(max(c.attempt, 1), len(list))-1] }
	var here, fits []*view.Call
	for _, a := range rec.calls[c.path] {
		if a.Action == c.action.Name {
			here = append(here, a)
			if a.InputHash == string(c.hash) {
				fits = append(fits, a)
			}
		}
	}
	if len(fits) > 0 {
		return nth(fits), true
	}
	// The step may have another name now, or another place.
	if moved := rec.byInput[c.action.Name+"\x00"+string(c.hash)]; len(moved) > 0 {
		for _, a := range moved {
			if a.Path == moved[0].Path {
				fits = append(fits, a)
			}
		}
		return nth(fits), true
	}
	if len(here) > 0 {
		return nth(here), false
	}
	return nil, false
}

// shown returns a value as the run may show it.
func (rec *recording) shown(raw []byte) any {
	raw = rec.mask.Value(raw)
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1, Large: true})
	if err != nil {
		return view.Masked
	}
	return v
}
