// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// The shape ingress measures a peer as a service: a client in another process starts
// executions over connections to the peer's own ingress, each the next as soon as the last
// is accepted, while the executions are carried out. It has a table of its own.
const (
	ingressShape   = "ingress"
	ingressSteps   = 3
	clientCommand  = "client" // the first argument of the client's process
	ingressTimeout = time.Minute
)

// A starter starts an execution of ingressSteps steps with this id over one connection, and
// returns when the peer says that it is accepted. The id is also the idempotency key.
type starter func(ctx context.Context, id string) error

// accepted are how many executions of each connection were accepted in one part of a
// measurement, which is part of their ids.
type accepted struct {
	Part string `json:"part"`
	Each []int  `json:"each"`
}

func (a accepted) count() (n int) {
	for _, k := range a.Each {
		n += k
	}
	return n
}

// ids calls f with the id of every execution.
func (a accepted) ids(f func(id string)) {
	for conn, n := range a.Each {
		for i := range n {
			f(ingressID(a.Part, conn, i))
		}
	}
}

func ingressID(part string, conn, i int) string { return fmt.Sprintf("%s-%d-%d", part, conn, i) }

// press starts executions over all connections for a time.
func press(ctx context.Context, starters []starter, part string, d time.Duration) (accepted, figures, error) {
	a := accepted{part, make([]int, len(starters))}
	times, errs := make([][]time.Duration, len(starters)), make([]error, len(starters))
	began := time.Now()
	var all sync.WaitGroup
	for conn, start := range starters {
		all.Go(func() {
			for time.Since(began) < d && errs[conn] == nil {
				at := time.Now()
				if errs[conn] = start(ctx, ingressID(part, conn, a.Each[conn])); errs[conn] == nil {
					times[conn] = append(times[conn], time.Since(at))
					a.Each[conn]++
				}
			}
		})
	}
	all.Wait()
	f := figures{N: len(starters), Runs: a.count(), Seconds: time.Since(began).Seconds()}
	var together []time.Duration
	for _, t := range times {
		together = append(together, t...)
	}
	f.P50, f.P99 = percentiles(together)
	return a, f, errors.Join(errs...)
}

// clientRole is the main function of the client's process: it connects, and presses twice, first
// to warm up.
func clientRole(args []string) error {
	flags := flag.NewFlagSet(clientCommand, flag.ContinueOnError)
	name := flags.String("peer", "", "the peer")
	address := flags.String("address", "", "where its ingress is")
	n := flags.Int("n", 1, "how many connections")
	d := flags.Duration("press", time.Second, "how long executions are started")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := parentOf()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *d+ingressTimeout)
	defer cancel()
	starters, done, err := specOf(*name).ingress.dial(ctx, *address, *n)
	if err != nil {
		return errors.Join(err, c.send(report{Phase: "error", Error: "connect: " + err.Error()}))
	}
	defer done()
	for _, part := range []struct {
		phase string
		d     time.Duration
	}{{"warm", *d / 5}, {"end", *d}} {
		a, f, err := press(ctx, starters, part.phase, part.d)
		if err != nil {
			return errors.Join(err, c.send(report{Phase: "error", Error: fmt.Sprintf("after %d executions: %v", a.count(), err)}))
		}
		if err := c.handshake(report{Phase: part.phase, Accepted: a, Figures: &f}); err != nil {
			return err
		}
	}
	return nil
}

// admit lets a client start executions, and waits until those that were accepted have ended,
// first for the warm-up. If they do not end in time, it reports how many did.
func admit(ctx context.Context, c *courier, p peer, m *marks) error {
	open, ok := p.(interface{ Address() string })
	if !ok {
		return errors.New("this peer has no ingress")
	}
	r := report{Phase: "begin", Address: open.Address()}
	for _, phase := range []string{"warm", "end"} {
		m.reset()
		answer, err := c.ask(r)
		if err != nil {
			return err
		}
		var a accepted
		if err := json.Unmarshal([]byte(answer), &a); err != nil {
			return fmt.Errorf("what the client was told: %w", err)
		}
		done, err := m.ended(ctx, a)
		if err != nil {
			return err
		}
		r = report{Phase: phase, Completed: done}
	}
	return c.handshake(r)
}

// ended waits until the accepted executions have ended, and returns how many have. It is an
// error if they had fewer steps than they should.
func (m *marks) ended(ctx context.Context, a accepted) (done int, err error) {
	err = m.until(ctx, func() bool {
		if m.executions() < a.count() {
			return false
		}
		done = m.of(a)
		return done == a.count()
	})
	if err != nil && ctx.Err() == nil {
		return 0, err
	}
	done = m.of(a)
	if ran := m.n.Load(); ran < int64(done)*ingressSteps {
		return done, fmt.Errorf("%d executions of %d steps had %d steps", done, ingressSteps, ran)
	}
	return done, nil
}

// of counts the executions that have ended.
func (m *marks) of(a accepted) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a.ids(func(id string) {
		if _, ok := m.seen[id]; ok {
			n++
		}
	})
	return n
}

// enter measures a peer through its ingress, between the end of the warm-up's executions and
// the end of all that were accepted afterwards.
func (s *session) enter(ctx context.Context, p *spec, l *line, c *childProcess, roots []int) error {
	if _, err := c.next("empty"); err != nil {
		return err
	}
	if err := c.goOn(); err != nil {
		return err
	}
	open, err := c.next("begin")
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "client")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	client, err := startChild(ctx, dir, []string{self(), clientCommand, "-peer", p.name, "-address", open.Address,
		"-n", strconv.Itoa(p.size(ingressShape, s.sizes)), "-press", s.press.String()})
	if err != nil {
		return err
	}
	defer client.end()
	sender := client.cmd.Process.Pid
	before, _, err := admitted(c, client, "warm", roots, sender)
	if err != nil {
		return err
	}
	if err := client.goOn(); err != nil {
		return err
	}
	after, sent, err := admitted(c, client, "end", roots, sender)
	if err != nil {
		return err
	}
	l.figures = *sent.Figures
	l.Accepted, l.Completed, l.DrainS = sent.Accepted.count(), after.completed, after.drain.Seconds()
	l.entered(after.engine-before.engine, after.client-before.client)
	return errors.Join(client.goOn(), c.goOn())
}

// entered fills in what follows from how many were accepted.
func (l *line) entered(engine, client time.Duration) {
	n := float64(max(l.Accepted, 1))
	l.AcceptedPerS = float64(l.Accepted) / l.Seconds
	l.CarriedPerS = float64(l.Completed) / (l.Seconds + l.DrainS)
	l.CPUPerStep, l.CPUClient = float64(engine.Microseconds())/n, float64(client.Microseconds())/n
}

// A passage is the state when all executions of a part have ended.
type passage struct {
	completed      int
	drain          time.Duration // since the last of them was accepted
	engine, client time.Duration // CPU time so far
}

// admitted waits until the client has pressed and the executions have ended.
func admitted(c, client *childProcess, phase string, roots []int, sender int) (p passage, sent moment, err error) {
	if sent, err = client.at(phase, sender); err != nil {
		return p, sent, fmt.Errorf("the client: %w", err)
	}
	at := time.Now()
	if err := c.tell(sent.Accepted); err != nil {
		return p, sent, err
	}
	all, err := c.at(phase, roots...)
	return passage{all.Completed, time.Since(at), all.cpu, sent.cpu}, sent, err
}
