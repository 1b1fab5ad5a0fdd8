// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// X168: people decide on what was flagged. The attempt goes on as the job of their decision, and
// nothing of what was flagged is shown until then.
func TestReview(t *testing.T) {
	c := &censor{word: "bad"}
	var asked []Flagged
	var fail error
	gate := Gate{Moderator: c, Input: true, Output: true, Review: func(_ context.Context, _ *action.Task, f *Flagged) (*action.Job, error) {
		asked = append(asked, *f)
		return &action.Job{Provider: "people", ID: "r1"}, fail
	}}
	stopped := false
	says := func(ctx context.Context, task *action.Task) (action.Result, error) {
		task.Report.Delta("One. A bad word. Two. ")
		task.Report.Log("info", "after it")
		stopped = ctx.Err() != nil
		return action.Result{Output: "one bad word", Price: "0.3"}, nil
	}
	r := runGated(t, gate, `{}`, says)
	if r.Err != nil || r.Job == nil || r.Job.ID != "r1" || r.Output != nil || stopped || r.verdictText() != "input passed, output flagged" || !r.Verdicts[1].Review {
		t.Errorf("%+v, stopped %v", r.Result, stopped)
	}
	if !slices.Equal(r.reports, []string{"delta One."}) {
		t.Errorf("shown %q", r.reports)
	}
	if len(asked) != 1 || asked[0].Phase != "output" || string(asked[0].Value) != `"one bad word"` || asked[0].Price != "0.3" || !slices.Equal(asked[0].Verdict.Categories, []string{"words"}) {
		t.Errorf("asked %+v", asked)
	}
	called := false
	r = runGated(t, gate, `{"q":"bad"}`, func(context.Context, *action.Task) (action.Result, error) {
		called = true
		return action.Result{}, nil
	})
	if r.Job == nil || called || r.verdictText() != "input flagged" || string(asked[1].Value) != `{"q":"bad"}` {
		t.Errorf("%+v, called %v", r.Result, called)
	}
	fail = errors.New("the store is away")
	if r := runGated(t, gate, `{}`, says); r.Job != nil || r.Err == nil || r.Verdicts[1].Review {
		t.Errorf("nobody could be asked: %+v", r.Result)
	}
	fail = nil
	broken := func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, errors.New("a bad failure")
	}
	if r := runGated(t, gate, `{}`, broken); r.Job != nil || fault.CodeOf(r.Err) != fault.StepFailed || strings.Contains(r.Err.Error(), "bad") {
		t.Errorf("a failure is not reviewed: %+v", r.Result)
	}
	late := func(_ context.Context, task *action.Task) (action.Result, error) {
		task.Report.Delta("No end")
		task.Report.Log("info", "a bad line") // looked at after the output
		return action.Result{Output: "fine"}, nil
	}
	held := gate
	held.Hold = true
	if r := runGated(t, held, `{}`, late); r.Job == nil || string(asked[len(asked)-1].Value) != `"fine"` {
		t.Errorf("flagged after the output has passed: %+v", r.Result)
	}
	c.fail = fault.ServiceUnavailable
	if r := runGated(t, gate, `{}`, says); r.Job != nil || fault.CodeOf(r.Err) != fault.ModerationUnavailable {
		t.Errorf("without a verdict there is nothing to review: %+v", r.Result)
	}
}

// What people have decided counts in place of the moderators' verdict, in that phase only.
func TestReviewed(t *testing.T) {
	gate := Gate{Moderator: &censor{word: "bad"}, Output: true}
	decide := func(phase, output string) action.Func {
		return func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: Reviewed{Phase: phase, By: "ann", Decision: "approved", Output: output}}, nil
		}
	}
	r := runGated(t, gate, `{}`, decide("output", "one bad word"))
	if r.Err != nil || string(r.Output) != `"one bad word"` || r.verdictText() != "output passed" || r.Verdicts[0].By[0] != "ann" || r.Verdicts[0].Decision != "approved" {
		t.Errorf("%+v", r.Result)
	}
	if r := runGated(t, gate, `{}`, decide("input", "fine")); r.Err != nil || string(r.Output) != `"fine"` || r.verdictText() != "input passed, output passed" {
		t.Errorf("%+v", r.Result)
	}
	if r := runGated(t, gate, `{}`, decide("input", "bad")); fault.CodeOf(r.Err) != fault.ModerationFlagged || r.verdictText() != "input passed, output flagged" {
		t.Errorf("%+v", r.Result)
	}
	out := &gatedRun{}
	p := New(Config{Done: func(r Result) { out.Result = r }})
	if err := p.Run(Task{Action: &action.Action{Name: "a", Run: decide("input", "fine")}, Gate: &Gate{}}); err != nil {
		t.Fatal(err)
	}
	p.Stop(context.Background())
	if out.Err != nil || string(out.Output) != `"fine"` || out.verdictText() != "input passed" {
		t.Errorf("only the input is moderated: %+v", out.Result)
	}
}
