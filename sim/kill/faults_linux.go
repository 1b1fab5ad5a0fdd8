// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The signals that stop a process and let it go on.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// A scenario makes a part of the real system fail under the real binary.
type scenario struct {
	name string // of its test, with the row of the fault in reliability.md
	long bool   // too long to run for every change
	play func(s *scenarioRun)
}

// A reporter is a testing.T, or the bench.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Logf(format string, args ...any)
}

// A scenarioRun is one execution of a scenario: a round, and the reporter of its
// failures.
type scenarioRun struct {
	reporter
	*round
	trace string // the output of strace
}

func (b *bench) newScenarioRun(t reporter, name string) *scenarioRun {
	t.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	// A scenario may run again; each time has its own name in the recorder.
	r, err := b.newRound(fmt.Sprintf("%d-%s", b.scenarios.Add(1), name), h.Sum64(), b.plainBinary)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &scenarioRun{reporter: t, round: r, trace: filepath.Join(r.dir, "strace")}
}

// begin starts a run of a recipe and kills its process once the start is acknowledged.
// Later failures then hit the middle of the run.
func (s *scenarioRun) begin(recipe string) {
	s.Helper()
	p, err := s.run(recipe)
	if err != nil {
		s.Fatalf("%v", err)
	}
	for l := range p.lines {
		if l.Type == "node.completed" || l.Type == "node.waiting" {
			p.signal(syscall.SIGKILL)
		}
	}
	if p.wait() != -1 {
		s.Fatalf("%s ended before it was killed: exit code %d\n%s", recipe, p.code, p.stderr())
	}
}

// runInjected starts a command with system calls that fail as inject says, such as
// "fsync:error=EIO:when=3". path limits the calls to one file, if given.
func (s *scenarioRun) runInjected(inject, path string, args ...string) *process {
	s.Helper()
	tool, err := exec.LookPath("strace")
	if err != nil {
		s.Skipf("no strace on this machine, which makes system calls fail: %v", err)
	}
	if out, err := exec.Command(tool, "-f", "-e", "trace=none", "true").CombinedOutput(); err != nil {
		s.Skipf("this process may trace no other: %v: %s", err, out)
	}
	calls, _, _ := strings.Cut(inject, ":")
	words := []string{"-f", "-qq", "-o", s.trace, "--seccomp-bpf", "-e", "trace=" + calls, "-e", "inject=" + inject}
	if path != "" {
		words = append(words, "-P", path)
	}
	cmd := s.c.command(append(args, "-o", "jsonl")...)
	cmd.Path, cmd.Args = tool, append(append([]string{tool}, words...), cmd.Args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the traced process outlives strace
	p, err := s.c.startCommand(cmd)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return p
}

// toGroup returns a function that signals a process and those it started.
func toGroup(pid int) func(syscall.Signal) {
	return func(s syscall.Signal) { _ = syscall.Kill(-pid, s) }
}

// injected is how many calls were made to fail or to wait.
func (s *scenarioRun) injected(mark string) int {
	s.Helper()
	return strings.Count(s.traced(), mark)
}

// traced is the output of strace.
func (s *scenarioRun) traced() string {
	s.Helper()
	data, err := os.ReadFile(s.trace)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return string(data)
}

func (s *scenarioRun) within(p *process, d time.Duration) int {
	s.Helper()
	code, err := p.within(d)
	if err != nil {
		s.Fatalf("%v", err)
	}
	return code
}

// wantExit checks the exit code of a command, and words that it must print.
func (s *scenarioRun) wantExit(p *process, code int, words ...string) {
	s.Helper()
	if got := s.within(p, maxCommandTime); got != code {
		s.Fatalf("exit code %d, want %d\n%s", got, code, p.stderr())
	}
	said := p.stderr()
	for _, w := range words {
		if !strings.Contains(said, w) {
			s.Errorf("%q is not in its output:\n%s", w, said)
		}
	}
}

// finishIntact ends a scenario: it resumes what is left and compares the records.
func (s *scenarioRun) finishIntact() {
	s.Helper()
	problems, err := s.resumeAll()
	if err != nil {
		s.Fatalf("%v", err)
	}
	for _, p := range problems {
		s.Errorf("%s", p)
	}
	if len(s.c.began) == 0 {
		s.Errorf("no run was acknowledged: there was nothing to lose")
	}
}

func (s *scenarioRun) wal() string { return filepath.Join(s.c.dir, "roux.db-wal") }

// everyFault runs every scenario and reports as the bench does.
func (b *bench) everyFault(ctx context.Context, only string) (problems []string, done int, skipped []string, err error) {
	for _, sc := range scenarios {
		if ctx.Err() != nil {
			return problems, done, skipped, ctx.Err()
		}
		if !strings.HasPrefix(sc.name, only) {
			continue
		}
		began := time.Now()
		v := &reporterResult{}
		over := make(chan struct{})
		go func() { // a scenario ends with Goexit, as a test does
			defer close(over)
			s := b.newScenarioRun(v, sc.name)
			sc.play(s)
		}()
		<-over
		switch {
		case v.skipped != "":
			skipped = append(skipped, sc.name+": "+v.skipped)
			fmt.Printf("skipped %s: %s\n", sc.name, v.skipped)
		default:
			done++
			fmt.Printf("%6.1fs %s\n", time.Since(began).Seconds(), sc.name)
		}
		for _, p := range v.problems {
			problems = append(problems, sc.name+": "+p)
		}
	}
	return problems, done, skipped, nil
}

// A reporterResult is the reporter of the bench.
type reporterResult struct {
	problems []string
	skipped  string
}

func (v *reporterResult) Helper()             {}
func (v *reporterResult) Logf(string, ...any) {}
func (v *reporterResult) Errorf(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}
func (v *reporterResult) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}
func (v *reporterResult) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
