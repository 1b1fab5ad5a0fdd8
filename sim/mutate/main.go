// SPDX-License-Identifier: Apache-2.0

// Command mutate changes one expression or statement of a package at a time, at
// random, and checks whether the tests notice. Each change that they do not notice is
// listed with its line: either a test is missing, or the change does not alter the
// meaning.
//
//	go run ./sim/mutate                              the default packages, 10 minutes
//	go run ./sim/mutate -packages machine -budget 1h
//	go run ./sim/mutate -packages blob -seed 7 -n 50 -at-least 90
//
// The source tree is never written: the compiler reads a changed file through an
// overlay. A mutant runs against the short tests of its own package and then of the
// packages that depend on it. A mutant that does not compile does not count. A test
// binary that hangs is stopped after a multiple of its usual time and counts as
// killed. Survivors that were judged to be equivalent are listed in
// testdata/equivalent.txt, each with a reason, and do not count either.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

type options struct {
	packages string
	budget   time.Duration
	seed     uint64
	n        int
	workers  int
	atLeast  float64
	json     bool
}

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", "ledger,machine,journal,engine,feed,slots,loops,retention,store/sqlite,store/sqlite/wal,store/format,worker,blob", "packages below internal, with commas")
	flag.DurationVar(&o.budget, "budget", 10*time.Minute, "how long it may take in all")
	flag.Uint64Var(&o.seed, "seed", 1, "decides which mutants are tried, and in which order")
	flag.IntVar(&o.n, "n", 0, "at most so many mutants a package; 0 = as many as the budget allows")
	flag.IntVar(&o.workers, "workers", 2, "mutants tried at once")
	flag.Float64Var(&o.atLeast, "at-least", 0, "exit with 1 where a package has fewer percent killed")
	flag.BoolVar(&o.json, "json", false, "one JSON line a mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	enough, err := run(ctx, os.Stdout, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if !enough {
		os.Exit(1)
	}
}

// A score counts the outcomes of the mutants of one package.
type score struct {
	killed, survived, equivalent, invalid int
}

func (s score) percent() float64 {
	if s.killed+s.survived == 0 {
		return 100
	}
	return 100 * float64(s.killed) / float64(s.killed+s.survived)
}

// run tries mutants of each package within its share of the budget. enough reports
// whether every package reached -at-least.
func run(ctx context.Context, out io.Writer, o options) (enough bool, err error) {
	root, err := os.Getwd()
	if err != nil {
		return false, err
	}
	judged, err := readEquivalent("sim/mutate/testdata/equivalent.txt")
	if err != nil {
		return false, err
	}
	packages := strings.Split(o.packages, ",")
	began := time.Now()
	enough = true
	for i, pkg := range packages {
		left := o.budget - time.Since(began)
		share := left / time.Duration(len(packages)-i)
		h, err := newHarness(ctx, root, pkg, o.seed)
		if err != nil {
			return false, fmt.Errorf("%s: %w", pkg, err)
		}
		s, err := h.play(ctx, out, o, time.Now().Add(share), judged)
		h.close()
		if err != nil {
			return false, fmt.Errorf("%s: %w", pkg, err)
		}
		if s.percent() < o.atLeast {
			enough = false
		}
		if !o.json {
			fmt.Fprintf(out, "== %s: %d killed, %d survived: %.1f %% (seed %d; without %d equivalent and %d that do not compile; %d places in all)\n",
				pkg, s.killed, s.survived, s.percent(), o.seed, s.equivalent, s.invalid, len(h.mutants))
		}
	}
	return enough, ctx.Err()
}

// show prints a survivor for a person, or every outcome for a program.
func show(out io.Writer, o options, m mutant, outcome outcome) {
	if o.json {
		line, err := json.Marshal(struct {
			Key     string  `json:"key"`
			Place   string  `json:"place"`
			Outcome string  `json:"outcome"`
			By      string  `json:"by,omitempty"`
			Seconds float64 `json:"seconds"`
		}{m.key(), m.place(), outcome.word, outcome.by, outcome.seconds})
		if err != nil {
			panic("mutate: an outcome is not JSON: " + err.Error())
		}
		fmt.Fprintf(out, "%s\n", line)
		return
	}
	if outcome.word == survived {
		fmt.Fprintf(out, "SURVIVED %s\n         %s\n", m.place(), m.key())
	}
}
