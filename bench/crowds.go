// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// waitsForSignal is a recipe whose run does three steps and then waits.
const waitsForSignal = `{"name": "waits", "version": "1.0.0", "steps": [
 {"id": "a", "transform": {"expression": "1"}}, {"id": "b", "transform": {"expression": "2"}}, {"id": "c", "transform": {"expression": "3"}},
 {"id": "ask", "wait": {"signal": "go", "timeout": "40h"}}]}`

// crowd starts a server with as many tenants as connections, each with a run that waits, and
// returns the requests for the streams of those runs.
func (b *bench) crowd(ctx context.Context, shape string) (*server, []tenant, [][]byte, error) {
	s, err := b.serve(ctx, filepath.Join(b.fresh(), "data"), shape)
	if err != nil {
		return nil, nil, nil, err
	}
	tenants, streams, err := s.waiting(ctx)
	if err != nil {
		return nil, nil, nil, closing(s.stop, err)
	}
	return s, tenants, streams, nil
}

func (s *server) waiting(ctx context.Context) ([]tenant, [][]byte, error) {
	tenants, err := s.tenants(ctx, connections, threeSteps)
	if err != nil {
		return nil, nil, err
	}
	c, err := dial(ctx, s.address)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	streams := make([][]byte, len(tenants))
	for i, t := range tenants {
		var run started
		if err := c.call("POST", "/v1/recipes", t.key, waitsForSignal, 201, nil); err != nil {
			return nil, nil, err
		}
		if err := c.call("POST", "/v1/recipes/waits/execute", t.key, `{}`, 202, &run); err != nil {
			return nil, nil, err
		}
		streams[i] = request("GET", "/v1/recipe-executions/"+run.ExecutionID+"/events", t.key, "")
	}
	return tenants, streams, nil
}

// caughtUp is in the last frame of a stream that has caught up with such a run.
var caughtUp = []byte("event: node.waiting")

// catchUp reads a stream from the first event until it has caught up, and leaves it open.
func (c *client) catchUp(stream, last []byte) error {
	if err := c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	if _, err := c.Write(stream); err != nil {
		return err
	}
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("the stream ends early: %w", err)
		}
		if bytes.Contains(line, last) {
			return nil
		}
	}
}

// subscribers measures the memory of a server with many silent streams (-streams), each of a
// run that waits.
func subscribers(ctx context.Context, b *bench) (lines []Line, err error) {
	n := b.few(b.streams, 100)
	s, _, streams, err := b.crowd(ctx, "subscribers")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	before := s.rss()
	clients := make([]*client, n)
	defer func() {
		for _, c := range clients {
			if c != nil {
				err = closing(c.Close, err)
			}
		}
	}()
	l := b.line("subscribers", n)
	began, used := time.Now(), s.used()
	var next atomic.Int64
	err = together(connections, func(int) error {
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			c, err := dial(ctx, s.address)
			if err != nil {
				return err
			}
			c.r.Reset(c.Conn)
			clients[i] = c
			if err := c.catchUp(streams[int(i)%len(streams)], caughtUp); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.Seconds = time.Since(began).Seconds()
	l.StepsPerS, l.CPUPerStepUS = float64(n)/l.Seconds, us(s.used()-used)/float64(n)
	used = s.used()
	rest := b.rest()
	time.Sleep(rest)
	l.put("idle_cpu_ms_per_s", us(s.used()-used)/1000/rest.Seconds())
	l.put("rss_before_mb", s.rss())
	if err := s.free(); err != nil {
		return nil, err
	}
	time.Sleep(rest)
	l.RSSMB = s.rss()
	l.put("rss_start_mb", before)
	l.put("kb_per_stream", (l.RSSMB-before)*1024/float64(n))
	return []Line{l}, nil
}

// readers measures what many streams that catch up from the first event cost those who start
// runs at half of the rate that the server can take.
func readers(ctx context.Context, b *bench) (lines []Line, err error) {
	n := b.few(b.streams, 100)
	s, tenants, streams, err := b.crowd(ctx, "readers")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	send := executes(tenants)
	peak, err := press(ctx, s.address, connections, b.pressTime()/2, 202, send, nil)
	if err == nil {
		err = peak.all()
	}
	if err != nil {
		return nil, err
	}
	half := time.Duration(float64(connections) / (peak.rate() / 2) * float64(time.Second))
	alone, err := pace(ctx, s.address, connections, half, b.pressTime(), 202, send, nil)
	if err != nil {
		return nil, err
	}
	l := b.line("readers", n)
	var read atomic.Int64
	ended := make(chan error, 1)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	var took time.Duration
	go func() {
		err := together(connections, func(int) error { return catchUps(stop, s, streams, &read, int64(n)) })
		took = time.Since(began)
		ended <- err
	}()
	beside, err := pace(ctx, s.address, connections, half, b.pressTime(), 202, send, nil)
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return nil, err
	}
	l.Seconds, l.StepsPerS = took.Seconds(), float64(n)/took.Seconds()
	l.spread(beside.times)
	l.put("alone_per_s", alone.rate())
	l.put("beside_per_s", beside.rate())
	l.put("alone_p50_us", us(quantile(alone.times, 0.5)))
	l.put("writers_kept", beside.rate()/alone.rate())
	l.RSSMB = s.rss()
	return []Line{l}, nil
}

// catchUps reads streams to where they are until n have been read.
func catchUps(ctx context.Context, s *server, streams [][]byte, read *atomic.Int64, n int64) error {
	for i := read.Add(1); i <= n && ctx.Err() == nil; i = read.Add(1) {
		c, err := dial(ctx, s.address)
		if err != nil {
			return err
		}
		if err := errors.Join(c.catchUp(streams[int(i)%len(streams)], caughtUp), c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// executes returns requests that start runs of three steps, one account for each connection.
func executes(tenants []tenant) func(conn, i int) []byte {
	requests := make([][]byte, len(tenants))
	for i, t := range tenants {
		requests[i] = request("POST", "/v1/recipes/three/execute", t.key, `{"parameters": {"name": "Ana"}}`)
	}
	return func(conn, _ int) []byte { return requests[conn%len(requests)] }
}

// overload measures a server that is asked for four times what it can take: how much it does
// then, what another account notices of it, and whether every start that was accepted is
// carried out.
func overload(ctx context.Context, b *bench) (lines []Line, err error) {
	s, err := b.serve(ctx, filepath.Join(b.fresh(), "data"), "overload")
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	tenants, err := s.tenants(ctx, connections+1, threeSteps)
	if err != nil {
		return nil, err
	}
	other, many := executes(tenants[connections:]), executes(tenants[:connections])
	if _, err := press(ctx, s.address, connections, b.pressTime()/5, 202, many, nil); err != nil {
		return nil, err
	}
	var accepted accepts
	peak, calm, err := beside(ctx, s.address, connections, b.pressTime(), many, other, &accepted)
	if err != nil {
		return nil, err
	}
	const times = 4
	over, hurt, err := beside(ctx, s.address, times*connections, 2*b.pressTime(), many, other, &accepted)
	if err != nil {
		return nil, err
	}
	l := b.line("overload", times*connections)
	l.Seconds, l.StepsPerS = over.spent.Seconds(), over.rate()
	l.spread(over.times)
	refused := 0
	for _, n := range over.other {
		refused += n
	}
	l.put("refused", float64(refused))
	l.put("peak_per_s", peak.rate())
	l.put("goodput", over.rate()/peak.rate())
	l.put("other_p50_us", us(quantile(hurt.times, 0.5)))
	l.put("other_p99_us", us(quantile(hurt.times, 0.99)))
	l.put("other_peak_p50_us", us(quantile(calm.times, 0.5)))
	l.put("client_late_p99_us", us(quantile(hurt.late, 0.99)))
	l.put("other_peak_p99_us", us(quantile(calm.times, 0.99)))
	l.put("other_p99_ratio", float64(quantile(hurt.times, 0.99))/float64(quantile(calm.times, 0.99)))
	lost, err := accepted.lost(ctx, s, tenants)
	if err != nil {
		return nil, err
	}
	l.put("accepted", float64(accepted.n()))
	l.put("lost", float64(lost))
	l.RSSMB = s.rss()
	return []Line{l}, nil
}

// beside presses a server, and meanwhile another account starts 25 runs a second over 8
// connections: about half of an equal share of what the server can do.
func beside(ctx context.Context, address string, n int, d time.Duration, many, other func(conn, i int) []byte, accepted *accepts) (all, one *load, err error) {
	done := make(chan error, 1)
	go func() {
		var err error
		one, err = pace(ctx, address, 8, 320*time.Millisecond, d, 202, other, func(_ int, body []byte) { accepted.add(connections, body) })
		done <- err
	}()
	all, err = press(ctx, address, n, d, 202, many, func(i int, body []byte) { accepted.add(i%connections, body) })
	return all, one, errors.Join(err, <-done)
}

// accepts are the runs that were accepted, by the tenant that has started them.
type accepts struct {
	mu   sync.Mutex
	runs map[int][]string
}

func (a *accepts) add(tenant int, body []byte) {
	var run started
	if json.Unmarshal(body, &run) != nil {
		return // lost counts it: its id cannot be found
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = map[int][]string{}
	}
	a.runs[tenant] = append(a.runs[tenant], run.ExecutionID)
}

func (a *accepts) n() (n int) {
	for _, list := range a.runs {
		n += len(list)
	}
	return n
}

// drained waits for the end of the last run of each tenant.
func (a *accepts) drained(ctx context.Context, s *server, tenants []tenant) error {
	c, err := dial(ctx, s.address)
	if err != nil {
		return err
	}
	defer c.Close()
	for i, runs := range a.runs {
		if err := c.ended(ctx, runs[len(runs)-1], tenants[i].key); err != nil {
			return err
		}
	}
	return nil
}

// lost reads every run that was accepted, once its account has none that is live, and counts
// those that have not completed.
func (a *accepts) lost(ctx context.Context, s *server, tenants []tenant) (int, error) {
	var lost atomic.Int64
	err := together(len(tenants), func(i int) error {
		c, err := dial(ctx, s.address)
		if err != nil {
			return err
		}
		defer c.Close()
		for _, run := range a.runs[i] {
			get := request("GET", "/v1/recipe-executions/"+run, tenants[i].key, "")
			status, body, err := c.do(get)
			for deadline := time.Now().Add(requestTime); err == nil && time.Now().Before(deadline) && (status == 429 || status == 200 && !bytes.Contains(body, completedStatus)); {
				time.Sleep(20 * time.Millisecond) // its account sends too much, or the run goes on
				status, body, err = c.do(get)
			}
			if err != nil {
				return err
			}
			if status != 200 || !bytes.Contains(body, completedStatus) {
				lost.Add(1)
			}
		}
		return nil
	})
	return int(lost.Load()), err
}

var completedStatus = []byte(`"status":"completed","state":"completed"`)

// pace is press with requests at fixed times: one for each connection in every interval. One
// that comes due while the last is not answered is sent late, and its time counts from when
// it was due. One that is sent late because this process got no processor counts from when it
// was sent; how late is kept apart.
func pace(ctx context.Context, address string, n int, every, d time.Duration, want int, next func(conn, i int) []byte, seen func(conn int, body []byte)) (*load, error) {
	l := &load{other: map[int]int{}}
	began := time.Now()
	err := together(n, func(i int) error {
		c, err := dial(ctx, address)
		if err != nil {
			return err
		}
		defer c.Close()
		var times, late []time.Duration
		due := began.Add(every * time.Duration(i) / time.Duration(n))
		for k := 0; due.Sub(began) < d && ctx.Err() == nil; k++ {
			from := due
			if wait := time.Until(due); wait > 0 {
				time.Sleep(wait)
				from = time.Now()
				late = append(late, from.Sub(due))
			}
			if time.Since(began) > d {
				break // it could not keep up
			}
			status, body, err := c.do(next(i, k))
			switch {
			case err != nil:
				return err
			case status == want:
				times = append(times, time.Since(from))
				if seen != nil {
					seen(i, body)
				}
			default:
				l.mu.Lock()
				l.other[status]++
				l.mu.Unlock()
			}
			due = due.Add(every)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.times, l.late = append(l.times, times...), append(l.late, late...)
		return nil
	})
	l.spent = time.Since(began)
	if err == nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the server has closed a connection: %w", err)
	}
	return l, err
}
