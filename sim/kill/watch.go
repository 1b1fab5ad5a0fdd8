// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/sse"
)

// A watch follows every run of a server over server-sent events and over WebSockets, the feed
// of the account, and its ledger. Each connection is cut at a random byte or moment.
type watch struct {
	s  *server
	mu sync.Mutex // rng and runs
	// rng decides where connections are cut.
	rng    *rand.Rand
	runs   []*sequence // what each client was sent of each run
	feeds  []*sequence // what each client was sent of the feed
	ledger []entry     // what a client was sent of the ledger
}

func newWatch(s *server, seed uint64) *watch {
	w := &watch{s: s, rng: rand.New(rand.NewPCG(seed, 1))}
	for range followers {
		w.feeds = append(w.feeds, &sequence{way: byFeed})
	}
	return w
}

// followers is how many clients follow all runs by WebSocket, and how many the feed.
const followers = 2

func (w *watch) draw(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Int64N(n)
}

// A patience is how long the connections of a client last. Each that brought nothing lets the
// next ones last longer, because an event may be larger than what a connection brings, and the
// next event may be as large. One that no server has accepted does not count.
type patience struct {
	accepted  bool
	fruitless int
}

func (p *patience) brought(frames bool) {
	switch {
	case frames:
		p.fruitless = max(0, p.fruitless-1)
	case p.accepted:
		p.fruitless++
	}
	p.accepted = false
}

func (p *patience) bytes(n int64) int64 { return n << min(2*p.fruitless, 12) }

func (p *patience) time(ms int64) time.Duration {
	return time.Duration(ms<<min(p.fruitless, 4)) * time.Millisecond
}

// client returns a client for one connection, which is cut at a random byte unless p is nil.
func (w *watch) client(p *patience) *webClient {
	if p == nil {
		return w.s.web
	}
	return cutClient(p.bytes(100 + w.draw(6000)))
}

// accepted records a connection that the server has accepted, and counts it if it reads on
// after a cursor.
func (w *watch) accepted(p *patience, v way, after uint64) {
	if p == nil {
		return
	}
	if p.accepted = true; after > 0 {
		w.s.reconnects[v].Add(1)
	}
}

// all follows until every run has ended that was started before started was closed.
func (w *watch) all(ctx context.Context, started <-chan struct{}) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	run := func(work func() error) {
		group.Go(func() {
			if err := work(); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	for _, q := range w.feeds {
		run(func() error { return w.followFeed(ctx, q, started) })
	}
	for range followers {
		run(func() error { return w.followSocket(ctx, started) })
	}
	pages, ended := make(chan error, 1), make(chan struct{})
	go func() { pages <- w.followLedger(ctx, ended) }()
	seen := 0
	for open := true; open; {
		select {
		case <-started:
			open = false
		default:
		}
		runs, more := w.s.known()
		for _, id := range runs[seen:] {
			run(func() error { return w.followRun(ctx, id) })
		}
		seen = len(runs)
		if open {
			select {
			case <-more:
			case <-started:
			case <-ctx.Done():
				open = false
			}
		}
	}
	group.Wait()
	close(ended)
	return errors.Join(failed, <-pages)
}

// pause waits before a client connects again. It is shorter than a server asks for, because
// then there are more connections to cut.
func pause(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A frame is what a stream had of one event.
type frame struct {
	id   uint64
	text string
}

// read reads one connection of a stream after what is in q, cut unless p is nil, and calls fn
// with each frame that has a number, until fn returns false or the connection ends. over means
// that the server has nothing more for this cursor.
func (w *watch) read(ctx context.Context, p *patience, path string, q *sequence, fn func(frame) bool) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.s.url+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+w.s.key)
	after := q.last()
	cursor := strconv.FormatUint(after, 10)
	if w.draw(2) == 0 {
		req.Header.Set("Last-Event-ID", cursor)
	} else { // the parameter beats the header (X182)
		req.Header.Set("Last-Event-ID", "1")
		query := req.URL.Query()
		query.Set("afterEventId", cursor)
		req.URL.RawQuery = query.Encode()
	}
	res, err := w.client(p).Do(req)
	if err != nil {
		return false, nil // cut, or killed
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		w.accepted(p, q.way, after)
	case http.StatusNoContent:
		return true, nil
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false, nil
	default:
		text, _ := io.ReadAll(res.Body)
		if len(text) == 0 || !json.Valid(text) {
			return false, nil // the answer was cut
		}
		return false, fmt.Errorf("%s: GET %s after %d is answered with %d: %s", w.s.name, path, after, res.StatusCode, text)
	}
	for in := sse.NewReader(res.Body, 0); ; {
		e, err := in.Next()
		if err != nil {
			return false, nil
		}
		if !e.Own {
			continue
		}
		id, err := strconv.ParseUint(e.ID, 10, 64)
		if err != nil {
			return false, fmt.Errorf("%s: %s: a frame has the id %q", w.s.name, path, e.ID)
		}
		w.s.frames[q.way].Add(1)
		if !fn(frame{id, string(e.Data)}) {
			return false, nil
		}
	}
}

// followRun follows a run until its end, and gives it the signal that it waits for.
func (w *watch) followRun(ctx context.Context, run string) error {
	q, ended := w.sequenceOf(byStream, run), false
	var failed error
	var p patience
	for signalled := false; !ended && failed == nil; {
		before := q.last()
		over, err := w.read(ctx, &p, "/v1/recipe-executions/"+run+"/events?coalesce=0", q, func(f frame) bool {
			var l *line
			l, failed = w.shown(q, f)
			if failed != nil {
				return false
			}
			ended = ends(l.Type)
			return !ended && l.Type != "node.waiting"
		})
		if over && !ended {
			w.s.problem("%s has nothing after event %d, which has not ended it", q, q.last())
			return nil
		}
		failed = errors.Join(failed, err)
		p.brought(q.last() > before)
		if failed == nil && !ended && !signalled && waits(q) {
			signalled, failed = true, w.s.signal(ctx, run)
		}
		if failed == nil && !ended {
			failed = pause(ctx)
		}
	}
	return failed
}

// waits reports whether the last event is that of a step that waits for a signal.
func waits(q *sequence) bool {
	if q.last() == 0 {
		return false
	}
	text := q.frames[q.last()-1]
	return strings.Contains(text, `"node.waiting"`) && strings.Contains(text, `"step":"ask"`)
}

// ends reports whether an event ends its run.
func ends(name string) bool {
	switch name {
	case "run.completed", "run.failed", "run.cancelled", "run.timed_out":
		return true
	}
	return false
}

// shown records a frame of a run in the client's log, after what is in q.
func (w *watch) shown(q *sequence, f frame) (*line, error) {
	if err := w.add(q, f); err != nil {
		return nil, err
	}
	l, err := w.s.c.readLine(f.text)
	if err == nil && (l == nil || l.RunID != q.run || l.EventID != f.id) {
		err = fmt.Errorf("%s: %s has a frame with the id %d: %s", w.s.name, q, f.id, f.text)
	}
	return l, err
}
