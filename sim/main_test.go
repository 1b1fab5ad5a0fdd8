// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/simulate"
)

// final is the part of a summary that must be equal each time.
func final(t *testing.T, o options) (hash, counts string) {
	t.Helper()
	var out bytes.Buffer
	if code := run(context.Background(), &out, o); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	m := regexp.MustCompile(`final hash ([0-9a-f]{16})`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("no final hash in:\n%s", out.String())
	}
	// A session of more than ten seconds also shows its progress.
	counts = regexp.MustCompile(`(?m)^schedules .*$`).FindString(out.String())
	return m[1], counts
}

// TestSameSeedsSameHash: the summary depends on the seeds, and not on the number of
// workers.
func TestSameSeedsSameHash(t *testing.T) {
	hash, counts := final(t, options{schedules: 100, seed: 30, workers: 1})
	again, countsAgain := final(t, options{schedules: 100, seed: 30, workers: 3})
	if hash != again || counts != countsAgain {
		t.Errorf("one worker: %s, %s; three: %s, %s", hash, counts, again, countsAgain)
	}
	if other, _ := final(t, options{schedules: 100, seed: 31, workers: 1}); other == hash {
		t.Error("other seeds have the same hash")
	}
	if !strings.HasPrefix(counts, "schedules 100 ") {
		t.Errorf("the summary begins with %q", counts)
	}
}

// TestPlayedAgain: a seed that gives two different histories is a violation.
func TestPlayedAgain(t *testing.T) {
	res, err := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}}).Play(40)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(&res); err != nil {
		t.Errorf("the same seed: %v", err)
	}
	res.Hash++
	if err := again(&res); err == nil || !strings.Contains(err.Error(), "I2: ") {
		t.Errorf("another history is told as %v", err)
	}
}

// TestReplay: one seed, line by line.
func TestReplay(t *testing.T) {
	var out bytes.Buffer
	if code := run(context.Background(), &out, options{schedules: 1, seed: 40, workers: 1, verbose: true}); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out.String())
	}
	for _, want := range []string{"seed 40, recipe drawn 1", "boot at ", "phase 2", "synced run_"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the replay does not show %q", want)
		}
	}
}

// TestViolationIsReported: the report has the seed, the commit, the last events and
// the command that shows the rest.
func TestViolationIsReported(t *testing.T) {
	res, err := simulate.NewPlayer(simulate.Options{Source: simulate.Drawn{}}).Play(40)
	if err != nil {
		t.Fatal(err)
	}
	res.Err = errors.New("I0: made up")
	var out bytes.Buffer
	s := &session{out: &out}
	if s.took(&res, nil) || s.bad == nil {
		t.Fatal("a broken invariant does not stop the session")
	}
	s.violation(s.bad)
	for _, want := range []string{
		"VIOLATION in seed 40: I0: made up", "replay: go run ./sim -seed 40 -schedules 1 -v", "commit ", "run.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "\n"); n < simulate.TailLines || n > simulate.TailLines+10 {
		t.Errorf("the report has %d lines, want the last %d and a few", n, simulate.TailLines)
	}
	if strings.Contains(out.String(), "something else than the seed decides") {
		t.Error("played again the seed gave another history")
	}
}

// TestTooLittle: a session that proves too little does not pass -at-least.
func TestTooLittle(t *testing.T) {
	long := func() *session {
		s := &session{played: 40, cases: map[uint64]struct{}{1: {}, 2: {}}}
		s.all.Transitions = 100
		for i := range s.all.Steps {
			s.all.Steps[i] = 1
		}
		a := &s.all
		a.TasksGranted, a.TaskAnswersLost, a.TasksLost, a.TasksInterrupted, a.TasksAdopted, a.LateResults, a.TasksHandedOn = 6, 1, 1, 1, 1, 1, 1
		a.EarlyWebhooks = 1
		c := &a.Scheduled
		c.Started, c.Missed, c.CaughtUp, c.Overlapped, c.Gaps, c.Requests, c.Replaced = 1, 1, 1, 1, 1, 1, 1
		s.transitions.add(wantTransitions)
		s.faults.add(wantFaults)
		return s
	}
	for want, spoil := range map[string]func(s *session){
		"":                               func(*session) {},
		"100 transitions were made":      func(s *session) { s.o.atLeast = 101 },
		"had 39 transitions":             func(s *session) { s.transitions = histogram{}; s.transitions.add(wantTransitions - 1) },
		"had 2 faults":                   func(s *session) { s.faults = histogram{}; s.faults.add(wantFaults - 1) },
		"by 13.3 seeds":                  func(s *session) { s.cases[3] = struct{}{} },
		"interrupted 0":                  func(s *session) { s.all.TasksInterrupted = 0 },
		"caught up on 0":                 func(s *session) { s.all.Scheduled.CaughtUp = 0 },
		"webhook":                        func(s *session) { s.all.EarlyWebhooks = 0 },
		"never settled: condition, wait": func(s *session) { s.all.Steps[plan.Condition], s.all.Steps[plan.Wait] = 0, 0 },
	} {
		s := long()
		s.o.atLeast = 100
		spoil(s)
		if got := s.lacking(); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("lacking = %q, want %q", got, want)
		}
	}
}

// TestPagesNameFlags: the commands in pages and comments use only flags that this
// program has.
func TestPagesNameFlags(t *testing.T) {
	for _, page := range []string{"../docs/simulator.md", "../internal/mutation/mutation.go", "../.ci/run", "../.ci/nightly"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		commands := regexp.MustCompile("go run (?:-tags \\S+ )?\\./sim( [^\n`#]*)").FindAllStringSubmatch(string(text), -1)
		if len(commands) == 0 {
			t.Errorf("%s names no command", page)
		}
		for _, m := range commands {
			set := flag.NewFlagSet("sim", flag.ContinueOnError)
			set.SetOutput(io.Discard)
			new(options).declare(set)
			if err := set.Parse(strings.Fields(strings.NewReplacer(`"$(date -u +%s)"`, "1", `"$seed"`, "1").Replace(m[1]))); err != nil || set.NArg() > 0 {
				t.Errorf("%s says `go run ./sim%s`: %v %v", page, m[1], err, set.Args())
			}
		}
	}
}

// TestInterrupted: a session that is told to stop summarises what it has played.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out bytes.Buffer
	if code := run(ctx, &out, options{schedules: 1_000_000_000, seed: 1, workers: 2}); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if !strings.Contains(out.String(), "schedules 0 ") {
		t.Errorf("the summary is %q", out.String())
	}
}
