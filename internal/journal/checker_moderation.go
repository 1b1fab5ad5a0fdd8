// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

// phaseBit is the bit of a phase in stepRecord.passed.
func phaseBit(phase string) uint8 {
	if phase == InputPhase {
		return 1
	}
	return 2
}

// checkModeration asserts that the result of a step with a gate is recorded after the verdicts
// that it demands, of the same attempt (A30).
func (c *Checker) checkModeration(s *stepRecord, ev *Event) error {
	gate := c.plan.Steps[ev.Step].Gate
	switch ev.Kind {
	case EvModerationPassed, EvModerationFlagged:
		switch {
		case gate == nil:
			return fmt.Errorf("A30: its step has no gate")
		case ev.Text != InputPhase && ev.Text != OutputPhase:
			return fmt.Errorf("A30: a verdict on the phase %q", ev.Text)
		case ev.Attempt != s.attempt || s.gen != c.gen:
			return fmt.Errorf("A30: a verdict on attempt %d, attempt %d was handed out", ev.Attempt, s.attempt)
		}
		bit := phaseBit(ev.Text)
		switch {
		case ev.Kind == EvModerationPassed:
			s.passed |= bit
			s.review &^= bit
		case ev.ModerationVerdict().Review:
			if gate.Review == nil {
				return fmt.Errorf("A30: what was flagged waits for a review that its step does not have")
			}
			s.passed &^= bit
			s.review |= bit
		default:
			s.passed &^= bit
			s.flagged = true
		}
	case EvNodeSubmitted, EvNodeCompleted:
		if gate == nil || !ev.ofAttempt() {
			return nil
		}
		passed := s.passed
		if ev.Kind == EvNodeSubmitted {
			passed |= phaseBit(OutputPhase) | s.review // that people decide on it is the job
		}
		if gate.Input && passed&phaseBit(InputPhase) == 0 || gate.Output && passed&phaseBit(OutputPhase) == 0 || s.flagged {
			return fmt.Errorf("A30: the result of attempt %d is recorded without the verdicts that its step demands", ev.Attempt)
		}
	}
	return nil
}

// ofAttempt reports whether an event has what an attempt returned, and not what a fallback made of
// its failure.
func (e *Event) ofAttempt() bool { return e.Attempt > 0 }
