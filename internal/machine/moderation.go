// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/plan"
)

// ModerationOf is what verdicts say of a result; nil = there are none.
func ModerationOf(verdicts []journal.Verdict) *Moderation {
	if len(verdicts) == 0 {
		return nil
	}
	return &Moderation{Verdicts: verdicts}
}

// gate is what moderators look at in the live attempt of a step; nil = nothing. What undoes a
// step is not moderated.
func (r *Run) gate(s *scope, i int32) *plan.Gate {
	if r.brief(s, i).plain {
		return nil
	}
	return s.step(r.plan, i).Gate
}

// passes records the verdicts on a result and reports whether all that its step demands are there
// and have passed it. If not, the attempt has failed (A30): with the reason that its worker gives,
// or because a verdict is missing.
//
// The verdict on the input of an external job was recorded when the job was submitted, unless the
// job is a review of that input by people.
func (r *Run) passes(s *scope, i int32, in *Input) bool {
	gate := r.gate(s, i)
	_, waits := s.jobs[i]
	if gate == nil || in.Outcome == Submitted && waits {
		return true
	}
	r.emitRunning()
	input := gate.Input && (!waits || s.steps[i].flags&flagInputReview != 0) // what is still to be looked at
	output := gate.Output && in.Outcome == Success
	var flagged *journal.Verdict
	if in.Moderation != nil {
		for k := range in.Moderation.Verdicts {
			v := in.Moderation.Verdicts[k]
			switch v.Phase {
			case journal.InputPhase:
				input = false
			case journal.OutputPhase:
				output = false
			default:
				continue
			}
			// Only a job can be the review.
			if v.Review = v.Review && gate.Review != nil && in.Outcome == Submitted; v.Flagged && !v.Review {
				flagged = &v
			}
			r.emitStep(s, i, v.Event(s.steps[i].attempt))
		}
	}
	var f *Failure
	switch {
	case in.Outcome == Failed || mutation.Gate:
		return true
	case flagged != nil:
		f = &Failure{Code: fault.ModerationFlagged, Msg: "the " + flagged.Phase + " of the step was flagged"}
	case input || output:
		f = &Failure{Code: fault.ModerationMissing, Msg: "the result came without the verdict that its step demands"}
	default:
		return true
	}
	if in.Outcome == Submitted {
		r.cancelJob(in)
	}
	f.Unknown = in.Outcome == Submitted // the service has the job
	r.emitCharge(s, i, in, false)
	r.failStep(s, i, f, in.InputHash)
	return false
}

// shows reports whether a report of an attempt may be shown: moderators have passed it, or do not
// look at the output of the step.
func (r *Run) shows(s *scope, i int32, passed bool) bool {
	gate := r.gate(s, i)
	return gate == nil || !gate.Output || passed || mutation.Gate
}

// applyVerdict notes whether people are to decide on the input of the attempt.
func (st *stepState) applyVerdict(ev *journal.Event) {
	if ev.Text != journal.InputPhase {
		return
	}
	if st.flags &^= flagInputReview; ev.ModerationVerdict().Review {
		st.flags |= flagInputReview
	}
}
