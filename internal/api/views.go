// SPDX-License-Identifier: Apache-2.0

package api

import (
	"container/list"
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/resource"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// maxFolds bounds the runs whose folds are kept in memory between requests.
const maxFolds = 4096

// errEnough ends the reading of events early.
var errEnough = errors.New("enough was read")

// views are folds of runs that were asked for lately, so that a request reads only the
// events since the last one.
type views struct {
	mu    *sync.Mutex
	of    map[store.Key]*list.Element
	order *list.List // of *folded, the last used first
}

func newViews() views { return views{new(sync.Mutex), map[store.Key]*list.Element{}, list.New()} }

// A folded is the fold of a run.
type folded struct {
	mu   sync.Mutex
	key  store.Key
	run  *resource.Run // nil until it is first read
	mask *view.Mask
	// head is the one that was stored before the events were last read.
	head store.Head
	// made is the answer to the last request, as long as nothing has changed.
	made  *executionBody
	facts resource.Facts
}

// with calls fn with the fold of a run, up to its last event. Outputs are not kept between
// requests.
func (v *views) with(ctx context.Context, s *Server, head *store.Head, outputs bool, fn func(*folded) error) error {
	if outputs {
		f, err := v.fold(ctx, s, head, true)
		if err == nil {
			err = f.read(ctx, s, 0)
		}
		if err != nil {
			return err
		}
		return fn(f)
	}
	f := v.get(head.Key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil {
		fresh, err := v.fold(ctx, s, head, false)
		if err != nil {
			return err
		}
		f.run, f.mask = fresh.run, fresh.mask
	}
	// A run that has settled has no further events until a user acts, which changes its head.
	if !head.Settled() || f.head != *head {
		if err := f.read(ctx, s, 0); err != nil {
			f.run, f.made, f.head = nil, nil, store.Head{}
			return err
		}
		f.head = *head
	}
	return fn(f)
}

// get returns the kept fold of a run, which may be new.
func (v *views) get(key store.Key) *folded {
	v.mu.Lock()
	defer v.mu.Unlock()
	if e, ok := v.of[key]; ok {
		v.order.MoveToFront(e)
		return e.Value.(*folded)
	}
	f := &folded{key: key}
	v.of[key] = v.order.PushFront(f)
	if v.order.Len() > maxFolds {
		last := v.order.Back()
		delete(v.of, v.order.Remove(last).(*folded).key)
	}
	return f
}

// fold returns a new fold of a run, without events.
func (v *views) fold(ctx context.Context, s *Server, head *store.Head, outputs bool) (*folded, error) {
	p, mask, err := s.cfg.Node.Engine.MaskOf(ctx, head.Account, head.Run)
	if err != nil {
		return nil, err
	}
	return &folded{key: head.Key, run: resource.NewRun(p, head.Run, outputs), mask: mask}, nil
}

// read applies the events up to number until; 0 = all.
func (f *folded) read(ctx context.Context, s *Server, until uint64) error {
	err := store.EachEvent(ctx, s.cfg.Node.Store, f.key, f.run.Last(), func(ev *journal.Event) error {
		if until != 0 && ev.Seq > until {
			return errEnough
		}
		return f.run.Apply(f.mask.Event(ev))
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// execution returns the run as JSON.
func (f *folded) execution(facts resource.Facts, outputs bool) (*executionBody, error) {
	if f.made != nil && f.made.last == f.run.Last() && f.facts == facts && !outputs {
		return f.made, nil
	}
	e := f.run.Execution(facts, outputs)
	data, err := jsonx.Marshal(e)
	if err != nil {
		return nil, err
	}
	f.made, f.facts = &executionBody{JSON: data, last: f.run.Last(), status: e.Status, state: e.State}, facts
	return f.made, nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
