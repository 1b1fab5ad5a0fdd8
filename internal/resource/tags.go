// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// A Tag is a row that a transition appends (X228).
type Tag struct {
	RunID  string `json:"run_id"`
	NodeID string `json:"node_id"` // the path of the step; "" for the run
	Tag    string `json:"tag"`
	// Metadata has the fields that the tag names, and no others. A field whose value is not
	// known is null.
	Metadata map[string]any `json:"metadata"`
}

// tagFields are the tags, with the fields of their metadata.
var tagFields = map[string][]string{
	"node_started":       {"attempt", "wave"},
	"node_retried":       {"attempt", "cause", "delay_ms"},
	"moderation_flagged": {"phase"},
	"contract_violated":  {"phase", "errors"},
	"timed_out":          {"timeout_ms"},
	"node_failed":        {"error_code", "error_message"},
	"node_completed":     {"duration_ms", "input_tokens", "output_tokens"},
	"node_cancelled":     {},
}

// Tags returns the rows that an event of a run appends, in order; most events append none.
// A failure whose cause is a timeout appends two: timed_out with the limit that has passed,
// and what becomes of the step.
func Tags(p *plan.Plan, run string, ev *journal.Event) []Tag {
	if int(ev.Step) >= len(p.Steps) || ev.NotTaken() {
		return nil
	}
	t := tagger{run: run, node: journal.StepPath(p, ev.Ref())}
	if ev.Step < 0 {
		switch ev.Kind {
		case journal.EvRunContract:
			t.contract(ev)
		case journal.EvRunExpired:
			t.add("timed_out", p.TTLMS)
		}
		return t.rows
	}
	step := &p.Steps[ev.Step]
	switch ev.Kind {
	case journal.EvNodeStarted, journal.EvChildStarted:
		t.add("node_started", ev.Attempt, step.Wave)
	case journal.EvNodeOpened, journal.EvNodeWaiting:
		t.add("node_started", 1, step.Wave)
	case journal.EvNodeRetried:
		t.timeout(step, ev)
		t.add("node_retried", ev.Attempt, fault.CauseOf(ev.Code), ev.Delay().Milliseconds())
	case journal.EvNodeLost:
		t.add("node_retried", ev.Attempt, fault.CauseLost, 0)
	case journal.EvNodeFallback:
		t.timeout(step, ev)
	case journal.EvModerationFlagged:
		t.add("moderation_flagged", ev.ModerationVerdict().Phase)
	case journal.EvContract:
		t.contract(ev)
	case journal.EvNodeFailed:
		t.timeout(step, ev)
		t.add("node_failed", string(ev.Code), cut(ev.Text))
	case journal.EvNodeCompleted:
		in, out := tokens(ev.Data)
		t.add("node_completed", (ev.Micros()+500)/1000, in, out)
	case journal.EvNodeCancelled:
		t.add("node_cancelled")
	}
	return t.rows
}

// A tagger collects the rows of one event.
type tagger struct {
	run, node string
	rows      []Tag
}

// add adds a row with the values of its fields, in the order of tagFields.
func (t *tagger) add(tag string, values ...any) {
	meta := make(map[string]any, len(values))
	for i, name := range tagFields[tag] {
		meta[name] = values[i]
	}
	t.rows = append(t.rows, Tag{RunID: t.run, NodeID: t.node, Tag: tag, Metadata: meta})
}

// timeout adds a row for the limit that has passed, if that is why an attempt failed.
func (t *tagger) timeout(step *plan.Step, ev *journal.Event) {
	if fault.CauseOf(ev.Code) != fault.CauseTimeout {
		return
	}
	for _, ms := range [...]int64{step.TimeoutMS, step.SignalMS, step.TotalTimeoutMS} {
		if ms > 0 {
			t.add("timed_out", ms)
			return
		}
	}
	t.add("timed_out", nil) // a limit of the service that the action calls
}

// contract adds a row for a violated contract. Violations that cannot be read are one error.
func (t *tagger) contract(ev *journal.Event) {
	list := []any{}
	if v, err := jsonx.Decode(ev.Data, journal.InlineLimits); err == nil {
		if all, ok := v.([]any); ok {
			list = all
		} else if v != nil {
			list = []any{v}
		}
	}
	t.add("contract_violated", view.Cut(ev.Text, maxText), list)
}

// tokens are the numbers of tokens that an output reports in its field usage; nil = it does
// not.
func tokens(output []byte) (in, out any) {
	var v struct {
		Usage struct {
			Input  *int64 `json:"input_tokens"`
			Output *int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(output, &v) != nil {
		return nil, nil
	}
	if v.Usage.Input != nil {
		in = *v.Usage.Input
	}
	if v.Usage.Output != nil {
		out = *v.Usage.Output
	}
	return in, out
}
