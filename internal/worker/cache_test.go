// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// earlier is the Cache of one attempt.
type earlier struct {
	hit  string // "" = there is none
	asks int
	kept []string
}

func (e *earlier) Get(context.Context) *Hit {
	if e.asks++; e.hit == "" {
		return nil
	}
	return &Hit{Output: []byte(e.hit), From: journal.Cached{Run: "run_1", Step: "a"}}
}

func (e *earlier) Put(_ context.Context, output []byte) { e.kept = append(e.kept, string(output)) }

// A30: an earlier result passes the gate of the step that uses it, whatever gate it has passed when it
// was made, and without a call.
func TestA30_EarlierResults(t *testing.T) {
	called := 0
	says := func(text string) action.Func {
		return func(context.Context, *action.Task) (action.Result, error) {
			called++
			return action.Result{Output: text}, nil
		}
	}
	var asked *Flagged
	review := func(_ context.Context, _ *action.Task, f *Flagged) (*action.Job, error) {
		asked = f
		return &action.Job{Provider: "people", ID: "r1"}, nil
	}
	for _, tt := range []struct {
		name, hit, input string
		gate             Gate
		fail             error
		says             string

		code     fault.Code
		output   string
		verdicts string
		cached   bool
		calls    int
		kept     int
	}{
		{name: "passes", hit: `"well"`, gate: Gate{Output: true}, output: `"well"`, verdicts: "output passed", cached: true},
		{name: "flagged", hit: `"a bad word"`, gate: Gate{Output: true}, code: fault.ModerationFlagged, verdicts: "output flagged"},
		{name: "no verdict", hit: `"well"`, gate: Gate{Output: true}, fail: fault.ServiceUnavailable, code: fault.ModerationUnavailable},
		{name: "flagged input", hit: `"well"`, input: `{"q":"bad"}`, gate: Gate{Input: true}, code: fault.ModerationFlagged, verdicts: "input flagged"},
		{name: "the input only", hit: `"a bad word"`, gate: Gate{Input: true}, output: `"a bad word"`, verdicts: "input passed", cached: true},
		{name: "in files, which moderators do not see", hit: `{"$roux":"large"}`, gate: Gate{Output: true}, says: "well", output: `"well"`, verdicts: "output passed", calls: 1, kept: 1},
		{name: "reviewed", hit: `"a bad word"`, gate: Gate{Output: true, Review: review}, verdicts: "output flagged"},
		{name: "none, and what is made is flagged", gate: Gate{Output: true}, says: "a bad word", code: fault.ModerationFlagged, verdicts: "output flagged", calls: 1},
		{name: "none, and what is made is reviewed", gate: Gate{Output: true, Review: review}, says: "a bad word", verdicts: "output flagged", calls: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			called, asked = 0, nil
			cache := &earlier{hit: tt.hit}
			tt.gate.Moderator = &censor{word: "bad", fail: tt.fail}
			if tt.input == "" {
				tt.input = "{}"
			}
			r := runGatedTask(t, Task{Gate: &tt.gate, Cache: cache, Action: &action.Action{Name: "a", Run: says(tt.says)}, Task: action.Task{Input: json.RawMessage(tt.input)}})
			if codeOf(r.Err) != tt.code || string(r.Output) != tt.output || r.verdictText() != tt.verdicts || (r.Cached != nil) != tt.cached {
				t.Errorf("%+v, %s", r.Result, r.verdictText())
			}
			if called != tt.calls || len(cache.kept) != tt.kept {
				t.Errorf("called %d times, kept %q", called, cache.kept)
			}
			if tt.gate.Review == nil {
				return
			}
			free := tt.calls == 0
			if r.Job == nil || asked == nil || string(asked.Value) != `"a bad word"` || (asked.Price == "0" && asked.Cost != nil && *asked.Cost == 0) != free {
				t.Errorf("job %v of %+v", r.Job, asked)
			}
		})
	}
}

// What people have decided on is not kept for later attempts.
func TestReviewedIsNotKept(t *testing.T) {
	cache := &earlier{}
	decide := func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: Reviewed{Phase: outputPhase, By: "ann", Decision: "edited", Output: "well"}}, nil
	}
	r := runGatedTask(t, Task{Gate: &Gate{Moderator: &censor{word: "bad"}, Output: true}, Cache: cache, Action: &action.Action{Name: "a", Run: decide}, Task: action.Task{Input: json.RawMessage(`{}`)}})
	if r.Err != nil || string(r.Output) != `"well"` || len(cache.kept) != 0 {
		t.Errorf("%+v, kept %q", r.Result, cache.kept)
	}
}

// An input with a secret has no earlier result, and its own is not kept: compile refuses such a step,
// and an input that is only known when the step begins is refused here.
func TestI18_SecretsAreNotCached(t *testing.T) {
	w := newWorld(t, Config{Secrets: testSecrets})
	called := 0
	task := sealedTask(t, func(context.Context, *action.Task) (action.Result, error) {
		called++
		return action.Result{Output: "fresh"}, nil
	})
	cache := &earlier{hit: `"earlier"`}
	task.Cache = cache
	if r := w.do(task); r.Err != nil || string(r.Output) != `"fresh"` || r.Cached != nil || called != 1 || cache.asks != 0 || len(cache.kept) != 0 {
		t.Errorf("%+v; called %d times, asked %d, kept %q", r, called, cache.asks, cache.kept)
	}
	task.Task.Input = json.RawMessage(`{"text":"no secret"}`)
	if r := w.do(task); r.Err != nil || string(r.Output) != `"earlier"` || r.Cached == nil || called != 1 {
		t.Errorf("without a secret: %+v", r)
	}
}
