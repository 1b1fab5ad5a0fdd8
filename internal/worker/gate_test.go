// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// censor flags values that have a word in them, and keeps what it was asked.
type censor struct {
	word string
	fail error
	slow time.Duration

	mu    sync.Mutex
	asked []string
}

func (c *censor) Check(ctx context.Context, m *action.Moderation) (action.Verdict, error) {
	c.mu.Lock()
	c.asked = append(c.asked, m.Phase+" "+string(m.Value))
	c.mu.Unlock()
	if c.slow > 0 {
		select {
		case <-time.After(c.slow):
		case <-ctx.Done():
			return action.Verdict{}, ctx.Err()
		}
	}
	if c.fail != nil {
		return action.Verdict{}, c.fail
	}
	for _, text := range m.Texts {
		if strings.Contains(text, c.word) {
			return action.Verdict{Flagged: true, Categories: []string{"words"}}, nil
		}
	}
	return action.Verdict{By: []string{"censor"}}, nil
}

// A gatedRun is what became of an attempt with a gate.
type gatedRun struct {
	Result
	reports []string // of any kind, deltas joined
	ended   bool
}

func runGated(t *testing.T, gate Gate, input string, run action.Func) *gatedRun {
	t.Helper()
	return runGatedTask(t, Task{Action: &action.Action{Name: "a", Run: run}, Gate: &gate, Task: action.Task{Input: json.RawMessage(input)}})
}

func runGatedTask(t *testing.T, task Task) *gatedRun {
	t.Helper()
	out := &gatedRun{}
	var mu sync.Mutex
	p := New(Config{
		DeltaWait: -1, Grace: time.Second,
		Done: func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			out.Result, out.ended = r, true
		},
		Report: func(r Report) {
			mu.Lock()
			defer mu.Unlock()
			if out.ended {
				t.Errorf("a report after the result: %+v", r)
			}
			if !r.Passed {
				t.Errorf("a report that does not say that it has passed: %+v", r)
			}
			out.reports = append(out.reports, strings.TrimSpace([...]string{"progress", "log", "delta", "preview"}[r.Kind]+" "+r.Text+string(r.Value)))
		},
	})
	task.TimeoutMS, task.Task.Account, task.Task.Step = 60_000, "acme", "a"
	if err := p.Run(task); err != nil {
		t.Fatal(err)
	}
	p.Stop(context.Background())
	return out
}

func (g *gatedRun) verdictText() string {
	var list []string
	for _, v := range g.Verdicts {
		list = append(list, fmt.Sprint(v.Phase, " ", map[bool]string{true: "flagged", false: "passed"}[v.Flagged]))
	}
	return strings.Join(list, ", ")
}

// X168, X169: the input is looked at before the action is called, the output before its contract.
func TestX169_Order(t *testing.T) {
	c := &censor{word: "bad"}
	called := false
	run := func(text string) action.Func {
		return func(context.Context, *action.Task) (action.Result, error) {
			called = true
			return action.Result{Output: map[string]any{"text": text}}, nil
		}
	}
	both := Gate{Moderator: c, Input: true, Output: true}
	if r := runGated(t, both, `{"q":"well"}`, run("fine")); r.Err != nil || string(r.Output) != `{"text":"fine"}` || r.verdictText() != "input passed, output passed" {
		t.Errorf("%+v", r)
	}
	if !slices.Equal(c.asked, []string{`input {"q":"well"}`, `output {"text":"fine"}`}) {
		t.Errorf("asked %q", c.asked)
	}
	called = false
	if r := runGated(t, both, `{"q":"bad"}`, run("fine")); fault.CodeOf(r.Err) != fault.ModerationFlagged || called || r.verdictText() != "input flagged" {
		t.Errorf("%+v, called %v", r, called)
	}
	if r := runGated(t, both, `{"bad":1}`, run("fine")); fault.CodeOf(r.Err) != fault.ModerationFlagged {
		t.Errorf("the name of a field: %+v", r)
	}
	if r := runGated(t, both, `{}`, run("a bad word")); fault.CodeOf(r.Err) != fault.ModerationFlagged || r.Output != nil || r.verdictText() != "input passed, output flagged" {
		t.Errorf("%+v", r)
	}
	if r := runGated(t, Gate{Moderator: c, Input: true}, `{}`, run("a bad word")); r.Err != nil || r.verdictText() != "input passed" {
		t.Errorf("only the input: %+v", r)
	}
}

// A30: without a verdict nothing passes, and the failure may be tried again.
func TestA30_NoVerdict(t *testing.T) {
	c := &censor{fail: fault.New(fault.ServiceUnavailable, "away")}
	run := func(_ context.Context, task *action.Task) (action.Result, error) {
		task.Report.Delta("One sentence. ")
		task.Report.Log("info", "a line")
		return action.Result{Output: "fine"}, nil
	}
	for _, gate := range []Gate{{Moderator: c, Input: true}, {Moderator: c, Output: true}, {Moderator: c, Output: true, Hold: true}} {
		r := runGated(t, gate, `{}`, run)
		info, _ := fault.Lookup(fault.CodeOf(r.Err))
		if info.Code != fault.ModerationUnavailable || !info.Retryable || r.Output != nil || r.reports != nil {
			t.Errorf("%+v: %+v, %q", gate, r.Result, r.reports)
		}
	}
	c.fail = fault.New(fault.ProviderNotConfigured, "no key")
	if r := runGated(t, Gate{Moderator: c, Input: true}, `{}`, run); fault.CodeOf(r.Err) != fault.ProviderNotConfigured {
		t.Errorf("%+v", r.Err)
	}
}

// A30, X174: a flagged word that is split over three deltas reaches nobody, whether text is shown
// by sentence or held.
func TestA30_SplitWord(t *testing.T) {
	for _, hold := range []bool{false, true} {
		c := &censor{word: "forbidden"}
		stopped := false
		r := runGated(t, Gate{Moderator: c, Output: true, Hold: hold}, `{}`, func(ctx context.Context, task *action.Task) (action.Result, error) {
			for _, piece := range []string{"A first sen", "tence. ", "Then a for", "bid", "den word. ", "And more."} {
				task.Report.Delta(piece)
			}
			stopped = ctx.Err() != nil
			return action.Result{Output: "all is well"}, nil
		})
		if fault.CodeOf(r.Err) != fault.ModerationFlagged || r.verdictText() != "output flagged" || stopped == hold {
			t.Errorf("hold %v: %+v, stopped %v", hold, r.Result, stopped)
		}
		want := []string{"delta A first sentence."}
		if hold {
			want = nil
		}
		if !slices.Equal(r.reports, want) {
			t.Errorf("hold %v: shown %q", hold, r.reports)
		}
	}
}

// What is streamed, logged and shown before the end keeps its order and its texts when all of it
// has passed.
func TestGatedReports(t *testing.T) {
	for _, hold := range []bool{false, true} {
		c := &censor{word: "forbidden"}
		r := runGated(t, Gate{Moderator: c, Output: true, Hold: hold}, `{}`, func(_ context.Context, task *action.Task) (action.Result, error) {
			task.Report.Log("info", "begins")
			task.Report.Progress(0.5, "")
			task.Report.Delta("One. Two")
			task.Report.Log("info", "between")
			task.Report.Delta(". Three")
			task.Report.Preview(map[string]any{"n": 1})
			return action.Result{Output: "done"}, nil
		})
		want := []string{"log begins", "progress", "delta One.", "delta Two.", "delta Three", "log between", `preview {"n":1}`}
		if hold { // nothing but the fraction is shown before the end
			want = []string{"progress", "log begins", "delta One. Two", "log between", "delta . Three", `preview {"n":1}`}
		}
		if r.Err != nil || !slices.Equal(r.reports, want) {
			t.Errorf("hold %v: %v\ngot  %q\nwant %q", hold, r.Err, r.reports, want)
		}
	}
}

// A30: logs, progress, previews and messages of failures are looked at as well.
func TestA30_OtherTexts(t *testing.T) {
	for name, say := range map[string]func(*action.Task) error{
		"log":      func(task *action.Task) error { task.Report.Log("info", "forbidden"); return nil },
		"progress": func(task *action.Task) error { task.Report.Progress(1, "forbidden"); return nil },
		"preview":  func(task *action.Task) error { task.Report.Preview([]string{"forbidden"}); return nil },
		"at the end": func(task *action.Task) error {
			task.Report.Delta("no full stop, forbidden")
			return nil
		},
		"across sentences": func(task *action.Task) error { task.Report.Delta("It is for. bidden. "); return nil },
	} {
		for _, hold := range []bool{false, true} {
			word := "forbidden"
			if name == "across sentences" {
				word = "for. bidden"
			}
			r := runGated(t, Gate{Moderator: &censor{word: word}, Output: true, Hold: hold}, `{}`, func(_ context.Context, task *action.Task) (action.Result, error) {
				return action.Result{Output: "fine"}, say(task)
			})
			if fault.CodeOf(r.Err) != fault.ModerationFlagged || strings.Contains(strings.Join(r.reports, ""), "bidden") {
				t.Errorf("%s, hold %v: %v, shown %q", name, hold, r.Err, r.reports)
			}
		}
	}
	fails := func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, fault.New(fault.ProviderError, "the model said forbidden")
	}
	r := runGated(t, Gate{Moderator: &censor{word: "forbidden"}, Output: true}, `{}`, fails)
	if r.Err == nil || r.Err.Code != fault.ProviderError || strings.Contains(r.Err.Error(), "forbidden") {
		t.Errorf("a failure that quotes the output: %v", r.Err)
	}
	if r := runGated(t, Gate{Moderator: &censor{word: "other"}, Output: true}, `{}`, fails); r.Err == nil || !strings.Contains(r.Err.Error(), "forbidden") {
		t.Errorf("a failure that has passed: %v", r.Err)
	}
	unsettled := fmt.Errorf("%w: not yet", action.ErrUnsettled)
	c := &censor{word: "x"}
	if r := runGated(t, Gate{Moderator: c, Output: true}, `{}`, func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, unsettled }); !errors.Is(r.Err, action.ErrUnsettled) || c.asked != nil {
		t.Errorf("%v, asked %q", r.Err, c.asked)
	}
}

// A moderator is asked once about a text that progress repeats.
func TestRepeatedProgress(t *testing.T) {
	c := &censor{word: "forbidden"}
	r := runGated(t, Gate{Moderator: c, Output: true}, `{}`, func(_ context.Context, task *action.Task) (action.Result, error) {
		for n := range 10 {
			task.Report.Progress(float64(n)/10, "working")
		}
		return action.Result{Output: "fine"}, nil
	})
	if r.Err != nil || len(c.asked) != 2 || len(r.reports) != 10 {
		t.Errorf("%v, asked %q, shown %q", r.Err, c.asked, r.reports)
	}
}

// A moderator that is slow does not hold up a timeout, and nothing is shown after it.
func TestGateAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &censor{word: "x", slow: 2 * time.Minute}
		r := runGated(t, Gate{Moderator: c, Output: true}, `{}`, func(_ context.Context, task *action.Task) (action.Result, error) {
			task.Report.Delta("One. ")
			return action.Result{Output: "fine"}, nil
		})
		if fault.CodeOf(r.Err) != fault.StepTimeout || r.reports != nil {
			t.Errorf("%+v, shown %q", r.Result, r.reports)
		}
	})
}

// A list in a file cannot be looked at, so an input with one does not pass.
func TestGateOnLists(t *testing.T) {
	a := &attempt{gate: &gated{Gate: &Gate{Moderator: &censor{}, Input: true}}}
	a.task.Task.Lists = map[string]action.List{"rows": nil}
	if err := a.moderateInput(); err == nil || err.Code != fault.ValueTooLarge {
		t.Errorf("%v", err)
	}
}

func TestSentenceEnd(t *testing.T) {
	for text, want := range map[string]int{
		"":                               0,
		"no end":                         0,
		"One. Two":                       5,
		"One.":                           0,
		"3.14 is":                        0,
		"Really?! Yes":                   9,
		"a line\nmore":                   7,
		"\n":                             0,
		"一つ。二つ":                          len("一つ。"),
		strings.Repeat("word ", 500):     maxSentence / 5 * 5,
		strings.Repeat("é", maxSentence): maxSentence,
	} {
		if got := sentenceEnd([]byte(text)); got != want {
			t.Errorf("%.30q: %d, want %d", text, got, want)
		}
	}
}
