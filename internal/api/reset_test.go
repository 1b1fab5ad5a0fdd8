// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
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
	e := &eventStream{key: store.Key{Account: "acme", Run: "run_1"}, out: out, render: journal.NewRenderer(p, "run_1"), want: func(string) bool { return true }, coalesce: true}
	ev := &journal.Event{Seq: 7, At: 1, Kind: journal.EvNodeDelta, Attempt: 1, Text: "half"}
	if !e.event(feed.Event{Event: ev}, nil) || len(out.names) != 0 {
		t.Fatalf("the delta is not held: %v", out.names)
	}
	e.reset(t.Context(), out, errors.New("why"))
	if !slices.Equal(out.names, []string{"node.stream.delta", "reset"}) || !strings.Contains(out.data[1], `"afterEventId":7`) {
		t.Errorf("frames %v: %v", out.names, out.data)
	}
}

// A sharedWriter is the answer on a connection that another request uses from some time on.
type sharedWriter struct {
	*httptest.ResponseRecorder
	over, late atomic.Bool
	ran        chan struct{}
}

func (w *sharedWriter) SetWriteDeadline(time.Time) error {
	for range 100 {
		runtime.Gosched()
	}
	if w.over.Load() {
		w.late.Store(true)
	}
	close(w.ran)
	return nil
}

// F36: a stream that must end changes no deadline once its handler has returned: the
// connection has another request by then.
func TestF36_DeadlineOfAStreamThatEnds(t *testing.T) {
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		w := &sharedWriter{ResponseRecorder: httptest.NewRecorder(), ran: make(chan struct{})}
		out := newFrames(ctx, w, streamTimes)
		cancel()
		out.end()
		w.over.Store(true)
		<-w.ran
		if w.late.Load() {
			t.Fatal("the deadline was changed after the end")
		}
	}
}
