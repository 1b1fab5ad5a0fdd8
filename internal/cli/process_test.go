// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is the real binary at work on a data directory of its own.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	done   chan struct{}

	mu    sync.Mutex
	lines []string
	news  chan struct{} // 1 slot: lines grew
}

func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// testscript.Main looks at the name it was called by.
	cmd := &exec.Cmd{Path: exe, Args: append([]string{"roux"}, args...), Env: append(os.Environ(), env...), Dir: t.TempDir()}
	return cmd
}

// start starts a command and reads its standard error line by line.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startIn(t, t.TempDir(), env, args...)
}

// startIn is start in a directory.
func startIn(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: command(t, env, args...), done: make(chan struct{}), news: make(chan struct{}, 1)}
	p.cmd.Dir, p.cmd.Stdout = dir, &p.stdout
	talk, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.done)
		scan := bufio.NewScanner(talk)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, scan.Text())
			p.mu.Unlock()
			select {
			case p.news <- struct{}{}:
			default:
			}
		}
	}()
	return p
}

// until waits for a line on standard error that contains text.
func (p *process) until(text string) {
	p.t.Helper()
	deadline := time.After(30 * time.Second)
	for seen := 0; ; {
		p.mu.Lock()
		for ; seen < len(p.lines); seen++ {
			if strings.Contains(p.lines[seen], text) {
				p.mu.Unlock()
				return
			}
		}
		p.mu.Unlock()
		select {
		case <-p.news:
		case <-p.done:
			p.t.Fatalf("it ended before it said %q:\n%s", text, p.said())
		case <-deadline:
			p.t.Fatalf("it did not say %q:\n%s", text, p.said())
		}
	}
}

// shows waits until each of some lines of a page is on standard error; … is any text.
func (p *process) shows(lines []string) {
	p.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		missing := missingLine(p.said(), lines)
		if missing == "" {
			return
		}
		select {
		case <-p.news:
		case <-p.done:
			p.t.Fatalf("it ended before it said %q:\n%s", missing, p.said())
		case <-deadline:
			p.t.Fatalf("it did not say %q:\n%s", missing, p.said())
		}
	}
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait waits for the process and returns its exit code; -1 if a signal ended it.
func (p *process) wait() int {
	p.t.Helper()
	<-p.done
	err := p.cmd.Wait()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends a server in an orderly way.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Errorf("it ends with %d: %s", code, p.said())
	}
}

// roux runs a command to its end.
func roux(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// object runs a command with -o json and returns what it printed.
func object[T any](t *testing.T, env []string, args ...string) (v T) {
	t.Helper()
	out, talk, _ := roux(t, env, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("roux %s: %v\n%s%s", strings.Join(args, " "), err, out, talk)
	}
	return v
}
