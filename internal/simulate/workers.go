// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/worker"
)

// A task is an attempt that a simulated worker carries out.
type task struct {
	ef         engine.Effect
	run        *runRecord
	input      []byte
	hash       []byte
	fail       *machine.Failure // the failure of rendering its input
	hangs      bool             // it ends only when it is told to stop
	previewed  bool             // it hangs, and may have sent a preview
	cancelled  bool
	cached     worker.Cache    // nil = its step uses no earlier results
	cacheScope string          // what it has in common with attempts that may have its result
	report     *engine.Message // its report was sent, and its action continues
	reported   *machine.Input  // the report to send again; nil = none
}

// dispatch gives an attempt to a worker.
func (p *process) dispatch(t *runRecord, ef *engine.Effect) {
	w := p.w
	if !t.journal.Begun(ef.Ref, ef.Fence) {
		w.fail("I1: run %s: step %s was dispatched as attempt %d.%d, which is not durable",
			ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	if p == w.owner && !t.journal.Live(ef.Ref, ef.Fence) { // for example by a cancel; a process that was replaced cannot know
		w.fail("I8: run %s: step %s was dispatched as attempt %d.%d, which had ended before",
			ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	if key, known := t.journal.EffectKey(ef.Ref, ef.Fence); known && key != ef.Task.EffectKey {
		w.fail("I4: run %s: step %s was dispatched with another effect key than its journal gives", ef.Key.Run, ef.Task.StepPath)
	}
	at := report{ef.Ref, ef.Fence}
	if _, twice := t.dispatched[at]; twice {
		w.fail("I3: run %s: step %s was dispatched twice as attempt %d.%d", ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	t.dispatched[at] = struct{}{}
	k := &task{ef: *ef, run: t, hangs: w.happens(ActionHangs)}
	k.input, k.hash, k.fail = ef.Task.Render()
	if k.fail == nil {
		w.checkPrompt(t, ef.Ref.Step, k.input)
		p.checkParent(k)
	}
	k.prepareCache(w)
	w.calls(k)
	p.tasks = append(p.tasks, k)
	p.checkBounds(k)
}

// checkBounds asserts that no more attempts run than the configuration allows, and no
// more of an action than it has slots (I15, I22).
func (p *process) checkBounds(k *task) {
	w, all, same := p.w, 0, 0
	for _, t := range p.tasks {
		if t.cancelled || t.report != nil {
			continue // its slot may have been freed because the attempt counts as lost
		}
		if all++; t.ef.Task.Pin.Name == k.ef.Task.Pin.Name {
			same++
		}
	}
	w.checkKey(p, k)
	if p == w.owner { // one that was replaced knows nothing of the jobs of its successor
		same += w.waitingJobs(k.ef.Task.Pin.Name, "")
	}
	if most := w.faults.config.Concurrency; all > most {
		w.fail("I15: %d attempts are under way, %d may be", all, most)
	}
	if act := w.c.Actions.Find(k.ef.Task.Pin.Name, k.ef.Task.Pin.Version); act != nil && act.Slots > 0 && same > act.Slots {
		w.fail("I22: %d attempts of action %s are under way, which has %d slots", same, act.Name, act.Slots)
	}
}

// cancelled tells a worker to stop. Some have finished by then, some continue.
func (p *process) cancelled(ef *engine.Effect) {
	for _, k := range p.tasks {
		if k.ef.Key == ef.Key && k.ef.Ref == ef.Ref && k.ef.Fence == ef.Fence {
			k.cancelled = true
		}
	}
}

// work lets one worker do something, and reports whether any could.
func (p *process) work() bool {
	w := p.w
	if len(p.tasks) == 0 {
		return false
	}
	i := w.dice.IntN(len(p.tasks))
	for n := 0; p.tasks[i].hangs && !p.tasks[i].cancelled; n++ {
		if n == len(p.tasks) {
			return false
		}
		if k := p.tasks[i]; !k.previewed && !w.noFaults {
			if k.previewed = true; w.dice.IntN(4) > 0 {
				p.report(p.stage.Report(&k.ef, w.moderateReport(k.ef.Task, preview()), false)) // and then it hangs
				return true
			}
		}
		i = (i + 1) % len(p.tasks)
	}
	k := p.tasks[i]
	done := func() { p.tasks = slices.Delete(p.tasks, i, i+1) }
	switch {
	case k.report != nil:
		if slices.Contains(p.inbox, k.report) {
			return true // messages of one process stay in order: the slot is freed after the report
		}
		done()
		p.report(p.stage.Freed(&k.ef))
	case k.cancelled && !w.happens(ReportLate):
		done()
		p.report(p.stage.Freed(&k.ef))
	case k.cancelled && len(w.zombies) < 20 && w.dice.IntN(2) == 0:
		done()
		p.report(p.stage.Freed(&k.ef))   // it was given up,
		w.zombies = append(w.zombies, k) // and reports when it is no longer expected (F07, F43)
	case w.poison == killsWorker && k.ef.Key == w.poisoned && !w.noFaults:
		w.countFault(ProcessPoisoned)
		p.die()
	case !k.cancelled && w.happens(AttemptLost):
		done()
		p.report(p.stage.Report(&k.ef, machine.Input{Kind: machine.InWorkerLost}, false))
		if w.happens(ReportLate) {
			w.zombies = append(w.zombies, k) // it was only presumed dead (F07)
		}
	case !w.noFaults && w.dice.IntN(8) == 0:
		p.report(p.stage.Report(&k.ef, w.moderateReport(k.ef.Task, w.progress()), false))
	default:
		done()
		p.finish(k)
	}
	return true
}

// progress is a progress report of a worker.
func (w *World) progress() machine.Input {
	in := machine.Input{Kind: machine.InProgress}
	switch w.dice.IntN(4) {
	case 0:
		in.Progress = &machine.Progress{Kind: machine.ProgressFraction, Fraction: w.dice.Float64()}
	case 1:
		in.Progress = &machine.Progress{Kind: machine.ProgressLog, Level: "info", Text: "working"}
	case 2:
		in.Progress = &machine.Progress{Kind: machine.ProgressDelta, Text: "a word"}
	default:
		in = preview()
	}
	return in
}

func preview() machine.Input {
	return machine.Input{Kind: machine.InResult, Outcome: machine.Preview, Output: []byte(`{"half":true}`)}
}

// finish reports the end of an attempt.
func (p *process) finish(k *task) {
	w := p.w
	in, cached := w.cachedResult(k)
	if cached {
		w.ends(k.ef.Key.Run, k.ef.Task, &notCalled)
	} else {
		if p.submitRemote(k) || p.submit(k) {
			return
		}
		in = w.outcome(k)
	}
	w.moderate(k.ef.Task, &in, false)
	if !cached {
		w.storeResult(k, &in)
	}
	if w.happens(ActionHolds) {
		k.report = p.stage.Report(&k.ef, in, true)
		p.inbox = append(p.inbox, k.report)
		p.tasks = append(p.tasks, k)
	} else {
		p.report(p.stage.Report(&k.ef, in, false))
	}
	for n := 0; n < 2 && w.happens(ReportDoubled); n++ {
		in.Source = journal.Source(w.dice.IntN(3))
		p.report(p.stage.Report(&k.ef, in, false))
	}
	if len(w.zombies) < 20 && w.happens(ReportLate) {
		k.reported = &in // it sends the report again, long after the attempt ended
		w.zombies = append(w.zombies, k)
	}
}

var outputs = [...]string{`{"ok":true}`, `[1,"two"]`, `"text"`, `7`, `null`, `{"n":3,"list":[1,2,3]}`, `true`, `{"deep":{"er":{"a":"b"}}}`}

// outcome is the result of an attempt.
func (w *World) outcome(k *task) machine.Input {
	in := machine.Input{Kind: machine.InResult, Outcome: machine.Success, InputHash: k.hash, Cost: int64(w.dice.IntN(3))}
	if k.ef.Task.Pin.Price > 0 && in.Cost == 2 { // it also reports a cost, which does not count
		price := ledger.Amount(w.dice.IntN(500_000)) // more than the pinned price, too
		in.Price = &price
	}
	switch {
	case k.fail != nil:
		in.Outcome, in.Err, in.Cost = machine.Failed, k.fail, 0
	case w.happens(AttemptFailed):
		in.Outcome, in.Err, in.Cost = machine.Failed, w.failure(), 0
	case w.c.Answer != nil:
		in.Output = w.c.Answer(w.dice, k.ef.Task, k.input)
	default:
		in.Output = []byte(outputs[w.dice.IntN(len(outputs))])
	}
	if in.Outcome == machine.Success {
		k.run.reported[report{k.ef.Ref, k.ef.Fence}] = hashBytes(1, in.Output)
	}
	w.ends(k.ef.Key.Run, k.ef.Task, in.Err)
	return in
}

// failure draws a failure of an attempt.
func (w *World) failure() *machine.Failure {
	switch w.dice.IntN(8) {
	case 0:
		return &machine.Failure{Code: fault.FileInvalid, Msg: "not what it should be"}
	case 1:
		return &machine.Failure{Code: fault.StepTimeout, Msg: "it took too long"}
	case 2:
		return &machine.Failure{Code: fault.RateLimited, Msg: "slower, please", RetryAfterMS: int64(w.dice.IntN(120_000))}
	case 3:
		return &machine.Failure{Code: fault.OutputContractViolation, Msg: "not as promised", Phase: "output", Violations: []string{"output: no"}}
	case 4:
		return &machine.Failure{Code: fault.StepFailed, Msg: "no"}
	case 5:
		return &machine.Failure{Code: fault.ProviderError, Msg: "it said no", Unknown: w.deeds.dice.IntN(3) == 0} // or a proxy said so
	default:
		return &machine.Failure{Code: fault.ServiceUnavailable, Msg: "down", Unknown: w.deeds.dice.IntN(2) == 0}
	}
}

// lateReport lets a worker report to a process that no longer expects it.
func (p *process) lateReport() {
	w := p.w
	if len(w.zombies) == 0 {
		return
	}
	i := w.sameNumbered()
	if i < 0 && w.dice.IntN(2) == 0 {
		i = slices.IndexFunc(w.zombies, func(k *task) bool { // of a step that was reset and has not begun again
			st := k.run.journal.StepStatus(k.ef.Ref)
			return k.ef.Fence.Gen < k.run.journal.Generation() && (st == journal.Pending || st == journal.Invalidated)
		})
	}
	if i < 0 {
		i = w.dice.IntN(len(w.zombies))
	}
	k := w.zombies[i]
	w.zombies = slices.Delete(w.zombies, i, i+1)
	if k.reported != nil {
		p.report(p.stage.Report(&k.ef, *k.reported, false))
		return
	}
	in := w.outcome(k)
	w.moderate(k.ef.Task, &in, false)
	p.report(p.stage.Report(&k.ef, in, false))
}

// sameNumbered finds a worker whose attempt has the same number as one that runs now,
// in another generation, so that only the generation tells them apart. -1 = there is
// none.
func (w *World) sameNumbered() int {
	return slices.IndexFunc(w.zombies, func(k *task) bool {
		now := journal.Fence{Gen: k.run.journal.Generation(), Attempt: k.ef.Fence.Attempt}
		return now != k.ef.Fence && k.run.journal.Live(k.ef.Ref, now)
	})
}

// deliverDelayed delivers delayed reports: all, or one.
func (p *process) deliverDelayed(all bool) {
	for len(p.delayed) > 0 {
		i := p.w.dice.IntN(len(p.delayed))
		p.inbox = append(p.inbox, p.delayed[i])
		p.delayed = slices.Delete(p.delayed, i, i+1)
		if !all {
			return
		}
	}
}
