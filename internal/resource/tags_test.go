// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

func compactJSON(w io.Writer, v any) error {
	out, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(out)
	}
	return err
}

// X228: the rows that transitions append, with exactly the fields that each tag names.
func TestX228_Tags(t *testing.T) {
	p := compiled(t, `
name: r
ttl: 1h
order: none
steps:
  - {id: a, action: {name: work}, timeout: 10s}
  - {id: b, action: {name: work}, dependsOn: [a]}
  - {id: w, wait: {signal: go, timeout: 5m}}
  - {id: l, loop: {over: "[1]", steps: [{id: x, action: {name: work}}]}}
`)
	for _, tt := range []struct {
		name string
		ev   journal.Event
		want string
	}{
		{"an attempt", journal.Event{Kind: journal.EvNodeStarted, Step: 1, Attempt: 2}, `[{"run_id":"run_1","node_id":"b","tag":"node_started","metadata":{"attempt":2,"wave":1}}]`},
		{"a child run", journal.Event{Kind: journal.EvChildStarted, Step: 0, Attempt: 1}, `[{"run_id":"run_1","node_id":"a","tag":"node_started","metadata":{"attempt":1,"wave":0}}]`},
		{"a wait", journal.Event{Kind: journal.EvNodeWaiting, Step: 2}, `[{"run_id":"run_1","node_id":"w","tag":"node_started","metadata":{"attempt":1,"wave":0}}]`},
		{"a loop", journal.Event{Kind: journal.EvNodeOpened, Step: 3, N: 1}, `[{"run_id":"run_1","node_id":"l","tag":"node_started","metadata":{"attempt":1,"wave":0}}]`},
		{"a retry", journal.Event{Kind: journal.EvNodeRetried, Step: 0, Attempt: 1, Code: fault.ServiceUnavailable, M: 500},
			`[{"run_id":"run_1","node_id":"a","tag":"node_retried","metadata":{"attempt":1,"cause":"provider_error","delay_ms":500}}]`},
		{"a retry after a timeout", journal.Event{Kind: journal.EvNodeRetried, Step: 0, Attempt: 1, Code: fault.StepTimeout, M: 500},
			`[{"run_id":"run_1","node_id":"a","tag":"timed_out","metadata":{"timeout_ms":10000}},{"run_id":"run_1","node_id":"a","tag":"node_retried","metadata":{"attempt":1,"cause":"timeout","delay_ms":500}}]`},
		{"a lost attempt", journal.Event{Kind: journal.EvNodeLost, Step: 0, Attempt: 1}, `[{"run_id":"run_1","node_id":"a","tag":"node_retried","metadata":{"attempt":1,"cause":"lost","delay_ms":0}}]`},
		{"a fallback after a timeout", journal.Event{Kind: journal.EvNodeFallback, Step: 0, Attempt: 1, Code: fault.StepTimeout}, `[{"run_id":"run_1","node_id":"a","tag":"timed_out","metadata":{"timeout_ms":10000}}]`},
		{"a fallback", journal.Event{Kind: journal.EvNodeFallback, Step: 0, Attempt: 1, Code: fault.FileInvalid}, `null`},
		{"a violated contract", journal.Event{Kind: journal.EvContract, Step: 0, Text: "output", Data: []byte(`["/a: want a text"]`)},
			`[{"run_id":"run_1","node_id":"a","tag":"contract_violated","metadata":{"errors":["/a: want a text"],"phase":"output"}}]`},
		{"that of the run", journal.Event{Kind: journal.EvRunContract, Step: -1, Text: "output", Data: []byte(`"[masked]"`)},
			`[{"run_id":"run_1","node_id":"","tag":"contract_violated","metadata":{"errors":["[masked]"],"phase":"output"}}]`},
		{"a failure", journal.Event{Kind: journal.EvNodeFailed, Step: 1, Code: fault.FileInvalid, Text: "bad"}, `[{"run_id":"run_1","node_id":"b","tag":"node_failed","metadata":{"error_code":"FILE_INVALID","error_message":"bad"}}]`},
		{"a wait that ended", journal.Event{Kind: journal.EvNodeFailed, Step: 2, Code: fault.WaitTimeout, Text: "no signal"},
			`[{"run_id":"run_1","node_id":"w","tag":"timed_out","metadata":{"timeout_ms":300000}},{"run_id":"run_1","node_id":"w","tag":"node_failed","metadata":{"error_code":"WAIT_TIMEOUT","error_message":"no signal"}}]`},
		{"a limit of a service", journal.Event{Kind: journal.EvNodeFallback, Step: 3, Code: fault.StepTimeout}, `[{"run_id":"run_1","node_id":"l","tag":"timed_out","metadata":{"timeout_ms":null}}]`},
		{"the ttl of a run", journal.Event{Kind: journal.EvRunExpired, Step: -1}, `[{"run_id":"run_1","node_id":"","tag":"timed_out","metadata":{"timeout_ms":3600000}}]`},
		{"a completion", journal.Event{Kind: journal.EvNodeCompleted, Step: 0, M: 1_500_400, Data: []byte(`{"text":"x"}`)},
			`[{"run_id":"run_1","node_id":"a","tag":"node_completed","metadata":{"duration_ms":1500,"input_tokens":null,"output_tokens":null}}]`},
		{"a completion that counts tokens", journal.Event{Kind: journal.EvNodeCompleted, Step: 0, Data: []byte(`{"usage":{"input_tokens":12,"output_tokens":0}}`)},
			`[{"run_id":"run_1","node_id":"a","tag":"node_completed","metadata":{"duration_ms":0,"input_tokens":12,"output_tokens":0}}]`},
		{"a cancellation in a loop", journal.Event{Kind: journal.EvNodeCancelled, Step: 4, Path: journal.Path("").Child(1, 0)}, `[{"run_id":"run_1","node_id":"l[0].x","tag":"node_cancelled","metadata":{}}]`},
		{"a step that is queued", journal.Event{Kind: journal.EvNodeQueued, Step: 0}, `null`},
		{"a skipped step", journal.Event{Kind: journal.EvNodeSkipped, Step: 0, Flag: 1}, `null`},
	} {
		if got := compact(t, Tags(p, "run_1", &tt.ev)); got != tt.want {
			t.Errorf("%s: got\n%s, want\n%s", tt.name, got, tt.want)
		}
	}
	want := strings.Fields("contract_violated moderation_flagged node_cancelled node_completed node_failed node_retried node_started timed_out")
	if got := keys(tagFields); !slices.Equal(got, want) {
		t.Errorf("the tags are %v, want %v", got, want)
	}
}

// X228: rows of frozen journals have the fields of their tag, and no others.
func TestX228_Fields(t *testing.T) {
	rows := 0
	frozen(t, func(t *testing.T, _ string, p *plan.Plan, events []journal.Event) {
		for i := range events {
			for _, tag := range Tags(p, "run_1", &events[i]) {
				rows++
				if want := slices.Sorted(slices.Values(tagFields[tag.Tag])); len(want) == 0 && tag.Tag != "node_cancelled" || !slices.Equal(keys(tag.Metadata), want) || tag.RunID != "run_1" {
					t.Errorf("event %d: %+v", i+1, tag)
				}
			}
		}
	})
	if rows < 100 {
		t.Errorf("%d rows", rows)
	}
}
