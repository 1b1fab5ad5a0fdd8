// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
)

// numbers reads the events of a run to their end.
func numbers(t *testing.T, c *client.Client, run string, o client.EventOptions) (ids []uint64, types []string) {
	t.Helper()
	for e, err := range c.Runs.Events(t.Context(), run, o) {
		if err != nil {
			t.Fatal(err)
		}
		if e.RunID != run || e.Time.IsZero() || len(e.Payload) == 0 {
			t.Errorf("event %+v", e)
		}
		ids, types = append(ids, e.ID), append(types, e.Type)
	}
	return ids, types
}

// dense fails unless ids are from, from+1, … up to the last one of a run that has ended.
func dense(t *testing.T, ids []uint64, types []string, from uint64) {
	t.Helper()
	for i, id := range ids {
		if id != from+uint64(i) {
			t.Fatalf("event %d comes as number %d of %v", id, i, ids)
		}
	}
	if len(types) == 0 || !strings.HasPrefix(types[len(types)-1], "run.") {
		t.Fatalf("the last events are %v", types)
	}
}

// The connection is cut after any number of bytes, again and again: what is read is the journal,
// without a gap and without a duplicate (X180, X182, X184).
func TestX182_EventsThroughCuts(t *testing.T) {
	s := startServer(t)
	direct := s.client()
	register(t, direct, loop)
	items := make([]int, 60)
	started := execute(t, direct, "loop", client.ExecuteRequest{Parameters: map[string]any{"items": items}})
	run, err := direct.Runs.Wait(t.Context(), started.ID)
	if err != nil || run.Status != "completed" {
		t.Fatal(run, err)
	}
	ids, types := numbers(t, direct, started.ID, client.EventOptions{Every: true})
	dense(t, ids, types, 1)
	cuts := 0
	for seed := range uint64(20) {
		p := newProxy(t, func() string { return s.address }, 12_000, seed)
		c := open(t, client.Config{URL: p.url(), Key: admin})
		got, gotTypes := numbers(t, c, started.ID, client.EventOptions{Every: true})
		if !slices.Equal(got, ids) || !slices.Equal(gotTypes, types) {
			t.Fatalf("seed %d: %d events, want %d", seed, len(got), len(ids))
		}
		p.mu.Lock()
		cuts += p.cuts
		p.mu.Unlock()
	}
	if cuts < 20 {
		t.Errorf("only %d cuts", cuts)
	}
	// From the middle, and with only some types.
	got, gotTypes := numbers(t, direct, started.ID, client.EventOptions{After: 10, Every: true})
	dense(t, got, gotTypes, 11)
	_, gotTypes = numbers(t, direct, started.ID, client.EventOptions{Types: []string{"node.completed"}})
	if gotTypes = slices.Compact(gotTypes); !slices.Equal(gotTypes, []string{"node.completed"}) {
		t.Errorf("types %v", gotTypes)
	}
	if got, _ := numbers(t, direct, started.ID, client.EventOptions{After: ids[len(ids)-1]}); len(got) != 0 {
		t.Errorf("after the last event comes %v", got)
	}
}

// The same of the feed of the account.
func TestX182_FeedThroughCuts(t *testing.T) {
	s := startServer(t)
	direct := s.client()
	register(t, direct, greet)
	for i := range 20 {
		started := execute(t, direct, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": fmt.Sprint(i)}})
		if _, err := direct.Runs.Wait(t.Context(), started.ID); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(c *client.Client) (all []client.Change) {
		for change, err := range c.Feed(t.Context(), 0) {
			if err != nil || change.Number != uint64(len(all))+1 || change.Time.IsZero() {
				t.Fatalf("change %+v, %v, after %d others", change, err, len(all))
			}
			all = append(all, change)
			runs := map[string]bool{}
			for i := range all {
				if all[i].Status == "completed" {
					runs[all[i].RunID] = true
				}
			}
			if len(runs) == 20 {
				break
			}
		}
		return all
	}
	want, cuts := ended(direct), 0
	for seed := range uint64(10) {
		p := newProxy(t, func() string { return s.address }, 5_000, seed)
		got := ended(open(t, client.Config{URL: p.url(), Key: admin}))
		if !slices.EqualFunc(got, want, func(a, b client.Change) bool { return a.Number == b.Number && a.RunID == b.RunID && a.State == b.State }) {
			t.Errorf("seed %d: %d changes, want %d", seed, len(got), len(want))
		}
		p.mu.Lock()
		cuts += p.cuts
		p.mu.Unlock()
	}
	if cuts < 10 {
		t.Errorf("only %d cuts", cuts)
	}
}

// A follower of a run outlives a restart of the server, and so do those of the feed and one
// that waits.
func TestStreamsOutliveTheServer(t *testing.T) {
	s := startServer(t)
	c := s.client()
	register(t, c, waits)
	started := execute(t, c, "waits", client.ExecuteRequest{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	waiting, fed := make(chan struct{}), make(chan struct{})
	var ids []uint64
	var types []string
	wg.Go(func() {
		for e, err := range c.Runs.Events(ctx, started.ID, client.EventOptions{}) {
			if err != nil {
				t.Error(err)
				return
			}
			if e.Type == "node.waiting" {
				close(waiting)
			}
			ids, types = append(ids, e.ID), append(types, e.Type)
		}
	})
	wg.Go(func() {
		patient := open(t, client.Config{URL: "http://" + s.address, Key: admin, Attempts: 10_000}) // it may connect late
		if run, err := patient.Runs.Wait(ctx, started.ID); err != nil || string(run.Outputs) != `{"decision":{"by":"ana"}}` {
			t.Errorf("the run: %+v, %v", run, err)
		}
	})
	wg.Go(func() {
		next := uint64(1)
		for change, err := range c.Feed(ctx, 0) {
			if err != nil || change.Number != next {
				t.Errorf("change %+v, %v, want number %d", change, err, next)
				return
			}
			if next == 1 {
				close(fed)
			}
			next++
			if change.RunID == started.ID && change.Status == "completed" {
				return
			}
		}
	})
	<-waiting
	<-fed
	s.stop()
	s.start()
	if _, err := c.Runs.Signal(ctx, started.ID, client.Signal{Name: "approved", Payload: map[string]string{"by": "ana"}}); err != nil {
		t.Error(err)
		cancel()
	}
	wg.Wait()
	dense(t, ids, types, 1)
	if types[len(types)-1] != "run.completed" {
		t.Errorf("the last event is %s", types[len(types)-1])
	}
}

// sse answers with the text of a stream, and then does nothing until the client goes.
func sse(text string, stay bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
		if stay {
			<-r.Context().Done()
		}
	}
}

func ev(id int, name string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"eventId\":%d,\"type\":%q,\"runId\":\"r\",\ndata: \"timestamp\":\"2026-01-01T00:00:00Z\",\"payload\":{}}\n\n", id, name, id, name)
}

// Each way a connection can end is gone on from, with the number of the last event that was
// passed on; what comes again is left out, and an end without a terminal event is none.
func TestStreamGoesOn(t *testing.T) {
	done := ev(4, "run.completed")
	for _, tt := range []struct {
		name    string
		answers []http.HandlerFunc
		after   []string // the cursor of each request
	}{
		{"a reset", []http.HandlerFunc{sse(ev(1, "a")+"event: reset\ndata: {\"afterEventId\":3}\n\n", false), sse(ev(2, "b")+ev(3, "c")+done, false)}, []string{"", "1"}},
		{"an end without a terminal event", []http.HandlerFunc{sse(ev(1, "a"), false), sse(ev(2, "b")+ev(3, "c")+done, false)}, []string{"", "1"}},
		{"events that come again", []http.HandlerFunc{sse(ev(1, "a")+ev(2, "b"), false), sse(ev(1, "a")+ev(2, "b")+ev(3, "c")+done, false)}, []string{"", "2"}},
		{"half a frame", []http.HandlerFunc{sse(ev(1, "a")+strings.TrimSuffix(ev(2, "b"), "\n"), false), sse(ev(2, "b")+ev(3, "c")+done, false)}, []string{"", "1"}},
		{"silence", []http.HandlerFunc{sse(ev(1, "a"), true), sse(ev(2, "b")+ev(3, "c")+done, false)}, []string{"", "1"}},
		{"silence before the answer", []http.HandlerFunc{func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, sse(ev(1, "a")+ev(2, "b")+ev(3, "c")+done, false)}, []string{"", ""}},
		{"errors of the server", []http.HandlerFunc{sse(ev(1, "a"), false), problem(500, fault.InternalError, true), status(502), problem(503, fault.Stopping, true), problem(429, fault.RequestRateExceeded, true), cut, cut, cut, sse(ev(2, "b")+ev(3, "c")+done, false)},
			[]string{"", "1", "1", "1", "1", "1", "1", "1", "1"}},
		{"a terminal event whose end is cut off", []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			sse(ev(1, "a")+ev(2, "b")+ev(3, "c")+done, false)(w, r)
			panic(http.ErrAbortHandler)
		}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }}, []string{"", "4"}},
		{"a terminal event of an earlier generation", []http.HandlerFunc{sse(ev(1, "a")+ev(2, "run.failed")+ev(3, "run.retried")+done, false)}, []string{""}},
		{"heartbeats, comments and other fields", []http.HandlerFunc{sse("retry: 1000\n\n: hello\n\nevent: heartbeat\ndata: {}\n\n"+ev(1, "a")+"other: x\n\n"+ev(2, "b")+ev(3, "c")+done, false)}, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var after record[string]
			h := replies(tt.answers...)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				after.add(r.URL.Query().Get("afterEventId"))
				h(w, r)
			}))
			defer web.Close()
			c := open(t, client.Config{URL: web.URL, Silence: 100 * time.Millisecond})
			ids, _ := numbers(t, c, "r", client.EventOptions{})
			if cursors := after.all(); !slices.Equal(ids, []uint64{1, 2, 3, 4}) || !slices.Equal(cursors, tt.after) {
				t.Errorf("events %v, cursors %q, want %q", ids, cursors, tt.after)
			}
		})
	}
}

// What ends a stream: an answer that says no, the end of the context, a first connection that
// never succeeds, an event that cannot be read, and a reader that has enough.
func TestStreamEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []http.HandlerFunc
		code    fault.Code
		asked   int
	}{
		{"the key is revoked", []http.HandlerFunc{sse(ev(1, "a"), false), problem(401, fault.Unauthorized, false)}, fault.Unauthorized, 2},
		{"no such run", []http.HandlerFunc{problem(404, fault.RunNotFound, false)}, fault.RunNotFound, 1},
		{"changes that are gone", []http.HandlerFunc{problem(410, fault.CursorExpired, false)}, fault.CursorExpired, 1},
		{"never connected", []http.HandlerFunc{cut}, fault.ServerUnreachable, 5},
		{"no JSON", []http.HandlerFunc{sse("id: 1\ndata: {\n\n", false)}, fault.InternalError, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked record[string]
			h := replies(tt.answers...)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.add(r.URL.Path)
				h(w, r)
			}))
			defer web.Close()
			c := open(t, client.Config{URL: web.URL})
			var err error
			for _, err = range c.Runs.Events(t.Context(), "r", client.EventOptions{}) {
			}
			if n := len(asked.all()); fault.CodeOf(err) != tt.code || n != tt.asked {
				t.Errorf("%v after %d requests, want %s after %d", err, n, tt.code, tt.asked)
			}
		})
	}
	web := httptest.NewServer(sse(ev(1, "a"), true))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	why := errors.New("why")
	var got error
	for _, err := range c.Runs.Events(ctx, "r", client.EventOptions{}) {
		got = err
		cancel(why)
	}
	if !errors.Is(got, why) {
		t.Errorf("the end of the context: %v", got)
	}
	for range c.Feed(t.Context(), 0) {
		break // ends the connection: the server can be closed
	}
}

// A reader that takes longer for an event than a silence may last is not cut off.
func TestSlowReader(t *testing.T) {
	asked := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		sse(ev(1, "a")+ev(2, "run.completed"), false)(w, r)
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL, Silence: 50 * time.Millisecond})
	n := 0
	for _, err := range c.Runs.Events(t.Context(), "r", client.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		<-time.After(80 * time.Millisecond) // longer than Silence: the time itself is the fact
	}
	if n != 2 || asked != 1 {
		t.Errorf("%d events with %d requests", n, asked)
	}
}

// A run that fails, is cancelled or is paused, as Wait and Failure show it.
func TestControl(t *testing.T) {
	s := startServer(t)
	c := s.client()
	register(t, c, gated)
	started := execute(t, c, "gated", client.ExecuteRequest{Labels: map[string]string{"a": "b"}})
	run, err := c.Runs.Pause(t.Context(), started.ID, client.Reason{Reason: "x"})
	if err != nil || !run.Paused || run.Ended() || run.Failure() != nil {
		t.Fatal(run, err)
	}
	if _, err = c.Runs.Unpause(t.Context(), started.ID, client.Reason{ResumeToken: "stale"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a stale token: %v", err)
	}
	if run, err = c.Runs.Unpause(t.Context(), started.ID, client.Reason{}); err != nil || run.Paused {
		t.Fatal(run, err)
	}
	if _, err = c.Runs.Cancel(t.Context(), started.ID, client.Reason{Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	if run, err = c.Runs.Wait(t.Context(), started.ID); err != nil || run.Status != "cancelled" || fault.CodeOf(run.Failure()) != fault.ExecutionCancelled {
		t.Fatal(run, err)
	}
	close(s.gate)
	if run, err = c.Runs.Retry(t.Context(), started.ID, client.RetryRequest{}); err != nil || run.Generation != 2 {
		t.Fatal(run, err)
	}
	if run, err = c.Runs.Wait(t.Context(), started.ID); err != nil || run.Status != "completed" || run.Failure() != nil || run.StepResults["hold"].CreditsUsed != "0" {
		t.Fatal(run, err)
	}
	if runs, err := client.Collect(c.Runs.List(t.Context(), client.RunQuery{Labels: map[string]string{"a": "b"}, Status: "completed"}), 0); err != nil || len(runs) != 1 {
		t.Errorf("runs %v, %v", runs, err)
	}
	tags, err := client.Collect(c.Runs.Tags(t.Context(), started.ID), 0)
	if err != nil || len(tags) == 0 {
		t.Errorf("tags %v, %v", tags, err)
	}
	job, err := c.Jobs.Graph(t.Context(), started.ID, 0)
	if err != nil || job.Status != "COMPLETED" || job.StepMetadata.WorkflowInstance.Nodes["hold"] == nil {
		t.Errorf("job %+v, %v", job, err)
	}
	if s := execute(t, c, "gated", client.ExecuteRequest{Wait: 20 * time.Second}); s.Run == nil || s.Run.Status != "completed" {
		t.Errorf("waited for: %+v", s)
	}
}

// Lists are read page by page, and only as far as they are wanted.
func TestPages(t *testing.T) {
	s := startServer(t)
	direct := s.client()
	register(t, direct, greet)
	for i := range 12 {
		execute(t, direct, "greet", client.ExecuteRequest{Parameters: map[string]any{"name": fmt.Sprint(i)}})
	}
	asked := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		s.api.ServeHTTP(w, r)
	}))
	defer web.Close()
	c := open(t, client.Config{URL: web.URL, Key: admin})
	all, err := client.Collect(c.Runs.List(t.Context(), client.RunQuery{PageSize: 5}), 0)
	if err != nil || len(all) != 12 || asked != 3 {
		t.Errorf("%d runs with %d requests, %v", len(all), asked, err)
	}
	seen := map[string]bool{}
	for i := range all {
		seen[all[i].ID] = true
	}
	if len(seen) != 12 {
		t.Errorf("%d different runs", len(seen))
	}
	asked = 0
	if some, err := client.Collect(c.Runs.List(t.Context(), client.RunQuery{PageSize: 5}), 5); err != nil || len(some) != 5 || asked != 1 {
		t.Errorf("%d runs with %d requests, %v", len(some), asked, err)
	}
	if _, err := client.Collect(c.Runs.List(t.Context(), client.RunQuery{Status: "nonsense"}), 0); fault.CodeOf(err) != fault.RequestMalformed {
		t.Errorf("a bad filter: %v", err)
	}
}
