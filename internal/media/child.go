// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
)

// childEnv selects the hidden entry and carries the request.
const childEnv = "ROUX_MEDIA_CHILD"

// The exit codes by which a child says what it ran out of.
const (
	exitMemory = 86
	exitStall  = 87
)

// wired says that main called Dispatch, so this program can be its own child.
// It is set once, before main does anything else.
var wired atomic.Bool

// Dispatch turns this process into a parser of one file when it was started as
// such, and does not return then. Call it first in main (and in TestMain): it
// also tells Readers that they may start this program again.
func Dispatch() {
	text, child := os.LookupEnv(childEnv)
	if !child {
		wired.Store(true)
		return
	}
	os.Exit(serve(text, os.Stdin, os.Stdout))
}

func serve(text string, stdin io.Reader, stdout io.Writer) int {
	var req request
	if err := json.Unmarshal([]byte(text), &req); err != nil {
		fmt.Fprintln(os.Stderr, "roux media child: the request is no JSON:", err)
		return 2
	}
	confine(req.MaxMemory)
	var progress atomic.Int64 // CPU time at the last sign of progress
	go watch(req.MaxMemory, time.Duration(req.StallMS)*time.Millisecond, &progress)
	out := json.NewEncoder(stdout)
	// One goroutine writes: alive is called by the parser, the last message by us.
	doc, err := answer(req, stdin, func(done, total int) {
		progress.Store(int64(cpuTime()))
		_ = out.Encode(message{Done: done, Total: total})
	})
	last := message{Doc: &doc}
	if err != nil {
		f := asFault(err, req)
		last = message{Code: f.Code, Msg: f.Msg}
		if f.Err != nil {
			last.Log = clip(f.Err.Error(), 2_000)
		}
	}
	if err := out.Encode(last); err != nil {
		return 2
	}
	return 0
}

// watch ends the child when it has grown past its limit, computes without
// progress, or has lost its parent. The operating system's limits (see confine)
// are the harder ones where they exist.
func watch(maxMemory int64, stall time.Duration, progress *atomic.Int64) {
	parent := os.Getppid()
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for {
		time.Sleep(20 * time.Millisecond)
		metrics.Read(sample)
		if int64(sample[0].Value.Uint64()-sample[1].Value.Uint64()) > maxMemory {
			os.Exit(exitMemory)
		}
		if stall > 0 && cpuTime()-time.Duration(progress.Load()) > stall {
			os.Exit(exitStall)
		}
		if os.Getppid() != parent {
			os.Exit(1)
		}
	}
}

// confine lowers what this process may use before it touches the file.
func confine(maxMemory int64) {
	debug.SetMemoryLimit(maxMemory * 3 / 4)
	debug.SetMaxStack(64 << 20)
	debug.SetTraceback("single")
	lowerLimits(maxMemory)
}

// self is the program to start as child. On Linux the link keeps working when
// the file was replaced by a newer release meanwhile.
func self() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Readlink(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// maxReply bounds what the parent reads of a child: the text, escaped as JSON.
const maxReply = 4 * maxText

// readInChild has the file parsed by a process of its own.
func (r *Reader) readInChild(ctx context.Context, src io.Reader, req request, progress func(done, total int)) (Document, error) {
	exe, err := r.exe()
	if err != nil {
		return Document{}, fault.Wrap(fault.InternalError, err, "find the program to read %s with", req.subject())
	}
	text, err := json.Marshal(req)
	if err != nil {
		return Document{}, fault.Wrap(fault.InternalError, err, "ask for %s to be read", req.subject())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = []string{"roux-media"}
	// Nothing of our environment reaches a process that parses foreign files.
	cmd.Env = []string{childEnv + "=" + string(text), "GOTRACEBACK=single", "GOMAXPROCS=2"}
	if root, ok := os.LookupEnv("SYSTEMROOT"); ok {
		cmd.Env = append(cmd.Env, "SYSTEMROOT="+root) // Windows starts nothing without it
	}
	if cover, ok := os.LookupEnv("GOCOVERDIR"); ok {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+cover)
	}
	source := &sourceErr{r: src}
	cmd.Stdin = source
	cmd.WaitDelay = time.Second
	var stderr tail
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Document{}, fault.Wrap(fault.InternalError, err, "start the reader of %s", req.subject())
	}
	if err := cmd.Start(); err != nil {
		return Document{}, fault.Wrap(fault.InternalError, err, "start the reader of %s: %v", req.subject(), err)
	}
	stalled := time.AfterFunc(r.cfg.Silence, func() { cancel(silent(r.cfg.Silence, req)) })
	defer stalled.Stop()
	last := listen(stdout, func(m message) {
		stalled.Reset(r.cfg.Silence)
		if m.Total > 0 {
			progress(m.Done, m.Total)
		}
	})
	stalled.Stop()
	cause := context.Cause(ctx)
	if last == nil {
		cancel(nil) // it may still write to a pipe that nobody reads
	}
	err = cmd.Wait()
	switch {
	case source.err.Load() != nil:
		return Document{}, *source.err.Load()
	case last != nil && last.Doc != nil:
		return *last.Doc, nil
	case last != nil:
		return Document{}, &fault.Error{Code: last.Code, Msg: last.Msg, Err: errors.New(last.Log)}
	}
	if cause != nil {
		return Document{}, cause
	}
	return Document{}, died(err, stderr.String(), req)
}

// died says why a child ended without an answer.
func died(err error, stderr string, req request) error {
	log := fmt.Errorf("media child: %w: %s", err, stderr)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if code == exitStall {
		return tooLong(time.Duration(req.StallMS)*time.Millisecond, req)
	}
	if code == exitMemory || slices.ContainsFunc(noMemory, func(said string) bool { return strings.Contains(stderr, said) }) {
		return fault.Wrap(fault.FileTooLarge, log, "%s cannot be read within %d MiB of memory", req.subject(), req.MaxMemory>>20)
	}
	return fault.Wrap(fault.FileInvalid, log, "%s is damaged beyond repair", req.subject())
}

// noMemory is what the runtime, and that of the race detector, says when the
// operating system's limit stops it.
var noMemory = []string{"out of memory", "cannot allocate memory", "failed to allocate", "-byte limit"}

// listen reads messages until the last one; nil = the child ended without one.
func listen(stdout io.Reader, alive func(message)) *message {
	dec := json.NewDecoder(bufio.NewReaderSize(io.LimitReader(stdout, maxReply), 64<<10))
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			return nil
		}
		if m.Doc != nil || m.Code != "" {
			return &m
		}
		alive(m)
	}
}

// sourceErr remembers that reading the file itself failed, which is not the
// child's fault.
type sourceErr struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (s *sourceErr) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}

// tail keeps the first and last words of a child, for the log.
type tail struct{ buf bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	if room := 8<<10 - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (t *tail) String() string { return t.buf.String() }

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// readHere parses in this process, for programs that cannot be their own child.
// A parser that hangs is left behind: its goroutine ends when it ends.
func (r *Reader) readHere(ctx context.Context, src io.Reader, req request, progress func(done, total int)) (Document, error) {
	type result struct {
		doc Document
		err error
	}
	results := make(chan result, 1)
	steps := make(chan [2]int, 16)
	gone := make(chan struct{})
	defer close(gone)
	// The source is the caller's and must not be read after this function has
	// returned, so it is read here.
	data, err := io.ReadAll(io.LimitReader(src, req.MaxBytes+1))
	if err != nil {
		return Document{}, err
	}
	go func() {
		doc, err := answer(req, bytes.NewReader(data), func(done, total int) {
			select {
			case steps <- [2]int{done, total}:
			case <-gone:
			}
		})
		results <- result{doc, err}
	}()
	stall := time.NewTimer(r.cfg.Silence)
	defer stall.Stop()
	step := func(s [2]int) {
		stall.Reset(r.cfg.Silence)
		if s[1] > 0 {
			progress(s[0], s[1])
		}
	}
	for {
		select {
		case res := <-results:
			for len(steps) > 0 {
				step(<-steps) // the last pages were reported before the result
			}
			if res.err != nil {
				return Document{}, asFault(res.err, req)
			}
			return res.doc, nil
		case s := <-steps:
			step(s)
		case <-stall.C:
			return Document{}, tooLong(r.cfg.Silence, req)
		case <-ctx.Done():
			return Document{}, context.Cause(ctx)
		}
	}
}
