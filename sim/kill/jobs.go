// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// manyRecipe submits a job for each mode that it is given.
const manyRecipe = `name: many
ttl: 2h
inputSchema: {type: object, properties: {modes: {type: array, items: {type: string}}}}
steps:
  - id: fan
    loop:
      over: input.modes
      as: mode
      maxConcurrency: 500
      steps:
        - id: job
          action: {name: job-farm, parameters: {input: {emulate: {mode: "{{ mode }}"}}}}
          retryPolicy: {maxAttempts: 5, initialDelay: 100ms, maxDelay: 1s}
outputs: {count: size(steps.fan.output)}
`

const (
	jobsARun    = 500
	faultyShare = 0.3
)

// jobFaults are the ways in which a job goes wrong and is done nevertheless.
var jobFaults = []string{"lost", "late", "twice", "reorder", "forged", "old", "deaf", "limit", "garbage", "drop"}

// manyJobs has a provider carry out that many jobs, of which three in ten go wrong in some way. Each
// must have one result, and be charged once.
func (b *bench) manyJobs(ctx context.Context, n int, seed uint64) (problems []string, err error) {
	r, err := b.newRound("jobs", seed, b.plainBinary)
	if err != nil {
		return nil, err
	}
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Hour, errors.New("not all jobs have ended within an hour (I6)"))
	defer cancel()
	s.end = cancel
	e, err := b.startEmulator(r.dir, "--after", "100ms", "--late", "20s")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop(), r.finish(problems, err)) }()
	s.env = e.env(5000, s.url)
	if err := s.begin(); err != nil {
		return nil, err
	}
	if err := s.startMany(ctx, n); err != nil {
		return nil, errors.Join(err, s.kill9())
	}
	began, last := time.Now(), time.Time{}
	for ; ; pauseFor(ctx, time.Second) {
		charged, err := e.books(ctx)
		if err != nil {
			return nil, errors.Join(err, s.kill9())
		}
		done := 0
		for _, j := range charged.Jobs {
			if j.State == "done" {
				done++
			}
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			fmt.Printf("%6.0fs %d jobs submitted, %d done\n", time.Since(began).Seconds(), len(charged.Jobs), done)
		}
		if done >= n || ctx.Err() != nil {
			break
		}
	}
	if err := s.untilEnded(ctx); err != nil {
		return nil, errors.Join(err, s.kill9())
	}
	if problems = s.bad; len(problems) > 0 {
		return problems, s.kill9()
	}
	s.process.signal(syscall.SIGTERM)
	if code, err := s.process.within(maxCommandTime); err != nil || code != 0 {
		return nil, errors.Join(err, fmt.Errorf("the server stopped with exit code %d\n%s", code, s.process.stderr()))
	}
	return b.checkMany(ctx, s, e, n)
}

// startMany starts the runs.
func (s *server) startMany(ctx context.Context, n int) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if _, err := s.call(ctx, s.key, "/v1/recipes", "", []byte(manyRecipe), nil, http.StatusCreated); err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(s.rng.Uint64(), 2))
	for left := n; left > 0; left -= jobsARun {
		modes := make([]string, min(left, jobsARun))
		for i := range modes {
			modes[i] = "ok"
			if dice.Float64() < faultyShare {
				modes[i] = jobFaults[dice.IntN(len(jobFaults))]
			}
		}
		var out struct{ ExecutionID string }
		if _, err := s.call(ctx, s.key, "/v1/recipes/many/execute", "", map[string]any{"parameters": map[string]any{"modes": modes}}, &out, http.StatusAccepted, http.StatusOK); err != nil {
			return err
		}
		s.order = append(s.order, out.ExecutionID)
	}
	return nil
}

// checkMany compares the journals with the books of the provider and with the ledger.
func (b *bench) checkMany(ctx context.Context, s *server, e *emulator, n int) (problems []string, err error) {
	bad := func(format string, args ...any) { problems = append(problems, "jobs: "+fmt.Sprintf(format, args...)) }
	used, results := map[string]int64{}, 0
	for _, run := range s.order {
		h, err := s.read(run, bad)
		if err != nil {
			return nil, err
		}
		used[run] += s.checkCharges(h, bad)
		settled := map[string]bool{}
		for _, l := range h.events {
			if step := l.Payload.Step; l.Type == "node.completed" && strings.HasSuffix(step, ".job") {
				if settled[step] {
					bad("step %s of run %s has two results (I3)", step, run)
				}
				settled[step] = true
				results++
			}
		}
		if h.status != "completed" {
			bad("run %s is %s %s", run, h.status, h.code)
		}
	}
	if results != n {
		bad("%d results, want %d", results, n)
	}
	if err := s.checkCredits(used, bad); err != nil {
		return nil, err
	}
	books, err := e.books(ctx)
	if err != nil {
		return nil, err
	}
	charged, repeated := books.check(results, bad)
	b.jobs.Add(int64(charged))
	b.resubmitted.Add(int64(repeated))
	return problems, s.checkDoctor(bad)
}
