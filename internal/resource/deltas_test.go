// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// frame describes a frame in a few words.
func frame(env journal.Envelope) string {
	if env.Type != "node.stream.delta" {
		return fmt.Sprintf("%d %s", env.EventID, env.Type)
	}
	return fmt.Sprintf("%d %v %v-%v %s", env.EventID, env.Payload["nodeId"], env.Payload["firstDeltaIndex"], env.Payload["deltaIndex"], env.Payload["text"])
}

// X181: deltas of one step are joined up to 4 KiB, never across another event, and the frame
// has the number of its last event.
func TestX181_JoinedDeltas(t *testing.T) {
	p := compiled(t, "name: r\norder: none\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n")
	var c Coalescer
	var got []string
	seq := uint64(0)
	add := func(ms int64, ev journal.Event) {
		seq++
		ev.Seq, ev.At = seq, t0+ms*1000
		for _, env := range c.Add(&ev, journal.Render(p, "run_1", &ev)) {
			got = append(got, frame(env))
		}
	}
	delta := func(ms int64, step int32, attempt uint32, index int64, text string) {
		add(ms, journal.Event{Kind: journal.EvNodeDelta, Step: step, Attempt: attempt, N: index, Text: text})
	}
	if c.Holds() || c.Flush() != nil {
		t.Error("a frame is held before the first delta")
	}
	delta(0, 0, 1, 0, "o")
	delta(50, 0, 1, 1, "n")
	if !c.Holds() {
		t.Error("no frame is held")
	}
	delta(99, 0, 1, 2, "e")
	delta(70_000, 0, 1, 3, " late")
	delta(70_101, 1, 1, 0, "other")
	delta(70_102, 0, 1, 4, "back")
	delta(70_103, 0, 2, 5, "again")
	add(70_104, journal.Event{Kind: journal.EvNodeLog, Step: 0, Text: "log"})
	large := strings.Repeat("x", DeltaBytes)
	delta(70_105, 0, 2, 6, large)
	delta(70_106, 0, 2, 7, "y")
	for _, env := range c.Flush() {
		got = append(got, frame(env))
	}
	want := []string{"4 a 0-3 one late", "5 b 0-0 other", "6 a 4-4 back", "7 a 5-5 again", "8 node.log", "9 a 6-6 " + large, "10 a 7-7 y"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// A reader who resumes after any joined frame gets the rest of each text: no delta is lost,
// none comes twice, and numbers rise.
func TestX181_ResumeAfterAJoinedFrame(t *testing.T) {
	p := compiled(t, "name: r\norder: none\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n")
	rapid.Check(t, func(t *rapid.T) {
		var events []journal.Event
		next := map[int32]int64{}
		at := t0
		for i := range rapid.IntRange(1, 60).Draw(t, "events") {
			at += rapid.Int64Range(0, 60_000).Draw(t, "µs")
			ev := journal.Event{Seq: uint64(i + 1), At: at, Kind: journal.EvNodeDelta, Step: int32(rapid.IntRange(0, 1).Draw(t, "step")), Attempt: 1}
			if rapid.IntRange(0, 9).Draw(t, "log") == 0 {
				ev.Kind = journal.EvNodeLog
			} else {
				ev.N, ev.Text = next[ev.Step], fmt.Sprintf("<%d>", next[ev.Step])
				next[ev.Step]++
			}
			events = append(events, ev)
		}
		read := func(after uint64, from *plan.Plan) (frames []journal.Envelope) {
			var c Coalescer
			for i := range events {
				if events[i].Seq > after {
					frames = append(frames, c.Add(&events[i], journal.Render(from, "run_1", &events[i]))...)
				}
			}
			return append(frames, c.Flush()...)
		}
		frames := read(0, p)
		cut := rapid.IntRange(0, len(frames)).Draw(t, "received")
		got, last := map[any]string{}, uint64(0)
		take := func(list []journal.Envelope) {
			for _, env := range list {
				if env.EventID <= last {
					t.Fatalf("frame %d follows frame %d", env.EventID, last)
				}
				last = env.EventID
				if text, ok := env.Payload["text"].(string); ok && env.Type == "node.stream.delta" {
					got[env.Payload["nodeId"]] += text
				}
			}
		}
		take(frames[:cut])
		take(read(last, p))
		for step, id := range []string{"a", "b"} {
			want := ""
			for i := range next[int32(step)] {
				want += fmt.Sprintf("<%d>", i)
			}
			if got[id] != want {
				t.Fatalf("the text of %s is %s, want %s", id, got[id], want)
			}
		}
	})
}
