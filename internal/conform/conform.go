// SPDX-License-Identifier: Apache-2.0

// Package conform checks whether a program is a remote worker.
//
// It decides what a worker has to do: which actions it carries out so that it can be checked, what
// is done to it, and what must come of that. It runs a server of its own for it, on loopback and
// in a temporary directory, and starts the program several times.
//
// It never looks into the program: what counts is what the server sees, and how the process ends.
package conform

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Queue is the queue whose tasks the worker carries out.
const Queue = "conform"

// leaseTime is the lease of every task.
const leaseTime = 4 * time.Second

// Config says what is checked.
type Config struct {
	// Command is the program and its arguments. Required.
	Command []string
	// Only are the names of the cases that are checked. Default: all.
	Only []string
	// Patience is how long the worker has for what takes no time, such as to start. Default 30 s.
	Patience time.Duration
	// Output gets what the program prints. Default: nothing does.
	Output io.Writer
	// Tell is called with each case when it is decided. Default: nothing is.
	Tell func(Case)
}

// A Case is what was checked.
type Case struct {
	Name string `json:"case"`
	OK   bool   `json:"ok"`
	Want string `json:"want"`          // what the worker has to do
	Got  string `json:"got,omitempty"` // what came instead
	MS   int64  `json:"ms"`            // how long it took
}

// A check decides one case. It returns what came instead of what was wanted.
type check struct {
	name, want string
	run        func(ctx context.Context, s *session) error
}

// Names returns the names of the cases in their order.
func Names() (names []string) {
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Run checks a worker. The error says that it could not be checked.
func Run(ctx context.Context, cfg Config) (cases []Case, err error) {
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	list := checks()
	if len(cfg.Only) > 0 {
		for _, name := range cfg.Only {
			if !slices.Contains(Names(), name) {
				return nil, fault.New(fault.Usage, "there is no case %.60q: want one of %v", name, Names())
			}
		}
		list = slices.DeleteFunc(list, func(c check) bool { return !slices.Contains(cfg.Only, c.name) })
	}
	if _, err := exec.LookPath(cfg.Command[0]); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "the worker cannot be started: %v", err)
	}
	dir, err := os.MkdirTemp("", "roux-conform-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := open(ctx, dir, &cfg)
	if err != nil {
		return nil, err
	}
	defer s.close()
	for _, c := range list {
		begin := time.Now()
		err := s.decide(ctx, &c)
		if ctx.Err() != nil {
			return cases, context.Cause(ctx)
		}
		one := Case{Name: c.name, OK: err == nil, Want: c.want, MS: time.Since(begin).Milliseconds()}
		if err != nil {
			one.Got = err.Error()
		}
		cases = append(cases, one)
		if cfg.Tell != nil {
			cfg.Tell(one)
		}
	}
	return cases, nil
}

// decide decides a case with a worker that runs.
func (s *session) decide(ctx context.Context, c *check) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute+s.cfg.Patience)
	defer cancel()
	defer s.fault(faults{})
	if err := s.ready(ctx); err != nil {
		return err
	}
	return c.run(ctx, s)
}

// unexpected is an error that says what came.
func unexpected(format string, args ...any) error { return fmt.Errorf(format, args...) }
