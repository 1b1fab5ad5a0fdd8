// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/roux-engine/roux/internal/mutation"
)

// A line is one event as a command with -o jsonl prints it.
type line struct {
	EventID uint64 `json:"eventId"`
	Type    string `json:"type"`
	RunID   string `json:"runId"`
	Payload struct {
		Step       string `json:"step"`
		Kind       string `json:"kind"`
		Attempt    int    `json:"attempt"`
		Status     string `json:"status"`
		Cause      string `json:"cause"`
		HandedBack bool   `json:"handedBack"`
		// OutcomeUnknown says that the effect of an attempt may have happened.
		OutcomeUnknown bool            `json:"outcomeUnknown"`
		Amount         float64         `json:"amount"`      // of node.charged and run.child_ended
		CreditsUsed    int64           `json:"creditsUsed"` // of node.completed
		Charged        bool            `json:"charged"`
		Child          string          `json:"childRunId"`
		ChildStatus    string          `json:"childStatus"`
		Recipe         string          `json:"recipe"`
		Parameters     json.RawMessage `json:"parameters"`
		Outputs        json.RawMessage `json:"outputs"`
		Error          *struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	} `json:"payload"`
}

// A client runs commands on one data directory, and records what it was shown.
type client struct {
	exe string
	dir string   // the data directory
	env []string // in addition to the common environment

	mu  sync.Mutex
	log *os.File // client.jsonl: the lines that were shown; acknowledgements are synced
	// shown are the events that were shown, by run and number.
	shown map[string]map[uint64]string
	// began are the runs whose first event was shown; signalled those whose signal a
	// command acknowledged; grants the keys of grants that one acknowledged; results the
	// results that `run` and `resume` printed.
	began     map[string]bool
	signalled map[string]bool
	grants    map[string]bool
	results   map[string]result
}

// A result is the result of an ended run as a command prints it.
type result struct {
	ID      string          `json:"id"`
	Status  string          `json:"status"`
	Outputs json.RawMessage `json:"outputs"`
}

func newClient(exe, dir, logFile string, env ...string) (*client, error) {
	f, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &client{
		exe: exe, dir: dir, env: env, log: f,
		shown: map[string]map[uint64]string{}, began: map[string]bool{}, signalled: map[string]bool{}, grants: map[string]bool{}, results: map[string]result{},
	}, nil
}

func (c *client) close() error { return c.log.Close() }

// note writes a line of the client's log.
func (c *client) note(text string, sync bool) error {
	_, err := c.log.WriteString(text + "\n")
	if sync && err == nil {
		err = c.log.Sync()
	}
	return err
}

// readLine records a line that a command printed. A line is an acknowledgement: it
// must stay true.
func (c *client) readLine(text string) (*line, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var l line
	if err := json.Unmarshal([]byte(text), &l); err != nil || l.EventID == 0 {
		var r result
		if json.Unmarshal([]byte(text), &r) == nil && r.ID != "" {
			c.results[r.ID] = r
		}
		return nil, c.note(text, true)
	}
	if c.shown[l.RunID] == nil {
		c.shown[l.RunID] = map[uint64]string{}
	}
	c.shown[l.RunID][l.EventID] = text
	if l.EventID == 1 {
		c.began[l.RunID] = true
	}
	return &l, c.note(text, l.EventID == 1)
}

// command is a command on the data directory. Its environment has only what a process
// needs, and the guard to remove.
func (c *client) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.exe, args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=" + os.TempDir(),
		"ROUX_DATA=" + c.dir, "ROUX_EGRESS_ALLOW=127.0.0.1/32", "ROUX_RETAIN_RUNS=1h", "ROUX_RETAIN_FILES=1h", "ROUX_RETAIN_UPLOADS=1h",
	}, c.env...)
	if guard := os.Getenv(mutation.Variable); guard != "" { // for a binary without a guard
		cmd.Env = append(cmd.Env, mutation.Variable+"="+guard)
	}
	cmd.Dir = os.TempDir()
	return cmd
}

// output runs a command to its end.
func (c *client) output(args ...string) (out, talk string, code int, err error) {
	cmd := c.command(args...)
	var o, t bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &t
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return o.String(), t.String(), cmd.ProcessState.ExitCode(), err
}

// A process is a running command whose output is recorded.
type process struct {
	c          *client
	cmd        *exec.Cmd
	began      time.Time
	stderrText bytes.Buffer
	lines      chan *line           // closed when it has ended
	code       int                  // -1 = a signal ended it; valid once lines is closed
	err        error                // of the bench
	to         func(syscall.Signal) // how to send signals, if not directly
	mu         sync.Mutex
	first      time.Duration // time from start to the first line; 0 = none yet
	last       time.Duration // time from start to the last line
}

// start starts a command. Every line it prints is recorded, even when lines is not
// read.
func (c *client) start(env []string, args ...string) (*process, error) {
	cmd := c.command(append(args, "-o", "jsonl")...)
	cmd.Env = append(cmd.Env, env...)
	return c.startCommand(cmd)
}

func (c *client) startCommand(cmd *exec.Cmd) (*process, error) {
	p := &process{c: c, cmd: cmd, lines: make(chan *line, 1<<14)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = &p.stderrText
	p.began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if cmd.SysProcAttr != nil {
		p.to = toGroup(cmd.Process.Pid)
	}
	go p.read(out)
	return p, nil
}

func (p *process) read(out io.Reader) {
	defer close(p.lines)
	for r := bufio.NewReaderSize(out, 1<<16); ; {
		text, err := r.ReadString('\n')
		if err != nil {
			break // an incomplete line does not count as shown
		}
		p.mu.Lock()
		if p.last = time.Since(p.began); p.first == 0 {
			p.first = p.last
		}
		p.mu.Unlock()
		l, err := p.c.readLine(strings.TrimSuffix(text, "\n"))
		p.err = errors.Join(p.err, err)
		if l != nil {
			p.lines <- l
		}
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.err = errors.Join(p.err, err)
	}
	p.code = p.cmd.ProcessState.ExitCode()
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.err = errors.Join(p.err, p.c.note(fmt.Sprintf(`{"exit":%d}`, p.code), true))
}

// serving is the time until the first line; 0 = there was none.
func (p *process) serving() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first
}

// signal signals the process; it is no error if the process has ended.
func (p *process) signal(s syscall.Signal) {
	if p.to != nil {
		p.to(s)
		return
	}
	_ = p.cmd.Process.Signal(s)
}

// wait reads the remaining lines and returns the exit code.
func (p *process) wait() int {
	for range p.lines {
	}
	return p.code
}

// within is wait with a limit: after d the process is killed, which is an error.
func (p *process) within(d time.Duration) (int, error) {
	t := time.AfterFunc(d, func() { p.signal(syscall.SIGKILL) })
	code := p.wait()
	if !t.Stop() {
		return code, fmt.Errorf("%s had not ended after %s\n%s", strings.Join(p.cmd.Args[1:], " "), d, p.stderr())
	}
	return code, p.err
}

// stderr is what the process printed for people; valid after its end.
func (p *process) stderr() string { return p.stderrText.String() }
