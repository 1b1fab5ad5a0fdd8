// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

func runNews(run, frames string, head bool) published {
	p := published{key: store.Key{Account: acc, Run: run}, frames: []byte(frames)}
	if head {
		p.head = &store.Head{Status: frames}
	}
	return p
}

// heard is what waits for a subscriber: its frames, whether some were let go, the
// status of the head. "nothing" = nothing waits.
func heard(t *testing.T, s *subscriber) string {
	t.Helper()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	n, err := s.next(ended)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			return err.Error()
		}
		return "nothing"
	}
	text := ""
	for _, f := range n.frames {
		text += string(f) + " "
	}
	if n.behind {
		text += "behind "
	}
	if n.head != nil {
		text += "head " + n.head.Status
	}
	return text
}

// I14: a subscriber hears of its run, of heads alone where that is what it asked
// for, once of each, and that it may have missed something.
func TestSubscribersHearOfTheirRun(t *testing.T) {
	h := newHub()
	key := func(run string) store.Key { return store.Key{Account: acc, Run: run} }
	h.send([]published{runNews("a", "before", true)})
	if len(h.queue) != 0 {
		t.Error("what nobody asked for is kept")
	}
	heads := h.join(key("a"), true)
	if h.watching.Load() != 0 || h.waiting.Load() != 1 {
		t.Errorf("%d watch and %d wait", h.watching.Load(), h.waiting.Load())
	}
	h.send([]published{runNews("a", "1", false), runNews("b", "1", false)})
	if len(h.queue) != 0 || len(h.signal) != 0 {
		t.Error("frames are kept although all who listen want heads")
	}
	h.send([]published{runNews("a", "2", false), {}, runNews("a", "done", true)})
	if len(h.queue) != 2 || len(h.signal) != 1 {
		t.Errorf("%d news, %d signals, want the head and the gap", len(h.queue), len(h.signal))
	}
	frames := h.join(key("a"), false) // what was sent before is not for it
	other := h.join(key("b"), false)
	if h.watching.Load() != 2 || h.waiting.Load() != 1 {
		t.Errorf("%d watch and %d wait", h.watching.Load(), h.waiting.Load())
	}
	for s, want := range map[*subscriber]string{heads: "behind head done", frames: "nothing", other: "nothing"} {
		if got := heard(t, s); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	h.send([]published{runNews("a", "3", false), runNews("a", "4", false), runNews("a", "5", true), runNews("a", "", true)})
	h.mu.Lock()
	h.drain()
	h.mu.Unlock()
	for s, want := range map[*subscriber]string{heads: "head ", frames: "3 4 5 head ", other: "nothing"} {
		for range 2 {
			if got := heard(t, s); got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
			want = "nothing" // the second time
		}
	}
	h.leave(key("a"), heads)
	h.leave(key("a"), heads)
	if h.waiting.Load() != 0 || len(h.subs[key("a")]) != 1 {
		t.Errorf("%d wait, %d subscribe to run a", h.waiting.Load(), len(h.subs[key("a")]))
	}
	h.leave(key("a"), frames)
	h.leave(key("b"), other)
	if h.watching.Load() != 0 || len(h.subs) != 0 {
		t.Errorf("%d watch, %d runs have subscribers", h.watching.Load(), len(h.subs))
	}
}

// I15: frames wait for a slow subscriber up to a bound; past it they are let go, and
// it is told. Once it has read it hears of frames again.
func TestI15_SlowSubscribersAreBounded(t *testing.T) {
	s := &subscriber{signal: make(chan struct{}, 1)}
	half := make([]byte, maxBehind/2)
	push := func(frames []byte) { s.push(&published{frames: frames}) }
	for _, c := range []struct {
		more string
		want string
	}{{"", "2 frames, behind false"}, {"x", "0 frames, behind true"}} {
		push(half)
		push(half)
		if c.more != "" {
			push([]byte(c.more))
			push([]byte(c.more)) // it stays behind
		}
		n, err := s.next(t.Context())
		if got := fmt.Sprintf("%d frames, behind %v", len(n.frames), n.behind); err != nil || got != c.want {
			t.Errorf("with %d bytes more: %s, %v; want %s", len(c.more), got, err, c.want)
		}
		push([]byte("on"))
		if got := heard(t, s); got != "on " {
			t.Errorf("then it hears %q", got)
		}
	}
	push([]byte("old"))
	s.lag()
	if got := heard(t, s); got != "behind " {
		t.Errorf("after a gap it hears %q", got)
	}
}

// A hub that ends tells whoever subscribes, those who come later too; what was sent
// before is heard first.
func TestHubEnds(t *testing.T) {
	h := newHub()
	key := store.Key{Account: acc, Run: "a"}
	s := h.join(key, false)
	h.send([]published{runNews("a", "last", false)})
	h.close(errStopping)
	h.publish() // returns, since the hub has ended
	if got := heard(t, s); got != "last " {
		t.Errorf("heard %q", got)
	}
	for _, s := range []*subscriber{s, h.join(key, true)} {
		if _, err := s.next(t.Context()); !errors.Is(err, errStopping) {
			t.Errorf("then %v", err)
		}
	}
	if h.waiting.Load() != 0 {
		t.Error("one who came later is counted")
	}
}
