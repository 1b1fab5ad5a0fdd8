// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// marks records when steps and executions start, end and wait, as reported from inside
// the worker. Engines that replay run the same code again, so an execution is counted by
// its id and only once; steps are never replayed.
type marks struct {
	steps []atomic.Int64 // nanoseconds since zero, in the order in which the steps started
	n     atomic.Int64
	zero  time.Time

	mu      sync.Mutex
	seen    map[string]string // by id of the execution: the address for its event if it waits
	last    time.Duration     // when the last execution was seen
	failure error
	changed chan struct{}
	lags    []time.Duration // submit: from the call to the first step
}

// newMarks allocates memory for the given number of steps in advance, so that no step
// waits for it.
func newMarks(steps int) *marks {
	return &marks{steps: make([]atomic.Int64, steps), zero: time.Now(), seen: map[string]string{}, changed: make(chan struct{}, 1)}
}

// reset discards the marks of the warm-up.
func (m *marks) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n.Store(0)
	m.zero = time.Now()
	m.seen = map[string]string{}
	m.last, m.failure, m.lags = 0, nil, nil
}

// step records the start of a step.
func (m *marks) step() {
	i := m.n.Add(1) - 1
	if i < int64(len(m.steps)) {
		m.steps[i].Store(int64(time.Since(m.zero)))
	}
	if i == 0 {
		m.wake()
	}
}

// reached records that an execution has ended.
func (m *marks) reached(id string) { m.waits(id, "") }

// waits records that an execution waits for an event, which must be sent to
// this address.
func (m *marks) waits(id, address string) {
	m.mu.Lock()
	if _, ok := m.seen[id]; !ok {
		m.seen[id] = address
		m.last = time.Since(m.zero)
	}
	m.mu.Unlock()
	m.wake()
}

// failed ends the measurement because an execution failed.
func (m *marks) failed(err error) {
	m.mu.Lock()
	if m.failure == nil {
		m.failure = err
	}
	m.mu.Unlock()
	m.wake()
}

func (m *marks) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// executions returns how many executions were recorded.
func (m *marks) executions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

// anyAddress returns the address of a waiting execution, chosen at random.
func (m *marks) anyAddress() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Collect(maps.Values(m.seen))
	return all[rand.IntN(len(all))]
}

// wait waits until n executions were recorded.
func (m *marks) wait(ctx context.Context, n int) error {
	err := m.until(ctx, func() bool { return m.executions() >= n })
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("%d of %d executions and %d steps were done: %w", m.executions(), n, m.n.Load(), err)
	}
	return err
}

// stepped waits until a step was called.
func (m *marks) stepped(ctx context.Context) error {
	return m.until(ctx, func() bool { return m.n.Load() > 0 })
}

// until waits until the condition holds or an execution has failed.
func (m *marks) until(ctx context.Context, so func() bool) error {
	for {
		m.mu.Lock()
		err := m.failure
		m.mu.Unlock()
		if err != nil || so() {
			return err
		}
		select {
		case <-m.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A kind is a kind of execution that every peer registers under this name.
type kind string

const (
	kindChain kind = "chain" // n steps in a row
	kindFan   kind = "fan"   // n steps at once, then the join
	kindWait  kind = "wait"  // waits for an event, then takes one step
)

// shapes runs the shapes for a peer that can start executions; peers embed it and set its
// fields when they are open.
type shapes struct {
	marks    *marks
	start    func(ctx context.Context, k kind, id string, n int) error
	signal   func(ctx context.Context, address string) error
	starters int // how many calls of start may run at once
	serial   int
}

func (s *shapes) id(k kind) string {
	s.serial++
	return fmt.Sprintf("%s-%d", k, s.serial)
}

// Chain runs one execution of n steps in a row.
func (s *shapes) Chain(ctx context.Context, n int) error {
	return s.crowd(ctx, kindChain, 1, n)
}

// Fan starts runs executions, each of steps steps at once and their join.
func (s *shapes) Fan(ctx context.Context, runs, steps int) error {
	return s.crowd(ctx, kindFan, runs, steps)
}

// Many starts runs executions of steps steps.
func (s *shapes) Many(ctx context.Context, runs, steps int) error {
	return s.crowd(ctx, kindChain, runs, steps)
}

// Idle starts n executions that wait.
func (s *shapes) Idle(ctx context.Context, n int) error {
	return s.crowd(ctx, kindWait, n, 0)
}

// Signal sends the event that the execution at this address waits for.
func (s *shapes) Signal(ctx context.Context, address string) error {
	return s.signal(ctx, address)
}

// crowd starts executions as fast as the peer accepts them and waits for all.
func (s *shapes) crowd(ctx context.Context, k kind, count, steps int) error {
	before := s.marks.executions()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ids := make(chan string, count)
	for range count {
		ids <- s.id(k)
	}
	close(ids)
	var starters sync.WaitGroup
	for range min(max(s.starters, 1), count) {
		starters.Go(func() {
			for id := range ids {
				if err := s.start(ctx, k, id, steps); err != nil {
					s.marks.failed(fmt.Errorf("start %s: %w", id, err))
					return
				}
			}
		})
	}
	err := s.marks.wait(ctx, before+count)
	if err != nil {
		cancel()
	}
	starters.Wait()
	return err
}

// quiet is the pause before the next submission, so that remaining work of the previous
// one does not delay it.
const quiet = 20 * time.Millisecond

// Submit measures from the call that submits to the start of the first step.
func (s *shapes) Submit(ctx context.Context, n int) error {
	for i := range n {
		time.Sleep(quiet)
		before := s.marks.n.Load()
		called := time.Since(s.marks.zero)
		if err := s.start(ctx, kindChain, s.id(kindChain), 1); err != nil {
			return err
		}
		if err := s.marks.wait(ctx, i+1); err != nil {
			return err
		}
		if s.marks.n.Load() <= before {
			return fmt.Errorf("execution %d ended without its step", i)
		}
		s.marks.lags = append(s.marks.lags, time.Duration(s.marks.steps[before].Load())-called)
	}
	return nil
}

// figures are the figures computed from the marks; the parent adds what it
// measured.
type figures struct {
	N       int     `json:"n"`    // steps, of chain in each execution, of wide in each half; idle, recover: executions
	Runs    int     `json:"runs"` // executions
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

// figures returns the figures of a shape that has ended. It returns an error if not all
// requested steps ran, because an engine that skips steps would look faster.
func (m *marks) figures(shape string, size int) (figures, error) {
	f := figures{N: size, Runs: 1, Seconds: m.last.Seconds()}
	switch shape {
	case "chain":
		f.Runs = max(m.executions(), 1)
		f.Seconds /= float64(f.Runs)
	case "many":
		f.N, f.Runs = size*stepsOfMany, size
	case "submit", "idle", "recover":
		f.Runs = size
	case "wide":
		f.Runs = size/narrow + 1
	}
	ran := int(m.n.Load())
	if want := f.steps(shape); shape != "idle" && shape != "recover" && ran < want {
		return f, fmt.Errorf("%d steps ran, %d were asked for", ran, want)
	}
	switch shape {
	case "chain":
		gaps := make([]time.Duration, 0, size*f.Runs)
		for i := 1; i < size*f.Runs; i++ {
			if i%size != 0 { // the time between two executions does not count
				gaps = append(gaps, time.Duration(m.steps[i].Load()-m.steps[i-1].Load()))
			}
		}
		f.P50, f.P99 = percentiles(gaps)
	case "submit":
		f.P50, f.P99 = percentiles(m.lags)
	}
	return f, nil
}

// steps returns the number of steps of the figures.
func (f *figures) steps(shape string) int {
	switch shape {
	case "chain":
		return f.N * f.Runs
	case "wide":
		return 2 * f.N
	}
	return f.N
}

// percentiles returns p50 and p99 in microseconds.
func percentiles(d []time.Duration) (p50, p99 float64) {
	if len(d) == 0 {
		return 0, 0
	}
	slices.Sort(d)
	at := func(p float64) float64 {
		return float64(d[min(len(d)-1, int(p*float64(len(d))))].Nanoseconds()) / 1000
	}
	return at(0.50), at(0.99)
}
