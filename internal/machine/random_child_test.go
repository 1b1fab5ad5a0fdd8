// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
)

// drawPlace makes the run a child run now and then, with little to begin with.
func (c *chaos) drawPlace(st *journal.Start) {
	if rapid.IntRange(0, 2).Draw(c.t, "child") > 0 {
		return
	}
	place := &journal.Child{Root: "run_0", Parent: "run_0", Step: 3, Gen: 1, Attempt: 2,
		Depth: rapid.Int64Range(1, 3).Draw(c.t, "depth"), MaxDepth: 3,
		Share: journal.Share{Steps: rapid.Int64Range(0, 12).Draw(c.t, "share of steps"), Memory: rapid.Int64Range(0, 4_000).Draw(c.t, "share of memory")},
		Most:  journal.Share{Steps: rapid.SampledFrom([]int64{0, 12, 30}).Draw(c.t, "most steps"), Memory: rapid.SampledFrom([]int64{0, 8_000}).Draw(c.t, "most memory")}}
	if st.Credits != nil {
		place.Share.Credits = rapid.Int64Range(0, st.Credits.Most).Draw(c.t, "share of credits")
		st.Credits.Reserved = place.Share.Credits
	}
	st.Child = place
}

// surround draws what the account and the runs above can give.
func (c *chaos) surround(in *Input) {
	in.Available = rapid.SampledFrom([]int64{1 << 40, 1 << 40, 5, 0}).Draw(c.t, "available")
	in.Room = journal.Share{}
	start := in.Start
	if start == nil {
		start = c.run.Start()
	}
	if start == nil || start.Child == nil {
		return
	}
	in.Room.Steps = rapid.SampledFrom([]int64{1 << 40, 1 << 40, 3, 0}).Draw(c.t, "room of steps")
	in.Room.Memory = rapid.SampledFrom([]int64{1 << 40, 1 << 40, 500, 0}).Draw(c.t, "room of memory")
	in.Room.Credits = in.Available
	if rapid.IntRange(0, 3).Draw(c.t, "room of credits") > 0 {
		in.Room.Credits = 1 << 40
	}
}

// grantOf answers a step that asks for its child run, as the engine does.
func (c *chaos) grantOf(ref journal.Ref) *ChildGrant {
	g := &ChildGrant{Share: journal.Share{Steps: rapid.Int64Range(0, 6).Draw(c.t, "steps"),
		Memory: rapid.Int64Range(0, 2_000).Draw(c.t, "memory")}}
	if c.run.metered() {
		g.Share.Credits = rapid.Int64Range(0, 4).Draw(c.t, "credits")
	}
	if c.run.Asks(ref) {
		var task *ChildTask
		if task, g.Failure = c.run.ChildTask(ref); task != nil && task.Last != "" {
			g.Resume = rapid.Bool().Draw(c.t, "goes on")
		}
	}
	return g
}

// resume lets a child run go on as another attempt of its step, now and then as an older one.
func (c *chaos) resume() {
	c.tries--
	place := c.run.start.Child
	in := &Input{Kind: InResume, Fence: journal.Fence{Gen: place.Gen, Attempt: place.Attempt + 1}, Child: &ChildGrant{Share: journal.Share{
		Steps: rapid.Int64Range(0, 12).Draw(c.t, "share of steps"), Memory: rapid.Int64Range(0, 4_000).Draw(c.t, "share of memory")}}}
	has, ok := c.run.Resumable()
	if c.run.metered() {
		in.Child.Share.Credits = rapid.Int64Range(0, has.Credits).Draw(c.t, "share of credits")
	}
	if err := c.feed(in).Err; ok != (err == nil) {
		c.fail(fmt.Sprintf("X104: a run that can go on is %v: %v", ok, err))
	}
}

// serveChild carries out CmdChild and CmdCancelChild: the child run ends, goes on, or is
// given more first.
func (c *chaos) serveChild(cmd Command, well bool) {
	if !well {
		switch rapid.IntRange(0, 5).Draw(c.t, "child goes on") {
		case 0, 1:
			c.todo = append(c.todo, cmd)
			return
		case 2:
			c.extendChild(cmd)
			c.todo = append(c.todo, cmd)
			return
		}
	}
	end := &ChildEnd{Status: journal.RunCompleted, Recipe: "below",
		Outputs: []byte(rapid.SampledFrom([]string{`{"made":1,"more":[1]}`, `{"made":1}`, ``}).Draw(c.t, "result"))}
	kind := rapid.IntRange(0, 5).Draw(c.t, "child ends")
	switch {
	case cmd.Kind == CmdCancelChild && kind < 4 || !well && kind == 0:
		end = &ChildEnd{Status: journal.RunCancelled, Code: fault.ExecutionCancelled, Msg: "asked to", Recipe: "below"}
	case !well && kind == 1:
		end = &ChildEnd{Status: journal.RunFailed, Code: fault.ServiceUnavailable, Msg: "down", Recipe: "below", Step: "k1"}
	case !well && kind == 2:
		end = &ChildEnd{Status: journal.RunExpired, Code: fault.ExecutionExpired, Msg: "late", Recipe: "below"}
	}
	if _, share, fence, ok := c.run.ChildOf(cmd.Ref); ok && fence == cmd.Fence {
		end.Steps = rapid.Int64Range(0, share.Steps+1).Draw(c.t, "steps begun")
		if c.run.metered() {
			end.Used = ledger.Amount(rapid.Int64Range(0, int64(ledger.Whole(share.Credits))).Draw(c.t, "used"))
		}
	}
	in := &Input{Kind: InChildEnded, Ref: cmd.Ref, Fence: cmd.Fence, End: end}
	c.done = append(c.done, in)
	c.feed(in)
}

// extendChild gives a child run more, as far as this run has it or can get it.
func (c *chaos) extendChild(cmd Command) {
	in := &Input{Kind: InChildExtended, Ref: cmd.Ref, Fence: cmd.Fence,
		Resource: journal.Resource(rapid.IntRange(1, 3).Draw(c.t, "resource"))}
	c.surround(in)
	free, room := c.run.Free(), c.run.Room()
	room.Credits = min(room.Credits, in.Available)
	if c.run.start.Child != nil {
		room.Steps, room.Memory, room.Credits = min(room.Steps, in.Room.Steps), min(room.Memory, in.Room.Memory), min(room.Credits, in.Room.Credits)
	}
	most := *in.Resource.Of(&free) + max(0, *in.Resource.Of(&room))
	if in.Resource == journal.CreditsShare && !c.run.metered() || most <= 0 {
		return
	}
	in.N = rapid.Int64Range(1, min(most, 5_000)).Draw(c.t, "added")
	c.give(in)
}

// checkTree asserts that the run, its child runs included, keeps to what it may use, and
// that every open child run is known to whoever reads the journal.
func (c *chaos) checkTree() {
	r, open, owed := c.run, 0, 0
	if r.Start() == nil {
		return
	}
	r.Children(func(journal.Ref, journal.Fence, string) { open++ })
	for _, cmd := range r.Owed(nil) {
		if cmd.Kind == CmdChild || cmd.Kind == CmdCancelChild {
			owed++
		}
	}
	if open != owed || open != c.led.seen.OpenChildren() {
		c.fail(fmt.Sprintf("I6: %d child runs go on, %d are owed, and the journal has %d", open, owed, c.led.seen.OpenChildren()))
	}
	if held, settled := r.Held(); r.metered() && !r.status.Terminal() && r.unpaid().Plus(r.openCeilings()).Ceil() > held+settled {
		c.fail(fmt.Sprintf("I11: %s used, %s may be used, %d held and %d settled", r.used, r.openCeilings(), held, settled))
	}
	if r.start.Child != nil && r.belowSteps+r.given.Steps > r.share.Steps {
		c.fail(fmt.Sprintf("X60: child runs have %d steps, and the run has %d", r.belowSteps+r.given.Steps, r.share.Steps))
	}
}
