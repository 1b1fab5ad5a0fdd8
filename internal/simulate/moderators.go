// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
)

// flagged is in every value that moderators have flagged, or that came without a verdict. Nothing
// that is synced may have it (A30).
const flagged = "a flagged word"

// moderators look at what steps with gates get and give. Some workers are wrong: they report what
// was flagged as a success, leave verdicts out, or show what nobody has passed.
type moderators struct {
	dice *rand.Rand // its own, so that a world without gates is the same as before there were any
}

func newModerators(seed uint64) moderators {
	return moderators{rand.New(rand.NewPCG(seed, 0x67617465))}
}

// moderate adds verdicts to the result of an attempt. submitted says that the attempt goes on as a
// job, so that its input was looked at before.
func (w *World) moderate(task *machine.Task, in *machine.Input, submitted bool) {
	gate := task.Gate
	if gate == nil {
		return
	}
	in.Moderation = new(machine.Moderation)
	say := func(phase string) (passed bool) {
		v := journal.Verdict{Phase: phase, By: []string{"words"}}
		switch d := w.moderators.dice.IntN(16); {
		case w.noFaults || d > 1:
		case d == 1:
			return false // no verdict
		default:
			v.Flagged, v.Categories = true, []string{"words"}
		}
		in.Moderation.Verdicts = append(in.Moderation.Verdicts, v)
		return !v.Flagged
	}
	passed := true
	switch {
	case gate.Input && !submitted:
		passed = say(journal.InputPhase)
	case gate.Input && w.moderators.dice.IntN(2) == 0: // the job may be a review of the input, else no verdict is demanded
		passed = say(journal.InputPhase) || len(in.Moderation.Verdicts) == 0
	}
	if gate.Output && passed && in.Outcome == machine.Success {
		passed = say(journal.OutputPhase)
	}
	if passed || in.Outcome == machine.Failed {
		return
	}
	if n := len(in.Moderation.Verdicts); n > 0 && gate.Review != nil && !submitted && w.moderators.dice.IntN(2) == 0 {
		in.Moderation.Verdicts[n-1].Review = true // a wrong worker, unless it is a job
	}
	switch {
	case in.Outcome == machine.Success && w.moderators.dice.IntN(2) == 0: // a wrong worker: the machine refuses it
		in.Output = []byte(`"` + flagged + `"`)
	case in.Outcome == machine.Success:
		in.Outcome, in.Output, in.Cost = machine.Failed, nil, 0
		in.Err = &machine.Failure{Code: fault.ModerationFlagged, Msg: "the output of the step was flagged"}
	}
}

// moderateReport adds to a report of an attempt what moderators say.
func (w *World) moderateReport(task *machine.Task, in machine.Input) machine.Input {
	if task.Gate == nil || !task.Gate.Output {
		return in
	}
	passed := w.moderators.dice.IntN(3) > 0
	if in.Kind == machine.InResult {
		if in.Moderation = (&machine.Moderation{Shown: passed}); !passed {
			in.Output = []byte(`"` + flagged + `"`)
		}
		return in
	}
	if in.Progress.Text != "" {
		if in.Progress.Passed = passed; !passed {
			in.Progress.Text = flagged
		}
	}
	return in
}

// showsFlagged reports whether an event has what moderators have not passed.
func showsFlagged(ev *journal.Event) bool {
	return strings.Contains(ev.Text, flagged) || strings.Contains(string(ev.Data), flagged)
}
