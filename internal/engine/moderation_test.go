// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store/memory"
)

// censor flags what has the word bad in it.
type censor struct{ err error }

func (c censor) Check(_ context.Context, m *action.Moderation) (action.Verdict, error) {
	return action.Verdict{Flagged: strings.Contains(string(m.Value), "bad"), By: []string{"censor"}, Categories: []string{"words"}}, c.err
}

func moderatedBy(g action.ModerationGateway) Config {
	return Config{Moderators: func([]string) (action.ModerationGateway, error) { return g, nil }}
}

// says is an action that streams and returns its input "text".
func says() *action.Action {
	return newAction("says", func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			Text string `json:"text"`
		}
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		task.Report.Delta("It says: " + in.Text + ". ")
		task.Report.Log("info", in.Text)
		return action.Result{Output: map[string]any{"said": in.Text}}, nil
	})
}

// X168, X172, A30: what a moderator flags is in no event of the run but the start that brings it.
func TestX168_Moderation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := openEngine(t, st, moderatedBy(censor{}), says())
		for phase, want := range map[string]string{"output": "moderation.flagged a", "input": "moderation.flagged a", "both": "moderation.flagged a"} {
			p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: says, parameters: {text: '{{ input.text }}'}}, moderation: "+phase+", retryPolicy: {maxAttempts: 3, retryableErrors: [MODERATION_FLAGGED]}}\n", says())
			run := start(t, e, p, map[string]any{"text": "well"})
			if head := waitForEnd(t, e, run); head.Code != "" {
				t.Fatalf("%s: %s %s", phase, head.Code, head.Message)
			}
			if lines := trace(t, st, p, acc, run); countPrefix(lines, "moderation.passed a") != 1+strings.Count(phase, "both") {
				t.Errorf("%s: the journal:\n%s", phase, strings.Join(lines, "\n"))
			}
			run = start(t, e, p, map[string]any{"text": "bad"})
			if head := waitForEnd(t, e, run); head.Code != fault.ModerationFlagged {
				t.Errorf("%s: %q %s", phase, head.Code, head.Message)
			}
			lines := trace(t, st, p, acc, run)
			if countPrefix(lines, want) != 1 || countPrefix(lines, "node.started a") != 1 {
				t.Errorf("%s: the journal:\n%s", phase, strings.Join(lines, "\n"))
			}
			for _, line := range lines {
				if strings.Contains(line, "bad") && !strings.HasPrefix(line, "run.started") {
					t.Errorf("%s: %s", phase, line)
				}
			}
		}
	})
}

// A moderator that gives no verdict: the attempt is tried again, and then has failed.
func TestModeratorAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		e := openEngine(t, st, moderatedBy(censor{err: fault.ServiceUnavailable}), says())
		p := planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: says, parameters: {text: hello}}, moderation: output, retryPolicy: {maxAttempts: 3}}\n", says())
		run := start(t, e, p, nil)
		if head := waitForEnd(t, e, run); head.Code != fault.ModerationUnavailable {
			t.Errorf("%q %s", head.Code, head.Message)
		}
		if lines := trace(t, st, p, acc, run); countPrefix(lines, "node.started a") != 3 || countPrefix(lines, "node.stream.delta") != 0 || countPrefix(lines, "node.log") != 0 {
			t.Errorf("the journal:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// A run that demands a moderator which is not there does not start, also if a run below it does.
func TestModeratorMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := openEngine(t, memory.New(memory.Options{}), Config{}, says())
		for _, src := range []string{
			"{id: a, action: {name: says}, moderation: output}",
			"{id: a, recipe: {inline: {name: y, steps: [{id: b, action: {name: says}, moderation: input}]}}}",
		} {
			p := planOf(t, "name: x\nsteps:\n  - "+src+"\n", says())
			_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p})
			wantCode(t, err, fault.ProviderNotConfigured)
		}
	})
}

// The input of an external job is moderated when it is submitted, and its output when it has ended.
func TestModeratedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		o := openOutside(t, memory.New(memory.Options{}), s, moderatedBy(censor{}))
		seen := map[string]bool{}
		for output, code := range map[string]fault.Code{"hello": "", "bad": fault.ModerationFlagged} {
			run := o.begin(strings.Replace(submitAndGoOn, "action: {name: submit", "moderation: both, action: {name: submit", 1))
			synctest.Wait()
			job := slices.DeleteFunc(s.list(), func(id string) bool { return seen[id] })
			if len(job) != 1 {
				t.Fatalf("%s: submitted %q", output, job)
			}
			seen[job[0]] = true
			o.deliver(job[0], "d-"+output, output)
			if head := waitForEnd(t, o.Engine, run); head.Code != code {
				t.Errorf("%s: %q %s", output, head.Code, head.Message)
			}
		}
	})
}
