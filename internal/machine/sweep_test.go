// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// Inputs that arrive between the parts of a sweep that takes several turns.

// swept is a run of three steps in turns of one event: a waits for its retry, the
// others run. Then `with` ends the run, and the sweep has emitted one event.
func swept(t *testing.T, with func(d *driven)) *driven {
	t.Helper()
	d := drive(t, Prepare(compilePlan(t, `
name: r
order: none
steps:
  - {id: a, action: {name: work}, retryPolicy: {maxAttempts: 3, initialDelay: 1s, jitter: 0}}
  - {id: b, action: {name: work}, retryPolicy: {maxAttempts: 3}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: work}}}}
  - {id: c, action: {name: work}}
`)))
	d.turn.Limit = 1
	for step := range int32(2) {
		d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: step}})
	}
	d.do(&Input{Kind: InResult, Ref: journal.Ref{Step: 0}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Failed, Err: &Failure{Code: fault.ServiceUnavailable}})
	with(d)
	if d.run.status.Terminal() || d.run.root.state != scopeSweep {
		t.Fatalf("the run is %s and not being swept", d.run.status)
	}
	return d
}

func (d *driven) decide(in *Input) {
	if in.At == 0 {
		in.At = t0
	}
	d.run.Decide(in, &d.turn)
}

// TestCancelWhileFailing: a failure has fixed the verdict although open steps are
// still being settled; a cancel is too late then (I8, F17, X95).
func TestCancelWhileFailing(t *testing.T) {
	for _, step := range []int32{0, 2} {
		d := swept(t, func(d *driven) {
			d.decide(&Input{Kind: InTimer, At: t0 + 5_000_000})
			d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: step}})
			d.decide(&Input{Kind: InResult, Ref: journal.Ref{Step: step}, Fence: journal.Fence{Gen: 1, Attempt: d.run.root.steps[step].attempt}, Outcome: Failed, Err: &Failure{Code: fault.FileInvalid}})
		})
		d.decide(&Input{Kind: InCancel})
		if want := "TOO_LATE: run run_1 is failing; it cannot be cancelled any more"; fault.CodeOf(d.turn.Err) != fault.TooLate || d.turn.Err.Error() != want {
			t.Errorf("cancel after step %d failed: %v, want %s", step, d.turn.Err, want)
		}
		if n := len(d.turn.Events) + len(d.turn.Commands); n > 0 {
			t.Errorf("an input that was refused gave %d events and commands, which are never carried out", n)
		}
		d.do(&Input{Kind: InContinue})
		if d.run.status != journal.RunFailed || d.run.code != fault.FileInvalid {
			t.Errorf("the run is %s with %s", d.run.status, d.run.code)
		}
	}
}

// TestNothingBeginsInASweep: a retry that falls due, a grant, a failure with tries
// left, and a loss change nothing about steps that are about to be cancelled (X95,
// X96, X113).
func TestNothingBeginsInASweep(t *testing.T) {
	for what, in := range map[string]*Input{
		"a retry falls due": {Kind: InTimer, At: t0 + 5_000_000},
		"a grant":           {Kind: InGranted, Ref: journal.Ref{Step: 2}},
		"a loss":            {Kind: InWorkerLost, Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Gen: 1, Attempt: 1}},
		"all are lost":      {Kind: InWorkerLost, All: true},
		"tries are left":    {Kind: InResult, Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Failed, Err: &Failure{Code: fault.ServiceUnavailable}},
		"a fallback is":     {Kind: InResult, Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Failed, Err: &Failure{Code: fault.FileInvalid}},
	} {
		t.Run(what, func(t *testing.T) {
			d := swept(t, func(d *driven) { d.decide(&Input{Kind: InCancel}) })
			d.decide(in)
			for _, cmd := range d.run.Owed(nil) {
				if cmd.Kind != CmdContinue {
					t.Errorf("after a restart command %d is carried out for step %d, which is about to be cancelled", cmd.Kind, cmd.Ref.Step)
				}
			}
			for n := 0; !d.run.status.Terminal() && n < 20; n++ {
				for i := range d.turn.Events {
					switch ev := &d.turn.Events[i]; ev.Kind {
					case journal.EvNodeQueued, journal.EvNodeStarted, journal.EvNodeLost, journal.EvNodeRetried, journal.EvNodeFallback:
						t.Errorf("%s of %s after a cancel was accepted", ev.Name(), journal.StepPath(d.run.plan, ev.Ref()))
					}
				}
				d.decide(&Input{Kind: InContinue})
			}
			if d.run.status != journal.RunCancelled {
				t.Errorf("the run is %s", d.run.status)
			}
		})
	}
}
