// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A round with remote workers: `roux serve`, three `roux worker` that carry out its action http
// through a proxy, and `roux emulate provider` beside them. Server and workers are killed, or stopped
// for longer than a lease, and the proxy cuts connections or holds what they carry. After the last
// fault everything ends by itself, and the recorder, the books of the provider, the ledger and the
// journals must agree.

const (
	remoteWorkers = 3
	remoteLease   = time.Second
	// remoteRuns is how many runs a round starts for each fault.
	remoteRuns = 1
)

// remote are the recipes of such a round.
var remote = []string{"chain", "wide", "mixed", "farm", "farm"}

// A fleet is the workers of a round.
type fleet struct {
	*server
	proxy   *proxy
	dir     string
	workers [remoteWorkers]*process
}

// remotely is a round with that many faults.
func (r *round) remotely(ctx context.Context, faults int) (problems []string, err error) {
	s, err := newServer(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the round has not ended within 5 minutes (I6)"))
	defer cancel()
	s.end, r.remote, r.onlyKills = cancel, true, false
	e, err := r.startEmulator(r.dir, "--after", "50ms", "--late", "1s")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	f := &fleet{server: s, dir: filepath.Join(r.dir, "worker")}
	if f.proxy, err = newProxy(s.address); err != nil {
		return nil, err
	}
	defer f.proxy.close()
	s.env = append(e.env(4, s.url), fmt.Sprintf(`ROUX_WORKERS={"http":{"lease":%q,"timeout":"4m"}}`, remoteLease))
	if err := errors.Join(os.MkdirAll(f.dir, 0o700), os.WriteFile(filepath.Join(f.dir, "key"), []byte(operator), 0o600), s.begin()); err != nil {
		return nil, err
	}
	defer f.end9()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	if err := s.register(ctx, "farm"); err != nil {
		return nil, err
	}
	for i := range f.workers {
		if err := f.startWorker(i); err != nil {
			return nil, err
		}
	}
	if err := f.work(ctx, faults); err != nil || len(s.bad) > 0 {
		if len(s.bad) > 0 {
			err = nil
		}
		return s.bad, err
	}
	if problems, err = f.drain(); err != nil {
		return nil, err
	}
	more, err := r.compare()
	if err != nil {
		return nil, err
	}
	problems = slices.Concat(problems, r.slow, more)
	b, err := e.books(ctx)
	if err != nil {
		return nil, err
	}
	charged, repeated := b.check(r.jobSteps, func(format string, args ...any) {
		problems = append(problems, r.name+": "+fmt.Sprintf(format, args...))
	})
	r.jobs.Add(int64(charged))
	r.resubmitted.Add(int64(repeated))
	return problems, nil
}

// startWorker starts the i-th worker.
func (f *fleet) startWorker(i int) (err error) {
	cmd := f.c.command("worker", "--server", f.proxy.url(), "--key-file", filepath.Join(f.dir, "key"), "--action", "http", "--concurrency", "4", "-o", "jsonl")
	cmd.Env = append(cmd.Env, "ROUX_DATA="+f.dir, "HOME="+f.dir, "ROUX_ACCOUNT=local")
	f.workers[i], err = f.c.startCommand(cmd)
	return err
}

// end9 kills whatever is left.
func (f *fleet) end9() {
	for _, p := range append(f.workers[:], f.process) {
		if p != nil {
			p.signal(sigCont)
			p.signal(syscall.SIGKILL)
			_ = p.wait()
		}
	}
}

// listens is after how long a process listens for SIGTERM, also on a busy machine. Before, the signal just
// ends it: a worker that a fault has made start again has no task yet.
const listens = 2 * time.Second

// drain stops workers and server in order.
func (f *fleet) drain() (problems []string, err error) {
	for _, p := range append(f.workers[:], f.process) {
		young := time.Since(p.began) < listens
		p.signal(syscall.SIGTERM)
		code, err := p.within(maxCommandTime)
		if err != nil {
			return nil, err
		}
		if code != 0 && (code != -1 || !young) {
			problems = append(problems, fmt.Sprintf("%s: `%s` stopped with exit code %d\n%s", f.name, strings.Join(p.cmd.Args[1:], " "), code, p.stderr()))
		}
	}
	return problems, nil
}

// work starts runs while faults occur, and returns when all of them have ended.
func (f *fleet) work(ctx context.Context, faults int) error {
	names := make([]string, max(faults*remoteRuns, 4))
	for i := range names {
		names[i] = remote[i%len(remote)]
		f.tags[f.tag(i)] = names[i]
	}
	var group sync.WaitGroup
	var failed error
	var mu sync.Mutex
	fail := func(err error) {
		if err == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		failed = errors.Join(failed, err)
		f.end()
	}
	dice := rand.New(rand.NewPCG(f.rng.Uint64(), 1))
	group.Go(func() {
		for i, name := range names {
			if err := f.start(ctx, i, name); err != nil {
				fail(err)
				return
			}
			pauseFor(ctx, time.Duration(dice.Int64N(int64(300*time.Millisecond))))
		}
	})
	for n := range faults {
		pauseFor(ctx, time.Duration(f.rng.Int64N(int64(600*time.Millisecond)))) // what happens meanwhile is what is tested
		if err := f.fault(ctx, n); err != nil {
			fail(err)
			break
		}
	}
	group.Wait()
	if failed == nil {
		fail(f.untilEnded(ctx))
	}
	return failed
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// beyond is longer than a lease.
const beyond = remoteLease*3/2 + 200*time.Millisecond

// fault lets something go wrong: first everything once, then at random.
func (f *fleet) fault(ctx context.Context, n int) error {
	const kinds = 6
	if n >= kinds {
		n = f.rng.IntN(kinds)
	}
	i := f.rng.IntN(remoteWorkers)
	w := f.workers[i]
	switch n {
	case 0: // a worker is killed
		w.signal(syscall.SIGKILL)
		if code, err := w.within(maxCommandTime); err != nil || code != -1 {
			return errors.Join(err, fmt.Errorf("%s: a worker had ended with exit code %d\n%s", f.name, code, w.stderr()))
		}
		f.kills.Add(1)
		return f.startWorker(i)
	case 1: // the server is killed
		if err := f.kill9(); err != nil {
			return err
		}
		f.kills.Add(1)
		f.killed++
		pauseFor(ctx, time.Duration(f.rng.Int64N(int64(time.Second))))
		return f.begin()
	case 2: // a worker stalls beyond its leases, and reports late
		w.signal(sigStop)
		pauseFor(ctx, beyond)
		w.signal(sigCont)
		f.stalls.Add(1)
	case 3: // the server stalls, and with it the heartbeats of all workers
		f.process.signal(sigStop)
		pauseFor(ctx, beyond)
		f.process.signal(sigCont)
		f.stalls.Add(1)
	case 4: // nothing arrives for longer than a lease
		f.proxy.set(holding)
		pauseFor(ctx, beyond)
		f.proxy.set(passing)
		f.partitions.Add(1)
	default: // all connections break, and no others can be made
		f.proxy.set(cutting)
		pauseFor(ctx, time.Duration(f.rng.Int64N(int64(beyond))))
		f.proxy.set(passing)
		f.partitions.Add(1)
	}
	return nil
}

// untilEnded waits until all runs have ended.
func (s *server) untilEnded(ctx context.Context) error {
	for _, run := range s.order {
		for {
			var out struct{ Status string }
			ok, err := s.get(ctx, s.web, "/v1/recipe-executions/"+run, &out)
			if err != nil {
				return err
			}
			if ok && (out.Status == "completed" || out.Status == "failed" || out.Status == "cancelled") {
				break
			}
			if ctx.Err() != nil {
				s.problem("run %s is %q: %v", run, out.Status, context.Cause(ctx))
				return nil
			}
			pauseFor(ctx, 50*time.Millisecond)
		}
	}
	return nil
}
