// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// childCommand is the first argument of a process that runs one shape.
const childCommand = "child"

// calm is how long executions have been idle when their memory is measured; it is longer
// for peers that remove them from memory after a timeout. aged is how long the executions
// of recover have waited when the processes are killed; rest is enough for an engine to
// record what it has just done.
const (
	calm = 3 * time.Second
	aged = time.Second
	rest = 300 * time.Millisecond
)

// A report is a message from the child to its parent: nothing is open yet, the shape
// begins, wide is half done, the shape has ended. After each the child waits until the
// parent has measured.
type report struct {
	Phase     string   `json:"phase"` // "empty", "begin", "warm", "half", "end" or "error"
	Figures   *figures `json:"figures,omitempty"`
	Address   string   `json:"address,omitempty"`   // recover: where one of the executions waits; ingress: of the ingress
	Accepted  accepted `json:"accepted,omitzero"`   // ingress: what the client has started
	Completed int      `json:"completed,omitempty"` // ingress: how many of those have ended
	Error     string   `json:"error,omitempty"`
}

// child opens one peer, runs one shape and reports on file descriptor 3.
func child(args []string) error {
	flags := flag.NewFlagSet(childCommand, flag.ContinueOnError)
	name := flags.String("peer", "", "the peer")
	shape := flags.String("shape", "", "the shape")
	size := flags.Int("n", 0, "its size")
	timeout := flags.Duration("timeout", time.Minute, "how long it may take")
	var e env
	signal := flags.String("signal", "", "take over from a process that was killed, and send an event to this address")
	flags.StringVar(&e.Dir, "dir", "", "a directory, empty but for what that process left")
	flags.StringVar(&e.Postgres, "postgres", "", "URL of a database, empty in the same way")
	flags.StringVar(&e.Restate, "restate", "", "path of restate-server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := parentOf()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	e.Log = os.Stderr
	do := func() error { return meet(ctx, c, specOf(*name), e, *shape, *size) }
	if *signal != "" {
		do = func() error { return takeOver(ctx, c, specOf(*name), e, *signal) }
	}
	if err := do(); err != nil {
		return errors.Join(err, c.send(report{Phase: "error", Error: err.Error()}))
	}
	return nil
}

// parentOf returns the connection to the process that has started this one.
func parentOf() (*courier, error) {
	out := os.NewFile(3, "reports")
	if out == nil {
		return nil, errors.New("descriptor 3 is not open: this command is started by its parent only")
	}
	return &courier{out: json.NewEncoder(out), in: bufio.NewReader(os.Stdin)}, nil
}

// closeSoon closes a peer. Closing is not measured, and takes long for engines with
// thousands of waiting executions; the parent kills them.
func closeSoon(p peer) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if err := p.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "close:", err)
		}
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// freeMemory returns free memory to the system. It collects twice, because objects in a
// sync.Pool survive one collection; an idle process has one every two minutes.
func freeMemory() {
	runtime.GC()
	debug.FreeOSMemory()
}

// meet opens the peer, warms it up, and runs a shape between two reports.
func meet(ctx context.Context, c *courier, s *spec, e env, shape string, size int) error {
	e.Marks = newMarks(max(size*max(stepsOfMany, chainsAtMost), 64))
	e.Ingress = shape == ingressShape
	p := s.open()
	freeMemory()
	if err := c.handshake(report{Phase: "empty"}); err != nil {
		return err
	}
	if err := p.Open(ctx, e); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer closeSoon(p)
	if err := warmUp(ctx, p, e.Marks, shape); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	time.Sleep(rest)
	freeMemory()
	if e.Ingress {
		return admit(ctx, c, p, e.Marks)
	}
	if err := c.handshake(report{Phase: "begin"}); err != nil {
		return err
	}
	e.Marks.reset()
	half := func() error {
		time.Sleep(rest)
		return c.handshake(report{Phase: "half"})
	}
	if err := carryOut(ctx, p, shape, size, half); err != nil {
		return err
	}
	f, err := e.Marks.figures(shape, size)
	if err != nil {
		return err
	}
	end := report{Phase: "end", Figures: &f}
	switch shape {
	case "idle":
		e.Marks.reset() // this memory is the harness's, not the engine's
		time.Sleep(max(s.settle, calm))
		freeMemory()
	case "recover":
		end.Address = e.Marks.anyAddress()
		time.Sleep(aged)
	case "wide":
		time.Sleep(rest)
	}
	return c.handshake(end)
}

// takeOver opens the peer on the data of a killed process, sends an event to one of the
// waiting executions, and reports when the step after it is called.
func takeOver(ctx context.Context, c *courier, s *spec, e env, address string) error {
	e.Again, e.Marks = true, newMarks(1)
	p := s.open()
	if err := p.Open(ctx, e); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer closeSoon(p)
	if err := eventually(ctx, func() error { return p.Signal(ctx, address) }); err != nil {
		return fmt.Errorf("signal %s: %w", address, err)
	}
	if err := e.Marks.stepped(ctx); err != nil {
		return fmt.Errorf("no step followed the event: %w", err)
	}
	return c.handshake(report{Phase: "end"})
}

// eventually repeats a call until a starting server accepts it.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// warmUp makes the engine open connections and prepare statements, including those that
// only many concurrent steps need.
func warmUp(ctx context.Context, p peer, m *marks, shape string) error {
	size, more := map[string]int{"fan": 20, "many": 20, "wide": 200}[shape]
	if err := p.Chain(ctx, 5); err != nil || !more {
		return err
	}
	m.reset()
	return carryOut(ctx, p, shape, size, func() error { return nil })
}

// carryOut runs a shape and calls half when wide is half done.
func carryOut(ctx context.Context, p peer, shape string, size int, half func() error) error {
	switch shape {
	case "chain":
		return chains(ctx, p, size)
	case "fan":
		return p.Fan(ctx, 1, size)
	case "many":
		return p.Many(ctx, size, stepsOfMany)
	case "submit":
		return p.Submit(ctx, size)
	case "idle", "recover":
		return p.Idle(ctx, size)
	case "wide":
		if err := p.Fan(ctx, size/narrow, narrow); err != nil {
			return err
		}
		if err := half(); err != nil {
			return err
		}
		return p.Fan(ctx, 1, size)
	}
	return fmt.Errorf("no shape %q", shape)
}

// One chain of a fast engine takes less than a tenth of a second, in which the speed of a
// machine may be far from its average. So chains are repeated for chainsFor, at most as
// many as Roux's bench program runs.
const (
	chainsFor    = 3 * time.Second
	chainsAtMost = 40
)

func chains(ctx context.Context, p peer, size int) error {
	began := time.Now()
	for n := 0; n == 0 || n < chainsAtMost && time.Since(began) < chainsFor; n++ {
		if err := p.Chain(ctx, size); err != nil {
			return err
		}
	}
	return nil
}

// A courier sends reports to the parent.
type courier struct {
	out *json.Encoder
	in  *bufio.Reader
}

func (c *courier) send(r report) error { return c.out.Encode(r) }

// handshake sends a report and waits until the parent answers.
func (c *courier) handshake(r report) error {
	_, err := c.ask(r)
	return err
}

// ask sends a report and returns the answer of the parent.
func (c *courier) ask(r report) (string, error) {
	if err := c.send(r); err != nil {
		return "", fmt.Errorf("report %s: %w", r.Phase, err)
	}
	answer, err := c.in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the parent did not answer %s: %w", r.Phase, err)
	}
	return answer, nil
}
