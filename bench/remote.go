// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	roux "github.com/roux-engine/roux/client"
)

// remoteConfig is the configuration of a server whose action noop is carried out by workers.
const remoteConfig = `workers:
  noop: {queue: bench, accounts: ["*"], input: {type: object}, output: {type: object}}
`

const (
	remoteSteps = 1_000 // parallel steps of a run
	remoteRuns  = 4     // runs at once
	remoteChain = 100   // steps in a row of the run whose steps are timed
)

// remoteRecipe returns a recipe of n steps that a worker carries out, all at once or in a row.
func remoteRecipe(name string, n int, order string) string {
	steps := make([]string, n)
	for i := range steps {
		steps[i] = fmt.Sprintf(`{"id": "s%d", "action": {"name": %q}}`, i, actionName)
	}
	return fmt.Sprintf(`{"name": %q, "version": "1.0.0", "order": %q, "steps": [%s]}`, name, order, strings.Join(steps, ","))
}

// A remoteWorker is a worker in this process whose action does nothing.
type remoteWorker struct {
	mu     sync.Mutex
	starts []time.Time // of the calls, while timed is set
	timed  atomic.Bool
	calls  atomic.Int64
	stop   context.CancelFunc
	ended  chan error
}

// startWorker starts a worker for all accounts.
func (s *server) startWorker(ctx context.Context) (*remoteWorker, error) {
	of, err := roux.New(roux.Config{URL: "http://" + s.address, Key: adminKey})
	if err != nil {
		return nil, err
	}
	w := &remoteWorker{ended: make(chan error, 1)}
	ctx, w.stop = context.WithCancel(ctx)
	worker := roux.Worker{Client: of, Queue: "bench", Concurrency: 1_024, Actions: []action.Action{*noop(w.call)}}
	go func() { w.ended <- worker.Run(ctx) }()
	return w, nil
}

func (w *remoteWorker) call(ctx context.Context, task *action.Task) (action.Result, error) {
	w.calls.Add(1)
	if w.timed.Load() {
		w.mu.Lock()
		w.starts = append(w.starts, time.Now())
		w.mu.Unlock()
	}
	return nothing(ctx, task)
}

// close drains the worker.
func (w *remoteWorker) close() error {
	w.stop()
	return <-w.ended
}

// between is how long after each call the next one began.
func (w *remoteWorker) between() []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []time.Duration
	for i := 1; i < len(w.starts); i++ {
		all = append(all, w.starts[i].Sub(w.starts[i-1]))
	}
	w.starts = nil
	return all
}

// remote measures steps that a worker in another process than the server carries out, both on
// this machine: the rate of parallel ones, and the time from one to the next in a row.
func remote(ctx context.Context, b *bench) (lines []Line, err error) {
	s, err := b.serveWith(ctx, filepath.Join(b.fresh(), "data"), "remote", remoteConfig)
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(s.stop, err) }()
	steps := b.few(remoteSteps, 20)
	tenants, err := s.tenants(ctx, remoteRuns, remoteRecipe("fan", steps, "none"))
	if err != nil {
		return nil, err
	}
	w, err := s.startWorker(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(w.close, err) }()
	inRow, err := s.remoteChain(ctx, w, tenants[0], b.few(remoteChain, 10))
	if err != nil {
		return nil, err
	}
	// pressed starts runs for a time, as many at once as there are accounts, and waits for their ends.
	pressed := func(d time.Duration) error {
		began := time.Now()
		return together(len(tenants), func(i int) error {
			c, err := dial(ctx, s.address)
			if err != nil {
				return err
			}
			defer c.Close()
			for time.Since(began) < d {
				if err := c.runs("fan", tenants[i].key); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := pressed(b.pressTime() / 5); err != nil { // warm caches
		return nil, err
	}
	before, used, mine, began := w.calls.Load(), s.used(), cpu(), time.Now()
	if err := pressed(b.pressTime()); err != nil {
		return nil, err
	}
	l := b.line("remote", steps)
	n := float64(w.calls.Load() - before)
	l.Seconds = time.Since(began).Seconds()
	l.StepsPerS, l.CPUPerStepUS, l.RSSMB = n/l.Seconds, us(s.used()-used)/n, s.rss()
	l.put("worker_cpu_us", us(cpu()-mine)/n)
	l.spread(inRow)
	return []Line{l}, nil
}

// remoteChain runs remote steps in a row, and returns the times from one to the next.
func (s *server) remoteChain(ctx context.Context, w *remoteWorker, t tenant, n int) ([]time.Duration, error) {
	c, err := dial(ctx, s.address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.call("POST", "/v1/recipes", t.key, remoteRecipe("chain", n, "sequence"), 201, nil); err != nil {
		return nil, err
	}
	if err := c.runs("chain", t.key); err != nil {
		return nil, err
	}
	var all []time.Duration
	for range 3 {
		w.timed.Store(true)
		err := c.runs("chain", t.key)
		w.timed.Store(false)
		if err != nil {
			return nil, err
		}
		all = append(all, w.between()...)
	}
	return all, nil
}

// runs starts a run of a recipe and waits until it has completed.
func (c *client) runs(recipe, key string) error {
	var run struct{ Status string }
	err := c.call("POST", "/v1/recipes/"+recipe+"/execute", key, `{"async": false}`, 200, &run)
	if err == nil && run.Status != "completed" {
		err = fmt.Errorf("a run of %s is %s", recipe, run.Status)
	}
	return err
}
