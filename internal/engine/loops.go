// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/loops"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// readItems carries out CmdNeedItems: it reads the next items of the file that a loop
// runs over.
func (e *Engine) readItems(ef *effect) {
	var items loops.Items
	err := e.contain(ef.id.key.Run, "reading the items of a loop", func() (err error) {
		w := loops.Window{Key: ef.id.key, Loop: ef.id.ref, File: ef.file, From: ef.from, N: ef.n}
		items, err = e.cursors.Read(e.ctx, e.files(ef.id.key.Account), &w, e.references)
		return err
	})
	in := &input{kind: inRun, key: ef.id.key}
	in.m = machine.Input{Kind: machine.InItems, Ref: ef.id.ref, From: ef.from, Items: items.Items, More: items.More, Total: items.Total}
	if err != nil {
		if e.ctx.Err() != nil {
			return
		}
		in.m = failedResult(ef, err)
	}
	_ = e.post(in)
}

func failedResult(ef *effect, err error) machine.Input {
	return machine.Input{Kind: machine.InResult, Ref: ef.id.ref, Fence: ef.id.fence, Outcome: machine.Failed,
		Err: &machine.Failure{Code: fault.CodeOf(err), Msg: fault.Message(err)}}
}

// references returns the references in the values of a run's journal.
func (e *Engine) references(ctx context.Context, key store.Key) (map[jsonx.Large]bool, error) {
	return loops.References(ctx, e.cfg.Store, key)
}

// collect carries out CmdCollect: it writes the outputs of a loop's iterations to a
// file, in order, and posts the reference to that list.
func (e *Engine) collect(ef *effect) {
	var list jsonx.Large
	run := ef.id.key.Run
	err := e.contain(run, "collecting the outputs of a loop", func() (err error) {
		loop := loops.Loop{Plan: ef.prog.Plan(), Key: ef.id.key, Ref: ef.id.ref, N: ef.n}
		list, err = loops.Collect(e.ctx, e.cfg.Store, e.files(ef.id.key.Account), &loop, func(fn func() error) error {
			return e.contain(run, "reading the outputs of a loop", fn)
		})
		return err
	})
	if e.ctx.Err() != nil {
		return
	}
	in := &input{kind: inRun, key: ef.id.key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.ref, Fence: ef.id.fence, Outcome: machine.Success}}
	if err == nil {
		in.m.Output = list.Append(nil)
	} else {
		in.m = failedResult(ef, err)
	}
	_ = e.post(in)
}
