// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// frameLog is a sink that keeps the names and the data of frames.
type frameLog struct{ names, data []string }

func (l *frameLog) event(_ uint64, name string, data []byte) {
	l.names, l.data = append(l.names, name), append(l.data, string(data))
}
func (l *frameLog) flush() error { return nil }
func (l *frameLog) unsent() int  { return 0 }

// I14: a client that reads on after the number in a reset misses nothing: streamed text that
// was held to be joined is sent before.
func TestI14_ResetSendsWhatIsHeld(t *testing.T) {
	out := &frameLog{}
	p := &plan.Plan{Steps: []plan.Step{{ID: "a"}}, Graphs: []plan.Graph{{N: 1, Owner: plan.None, Waves: 1}}}
	e := &eventStream{run: "run_1", out: out, render: journal.NewRenderer(p, "run_1"), want: func(string) bool { return true }, coalesce: true}
	ev := &journal.Event{Seq: 7, At: 1, Kind: journal.EvNodeDelta, Attempt: 1, Text: "half"}
	if !e.event(feed.Event{Event: ev}, nil) || len(out.names) != 0 {
		t.Fatalf("the delta is not held: %v", out.names)
	}
	why := errors.New("why")
	if err := e.reset(t.Context(), why); !errors.Is(err, why) {
		t.Errorf("the stream ends with %v", err)
	}
	if !slices.Equal(out.names, []string{"node.stream.delta", "reset"}) || !strings.Contains(out.data[1], `"afterEventId":7`) {
		t.Errorf("frames %v: %v", out.names, out.data)
	}
}
