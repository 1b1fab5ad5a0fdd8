// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/loops"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
)

// readItems carries out CmdNeedItems: it reads the next items of the file that a loop
// runs over.
func (e *Engine) readItems(ef *effect) {
	var items loops.Items
	err := e.contain(ef.id.Key.Run, "reading the items of a loop", func() (err error) {
		w := loops.Window{Key: ef.id.Key, Loop: ef.id.Ref, File: ef.file, From: ef.from, N: ef.n}
		items, err = e.cursors.Read(e.ctx, e.files(ef.id.Key.Account), &w, loops.ReferencesIn(e.cfg.Store))
		return err
	})
	in := &input{kind: inRun, key: ef.id.Key}
	in.m = machine.Input{Kind: machine.InItems, Ref: ef.id.Ref, More: items.More, Items: &machine.Items{From: ef.from, List: items.Items, Total: items.Total}}
	if err != nil {
		if e.ctx.Err() != nil {
			return
		}
		in.m = program.FailedCommand(ef.id.Ref, ef.id.Fence, err)
	}
	_ = e.post(in)
}

// collect carries out CmdCollect: it writes the outputs of a loop's iterations to a
// file, in order, and posts the reference to that list.
func (e *Engine) collect(ef *effect) {
	var list jsonx.Large
	run := ef.id.Key.Run
	err := e.contain(run, "collecting the outputs of a loop", func() (err error) {
		loop := loops.Loop{Plan: ef.prog.Plan(), Key: ef.id.Key, Ref: ef.id.Ref, N: ef.n}
		list, err = loops.Collect(e.ctx, e.cfg.Store, e.files(ef.id.Key.Account), &loop, func(fn func() error) error {
			return e.contain(run, "reading the outputs of a loop", fn)
		})
		return err
	})
	if e.ctx.Err() != nil {
		return
	}
	in := &input{kind: inRun, key: ef.id.Key, m: machine.Input{
		Kind: machine.InResult, Ref: ef.id.Ref, Fence: ef.id.Fence, Outcome: machine.Success}}
	if err == nil {
		in.m.Output = list.Append(nil)
	} else {
		in.m = program.FailedCommand(ef.id.Ref, ef.id.Fence, err)
	}
	_ = e.post(in)
}
