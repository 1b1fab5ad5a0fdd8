// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/roux-engine/roux/sim/effects"
)

// TestMatchCatches: match reports each contradiction that it must report, and accepts
// valid records that look like one.
func TestMatchCatches(t *testing.T) {
	for _, tt := range []struct {
		name string
		keys string // of the effects, in order
		try  []try
		want string // "" = no contradiction
	}{
		{"nothing happened yet", "", []try{{1, false}}, ""},
		{"done once", "a", []try{{1, true}}, ""},
		{"lost after its effect, and done again", "a a", []try{{2, true}}, ""},
		{"lost before its effect", "a", []try{{2, true}}, ""},
		{"refused, then done", "a b", []try{{1, false}, {1, true}}, ""},
		{"failed before its effect, then done", "b", []try{{1, false}, {1, true}}, ""},
		{"an effect that no attempt began", "a", nil, "more effects than attempts"},
		{"an effect too many", "a a", []try{{1, true}}, "not those of its last attempts"},
		{"the key was kept after a failure", "a a", []try{{1, false}, {1, true}}, "not those of its last attempts"},
		{"the key changed although the outcome was unknown", "a b", []try{{2, false}}, "a key that was not kept"},
		{"an old key came back", "a b a", []try{{1, false}, {1, false}, {1, true}}, "older key"},
		{"completed, and never seen", "", []try{{1, true}}, "not those of its last attempts"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var had []effects.Effect
			for _, key := range strings.Fields(tt.keys) {
				had = append(had, effects.Effect{Key: key})
			}
			if got := match(tt.try, had); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("match = %q, want %q", got, tt.want)
			}
		})
	}
	if got := match([]try{{1, false}}, []effects.Effect{{}}); got == "" {
		t.Error("an effect without a key passed")
	}
}

// The books of a provider are compared with the journals.
func TestBooksCatch(t *testing.T) {
	type job = struct {
		ID, State string
		Key       string `json:"idempotencyKey"`
		Mode      string
		Submitted int
	}
	done := job{ID: "a", State: "done", Key: "k", Submitted: 2}
	for want, b := range map[string][]job{
		"":                            {done, {ID: "b", State: "cancelled", Key: "l", Submitted: 1}},
		"charges 2 jobs with the key": {done, done},
		"has no idempotency key":      {done, {ID: "b", State: "cancelled", Submitted: 1}},
		"charges 0 jobs, and 1 steps": {},
	} {
		var said []string
		(&books{b}).check(1, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Effects of a worker that was stopped meanwhile come later than those of the next key.
func TestByKey(t *testing.T) {
	late := []effects.Effect{{Key: "a"}, {Key: "b"}, {Key: "a"}}
	try2 := []try{{math.MaxInt, false}, {math.MaxInt, true}}
	if got := match(try2, byKey(late)); got != "" {
		t.Error(got)
	}
	if got := match(try2, late); got == "" {
		t.Error("this proves nothing")
	}
}

// What checkDeaths must report.
func TestDeathsCatch(t *testing.T) {
	runs := func(text string) []*history {
		h := &history{status: "completed"}
		for _, text := range strings.Fields(text) {
			step, kind, _ := strings.Cut(text, "=")
			var l line
			l.Type, l.Payload.Step = kind, step
			h.events, h.text = append(h.events, l), append(h.text, "INTERRUPTED")
		}
		return []*history{h}
	}
	const good = "deadly=node.started deadly=node.skipped fan[0].steady=node.completed"
	for text, want := range map[string]string{
		good:                                  "",
		good + " fan[0].steady=node.retried":  "lost its attempt",
		good + " deadly=node.started":         "attempts are missing",
		strings.Replace(good, "fan", "x", 1):  "",
		strings.TrimSuffix(good, "completed"): "0 of 1 other tasks",
	} {
		var said []string
		checkDeaths(runs(text), 1, 3, 1, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A run may end other than its recipe says only if a step was lost too often: in it, below
// it, or beside a step above it.
func TestEndsCatch(t *testing.T) {
	end := line{Type: "run.failed"}
	lost := make([]line, 3, 4)
	for i := range lost {
		lost[i].Type, lost[i].Payload.Cause = "node.retried", causeLost
	}
	leaf := func(parent *history, status, code string, events ...line) *history {
		return &history{recipe: "leaf", status: status, code: code, events: append(events, end), parent: parent}
	}
	failed := leaf(nil, "failed", "INTERRUPTED", lost...)
	cancelled := leaf(failed, "cancelled", "EXECUTION_CANCELLED")
	for name, tt := range map[string]struct {
		h  *history
		ok bool
	}{
		"lost three times":                 {failed, true},
		"lost twice":                       {leaf(nil, "failed", "INTERRUPTED", lost[:2:2]...), false},
		"another failure":                  {leaf(nil, "failed", "STEP_FAILED", lost...), false},
		"cancelled below one that failed":  {cancelled, true},
		"cancelled below one of those":     {leaf(cancelled, "cancelled", "EXECUTION_CANCELLED"), true},
		"cancelled by nobody":              {leaf(nil, "cancelled", "EXECUTION_CANCELLED"), false},
		"cancelled below one that goes on": {leaf(leaf(nil, "completed", ""), "cancelled", "EXECUTION_CANCELLED"), false},
		"failed below one that failed":     {leaf(failed, "failed", "STEP_FAILED"), false},
	} {
		var got []string
		(&round{bench: &bench{}}).checkSettled(tt.h, func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) })
		if ok := len(got) == 0; ok != tt.ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestFilesOf: files are distinguished from the hashes of inputs.
func TestFilesOf(t *testing.T) {
	a, b := "sha256_"+strings.Repeat("a", 64), "sha256_"+strings.Repeat("b", 64)
	for _, tt := range []struct{ kind, text, want string }{
		{"run.started", `{"files":[{"hash":"` + a + `","name":"x"}]}`, a},
		{"node.completed", `{"inputHash":"` + a + `","output":{"file":"` + b + `","hash":"` + a + `"}}`, b},
		{"node.completed", `{"output":{"body":{"$roux":"ref","bytes":9,"hash":"` + a + `","size":7},"hash":"` + b + `"}}`, a},
		{"run.completed", `{"outputs":{"body":{"$roux":"ref","bytes":9,"hash":"` + a + `"},"saved":{"file":"` + b + `"}}}`, b + " " + a},
		{"node.started", `{"inputHash":"` + a + `"}`, ""},
	} {
		if got := strings.Join(filesOf(tt.kind, tt.text), " "); got != tt.want {
			t.Errorf("%s %s names %q, want %q", tt.kind, tt.text, got, tt.want)
		}
	}
}
