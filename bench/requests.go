// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/engine"
)

// connections is how many clients send requests at once.
const connections = 64

// pressTime is how long requests are sent.
func (b *bench) pressTime() time.Duration {
	if b.smoke {
		return 300 * time.Millisecond
	}
	return b.press
}

// threeSteps is the recipe of a run of three actions, each of which reads what the one
// before has returned.
const threeSteps = `{"name": "three", "version": "1.0.0",
"inputSchema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
"steps": [
 {"id": "a", "action": {"name": "text-join"}, "inputBindings": {"items": "[\"Hello\", input.name]"}},
 {"id": "b", "action": {"name": "text-join"}, "inputBindings": {"items": "[steps.a.output.text, \"and\"]"}},
 {"id": "c", "action": {"name": "text-join"}, "inputBindings": {"items": "[steps.b.output.text, \"goodbye\"]"}}]}`

// threeActions is as many steps in the engine alone, for what a run commits.
const threeActions = 3

// runBytes is how many bytes the commits of a run of three steps have.
func (b *bench) runBytes(ctx context.Context) (n int, err error) {
	w, err := open(ctx, filepath.Join(b.fresh(), "data"), newConcurrentRuns(2).run, engine.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = closing(w.close, err) }()
	p, err := planOf(boundOf(threeActions), w.act)
	if err != nil {
		return 0, err
	}
	if err := w.once(ctx, p, map[string]any{"n": int64(1)}); err != nil { // its plan is stored once
		return 0, err
	}
	w.st.forget()
	const runs = 20
	for range runs {
		if err := w.once(ctx, p, map[string]any{"n": int64(1)}); err != nil {
			return 0, err
		}
	}
	return int(w.st.count().bytes) / runs, nil
}

// execute measures starts over HTTP: 64 connections of as many accounts start runs of
// three steps, each the next one as soon as the last is accepted, which is when it is
// durable. The runs are carried out meanwhile. Before and after it, the bare handler gets
// the same requests.
func execute(ctx context.Context, b *bench) (lines []Line, err error) {
	size, err := b.runBytes(ctx)
	if err != nil {
		return nil, err
	}
	s, err := b.serve(ctx, filepath.Join(b.fresh(), "data"), "execute")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	tenants, err := s.tenants(ctx, connections, threeSteps)
	if err != nil {
		return nil, err
	}
	send := b.starts(tenants)
	l := b.line("execute", connections)
	if err := b.bareFloor(ctx, &l, size, 202, send); err != nil {
		return nil, err
	}
	if _, err := press(ctx, s.address, connections, b.pressTime()/5, 202, send, nil); err != nil { // warm caches
		return nil, err
	}
	var accepted accepts
	used, mine := s.used(), cpu()
	got, err := press(ctx, s.address, connections, b.pressTime(), 202, send, accepted.add)
	if err == nil {
		err = got.all()
	}
	if err != nil {
		return nil, err
	}
	client := cpu() - mine
	drain := time.Now()
	if err := accepted.drained(ctx, s, tenants); err != nil {
		return nil, err
	}
	l.put("drain_s", time.Since(drain).Seconds())
	l.requests(got, s.used()-used, client)
	lost, err := accepted.lost(ctx, s, tenants)
	if err != nil {
		return nil, err
	}
	l.put("accepted", float64(len(got.times)))
	l.put("lost", float64(lost+len(got.times)-accepted.n()))
	l.BytesPerStep, l.RSSMB = float64(size), s.rss()
	l.Ratio = l.More["floor_per_s"] / l.StepsPerS
	return []Line{l}, nil
}

// requests fills in the figures of a load: a step is a request.
func (l *Line) requests(got *load, server, client time.Duration) {
	n := float64(len(got.times))
	l.Seconds, l.StepsPerS, l.CPUPerStepUS = got.spent.Seconds(), got.rate(), us(server)/n
	l.put("client_cpu_us", us(client)/n)
	l.spread(got.times)
}

// starts returns the requests of execute. No idempotency key is used twice, also not by the floor
// and the warm-up.
func (b *bench) starts(tenants []tenant) func(conn, i int) []byte {
	requests, sent := make([][]byte, len(tenants)), make([]int, len(tenants))
	for i, t := range tenants {
		requests[i] = request("POST", "/v1/recipes/three/execute", t.key, `{"parameters": {"name": "Ana"}}`)
	}
	return func(conn, _ int) []byte {
		if !b.keyed {
			return requests[conn]
		}
		sent[conn]++
		return withKey(requests[conn], strconv.Itoa(sent[conn]))
	}
}

// withKey adds an idempotency key to a request.
func withKey(request []byte, key string) []byte {
	return bytes.Replace(request, []byte("\r\n"), []byte("\r\nIdempotency-Key: "+key+"\r\n"), 1)
}

// bareFloor measures the bare handler with the same requests.
func (b *bench) bareFloor(ctx context.Context, l *Line, size, want int, send func(conn, i int) []byte) error {
	dir := b.fresh()
	var told figures
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	p, err := b.child(ctx, &told, "bare", "-dir", dir, "-n", strconv.Itoa(size))
	if err != nil {
		return err
	}
	defer func() { _ = p.kill() }()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(told["port"])))
	used := cpuOf(p.cmd.Process.Pid)
	got, err := press(ctx, address, connections, b.pressTime()/2, want, send, nil)
	if err == nil {
		err = got.all()
	}
	if err != nil {
		return fmt.Errorf("the floor: %w", err)
	}
	l.put("floor_per_s", got.rate())
	l.put("floor_cpu_us", us(cpuOf(p.cmd.Process.Pid)-used)/float64(len(got.times)))
	l.put("floor_p50_us", us(quantile(got.times, 0.5)))
	l.put("floor_p99_us", us(quantile(got.times, 0.99)))
	return nil
}

// gets measures reading runs over HTTP: 64 connections read 6,400 runs of three steps that
// have ended, and one connection reads a run of 100,000 events.
func gets(ctx context.Context, b *bench) (lines []Line, err error) {
	dir := filepath.Join(b.fresh(), "data")
	s, err := b.serve(ctx, dir, "get")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	small, err := getSmall(ctx, b, s)
	if err != nil {
		return nil, err
	}
	large, err := getLarge(ctx, b, s)
	return []Line{small, large}, err
}

func getSmall(ctx context.Context, b *bench, s *server) (l Line, err error) {
	accounts := b.few(2*connections, connections) // none of them may reach its request rate
	tenants, err := s.tenants(ctx, accounts, threeSteps)
	if err != nil {
		return l, err
	}
	const each = 50
	runs := make([][]byte, 0, accounts*each)
	c, err := dial(ctx, s.address)
	if err != nil {
		return l, err
	}
	defer c.Close()
	var size int
	perAccount := b.few(each, 2)
	for i := range perAccount {
		for _, t := range tenants {
			var run started
			if err := c.call("POST", "/v1/recipes/three/execute", t.key, `{"parameters": {"name": "Ana"}}`, 202, &run); err != nil {
				return l, err
			}
			runs = append(runs, request("GET", "/v1/recipe-executions/"+run.ExecutionID, t.key, ""))
			if i == perAccount-1 { // the last runs of the accounts
				if err := c.ended(ctx, run.ExecutionID, t.key); err != nil {
					return l, err
				}
				size = len(c.body)
			}
		}
	}
	send := func(conn, i int) []byte { return runs[(conn*accounts/connections+i*7)%len(runs)] }
	l = b.line("get", len(runs))
	if err := b.bareFloor(ctx, &l, size, 200, send); err != nil {
		return l, err
	}
	if _, err := press(ctx, s.address, connections, b.pressTime()/5, 200, send, nil); err != nil {
		return l, err
	}
	used, mine := s.used(), cpu()
	got, err := press(ctx, s.address, connections, b.pressTime(), 200, send, nil)
	if err == nil {
		err = got.all()
	}
	if err != nil {
		return l, err
	}
	l.requests(got, s.used()-used, cpu()-mine)
	l.BytesPerStep, l.RSSMB = float64(size), s.rss()
	l.Ratio = l.More["floor_per_s"] / l.StepsPerS
	return l, nil
}

// longRun is a recipe whose run has more than ten events for each pair of items.
const longRun = `{"name": "long", "version": "1.0.0",
"inputSchema": {"type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": {"type": "integer"}}}},
"steps": [{"id": "outer", "loop": {"as": "a", "over": "input.items", "steps": [
 {"id": "inner", "loop": {"as": "b", "over": "input.items", "steps": [{"id": "sum", "transform": {"expression": "a + b"}}]}}]}}]}`

// getLarge measures one connection that reads a run of at least 100,000 events.
func getLarge(ctx context.Context, b *bench, s *server) (l Line, err error) {
	c, err := dial(ctx, s.address)
	if err != nil {
		return l, err
	}
	defer c.Close()
	if err := c.call("POST", "/v1/recipes", adminKey, longRun, 201, nil); err != nil {
		return l, err
	}
	items := strings.TrimSuffix(strings.Repeat("1,", b.few(230, 10)), ",")
	var run started
	if err := c.call("POST", "/v1/recipes/long/execute", adminKey, `{"async": false, "parameters": {"items": [`+items+`]}}`, 200, &run); err != nil {
		return l, err
	}
	get := request("GET", "/v1/recipe-executions/"+run.ExecutionID, adminKey, "")
	began := time.Now()
	if _, _, err := c.do(get); err != nil {
		return l, err
	}
	first := time.Since(began)
	events, err := strconv.Atoi(strings.Trim(c.etag, `"`))
	if err != nil {
		return l, fmt.Errorf("the number of events: %w", err)
	}
	l = b.line("get-large", events)
	l.put("first_us", us(first))
	used, mine := s.used(), cpu()
	got := new(load)
	began = time.Now()
	for range b.few(300, 20) { // fewer than an account may send at once
		at := time.Now()
		status, body, err := c.do(get)
		if err != nil || status != 200 {
			return l, fmt.Errorf("%d %s: %w", status, body, err)
		}
		got.times = append(got.times, time.Since(at))
	}
	got.spent = time.Since(began)
	l.requests(got, s.used()-used, cpu()-mine)
	l.BytesPerStep, l.RSSMB = float64(len(c.body)), s.rss()
	return l, nil
}

// ready measures how long `roux serve` takes to start on the data of a server that was
// killed after many runs, until /readyz says that it takes requests.
func ready(ctx context.Context, b *bench) (_ []Line, err error) {
	dir := filepath.Join(b.fresh(), "data")
	s, err := b.serve(ctx, dir, "ready")
	if err != nil {
		return nil, err
	}
	tenants, err := s.tenants(ctx, 1, threeSteps)
	if err == nil {
		err = s.fill(ctx, tenants[0], b.few(350, 20))
	}
	if err != nil {
		return nil, closing(s.stop, err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		return nil, err
	}
	_ = s.cmd.Wait() // the error says that it was killed
	var times []time.Duration
	began := time.Now()
	for range b.few(10, 2) {
		at := time.Now()
		if s, err = b.serve(ctx, dir, "ready"); err != nil {
			return nil, err
		}
		err := s.isReady(ctx)
		times = append(times, time.Since(at))
		if err := closing(s.stop, err); err != nil {
			return nil, err
		}
	}
	l := b.line("ready", len(times))
	l.Seconds = time.Since(began).Seconds()
	l.spread(times)
	l.RSSMB = rss()
	return []Line{l}, nil
}

// fill starts runs of an account and waits for the end of the last one.
func (s *server) fill(ctx context.Context, t tenant, n int) error {
	c, err := dial(ctx, s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	var run started
	for range n {
		if err := c.call("POST", "/v1/recipes/three/execute", t.key, `{"parameters": {"name": "Ana"}}`, 202, &run); err != nil {
			return err
		}
	}
	return c.ended(ctx, run.ExecutionID, t.key)
}

// isReady waits until the server says that it is.
func (s *server) isReady(ctx context.Context) error {
	c, err := dial(ctx, s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.call("GET", "/readyz", "", "", 200, nil)
}
