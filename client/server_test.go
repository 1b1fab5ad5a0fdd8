// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/api"
	"github.com/roux-engine/roux/client"
)

var noTime time.Time

// admin is the key of the operator of the tests.
var admin = strings.Repeat("operator-", 5)

// A server is a real one on a data directory, which can be stopped and started again at the
// same address.
type server struct {
	t       testing.TB
	dir     string
	address string
	gate    chan struct{} // an attempt of the action gate ends when it receives or is closed
	engine  *roux.Engine  // nil = stopped
	api     *api.Server
	web     *http.Server
}

func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), address: "127.0.0.1:0", gate: make(chan struct{})}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *server) testActions() []action.Action {
	object := json.RawMessage(`{"type":"object"}`)
	return []action.Action{
		{Name: "gate", Version: "1.0.0", Input: object, Output: object, Run: func(ctx context.Context, _ *action.Task) (action.Result, error) {
			select {
			case <-s.gate:
				return action.Result{Output: map[string]any{"ok": true}}, nil
			case <-ctx.Done():
				return action.Result{}, ctx.Err()
			}
		}},
		{Name: "tell", Version: "1.0.0", Input: object, Output: object, Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			for _, text := range []string{"Once", " upon", " a", " time"} {
				task.Report.Delta(text)
			}
			return action.Result{Output: map[string]any{"ok": true}}, nil
		}},
		{Name: "costly", Version: "1.0.0", Input: object, Output: object, Cost: 5, Run: func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: map[string]any{"ok": true}}, nil
		}},
	}
}

func (s *server) start() {
	s.t.Helper()
	var err error
	if s.engine, err = roux.Open(context.Background(), roux.Options{Dir: s.dir, Actions: s.testActions()}); err != nil {
		s.t.Fatal(err)
	}
	if s.api, err = api.New(context.Background(), s.engine, api.Options{AdminKey: admin, Rate: -1}); err != nil {
		s.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.address = ln.Addr().String()
	s.web = &http.Server{Handler: s.api, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.web.Serve(ln) }() // ends with stop
}

func (s *server) stop() {
	if s.engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.api.EndStreams()
	if s.web.Shutdown(ctx) != nil {
		_ = s.web.Close() // requests that wait for the gate are cut off
	}
	if err := s.engine.Stop(ctx); err != nil {
		s.t.Error(err)
	}
	s.engine = nil
}

// client returns one with the key of the operator, which pauses only shortly.
func (s *server) client() *client.Client {
	return open(s.t, client.Config{URL: "http://" + s.address, Key: admin})
}

// open returns a client that pauses for a thousandth of the time.
func open(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Sleep == nil {
		cfg.Sleep = func(ctx context.Context, d time.Duration) error {
			select {
			case <-time.After(d / 1000):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func register(t testing.TB, c *client.Client, text string) *client.Recipe {
	t.Helper()
	v, _, err := c.Recipes.Create(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func execute(t testing.TB, c *client.Client, recipe string, req client.ExecuteRequest) *client.Started {
	t.Helper()
	s, err := c.Recipes.Execute(t.Context(), recipe, req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Recipes of these tests.
const (
	greet = `{"name":"greet","version":"1.0.0","description":"Greets somebody.","category":"demo",
"steps":[{"id":"step_1","type":"transform","transform":{"expression":"'hi ' + input.name","outputBinding":"greeting"}}],
"inputSchema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}}`
	gated  = `{"name":"gated","version":"1.0.0","steps":[{"id":"hold","action":{"name":"gate"}}]}`
	waits  = `{"name":"waits","version":"1.0.0","steps":[{"id":"ask","wait":{"signal":"approved"},"outputBinding":"decision"}]}`
	tell   = `{"name":"tell","version":"1.0.0","steps":[{"id":"say","action":{"name":"tell"}}]}`
	costly = `{"name":"costly","version":"1.0.0","steps":[{"id":"pay","action":{"name":"costly"}}]}`
	loop   = `{"name":"loop","version":"1.0.0","steps":[{"id":"each","loop":{"over":"input.items","as":"item","steps":[{"id":"one","transform":{"expression":"item","outputBinding":"it"}}]}}]}`
)

// A proxy passes bytes between clients and a server, and cuts connections.
type proxy struct {
	ln      net.Listener
	target  func() string
	mu      sync.Mutex
	rand    *rand.Rand
	limit   int // bytes of answers of one connection, at most; 0 = no limit
	cuts    int
	accepts int
	open    map[net.Conn]bool
}

func newProxy(t testing.TB, target func() string, limit int, seed uint64) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, limit: limit, rand: rand.New(rand.NewPCG(seed, 1)), open: map[net.Conn]bool{}}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			done.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.cutAll()
		done.Wait()
	})
	return p
}

func (p *proxy) url() string { return "http://" + p.ln.Addr().String() }

// cutAll cuts every connection.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) pass(c net.Conn) {
	up, err := net.Dial("tcp", p.target())
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.accepts++
	left := -1
	if p.limit > 0 {
		left = p.rand.IntN(p.limit)
	}
	p.open[c], p.open[up] = true, true
	p.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() {
		copyBytes(up, c, -1)
		_ = up.Close()
	})
	if copyBytes(c, up, left) {
		p.mu.Lock()
		p.cuts++
		p.mu.Unlock()
	}
	_ = c.Close()
	_ = up.Close()
	done.Wait()
	p.mu.Lock()
	delete(p.open, c)
	delete(p.open, up)
	p.mu.Unlock()
}

// copyBytes copies up to n bytes; n < 0 = all. It reports whether there were more.
func copyBytes(to, from net.Conn, n int) bool {
	buf := make([]byte, 4096)
	for {
		k, err := from.Read(buf)
		if n >= 0 && k > n {
			_, _ = to.Write(buf[:n])
			return true
		}
		if n >= 0 {
			n -= k
		}
		if _, werr := to.Write(buf[:k]); werr != nil || err != nil {
			return false
		}
	}
}

// replies answers requests in order, the last one again and again.
func replies(list ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		h := list[min(n, len(list)-1)]
		n++
		mu.Unlock()
		h(w, r)
	}
}

// A record is what handlers have seen, in order.
type record[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *record[T]) add(v T) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v)
	return len(r.list)
}

// all returns what was added, and forgets it.
func (r *record[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}
