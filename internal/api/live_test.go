// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/api"
	"github.com/roux-engine/roux/internal/sse"
)

const chats = `{"name":"chats","version":"1.0.0","steps":[{"id":"watched","wait":{"signal":"watched"}},{"id":"say","action":{"name":"chat"}}]}`

// X181: what an action streams after its first piece is joined before it is an event, and reaches a
// watcher while the action runs. A reader who comes later gets fewer frames, or each event with coalesce=0.
func TestX181_LiveDeltas(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, chats)
	for _, query := range []string{"", "?coalesce=0"} {
		run := s.execute(dev, "chats", `{}`)
		var first any
		read := func(query string, after func(text string)) (frames []string) {
			text := ""
			first = nil
			s.events(dev, run, query, func(e event) bool {
				if e.name == "node.waiting" && after != nil { // the action begins when somebody watches
					s.call(dev, "POST", "/v1/recipe-executions/"+run+"/signal", `{"name":"watched"}`).want(200)
				}
				if payload, _ := e.data["payload"].(map[string]any); e.name == "node.stream.delta" {
					frames = append(frames, fmt.Sprint(payload["deltaIndex"], payload["text"]))
					text += fmt.Sprint(payload["text"])
					if first == nil {
						first = payload["firstDeltaIndex"]
					}
					if after != nil {
						after(text)
					}
				}
				return true
			})
			return frames
		}
		// The action waits twice: what it has streamed comes before it goes on.
		live := read(query, func(text string) {
			if text == "once upon " || text == "once upon a time" {
				s.gate <- struct{}{}
			}
		})
		if len(live) < 3 || len(live) > 4 || live[0] != "0once " || live[1] != "1upon " {
			t.Errorf("%s: live %q", query, live)
		}
		if later := read("", nil); len(later) != 1 || first != float64(0) || later[0] != fmt.Sprint(len(live)-1, "once upon a time") {
			t.Errorf("later %q", later)
		}
		if later := read("?coalesce=0", nil); !slices.Equal(later, live) {
			t.Errorf("coalesce=0: later %q, live %q", later, live)
		}
	}
}

// R43: a silent stream has heartbeats, which have no number.
func TestR43_Heartbeat(t *testing.T) {
	api.SetStreamTimes(t, 20*time.Millisecond, time.Second, time.Second)
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	for _, path := range []string{"/v1/recipe-executions/" + run + "/events", "/v1/feed"} {
		beats := 0
		if _, err := s.stream(dev, path, nil, func(e event) bool {
			if e.name == "heartbeat" {
				if beats++; e.id != "" {
					t.Errorf("%s: a heartbeat with the id %s", path, e.id)
				}
			}
			return beats < 3
		}); err != nil || beats != 3 {
			t.Errorf("%s: %d heartbeats, %v", path, beats, err)
		}
	}
	c, err := s.dial(t, http.Header{"Authorization": {"Bearer " + dev}})
	if err != nil {
		t.Fatal(err)
	}
	for m := c.hear(); m["type"] != "heartbeat"; m = c.hear() {
	}
}

// X179, X182, F36: a server that stops tells each client where to read on, and does not wait
// for one that reads nothing.
func TestF36_StopResetsStreams(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	s.register(dev, waits)
	run := s.execute(dev, "waits", `{}`)
	c, err := s.dial(t, http.Header{"Authorization": {"Bearer " + dev}})
	if err != nil {
		t.Fatal(err)
	}
	c.say(`{"type":"subscribe","runId":"` + run + `"}`)
	for m := c.hear(); m["type"] != "node.waiting"; m = c.hear() {
	}
	ends := make(chan event, 2)
	ready := make(chan bool, 2)
	for _, path := range []string{"/v1/recipe-executions/" + run + "/events", "/v1/feed"} {
		go func() {
			var last event
			began := false
			_, _ = s.stream(dev, path, nil, func(e event) bool {
				if last = e; e.name == "node.waiting" || !began && e.data["number"] != nil {
					began = true
					ready <- true
				}
				return true
			})
			ends <- last
		}()
	}
	<-ready
	<-ready
	s.svc.API.Stop()
	for range 2 {
		if e := <-ends; e.name != "reset" || e.id != "" || e.data["code"] != "STOPPING" || e.data["afterEventId"] == float64(0) {
			t.Errorf("the last frame is %+v", e)
		}
	}
	m := c.hear()
	if _, _, err := c.conn.Read(c.ctx); m["type"] != "reset" || m["runId"] != run || m["code"] != "STOPPING" || websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ends with %v, %v", m, err)
	}
}

// goroutines counts those inside a function.
func goroutines(name string) int {
	buf := make([]byte, 8<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), name+"(")
}

// until waits for a fact.
func until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !fact(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// narrow connects with small buffers, so that a reader who stops is noticed.
func narrow(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) {
			serr = syscall.SetsockoptInt(socketOf(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		})
		if err == nil {
			err = serr
		}
		return err
	}}
	return d.DialContext(ctx, network, address)
}

// flooded returns a key, and a run with 50 MiB of events.
func (s *server) flooded(t *testing.T) (token, run string) {
	t.Helper()
	token = s.key("acme", access.Developer)
	steps := `{"id":"a0","action":{"name":"flood"}}`
	for i := range 14 {
		steps += fmt.Sprintf(`,{"id":"a%d","action":{"name":"flood"}}`, i+1)
	}
	s.register(token, `{"name":"floods","version":"1.0.0","order":"sequence","steps":[`+steps+`]}`)
	run = s.execute(token, "floods", `{}`)
	s.events(token, run, "?types=run.completed", func(event) bool { return true })
	return token, run
}

// F37: a reader that stops is cut off after a while. Until then it costs a part of the
// run's events, the run goes on, and afterwards it reads on with its cursor.
func TestF37_SlowReaders(t *testing.T) {
	api.SetStreamTimes(t, time.Hour, 300*time.Millisecond, 100*time.Millisecond)
	s := start(t)
	dev, run := s.flooded(t)
	path := "/v1/recipe-executions/" + run + "/events?coalesce=0"
	for _, way := range []string{"sse", "websocket"} {
		var heap runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&heap)
		before := int64(heap.HeapAlloc)
		web := &http.Client{Transport: &http.Transport{DialContext: narrow}}
		var body io.Reader
		if way == "sse" {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
			req.Header.Set("Authorization", "Bearer "+dev)
			res, err := web.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body = res.Body
		} else {
			conn, _, err := websocket.Dial(t.Context(), strings.Replace(s.url, "http", "ws", 1)+"/v1/socket", &websocket.DialOptions{HTTPClient: web, HTTPHeader: http.Header{"Authorization": {"Bearer " + dev}}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.CloseNow()
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","runId":"`+run+`","coalesce":false}`)); err != nil {
				t.Fatal(err)
			}
		}
		most := int64(0)
		until(t, way+" follows", func() bool { return goroutines("api.(*pump).send") > 0 })
		until(t, way+" is cut off", func() bool {
			runtime.GC()
			runtime.ReadMemStats(&heap)
			most = max(most, int64(heap.HeapAlloc)-before)
			return goroutines("api.(*pump).send") == 0 && goroutines("api.(*socket).serve") == 0
		})
		if most > 28<<20 { // a page of the journal is at least one chunk, and a chunk may have 16 MiB
			t.Errorf("%s: the reader costs %d MiB", way, most>>20)
		}
		if body == nil {
			continue
		}
		in := sse.NewReader(body, 0)
		for {
			if _, err := in.Next(); err != nil {
				break
			}
		}
		last, first := in.LastEventID(), ""
		if _, err := s.stream(dev, path, []string{"Last-Event-ID", last}, func(e event) bool { first = e.id; return false }); err != nil {
			t.Fatal(err)
		}
		if want := number(last) + 1; last == "" || number(first) != want {
			t.Errorf("it was cut off after %s and reads on with %s", last, first)
		}
	}
}

// F37: a server stops although a reader does not read.
func TestF37_StopWithASlowReader(t *testing.T) {
	api.SetStreamTimes(t, time.Hour, time.Hour, 100*time.Millisecond)
	s := start(t)
	dev, run := s.flooded(t)
	path := "/v1/recipe-executions/" + run + "/events?coalesce=0"
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	req.Header.Set("Authorization", "Bearer "+dev)
	res, err := (&http.Client{Transport: &http.Transport{DialContext: narrow}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	until(t, "it is blocked", func() bool { return goroutines("api.(*frames).flush") > 0 && goroutines("poll.(*FD).Write") > 0 })
	began := time.Now()
	if s.svc.API.Stop(); time.Since(began) > 5*time.Second {
		t.Errorf("it stopped after %s", time.Since(began))
	}
}

func number(id string) (n int) {
	_, _ = fmt.Sscan(id, &n)
	return n
}

// F36, I14: whatever byte each of 1,000 connections is cut at, what all connections together had is the
// journal, or the feed: no gap, no duplicate.
func TestF36_CutAtAnyByte(t *testing.T) {
	s := start(t)
	dev := s.key("acme", access.Developer)
	close(s.gate)
	s.register(dev, `{"name":"talks","version":"1.0.0","steps":[{"id":"each","loop":{"over":"[1,2,3,4,5,6,7,8]","as":"it","maxConcurrency":4,"steps":[{"id":"say","action":{"name":"chat"}}]}}]}`)
	s.register(dev, greet)
	for range 20 {
		s.execute(dev, "greet", `{"parameters":{"name":"ana"}}`)
	}
	run := s.execute(dev, "talks", `{}`)
	s.grant("acme", 1)
	rng := rand.New(rand.NewPCG(1, 0))
	// Again and again until 1,000 connections were cut: the first ones while the run goes on.
	paths := []string{"/jobs/" + run + "/events?coalesce=0", "/jobs/" + run + "/events", "/v1/feed"}
	for n, all := 0, 0; all < 1000; n++ {
		path := paths[n%len(paths)]
		var got, want []string
		last, cuts := "", 0
		text := map[any]string{}
		for ended := false; !ended; cuts++ {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
			req.Header.Set("Authorization", "Bearer "+dev)
			req.Header.Set("Last-Event-ID", last)
			res, err := http.DefaultClient.Do(req)
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("%s after %s: %v", path, last, err)
			}
			in := sse.NewReader(io.LimitReader(res.Body, rng.Int64N(3000)), 0)
			for !ended {
				e, err := in.Next()
				if err != nil {
					break
				}
				if !e.Own {
					continue
				}
				if number(e.ID) <= number(last) {
					t.Fatalf("%s: event %s after %s", path, e.ID, last)
				}
				last = e.ID
				got = append(got, e.ID+string(e.Data))
				var d struct {
					Status, RunID string
					Payload       struct{ NodeID, Text string }
				}
				if err := json.Unmarshal(e.Data, &d); err != nil {
					t.Fatal(err)
				}
				if e.Name == "node.stream.delta" {
					text[d.Payload.NodeID] += d.Payload.Text
				}
				ended = e.Name == "run.completed" || d.RunID == run && d.Status == "completed"
			}
			cancel()
			res.Body.Close()
		}
		all += cuts
		if strings.Contains(path, "jobs") {
			if len(text) != 8 {
				t.Errorf("%s: texts %v", path, text)
			}
			for step, one := range text {
				if one != "once upon a time" {
					t.Errorf("%s: the text of %v is %q", path, step, one)
				}
			}
		}
		if path == "/jobs/"+run+"/events" {
			continue // how deltas are joined depends on where a stream begins
		}
		done := false
		if _, err := s.stream(dev, path, nil, func(e event) bool {
			if e.id != "" {
				want = append(want, e.id)
			}
			done = e.data["runId"] == run && e.data["status"] == "completed"
			return !done
		}); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if i >= len(got) || !strings.HasPrefix(got[i], want[i]+"{") || number(want[i]) != i+1 {
				t.Fatalf("%s: frame %d is not %s", path, i, want[i])
			}
		}
		if len(got) != len(want) || cuts < 2 {
			t.Errorf("%s: %d frames of %d, %d cuts", path, len(got), len(want), cuts)
		}
	}
}
