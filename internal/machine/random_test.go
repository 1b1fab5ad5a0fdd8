// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/sample"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// rapidDice lets rapid decide what a recipe looks like, so that rapid can shrink it.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) IntN(n int) int { return rapid.IntRange(0, n-1).Draw(d.t, "dice") }

func drawPlan(t *rapid.T) *plan.Plan {
	src, err := json.Marshal(sample.Recipe(rapidDice{t}, sample.Shape{
		Written: true,
		Steps:   rapid.IntRange(1, 14).Draw(t, "steps"), Depth: 3, Actions: []string{"work", "work", "work", "once"},
		Undo: "undo", Sleep: "sleep", Lens: "ask", Signals: []string{"go"}, Rebind: 40, Recipes: rapid.SampledFrom([]int{0, 20, 60}).Draw(t, "recipes"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	opt := testOptions()
	opt.Limits = compile.Limits{Default: plan.Limits{TotalSteps: 1_000}}
	p, _, _, diags := compile.Source("recipe.json", src, opt)
	if p == nil {
		t.Fatalf("a drawn recipe does not compile: %v\n%s", diags, src)
	}
	t.Logf("recipe: %s", src)
	return p
}

// A chaos drives one run through faults: results that are late, duplicated, lost or
// reordered; crashes; clock jumps; cancels and retries by impatient users.
type chaos struct {
	t      *rapid.T
	prog   *Program
	run    *Run
	led    *runChecker
	now    int64
	todo   []Command // issued and not yet carried out
	done   []*Input  // results delivered, which may be delivered again
	out    []*Input  // results of external jobs that were submitted
	nth    int       // jobs submitted so far
	tries  int       // user retries left
	limit  int       // limit of events per turn, so that inputs come between the parts of a turn
	lossy  bool      // most attempts are lost, or handed back
	trace  []string
	inputs []*Input // all inputs in order; nil is a crash
}

func newChaos(t *rapid.T, p *plan.Plan) *chaos {
	c := &chaos{t: t, prog: Prepare(p), now: t0, tries: 2, limit: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "limit"),
		lossy: rapid.IntRange(0, 3).Draw(t, "lossy") == 0}
	c.run = NewRun(c.prog)
	c.led = newLedger(c.run)
	file := "sha256_" + fmt.Sprintf("%064d", 1)
	var terms *journal.Credits
	if rapid.Bool().Draw(t, "metered") {
		terms = &journal.Credits{Estimated: rapid.Int64Range(0, 20).Draw(t, "estimated"), Most: rapid.Int64Range(1, 60).Draw(t, "most"),
			Policy: rapid.SampledFrom([]ledger.Policy{ledger.RefundUnused, ledger.RefundAll, ledger.NoRefund}).Draw(t, "policy")}
		terms.Reserved = ledger.Reservation(terms.Estimated, terms.Most)
	}
	start := &journal.Start{Run: "run_1", Account: "a", Recipe: "drawn", Seed: 3, Pins: pinsOf(p), Credits: terms,
		Parameters: map[string]any{"zero": int64(0), "list": []any{int64(1), "two"}, "file": file, "when": "2026-01-01T00:02:00Z"}}
	c.drawPlace(start)
	c.feed(&Input{Kind: InStart, Start: start})
	return c
}

func (c *chaos) feed(in *Input) *Turn {
	c.surround(in)
	return c.give(in)
}

// give is feed with what is available and the room drawn already.
func (c *chaos) give(in *Input) *Turn {
	in.At = c.now
	in.Queued = rapid.IntRange(0, 3).Draw(c.t, "queued") == 0
	if in.Kind == InStart {
		in.Available = 1 << 40
	}
	if rapid.IntRange(0, 9).Draw(c.t, "clock") == 0 {
		in.At -= 5_000_000 // a clock that was set back
	}
	turn := Turn{Limit: c.limit}
	was := c.run.status
	once := *in
	c.inputs = append(c.inputs, &once)
	stale := in.Kind != InResume && in.Fence.Attempt > 0 && in.Fence != c.led.live[in.Ref] && c.run.worklist.len() == 0
	c.run.Decide(in, &turn)
	if turn.Err != nil && len(turn.Events)+len(turn.Commands) > 0 {
		c.fail("I1: an input that was refused gave events, and whoever is refused writes nothing")
	}
	for i := range turn.Events {
		if stale && turn.Events[i].Kind != journal.EvNodeIgnored {
			c.fail("I3: an input of an attempt that is over changed something")
		}
	}
	c.trace = append(c.trace, fmt.Sprintf("input %d %s %v", in.Kind, journal.StepPath(c.run.plan, in.Ref), in.Outcome))
	for i := range turn.Events {
		c.trace = append(c.trace, fmt.Sprintf("  %d %s %s", turn.Events[i].Seq, turn.Events[i].Name(), journal.StepPath(c.run.plan, turn.Events[i].Ref())))
	}
	if err := c.led.turn(&turn); err != nil {
		c.fail(err.Error())
	}
	c.checkTree()
	if was.Terminal() && len(turn.Events) > 0 && in.Kind != InRetry && in.Kind != InEdit && in.Kind != InResume { // I7
		c.fail("I7: an ended run went on")
	}
	for _, cmd := range turn.Commands {
		if cmd.Kind != CmdCancelTask {
			c.todo = append(c.todo, cmd)
		}
	}
	return &turn
}

func (c *chaos) fail(msg string) {
	for _, line := range c.trace[max(0, len(c.trace)-120):] {
		c.t.Log(line)
	}
	c.t.Fatal(msg)
}

// carryOut carries out a command, with success or failure.
func (c *chaos) carryOut(cmd Command, well bool) {
	switch cmd.Kind {
	case CmdAcquire:
		// Nobody holds back a child run: it takes no slot.
		if !well && c.run.plan.Steps[cmd.Ref.Step].Kind != plan.Recipe && rapid.IntRange(0, 4).Draw(c.t, "hold") == 0 {
			c.feed(&Input{Kind: InHeld, Ref: cmd.Ref, Text: "slots"})
			c.todo = append(c.todo, cmd)
			return
		}
		in := &Input{Kind: InGranted, Ref: cmd.Ref}
		if c.run.plan.Steps[cmd.Ref.Step].Kind == plan.Recipe {
			in.Child = c.grantOf(cmd.Ref)
		}
		c.feed(in)
	case CmdDispatch:
		in := &Input{Kind: InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: Success, Cost: 2,
			Output: []byte(rapid.SampledFrom([]string{`{"ok":true}`, `[1,"two"]`, `"text"`, `7`, `null`}).Draw(c.t, "output"))}
		if task := c.run.Task(cmd.Ref, cmd.Fence); task != nil {
			if _, _, f := task.Render(); f != nil {
				in.Outcome, in.Err = Failed, f
			}
		}
		switch rapid.IntRange(0, 3).Draw(c.t, "price") {
		case 0:
			price := ledger.Amount(rapid.Int64Range(0, 600_000).Draw(c.t, "millionths"))
			in.Cost, in.Price = 0, &price
		}
		if !well {
			most := 6
			if c.lossy {
				most = 2 // nothing but failures and losses
			}
			switch rapid.IntRange(0, most).Draw(c.t, "outcome") {
			case 0:
				in.Outcome, in.Err = Failed, &Failure{Code: fault.ServiceUnavailable, Msg: "down", Unknown: rapid.Bool().Draw(c.t, "unknown")}
			case 1:
				in.Outcome, in.Err = Failed, &Failure{Code: fault.FileInvalid, Msg: "bad file"}
			case 2:
				c.feed(&Input{Kind: InWorkerLost, Ref: cmd.Ref, Fence: cmd.Fence, Text: c.handedBack()})
				return
			case 3:
				c.feed(&Input{Kind: InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: Preview, Output: []byte(`1`)})
			}
			if rapid.IntRange(0, 2).Draw(c.t, "submits") == 0 {
				c.submit(in)
				return
			}
		}
		if task := c.run.Task(cmd.Ref, cmd.Fence); task != nil && in.Outcome == Success {
			if k, _, f := task.Cache(); k != nil && f == nil && rapid.IntRange(0, 2).Draw(c.t, "cached") > 0 {
				in.Cached = &journal.Cached{Key: "k", Run: "run_0", Step: "a", At: c.now}
			}
		}
		c.moderate(in, well, true)
		c.done = append(c.done, in)
		c.feed(in)
	case CmdNeedItems:
		in := &Input{Kind: InItems, Ref: cmd.Ref, Items: &Items{From: cmd.From, List: [][]byte{[]byte(`1`), []byte(`{"x":2}`)}}, More: cmd.From < 3}
		if !well && rapid.IntRange(0, 5).Draw(c.t, "items") == 0 {
			in = &Input{Kind: InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: Failed, Err: &Failure{Code: fault.FileNotFound, Msg: "gone"}}
		}
		c.feed(in)
	case CmdCollect:
		c.feed(&Input{Kind: InResult, Ref: cmd.Ref, Fence: cmd.Fence, Outcome: Success, Output: []byte(`{"file":"x"}`)})
	case CmdChild, CmdCancelChild:
		c.serveChild(cmd, well)
	case CmdContinue:
		c.feed(&Input{Kind: InContinue})
	case CmdAdmit:
		c.feed(&Input{Kind: InAdmit})
	}
}

// moderate adds the verdicts that the step of a result demands, not all of them if not well.
// begins says that the attempt has submitted nothing.
func (c *chaos) moderate(in *Input, well, begins bool) {
	s, i := c.run.at(in.Ref)
	if s == nil || s.step(c.run.plan, i).Gate == nil {
		return
	}
	gate := s.step(c.run.plan, i).Gate
	in.Moderation = new(Moderation)
	say := func(phase string) {
		said := 2
		if !well {
			said = rapid.IntRange(0, 9).Draw(c.t, phase)
		}
		if said > 0 {
			in.Moderation.Verdicts = append(in.Moderation.Verdicts, journal.Verdict{Phase: phase, Flagged: said == 1,
				Review: said == 1 && rapid.Bool().Draw(c.t, "review")})
		}
	}
	if gate.Input && (begins || rapid.Bool().Draw(c.t, "reviewed")) {
		say(journal.InputPhase)
	}
	if gate.Output && (in.Outcome == Success || begins && in.Outcome == Submitted && gate.Review != nil) {
		say(journal.OutputPhase)
	}
}

// submit makes an attempt go on as an external job, whose result comes later, perhaps twice,
// late, or never.
func (c *chaos) submit(result *Input) {
	c.nth++
	in := &Input{Kind: InResult, Ref: result.Ref, Fence: result.Fence, Outcome: Submitted,
		Job: &Submission{Job: journal.Job{Provider: "acme", ID: fmt.Sprint("job", c.nth)}, TTLMS: rapid.SampledFrom([]int64{0, 10_000, 3_600_000}).Draw(c.t, "ttl")}}
	if rapid.IntRange(0, 2).Draw(c.t, "a task") == 0 {
		c.submitTask(in)
	} else {
		c.moderate(in, false, true)
	}
	c.feed(in)
	if rapid.IntRange(0, 3).Draw(c.t, "submitted twice") == 0 {
		again := *in
		c.feed(&again)
	}
	result.Source = journal.Source(rapid.IntRange(1, 2).Draw(c.t, "source"))
	c.moderate(result, false, false)
	c.out = append(c.out, result)
}

// submitTask has a remote worker be what submits a job: the attempt becomes a task of it first. It may
// name another task, or come too late.
func (c *chaos) submitTask(in *Input) {
	first := &Input{Kind: InResult, Ref: in.Ref, Fence: in.Fence, Outcome: Submitted,
		Job: &Submission{Job: journal.Job{Provider: journal.Workers, ID: fmt.Sprint("task", c.nth)}, TTLMS: rapid.SampledFrom([]int64{0, 10_000}).Draw(c.t, "ttl of the task")}}
	c.moderate(first, false, true)
	c.feed(first)
	if in.Job.Task = first.Job.ID; rapid.IntRange(0, 9).Draw(c.t, "of another task") == 0 {
		in.Job.Task += "x"
	}
	if rapid.IntRange(0, 3).Draw(c.t, "while it works") == 0 {
		c.now += rapid.Int64Range(0, 20_000_000).Draw(c.t, "it works for")
		c.feed(&Input{Kind: InTimer})
	}
	if rapid.IntRange(0, 9).Draw(c.t, "crash") == 0 {
		c.crash()
	}
}

// answer delivers the result of an external job.
func (c *chaos) answer() {
	i := rapid.IntRange(0, len(c.out)-1).Draw(c.t, "job")
	in := *c.out[i]
	if rapid.IntRange(0, 2).Draw(c.t, "by the other way, too") > 0 {
		c.out = slices.Delete(c.out, i, i+1)
		c.done = append(c.done, &in)
	} else {
		c.out[i].Source = journal.FromWebhook + journal.FromPoll - in.Source
	}
	if rapid.IntRange(0, 5).Draw(c.t, "shown before") == 0 {
		c.feed(&Input{Kind: InResult, Ref: in.Ref, Fence: in.Fence, Source: in.Source, Outcome: Preview, Output: []byte(`2`), Mark: &journal.Mark{}})
		c.feed(&Input{Kind: InProgress, Ref: in.Ref, Fence: in.Fence, Mark: &journal.Mark{}, Progress: &Progress{Kind: ProgressDelta, Text: "d"}})
	}
	c.feed(&in)
}

// handedBack draws whether attempts are lost to a crash or handed back by an orderly
// stop.
func (c *chaos) handedBack() string {
	return rapid.SampledFrom([]string{"", "stopping"}).Draw(c.t, "handed back")
}

func (c *chaos) disorder() {
	switch k := rapid.IntRange(0, 19).Draw(c.t, "what"); {
	case k < 11 && len(c.todo) > 0:
		i := rapid.IntRange(0, len(c.todo)-1).Draw(c.t, "which")
		cmd := c.todo[i]
		if rapid.IntRange(0, 5).Draw(c.t, "twice") > 0 {
			c.todo = slices.Delete(c.todo, i, i+1)
		}
		c.carryOut(cmd, false)
	case k < 12 && len(c.out) > 0:
		c.answer()
	case k < 13 && len(c.done) > 0:
		again := *c.done[rapid.IntRange(0, len(c.done)-1).Draw(c.t, "again")]
		again.Source = journal.Source(rapid.IntRange(0, 2).Draw(c.t, "source"))
		c.feed(&again)
	case k < 16:
		c.now += rapid.Int64Range(0, 40_000_000).Draw(c.t, "later")
		c.feed(&Input{Kind: InTimer})
	case k == 16:
		c.feed(&Input{Kind: InSignal, Name: "go", Data: []byte(`{"yes":1}`)})
	case k == 17:
		c.crash()
	case k == 18 && rapid.IntRange(0, 9).Draw(c.t, "cancel") == 0:
		accepted := c.feed(&Input{Kind: InCancel}).Err == nil
		if accepted && c.run.status != journal.RunCancelled && c.run.verdict != journal.RunCancelled {
			c.fail("I8: an accepted cancel does not end cancelled")
		}
	case c.run.status.Terminal() && c.tries > 0:
		if c.run.start.Child != nil && rapid.IntRange(0, 3).Draw(c.t, "resume") > 0 {
			c.resume()
		} else {
			c.retry()
		}
	case k == 18:
		c.feed(&Input{Kind: rapid.SampledFrom([]InputKind{InPause, InUnpause, InUnpause}).Draw(c.t, "pause")})
	}
}

func (c *chaos) retry() {
	c.tries--
	in := &Input{Kind: InRetry}
	switch rapid.IntRange(0, 3).Draw(c.t, "retry") {
	case 1:
		root := c.run.plan.Graphs[0]
		in.Name = c.run.plan.Steps[root.First+rapid.Int32Range(0, root.N-1).Draw(c.t, "from")].ID
	case 2:
		in.Kind, in.Data = InEdit, []byte(`{"zero":1}`)
	case 3: // from an inner step, wherever an attempt was dispatched
		var begun []string
		for ref := range c.led.live {
			begun = append(begun, journal.StepPath(c.run.plan, ref))
		}
		if slices.Sort(begun); len(begun) > 0 {
			in.Name = rapid.SampledFrom(begun).Draw(c.t, "from")
		}
	}
	if rapid.IntRange(0, 3).Draw(c.t, "limits") == 0 {
		in.Limits = &plan.Limits{TotalSteps: c.run.limits.TotalSteps + rapid.Int64Range(0, 2).Draw(c.t, "steps")}
	}
	c.feed(in)
}

// crash drops the run from memory. Attempts in process are lost, and commands are owed
// again.
func (c *chaos) crash() {
	back, err := Restore(c.prog, c.run.Snapshot(nil))
	if err != nil {
		c.fail(err.Error())
	}
	if err := supplyAll(back, c.led.frames); err != nil {
		c.fail(err.Error())
	}
	c.run, c.led.run = back, back
	c.inputs = append(c.inputs, nil)
	c.todo = nil
	if rapid.Bool().Draw(c.t, "lost") {
		c.feed(&Input{Kind: InWorkerLost, All: true, Text: c.handedBack()})
	}
	c.todo = c.run.Owed(nil)
}

// settleDown is the second phase of a random run: no more faults occur, and the run
// must end (I6).
func (c *chaos) settleDown() {
	for n := 0; !c.run.status.Terminal(); n++ {
		if n > 5_000 {
			c.fail("the run does not end")
		}
		switch {
		case c.run.paused:
			c.feed(&Input{Kind: InUnpause})
		case len(c.todo) > 0:
			cmd := c.todo[0]
			c.todo = c.todo[1:]
			c.carryOut(cmd, true)
		case len(c.out) > 0:
			in := c.out[0]
			c.out = c.out[1:]
			c.feed(in)
		case c.run.NextDue() > 0:
			c.now = max(c.now, c.run.NextDue())
			c.feed(&Input{Kind: InTimer})
		default:
			c.fail("I6: nothing to do and not ended")
		}
		if len(c.todo) == 0 && !c.run.status.Terminal() {
			c.todo = c.run.Owed(nil)
		}
	}
}

// again gives the same inputs and crashes to another run: only the plan and the inputs
// determine the journal (X72).
func (c *chaos) again() {
	run, turn, frames := NewRun(c.prog), Turn{}, []byte(nil)
	for n, in := range c.inputs {
		if in == nil {
			back, err := Restore(c.prog, run.Snapshot(nil))
			if err == nil {
				err = supplyAll(back, frames)
			}
			if err != nil {
				c.fail(err.Error())
			}
			run = back
			continue
		}
		turn.Limit = c.limit
		run.Decide(in, &turn)
		frames = journal.AppendFrame(frames, turn.Events)
		if !bytes.HasPrefix(c.led.frames, frames) {
			c.fail(fmt.Sprintf("X72: input %d of %d, the same as before, gives another journal", n+1, len(c.inputs)))
		}
	}
	if len(frames) != len(c.led.frames) {
		c.fail("X72: the same inputs give a shorter journal")
	}
}

// TestRandomRuns draws a recipe and faults. It asserts I1–I9 after every turn, and
// checks the statuses of steps and run with a Checker. Every event is recorded once
// under redelivery, crash and retry (X72). X76, X77, X78, X80, F04, F05, F06, F09,
// F17, F43.
func TestRandomRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, drawPlan(t))
		for n := rapid.IntRange(0, 80).Draw(t, "disorder"); n > 0; n-- {
			c.disorder()
		}
		c.settleDown()
		for c.tries > 0 && c.run.status != journal.RunCompleted {
			c.retry()
			c.settleDown()
		}
		c.again()
	})
}
