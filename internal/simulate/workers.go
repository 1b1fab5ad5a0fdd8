// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// A task is an attempt in the hands of a simulated worker.
type task struct {
	ef        engine.Effect
	trial     *runRecord
	input     []byte
	hash      []byte
	fail      *machine.Failure // of rendering its input
	hangs     bool             // it ends when it is told to
	half      bool             // it hangs, and may have given a preview
	cancelled bool
	over      *engine.Message // its report; its action goes on
	said      *machine.Input  // what it reported; nil = nothing yet
}

// dispatch gives an attempt to a worker.
func (p *process) dispatch(t *runRecord, ef *engine.Effect) {
	w := p.w
	if !t.seen.Begun(ef.Ref, ef.Fence) {
		w.broken("I1: run %s: step %s was handed out as attempt %d.%d, which is not durable",
			ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	if p == w.owner && !t.seen.Live(ef.Ref, ef.Fence) { // by a cancel, for instance; who was replaced cannot know
		w.broken("I8: run %s: step %s was handed out as attempt %d.%d, which had ended before",
			ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	if key, known := t.seen.EffectKey(ef.Ref, ef.Fence); known && key != ef.Task.EffectKey {
		w.broken("I4: run %s: step %s was handed out with another effect key than its journal gives", ef.Key.Run, ef.Task.StepPath)
	}
	at := report{ef.Ref, ef.Fence}
	if _, twice := t.handed[at]; twice {
		w.broken("I3: run %s: step %s was handed out twice as attempt %d.%d", ef.Key.Run, ef.Task.StepPath, ef.Fence.Gen, ef.Fence.Attempt)
	}
	t.handed[at] = struct{}{}
	k := &task{ef: *ef, trial: t, hangs: w.happens(ActionHangs)}
	k.input, k.hash, k.fail = ef.Task.Render()
	p.tasks = append(p.tasks, k)
	p.bounded(k)
}

// bounded asserts that no more attempts are under way than the configuration lets
// in, and no more of an action than it has slots (I15, I22). A process that had to
// forget runs counts their attempts no more, though they go on.
func (p *process) bounded(k *task) {
	w, all, same := p.w, 0, 0
	if p.forgot {
		return
	}
	for _, t := range p.tasks {
		if t.cancelled || t.over != nil {
			continue // its slot may have been given up for lost
		}
		if all++; t.ef.Task.Pin.Name == k.ef.Task.Pin.Name {
			same++
		}
	}
	if most := w.faults.config.Concurrency; all > most {
		w.broken("I15: %d attempts are under way, %d may be", all, most)
	}
	if act := w.c.Actions.Find(k.ef.Task.Pin.Name, k.ef.Task.Pin.Version); act != nil && act.Slots > 0 && same > act.Slots {
		w.broken("I22: %d attempts of action %s are under way, which has %d slots", same, act.Name, act.Slots)
	}
}

// cancelled tells a worker to stop. Some have finished by then, some go on.
func (p *process) cancelled(ef *engine.Effect) {
	for _, k := range p.tasks {
		if k.ef.Key == ef.Key && k.ef.Ref == ef.Ref && k.ef.Fence == ef.Fence {
			k.cancelled = true
		}
	}
}

// work lets one worker do something, and says whether there was one that does.
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
		if k := p.tasks[i]; !k.half && !w.calm {
			if k.half = true; w.dice.IntN(4) > 0 {
				p.report(p.stage.Report(&k.ef, preview(), false)) // and then it hangs
				return true
			}
		}
		i = (i + 1) % len(p.tasks)
	}
	k := p.tasks[i]
	done := func() { p.tasks = slices.Delete(p.tasks, i, i+1) }
	switch {
	case k.over != nil:
		if slices.Contains(p.inbox, k.over) {
			return true // one process, one order: it says that it is free after it has reported
		}
		done()
		p.report(p.stage.Freed(&k.ef))
	case k.cancelled && !w.happens(ReportLate):
		done()
		p.report(p.stage.Freed(&k.ef))
	case k.cancelled && len(w.zombies) < 20 && w.dice.IntN(2) == 0:
		done()
		p.report(p.stage.Freed(&k.ef))   // it was given up,
		w.zombies = append(w.zombies, k) // and answers when nobody remembers (F07, F43)
	case w.poison == killsWorker && k.ef.Key == w.poisoned && !w.calm:
		w.hit(ProcessPoisoned)
		p.die()
	case !k.cancelled && w.happens(AttemptLost):
		done()
		p.report(p.stage.Report(&k.ef, machine.Input{Kind: machine.InWorkerLost}, false))
		if w.happens(ReportLate) {
			w.zombies = append(w.zombies, k) // it was only thought dead (F07)
		}
	case !w.calm && w.dice.IntN(8) == 0:
		p.report(p.stage.Report(&k.ef, w.progress(), false))
	default:
		done()
		p.finish(k)
	}
	return true
}

// progress is what a worker says on its way.
func (w *World) progress() machine.Input {
	in := machine.Input{Kind: machine.InProgress}
	switch w.dice.IntN(4) {
	case 0:
		in.Progress = machine.Progress{Kind: machine.ProgressFraction, Fraction: w.dice.Float64()}
	case 1:
		in.Progress = machine.Progress{Kind: machine.ProgressLog, Level: "info", Text: "working"}
	case 2:
		in.Progress = machine.Progress{Kind: machine.ProgressDelta, Text: "a word"}
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
	in := w.outcome(k)
	if w.happens(ActionHolds) {
		k.over = p.stage.Report(&k.ef, in, true)
		p.inbox = append(p.inbox, k.over)
		p.tasks = append(p.tasks, k)
	} else {
		p.report(p.stage.Report(&k.ef, in, false))
	}
	for n := 0; n < 2 && w.happens(ReportDoubled); n++ {
		in.Source = journal.Source(w.dice.IntN(3))
		p.report(p.stage.Report(&k.ef, in, false))
	}
	if len(w.zombies) < 20 && w.happens(ReportLate) {
		k.said = &in // it will say so again, when it is long forgotten
		w.zombies = append(w.zombies, k)
	}
}

var outputs = [...]string{`{"ok":true}`, `[1,"two"]`, `"text"`, `7`, `null`, `{"n":3,"list":[1,2,3]}`, `true`, `{"deep":{"er":{"a":"b"}}}`}

// outcome is what becomes of an attempt.
func (w *World) outcome(k *task) machine.Input {
	in := machine.Input{Kind: machine.InResult, Outcome: machine.Success, InputHash: k.hash, Cost: int64(w.dice.IntN(3))}
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
		k.trial.said[report{k.ef.Ref, k.ef.Fence}] = hashBytes(1, in.Output)
	}
	return in
}

// failure is how an attempt fails.
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
	default:
		return &machine.Failure{Code: fault.ServiceUnavailable, Msg: "down"}
	}
}

// haunt lets a worker that nobody waits for any more report to a process.
func (p *process) haunt() {
	w := p.w
	if len(w.zombies) == 0 {
		return
	}
	i := w.mistakable()
	if i < 0 && w.dice.IntN(2) == 0 {
		i = slices.IndexFunc(w.zombies, func(k *task) bool { // of a step that was reset and has not begun again
			st := k.trial.seen.StepStatus(k.ef.Ref)
			return k.ef.Fence.Gen < k.trial.seen.Generation() && (st == journal.Pending || st == journal.Invalidated)
		})
	}
	if i < 0 {
		i = w.dice.IntN(len(w.zombies))
	}
	k := w.zombies[i]
	w.zombies = slices.Delete(w.zombies, i, i+1)
	if k.said != nil {
		p.report(p.stage.Report(&k.ef, *k.said, false))
		return
	}
	p.report(p.stage.Report(&k.ef, w.outcome(k), false))
}

// mistakable finds a worker whose attempt has the number of one that runs now, in
// another generation: only that tells them apart. -1 = there is none.
func (w *World) mistakable() int {
	return slices.IndexFunc(w.zombies, func(k *task) bool {
		now := journal.Fence{Gen: k.trial.seen.Generation(), Attempt: k.ef.Fence.Attempt}
		return now != k.ef.Fence && k.trial.seen.Live(k.ef.Ref, now)
	})
}

// release lets reports that were held back arrive.
func (p *process) release(all bool) {
	for len(p.later) > 0 {
		i := p.w.dice.IntN(len(p.later))
		p.inbox = append(p.inbox, p.later[i])
		p.later = slices.Delete(p.later, i, i+1)
		if !all {
			return
		}
	}
}
