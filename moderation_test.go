// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// A program's own moderator, and what actions stream (X168, X174).
func TestModerationGateway(t *testing.T) {
	says := action.Action{Name: "says", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			Text string `json:"text"`
		}
		if err := task.Decode(&in); err != nil {
			return action.Result{}, err
		}
		for _, word := range strings.SplitAfter(in.Text, " ") {
			task.Report.Delta(word)
		}
		return action.Result{Output: in.Text}, nil
	}}
	var mu sync.Mutex
	shown := map[string]string{}
	e, err := roux.Open(t.Context(), roux.Options{
		Dir: t.TempDir(), Actions: []action.Action{says}, ModerationGateway: wordFilter{},
		OnPartialOutput: func(p roux.PartialOutput) {
			mu.Lock()
			defer mu.Unlock()
			if p.Account != "local" || p.Step != "a" {
				t.Errorf("%+v", p)
			}
			shown[p.Run] += p.Text
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	for text, want := range map[string]struct {
		code  fault.Code
		shown string
	}{
		"All is well. It ends.":           {"", "All is well. It ends."},
		"All is well. It is foul. Sorry.": {fault.ModerationFlagged, "All is well. "},
	} {
		run, err := e.Start(t.Context(), roux.Request{Recipe: []byte(`{"name": "x", "steps": [{"id": "a", "action": {"name": "says", "parameters": {"text": "{{ input.text }}"}}, "moderation": {"phase": "output", "by": ["gateway"]}}]}`), Input: map[string]any{"text": text}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := e.Wait(t.Context(), run)
		if err != nil || (res.Err == nil) != (want.code == "") || res.Err != nil && res.Err.Code != want.code {
			t.Errorf("%s: %+v, %v", text, res, err)
		}
		mu.Lock()
		if shown[run] != want.shown {
			t.Errorf("%s: shown %q", text, shown[run])
		}
		mu.Unlock()
	}
}

type wordFilter struct{}

func (wordFilter) Check(_ context.Context, m *action.Moderation) (action.Verdict, error) {
	return action.Verdict{Flagged: strings.Contains(strings.Join(m.Texts, " "), "foul"), Categories: []string{"words"}}, nil
}
