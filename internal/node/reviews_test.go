// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/approval"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/moderation"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/store"
)

// X168: people decide on what moderators have flagged, also after a restart. Only who may decide sees
// it, and the journal has nothing of it that they have not approved.
func TestX168_Reviews(t *testing.T) {
	dir := t.TempDir()
	says := action.Action{Name: "says", Version: "1.0.0", Price: "0.5", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			Text string `json:"text"`
		}
		err := task.Decode(&in)
		return action.Result{Output: map[string]string{"said": in.Text + " bad"}, Price: "0.25"}, err
	}}
	open := func() *node.Node {
		actions := node.NewActions(nil, says)
		if err := actions.AddModerators(map[string]moderation.Config{"words": {Kind: moderation.Terms, Terms: []string{"bad"}}}, nil); err != nil {
			t.Fatal(err)
		}
		st, err := node.OpenStore(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.Open(t.Context(), st, node.Config{Dir: dir, Actions: actions})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := open()
	defer func() { _ = n.Stop(context.Background()) }()
	ann := &approval.Person{Account: engine.LocalAccount, Name: "ann"}
	bob := &approval.Person{Account: engine.LocalAccount, Name: "bob"}
	for _, tt := range []struct {
		name, phase, text string
		answer            approval.Answer
		output            string
		code              fault.Code
	}{
		{"approved", "output", "all is", approval.Answer{Decision: approval.Approved}, `{"said":"all is bad"}`, ""},
		{"edited", "output", "all is", approval.Answer{Decision: approval.Edited, Value: json.RawMessage(`{"said":"all is well"}`)}, `{"said":"all is well"}`, ""},
		{"rejected", "output", "all is", approval.Answer{Decision: approval.Rejected, Comment: "no"}, "", fault.ModerationRejected},
		{"input approved", "input", "a bad input is", approval.Answer{Decision: approval.Approved}, `{"said":"a bad input is bad"}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := `{"name": "x", "steps": [{"id": "a", "action": {"name": "says", "parameters": {"text": "{{ input.text }}"}}, "moderation": {"phase": "` + tt.phase + `", "review": {"by": ["ann"], "timeout": "1h"}}, "outputBinding": "made"}], "outputs": {"made": "made"}}`
			p, _, _, diags := compile.Source("x", []byte(src), compile.Options{Actions: n.Config.Actions.Catalogue})
			if p == nil {
				t.Fatal(diags)
			}
			started, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: engine.LocalAccount, Plan: p, Parameters: map[string]any{"text": tt.text}})
			if err != nil {
				t.Fatal(err)
			}
			id := ""
			for id == "" && t.Context().Err() == nil {
				list, _, err := n.Approvals.List(t.Context(), ann, "", 10)
				if err != nil {
					t.Fatal(err)
				}
				if len(list) == 1 {
					id = list[0].ID
				}
				runtime.Gosched() // until the step waits
			}
			if err := n.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			n = open()
			if info, err := n.Approvals.Get(t.Context(), bob, id); err != nil || info.May || info.Value != nil || info.Text != "" {
				t.Errorf("bob sees %+v, %v", info, err)
			}
			info, err := n.Approvals.Get(t.Context(), ann, id)
			if err != nil || !info.May || !strings.Contains(string(info.Value), "bad") || !strings.Contains(info.Text, "for words") {
				t.Errorf("ann sees %+v, %v", info, err)
			}
			if _, err := n.Approvals.Answer(t.Context(), bob, id, &tt.answer); fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("bob answers: %v", err)
			}
			if _, err := n.Approvals.Answer(t.Context(), ann, id, &tt.answer); err != nil {
				t.Fatal(err)
			}
			head, err := n.Engine.Wait(t.Context(), engine.LocalAccount, started.Run)
			if err != nil || head.Code != tt.code {
				t.Fatalf("%s %s, %v", head.Code, head.Message, err)
			}
			page, err := n.Store.Events(t.Context(), store.Key{Account: engine.LocalAccount, Run: started.Run}, 0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			journal := string(page.Frames)
			if want := tt.output; want != "" && !strings.Contains(journal, want) || want == "" && strings.Contains(journal, "is bad") {
				t.Errorf("the journal, want %s:\n%q", want, journal)
			}
			if tt.code == "" && (!strings.Contains(journal, `"ann"`) || !strings.Contains(journal, `"decision":"`+string(tt.answer.Decision)+`"`)) {
				t.Errorf("the journal does not say who has decided:\n%q", journal)
			}
		})
	}
}

// A30: a result that was kept without moderation passes the gate of a step that uses it, for another run:
// flagged, it is not shown, and people may decide on it. The action is not called again, and a result that
// they let pass costs nothing.
func TestA30_CachedResultsAreModerated(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	says := action.Action{Name: "says", Version: "1.0.0", Price: "0.5", Run: func(context.Context, *action.Task) (action.Result, error) {
		calls++
		return action.Result{Output: map[string]string{"said": "all is bad"}}, nil
	}}
	actions := node.NewActions(nil, says)
	if err := actions.AddModerators(map[string]moderation.Config{"words": {Kind: moderation.Terms, Terms: []string{"bad"}}}, nil); err != nil {
		t.Fatal(err)
	}
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), st, node.Config{Dir: dir, Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Stop(context.Background()) }()
	start := func(gate string) string {
		src := `{"name": "x", "steps": [{"id": "a", "action": {"name": "says"}, "cache": true, ` + gate + `"outputBinding": "made"}], "outputs": {"made": "made"}}`
		p, _, _, diags := compile.Source("x", []byte(src), compile.Options{Actions: n.Config.Actions.Catalogue})
		if p == nil {
			t.Fatal(diags)
		}
		started, err := n.Engine.Start(t.Context(), engine.StartRequest{Account: engine.LocalAccount, Plan: p})
		if err != nil {
			t.Fatal(err)
		}
		return started.Run
	}
	ended := func(run string, code fault.Code) string {
		t.Helper()
		head, err := n.Engine.Wait(t.Context(), engine.LocalAccount, run)
		if err != nil || head.Code != code {
			t.Fatalf("%s %s, %v", head.Code, head.Message, err)
		}
		page, err := n.Store.Events(t.Context(), store.Key{Account: engine.LocalAccount, Run: run}, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return string(page.Frames)
	}
	if journal := ended(start(""), ""); !strings.Contains(journal, "all is bad") {
		t.Errorf("%q", journal)
	}
	if journal := ended(start(""), ""); !strings.Contains(journal, "all is bad") || calls != 1 {
		t.Errorf("%d calls: %q", calls, journal)
	}
	if journal := ended(start(`"moderation": "output", `), fault.ModerationFlagged); strings.Contains(journal, "all is bad") || calls != 1 {
		t.Errorf("%d calls: %q", calls, journal)
	}
	run := start(`"moderation": {"phase": "output", "review": {"by": ["ann"]}}, `)
	ann := &approval.Person{Account: engine.LocalAccount, Name: "ann"}
	var list []*approval.Info
	for len(list) == 0 && t.Context().Err() == nil {
		if list, _, err = n.Approvals.List(t.Context(), ann, "", 10); err != nil {
			t.Fatal(err)
		}
		runtime.Gosched() // until the step waits
	}
	if _, err := n.Approvals.Answer(t.Context(), ann, list[0].ID, &approval.Answer{Decision: approval.Approved}); err != nil {
		t.Fatal(err)
	}
	if journal := ended(run, ""); !strings.Contains(journal, "all is bad") || calls != 1 {
		t.Errorf("%d calls: %q", calls, journal)
	}
	charged := 0
	err = store.EachEvent(t.Context(), n.Store, store.Key{Account: engine.LocalAccount, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeCharged && ev.N != 0 {
			charged++
		}
		return nil
	})
	if err != nil || charged != 0 {
		t.Errorf("charged %d times, %v", charged, err)
	}
}
