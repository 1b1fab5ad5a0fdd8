// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

const acc = "acme"

var errEnded = errors.New("the engine has ended")

func publishedFrames(run, frames string, head bool) Published {
	p := Published{Key: store.Key{Account: acc, Run: run}, Frames: []byte(frames)}
	if head {
		p.Head = &store.Head{Status: frames}
	}
	return p
}

// nextText describes what waits for a subscriber: its frames, whether some were
// dropped, the status of the head. "nothing" means that nothing waits.
func nextText(t *testing.T, s *subscriber) string {
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

// I14: a subscriber receives its run's frames and heads once, or heads only if it asked
// for that, and is told that it may have missed something.
func TestSubscribersReceiveTheirRun(t *testing.T) {
	f := New(nil, nil)
	key := func(run string) store.Key { return store.Key{Account: acc, Run: run} }
	f.Publish([]Published{publishedFrames("a", "before", true)})
	if len(f.queue) != 0 {
		t.Error("events without a subscriber are queued")
	}
	heads := f.subscribe(key("a"), true)
	if f.frameSubs.Load() != 0 || f.headSubs.Load() != 1 {
		t.Errorf("%d watch and %d wait", f.frameSubs.Load(), f.headSubs.Load())
	}
	f.Publish([]Published{publishedFrames("a", "1", false), publishedFrames("b", "1", false)})
	if len(f.queue) != 0 || len(f.signal) != 0 {
		t.Error("frames are queued although all subscribers want heads only")
	}
	f.Publish([]Published{publishedFrames("a", "2", false), {}, publishedFrames("a", "done", true)})
	if len(f.queue) != 2 || len(f.signal) != 1 {
		t.Errorf("%d news, %d signals, want the head and the gap", len(f.queue), len(f.signal))
	}
	frames := f.subscribe(key("a"), false) // must not receive what was published before
	other := f.subscribe(key("b"), false)
	if f.frameSubs.Load() != 2 || f.headSubs.Load() != 1 {
		t.Errorf("%d watch and %d wait", f.frameSubs.Load(), f.headSubs.Load())
	}
	for s, want := range map[*subscriber]string{heads: "behind head done", frames: "nothing", other: "nothing"} {
		if got := nextText(t, s); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	f.Publish([]Published{publishedFrames("a", "3", false), publishedFrames("a", "4", false), publishedFrames("a", "5", true), publishedFrames("a", "", true)})
	f.mu.Lock()
	f.drain()
	f.mu.Unlock()
	for s, want := range map[*subscriber]string{heads: "head ", frames: "3 4 5 head ", other: "nothing"} {
		for range 2 {
			if got := nextText(t, s); got != want {
				t.Errorf("heard %q, want %q", got, want)
			}
			want = "nothing" // the second time
		}
	}
	f.unsubscribe(key("a"), heads)
	f.unsubscribe(key("a"), heads)
	if f.headSubs.Load() != 0 || len(f.subs[key("a")]) != 1 {
		t.Errorf("%d wait, %d subscribe to run a", f.headSubs.Load(), len(f.subs[key("a")]))
	}
	f.unsubscribe(key("a"), frames)
	f.unsubscribe(key("b"), other)
	if f.frameSubs.Load() != 0 || len(f.subs) != 0 {
		t.Errorf("%d watch, %d runs have subscribers", f.frameSubs.Load(), len(f.subs))
	}
}

// I15: frames wait for a slow subscriber up to a bound. Beyond it they are dropped and
// the subscriber is marked as behind. After its next read it receives frames again.
func TestI15_SlowSubscribersAreBounded(t *testing.T) {
	s := &subscriber{signal: make(chan struct{}, 1)}
	half := make([]byte, MaxBehind/2)
	push := func(frames []byte) { s.push(&Published{Frames: frames}) }
	for _, c := range []struct {
		more string
		want string
	}{{"", "2 frames, behind false"}, {"x", "0 frames, behind true"}} {
		push(half)
		push(half)
		if c.more != "" {
			push([]byte(c.more))
			push([]byte(c.more)) // it stays marked as behind
		}
		n, err := s.next(t.Context())
		if got := fmt.Sprintf("%d frames, behind %v", len(n.frames), n.behind); err != nil || got != c.want {
			t.Errorf("with %d bytes more: %s, %v; want %s", len(c.more), got, err, c.want)
		}
		push([]byte("on"))
		if got := nextText(t, s); got != "on " {
			t.Errorf("then it receives %q", got)
		}
	}
	push([]byte("old"))
	s.markBehind()
	if got := nextText(t, s); got != "behind " {
		t.Errorf("after a gap it receives %q", got)
	}
}

// Closing a feed gives its error to every subscriber, also to later ones; what was
// published before comes first.
func TestFeedClose(t *testing.T) {
	f := New(nil, nil)
	key := store.Key{Account: acc, Run: "a"}
	s := f.subscribe(key, false)
	f.Publish([]Published{publishedFrames("a", "last", false)})
	f.Close(errEnded)
	f.Run() // returns, because the feed is closed
	if got := nextText(t, s); got != "last " {
		t.Errorf("heard %q", got)
	}
	for _, s := range []*subscriber{s, f.subscribe(key, true)} {
		if _, err := s.next(t.Context()); !errors.Is(err, errEnded) {
			t.Errorf("then %v", err)
		}
	}
	if f.headSubs.Load() != 0 {
		t.Error("a subscriber of a closed feed is counted")
	}
}

// A subscriber receives nothing that was published before it subscribed: the end of a
// run must not reach a subscriber that came after a retry.
func TestSubscribersReceiveNothingOlder(t *testing.T) {
	f := New(nil, nil)
	key := store.Key{Account: acc, Run: "run"}
	before := f.subscribe(key, true)
	f.Publish([]Published{{Key: key, Head: &store.Head{Key: key, Ended: 1}}})
	after := f.subscribe(key, true)
	f.mu.Lock()
	f.drain() // as Run does later
	f.mu.Unlock()
	if before.head == nil || after.head != nil {
		t.Errorf("the earlier subscriber received %v, the later one %v", before.head, after.head)
	}
}

// holed is a store whose journal lacks event 2.
type holed struct{ store.Store }

func (holed) Head(_ context.Context, key store.Key) (store.Head, error) {
	return store.Head{Key: key, Ended: 1}, nil
}

func (holed) Events(context.Context, store.Key, uint64, int) (store.Page, error) {
	frames := journal.AppendFrame(nil, []journal.Event{{Seq: 1, Kind: journal.EvRunStatus, Step: -1}})
	return store.Page{Frames: journal.AppendFrame(frames, []journal.Event{{Seq: 3, Kind: journal.EvRunStatus, Step: -1}}), Next: 3, Last: 3}, nil
}

// I14: a stored journal with a gap is an error for an export and for a watcher, and
// neither passes over it.
func TestI14_GapInTheStore(t *testing.T) {
	f := New(holed{}, func(context.Context, string) (*plan.Plan, error) { return &plan.Plan{}, nil })
	key := store.Key{Account: acc, Run: "a"}
	for name, events := range map[string]iter.Seq2[Event, error]{"an export": f.Events(t.Context(), key, 0), "a watcher": f.Watch(t.Context(), key, 0)} {
		last, failed := uint64(0), error(nil)
		for ev, err := range events {
			if err != nil {
				failed = err
				break
			}
			last = ev.Seq
		}
		if last != 1 || failed == nil {
			t.Errorf("%s ends after event %d with %v", name, last, failed)
		}
	}
}

// Who waits for the end of a run hears of its end and of what may have been missed, not of other heads.
func TestOnEnd(t *testing.T) {
	f := New(nil, nil)
	key := store.Key{Account: acc, Run: "a"}
	heard := 0
	cancel := f.OnEnd(key, func() { heard++ })
	ended := publishedFrames("a", "", true)
	ended.Head.Ended = 1
	after := func(what string, want int, published ...Published) {
		t.Helper()
		if f.Deliver(published); heard != want {
			t.Errorf("after %s it was called %d times, want %d", what, heard, want)
		}
	}
	after("heads of a run that goes on", 0, publishedFrames("a", "", true), publishedFrames("a", "x", false), publishedFrames("a", "", true))
	after("its end", 1, ended)
	after("a retry", 1, publishedFrames("a", "", true))
	after("a gap", 2, Published{})
	after("a head after that", 2, publishedFrames("a", "", true))
	f.Close(errEnded)
	f.Run()
	if heard != 3 {
		t.Errorf("the end of the feed: it was called %d times, want 3", heard)
	}
	cancel()
	if n, _ := f.Usage(); n != 0 {
		t.Errorf("%d subscriptions remain", n)
	}
}
