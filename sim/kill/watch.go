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

	"github.com/coder/websocket"

	"github.com/roux-engine/roux/internal/sse"
)

// A watch follows every run of a server over server-sent events and over a WebSocket, and the
// feed of the account. Each connection is cut at a random byte or moment.
type watch struct {
	s  *server
	mu sync.Mutex // rng
	// rng decides where connections are cut.
	rng    *rand.Rand
	feed   []string        // frames of the feed so far, by number - 1
	settle map[string]bool // runs that have ended by the feed; only its goroutine uses it
}

func newWatch(s *server, seed uint64) *watch {
	return &watch{s: s, rng: rand.New(rand.NewPCG(seed, 1)), settle: map[string]bool{}}
}

func (w *watch) draw(n int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Int64N(n)
}

// A patience is how long the connections of a client last. Each that brought nothing lets the
// next ones last longer, because an event may be larger than what a connection brings.
type patience struct{ fruitless int }

func (p *patience) brought(frames bool) {
	if p.fruitless++; frames {
		p.fruitless = 0
	}
}

func (p *patience) bytes(n int64) int64 { return n << min(2*p.fruitless, 12) }

func (p *patience) time(ms int64) time.Duration {
	return time.Duration(ms<<min(p.fruitless, 4)) * time.Millisecond
}

// cutAt returns a client for one connection, which is cut at a random byte.
func (w *watch) cutAt(p *patience) *webClient { return cutClient(p.bytes(100 + w.draw(6000))) }

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
	run(func() error { return w.followFeed(ctx, started) })
	run(func() error { return w.followSocket(ctx, started) })
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
	return failed
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

// read reads one connection of a stream after a cursor, and calls fn with each frame that has
// a number, until fn returns false or the connection ends. over means that the server has
// nothing more for this cursor.
func (w *watch) read(ctx context.Context, web *webClient, path string, after uint64, fn func(frame) bool) (over bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.s.url+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+w.s.key)
	cursor := strconv.FormatUint(after, 10)
	if w.draw(2) == 0 {
		req.Header.Set("Last-Event-ID", cursor)
	} else { // the parameter beats the header (X182)
		req.Header.Set("Last-Event-ID", "1")
		query := req.URL.Query()
		query.Set("afterEventId", cursor)
		req.URL.RawQuery = query.Encode()
	}
	res, err := web.Do(req)
	if err != nil {
		return false, nil // cut, or killed
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
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
		w.s.frames.Add(1)
		if !fn(frame{id, string(e.Data)}) {
			return false, nil
		}
	}
}

// followRun follows a run until its end, and gives it the signal that it waits for.
func (w *watch) followRun(ctx context.Context, run string) error {
	last, ended := uint64(0), false
	var failed error
	var p patience
	for signalled := false; !ended && failed == nil; {
		before := last
		over, err := w.read(ctx, w.cutAt(&p), "/v1/recipe-executions/"+run+"/events?coalesce=0", last, func(f frame) bool {
			var l *line
			l, failed = w.shown("the stream", run, &last, f)
			if failed != nil {
				return false
			}
			ended = ends(l.Type)
			return !ended && l.Type != "node.waiting"
		})
		if over && !ended {
			w.s.problem("the stream of run %s has nothing after event %d, which has not ended it", run, last)
			return nil
		}
		failed = errors.Join(failed, err)
		if p.brought(last > before); !ended {
			w.s.cuts.Add(1)
		}
		if failed == nil && !ended && !signalled && w.waits(run, last) {
			signalled, failed = true, w.s.signal(ctx, run)
		}
		if failed == nil && !ended {
			failed = pause(ctx)
		}
	}
	return failed
}

// waits reports whether an event is that of a step that waits for a signal.
func (w *watch) waits(run string, event uint64) bool {
	w.s.c.mu.Lock()
	defer w.s.c.mu.Unlock()
	text := w.s.c.shown[run][event]
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

// shown records a frame of a run in the client's log, and checks that it follows the last one.
func (w *watch) shown(way, run string, last *uint64, f frame) (*line, error) {
	if f.id != *last+1 {
		w.s.problem("%s of run %s has event %d after event %d (I14)", way, run, f.id, *last)
	}
	*last = f.id
	w.s.c.mu.Lock()
	before := w.s.c.shown[run][f.id]
	w.s.c.mu.Unlock()
	if before != "" && !sameJSON(before, f.text) {
		w.s.problem("%s of run %s has event %d as\n  %s\nand another one has it as\n  %s (I14)", way, run, f.id, f.text, before)
	}
	l, err := w.s.c.readLine(f.text)
	if err == nil && (l == nil || l.RunID != run || l.EventID != f.id) {
		err = fmt.Errorf("%s: %s of run %s has a frame with the id %d: %s", w.s.name, way, run, f.id, f.text)
	}
	return l, err
}

// followSocket follows every run over one socket after the other.
func (w *watch) followSocket(ctx context.Context, started <-chan struct{}) error {
	cursors, ended := map[string]*uint64{}, map[string]bool{}
	var p patience
	for {
		last := false
		select {
		case <-started:
			last = true
		default:
		}
		runs, _ := w.s.known()
		open := 0
		for _, id := range runs {
			if cursors[id] == nil {
				cursors[id] = new(uint64)
			}
			if !ended[id] {
				open++
			}
		}
		if last && open == 0 {
			return nil
		}
		some, err := w.socket(ctx, &p, cursors, ended)
		if err != nil {
			return err
		}
		p.brought(some)
		w.s.cuts.Add(1)
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// socket follows runs over one socket until it is cut. some reports whether it had events.
func (w *watch) socket(ctx context.Context, p *patience, cursors map[string]*uint64, ended map[string]bool) (some bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.time(50+w.draw(400))) // so that runs that were started since are followed too
	defer cancel()
	header := http.Header{"Authorization": {"Bearer " + w.s.key}}
	conn, _, err := websocket.Dial(ctx, strings.Replace(w.s.url, "http", "ws", 1)+"/v1/socket", &websocket.DialOptions{HTTPClient: w.cutAt(p), HTTPHeader: header})
	if err != nil {
		return false, nil
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(4 << 20)
	followed := 0
	for id, after := range cursors {
		if ended[id] || followed == 50 {
			continue
		}
		followed++
		text := fmt.Sprintf(`{"type":"subscribe","runId":%q,"afterEventId":%d,"coalesce":false}`, id, *after)
		if conn.Write(ctx, websocket.MessageText, []byte(text)) != nil {
			return false, nil
		}
	}
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return some, nil
		}
		var m struct {
			Type    string
			RunID   string
			EventID uint64
			Code    string
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return some, fmt.Errorf("%s: the socket has %q: %w", w.s.name, data, err)
		}
		switch {
		case m.Type == "error" && m.Code != "STOPPING":
			return some, fmt.Errorf("%s: the socket has an error: %s", w.s.name, data)
		case m.EventID == 0:
			continue
		}
		w.s.frames.Add(1)
		l, err := w.shown("the socket", m.RunID, cursors[m.RunID], frame{m.EventID, string(data)})
		if err != nil {
			return some, err
		}
		some, ended[m.RunID] = true, ends(l.Type)
		if ended[m.RunID] { // it may have been the last one
			return some, nil
		}
	}
}

// followFeed follows the feed of the account until it has the end of every run.
func (w *watch) followFeed(ctx context.Context, started <-chan struct{}) error {
	var failed error
	var p patience
	for {
		over := false
		select {
		case <-started:
			over = true
		default:
		}
		runs, _ := w.s.known()
		for _, id := range runs {
			over = over && w.settle[id]
		}
		if over {
			return nil
		}
		before := len(w.feed)
		one, cancel := context.WithTimeout(ctx, p.time(50+w.draw(400)))
		_, err := w.read(one, w.cutAt(&p), "/v1/feed", uint64(len(w.feed)), func(f frame) bool {
			ended := len(w.settle)
			failed = w.change(f)
			return failed == nil && len(w.settle) == ended // it may have been the last one
		})
		cancel()
		p.brought(len(w.feed) > before)
		w.s.cuts.Add(1)
		if failed = errors.Join(failed, err); failed == nil {
			failed = pause(ctx)
		}
		if failed != nil {
			return failed
		}
	}
}

// change records a frame of the feed.
func (w *watch) change(f frame) error {
	if f.id != uint64(len(w.feed)+1) {
		w.s.problem("the feed has change %d after change %d (I14)", f.id, len(w.feed))
		return fmt.Errorf("%s: the feed cannot be followed", w.s.name)
	}
	w.feed = append(w.feed, f.text)
	var c struct{ RunID, Status string }
	if err := json.Unmarshal([]byte(f.text), &c); err != nil {
		return err
	}
	if c.Status == "completed" || c.Status == "failed" || c.Status == "cancelled" {
		w.settle[c.RunID] = true
	}
	return nil
}

// compareFeeds reads the feed over one connection, and compares it with what the cut
// connections have had.
func (w *watch) compareFeeds(ctx context.Context) error {
	n := 0
	_, err := w.read(ctx, w.s.web, "/v1/feed", 0, func(f frame) bool {
		if n++; f.id != uint64(n) || f.text != w.feed[n-1] {
			w.s.problem("change %d of the feed is\n  %s\nand was shown as\n  %s (I14)", f.id, f.text, w.feed[n-1])
		}
		return n < len(w.feed)
	})
	if err == nil && n != len(w.feed) {
		err = fmt.Errorf("%s: the feed ends after %d of %d changes", w.s.name, n, len(w.feed))
	}
	return err
}
