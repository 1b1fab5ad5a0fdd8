// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// streaming is a service whose jobs stream pieces of text.
type streaming struct {
	*service
	mu     sync.Mutex
	pieces map[string][]string // by job
	breaks error               // how every stream ends behind its pieces; nil = it goes on
	calls  []string            // the cursors of Follow
	now    int                 // streams at this moment
	most   int
	change chan struct{}
}

func newStreaming() *streaming {
	return &streaming{service: newService(), pieces: map[string][]string{}, change: make(chan struct{})}
}

// say adds a piece to what a job makes.
func (s *streaming) say(id string, pieces ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pieces[id] = append(s.pieces[id], pieces...)
	close(s.change)
	s.change = make(chan struct{})
}

// finish ends a job.
func (s *streaming) finish(id, out string) {
	s.end(id, out)
	s.say(id)
}

func (s *streaming) Follow(ctx context.Context, j *action.SubmittedJob, after string, emit func(action.Piece)) (action.JobState, error) {
	s.mu.Lock()
	s.calls = append(s.calls, after)
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.now--; s.mu.Unlock() }()
	n, _ := strconv.Atoi(after)
	for {
		s.mu.Lock()
		pieces, change, breaks := s.pieces[j.ID], s.change, s.breaks
		s.mu.Unlock()
		for ; n < len(pieces); n++ {
			emit(action.Piece{Cursor: fmt.Sprint(n + 1), Text: pieces[n]})
		}
		s.service.mu.Lock()
		out := s.jobs[j.ID]
		s.service.mu.Unlock()
		if out != "" {
			return s.state(out), nil
		}
		if breaks != nil {
			return action.JobState{}, breaks
		}
		select {
		case <-change:
		case <-ctx.Done():
			return action.JobState{}, ctx.Err()
		}
	}
}

// seen returns how many streams there are, how many there were at once, and how often one was begun.
func (s *streaming) seen() (now, most, calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.most, len(s.calls)
}

func openFollowed(t *testing.T, st *memory.Store, s *streaming, cfg Config) *outside {
	t.Helper()
	return openServed(t, st, s.service, s, cfg)
}

// streamed returns the text of the deltas of a run, and how many there are.
func (o *outside) streamed(run string) (text string, n int) {
	o.t.Helper()
	synctest.Wait()
	err := store.EachEvent(o.t.Context(), o.st, store.Key{Account: acc, Run: run}, 0, func(ev *journal.Event) error {
		if ev.Kind == journal.EvNodeDelta {
			text += ev.Text
			n++
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return text, n
}

func (o *outside) wantStreamed(run, want string) {
	o.t.Helper()
	if got, _ := o.streamed(run); got != want {
		o.t.Errorf("streamed %q, want %q", got, want)
	}
}

// What a job streams is shown while it goes on, at most ten times a second, and the end of the stream
// ends the step at once; what comes later changes nothing.
func TestStreamsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreaming()
		o := openFollowed(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id := s.list()[0]
		time.Sleep(10 * time.Second) // the run has left memory
		s.say(id, "one ")
		o.wantStreamed(run, "one ")
		for n := range 100 {
			s.say(id, fmt.Sprint(n%10))
			time.Sleep(10 * time.Millisecond)
		}
		if _, n := o.streamed(run); n > 13 {
			t.Errorf("%d deltas in a second", n)
		}
		s.say(id, " end")
		began := time.Now()
		s.finish(id, "hello")
		o.wantEnd(run, "completed")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the end took %s", took)
		}
		o.wantStreamed(run, "one "+strings.Repeat("0123456789", 10)+" end")
		o.deliver(id, "d1", "another")
		synctest.Wait()
		o.wantRecords("job-ended 1, delivery 1")
		if now, _, _ := s.seen(); now != 0 {
			t.Errorf("%d streams are left", now)
		}
	})
}

// The stream, a poll and webhooks say how a job has ended, in any order: one result, and what was
// streamed comes before it.
func TestX131_StreamPollAndWebhook(t *testing.T) {
	ways := map[string]func(o *outside, s *streaming, id string) error{
		"stream":  func(_ *outside, s *streaming, id string) error { s.finish(id, "hello"); return nil },
		"webhook": func(o *outside, _ *streaming, id string) error { o.deliver(id, "d1", "hello"); return nil },
		"poll": func(o *outside, s *streaming, id string) error {
			s.end(id, "hello")
			_, err := o.keeper.Poll(o.t.Context(), acc, "acme", id)
			return err
		},
	}
	for first := range ways {
		for second := range ways {
			t.Run(first+" "+second, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStreaming()
					o := openFollowed(t, memory.New(memory.Options{}), s, Config{})
					run := o.begin(submitAndGoOn)
					time.Sleep(time.Second)
					id := s.list()[0]
					s.say(id, "a text")
					synctest.Wait()
					s.say(id, " and more")
					synctest.Wait()
					began := time.Now()
					if err := ways[first](o, s, id); err != nil {
						t.Fatal(err)
					}
					_ = ways[second](o, s, id) // a poll may find that nobody waits any more
					o.wantEnd(run, "completed")
					if took := time.Since(began); took > time.Second {
						t.Errorf("the end took %s", took)
					}
					time.Sleep(10 * time.Second)
					o.wantStreamed(run, "a text and more")
					if now, _, _ := s.seen(); now != 0 {
						t.Errorf("%d streams are left", now)
					}
					if n := o.ignored(run); n > 1 {
						t.Errorf("%d late results", n)
					}
				})
			})
		}
	}
}

// A run that is cancelled ends the stream of its job, and the service is told.
func TestX131_CancelledStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreaming()
		o := openFollowed(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		time.Sleep(time.Second)
		id := s.list()[0]
		s.say(id, "a text")
		synctest.Wait()
		if err := o.Cancel(t.Context(), acc, run, ""); err != nil {
			t.Fatal(err)
		}
		o.wantEnd(run, "cancelled")
		synctest.Wait()
		s.say(id, " and more")
		s.finish(id, "hello")
		s.service.mu.Lock()
		if len(s.cancelled) != 1 {
			t.Errorf("cancelled %v", s.cancelled)
		}
		s.service.mu.Unlock()
		if now, _, _ := s.seen(); now != 0 {
			t.Errorf("%d streams are left", now)
		}
		o.wantStreamed(run, "a text")
	})
}

// F13: a stream that breaks goes on behind its last piece, after a pause; one that stalls is given up,
// and polls go on, which also have it followed again.
func TestF13_BrokenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreaming()
		s.breaks = errors.New("the connection broke")
		o := openFollowed(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id := s.list()[0]
		s.say(id, "a ", "b ")
		time.Sleep(3 * time.Second)
		s.say(id, "c")
		time.Sleep(20 * time.Second)
		o.wantStreamed(run, "a b c")
		s.mu.Lock()
		if len(s.calls) < 3 || s.calls[len(s.calls)-1] != "3" {
			t.Errorf("followed from %q", s.calls)
		}
		s.breaks = fault.New(fault.StepTimeout, "nothing came")
		s.mu.Unlock()
		time.Sleep(time.Minute)
		_, _, calls := s.seen()
		s.say(id, " d")
		time.Sleep(10 * time.Minute)
		o.wantStreamed(run, "a b c d")
		if _, _, n := s.seen(); n-calls < 3 || n-calls > 7 {
			t.Errorf("followed %d times in ten minutes: want once for each poll", n-calls)
		}
		s.mu.Lock()
		s.breaks = fault.New(fault.HTTPStatus, "it cannot be followed")
		s.mu.Unlock()
		time.Sleep(5 * time.Minute)
		_, _, calls = s.seen()
		time.Sleep(10 * time.Minute)
		if _, _, n := s.seen(); n > calls {
			t.Errorf("followed %d times though the service refuses it", n-calls)
		}
		s.end(id, "hello")
		o.wantEnd(run, "completed")
	})
}

// I1: another process goes on where the text ended that was shown, wherever the one before it was killed.
func TestF01_StreamsAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, st := newStreaming(), memory.New(memory.Options{})
		o := openFollowed(t, st, s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id, want := s.list()[0], ""
		for n := range 5 {
			for m := range 7 {
				piece := fmt.Sprintf("%d.%d ", n, m)
				want += piece
				s.say(id, piece)
				time.Sleep(time.Duration(n*m) * 7 * time.Millisecond)
			}
			o.stop()
			o.crash()
			st = st.Crash(0)
			o = openFollowed(t, st, s, Config{})
			time.Sleep(time.Second)
			o.wantStreamed(run, want)
		}
		s.finish(id, "hello")
		o.wantEnd(run, "completed")
		o.wantStreamed(run, want)
	})
}

// A30: a flagged word that is split over three deltas reaches nobody, and what follows it neither, also
// not after a restart; the sentences before it are shown, and with hold nothing is. The job goes on, and
// its output has a verdict of its own.
func TestA30_StreamsOfJobs(t *testing.T) {
	for moderation, want := range map[string]string{"{phase: output}": "It is well. ", "{phase: output, stream: hold}": ""} {
		t.Run(moderation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, st := newStreaming(), memory.New(memory.Options{})
				o := openFollowed(t, st, s, moderatedBy(censor{}))
				run := o.begin(strings.Replace(submitAndGoOn, "{id: a,", "{id: a, moderation: "+moderation+",", 1))
				synctest.Wait()
				id := s.list()[0]
				for _, piece := range []string{"It is", " well. ", "This is b", "a", "d, and goes on. ", "Then more. "} {
					s.say(id, piece)
					time.Sleep(time.Second)
				}
				o.wantStreamed(run, want)
				o.stop()
				o.crash()
				o = openFollowed(t, st.Crash(0), s, moderatedBy(censor{}))
				s.say(id, "And more. ")
				time.Sleep(time.Second)
				o.wantStreamed(run, want)
				s.finish(id, "hello")
				o.wantEnd(run, "completed")
				o.wantStreamed(run, want)
			})
		})
	}
}

// I15: a bounded number of jobs is followed; others are polled, and followed when there is room.
func TestI15_StreamsOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreaming()
		o := openFollowed(t, memory.New(memory.Options{}), s, Config{ProviderSlots: map[string]int{"acme": 1000}})
		var runs []string
		for range 200 {
			runs = append(runs, o.begin(submitAndGoOn))
		}
		time.Sleep(25 * time.Second)
		if now, most, _ := s.seen(); now != 64 || most != 64 {
			t.Errorf("%d streams, at most %d; want 64", now, most)
		}
		for _, id := range s.list()[:100] {
			s.finish(id, "hello")
		}
		time.Sleep(10 * time.Minute)
		if now, most, _ := s.seen(); now != 64 || most != 64 {
			t.Errorf("%d streams of 100 jobs, at most %d; want 64", now, most)
		}
		for _, id := range s.list() {
			s.finish(id, "hello")
		}
		for _, run := range runs {
			o.wantEnd(run, "completed")
		}
	})
}

// A text that is too long is shown up to its bound, and the job goes on.
func TestI15_LongStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreaming()
		o := openFollowed(t, memory.New(memory.Options{}), s, Config{})
		run := o.begin(submitAndGoOn)
		synctest.Wait()
		id := s.list()[0]
		for range 100 {
			s.say(id, strings.Repeat("x", 60_000))
			time.Sleep(time.Second)
		}
		if text, _ := o.streamed(run); len(text) > 4<<20 || len(text) < 3<<20 {
			t.Errorf("%d bytes were shown", len(text))
		}
		s.finish(id, "hello")
		o.wantEnd(run, "completed")
	})
}

type oneSecret string

func (s oneSecret) Secret(context.Context, string, string) (string, error) { return string(s), nil }

// I18: a secret that a service streams back is shown in no delta, also if its parts come in pieces that are
// shown one by one, or a restart lies between them.
func TestI18_StreamsOfJobs(t *testing.T) {
	const hidden = "a-long-password"
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, st, cfg := newStreaming(), memory.New(memory.Options{}), Config{Secrets: oneSecret(hidden)}
			o := openFollowed(t, st, s, cfg)
			run := o.begin(strings.Replace(submitAndGoOn, "{name: submit}", "{name: submit, parameters: {key: \"{{ secret('token') }}\"}}", 1))
			time.Sleep(time.Second)
			id := s.list()[0]
			s.say(id, "it is a-lo")
			time.Sleep(time.Second)
			if restarted {
				o.stop()
				o.crash()
				o = openFollowed(t, st.Crash(0), s, cfg)
				time.Sleep(time.Second)
			}
			s.say(id, "ng-pass")
			time.Sleep(time.Second)
			s.say(id, "word, it was")
			time.Sleep(time.Second)
			s.finish(id, "hello")
			o.wantEnd(run, "completed")
			text, n := o.streamed(run)
			if strings.Contains(text, hidden) || strings.Contains(text, "a-lo") || strings.Contains(text, "password") || !strings.HasSuffix(text, ", it was") || n < 2 {
				t.Errorf("restarted %t: %d deltas %q", restarted, n, text)
			}
		})
	}
}
