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
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/cputime"
)

// childEnv is the environment variable that makes this program a child. It
// holds the request.
const childEnv = "ROUX_MEDIA_CHILD"

// Exit codes of a child that reached a limit.
const (
	exitMemory = 86
	exitStall  = 87
)

// canStartItself is set when main has called Dispatch, so that this program can
// be started as its own child. It is set once, before main does anything else.
var canStartItself atomic.Bool

// Dispatch parses one file and exits when this process was started as a child;
// otherwise it returns. Call it first in main (and in TestMain): Readers start
// this program as a child only after that.
func Dispatch() {
	text, child := os.LookupEnv(childEnv)
	if !child {
		canStartItself.Store(true)
		return
	}
	os.Exit(runChild(text, os.Stdin, os.Stdout))
}

func runChild(text string, stdin io.Reader, stdout io.Writer) int {
	// Ctrl-C and a service manager signal all processes at once, but the signal is
	// for the parent. If the child died of it, the parent would report the file as
	// damaged.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var req request
	if err := json.Unmarshal([]byte(text), &req); err != nil {
		fmt.Fprintln(os.Stderr, "roux media child: the request is not JSON:", err)
		return 2
	}
	setLimits(req.MaxMemory)
	var progress, steps atomic.Int64 // CPU time at the last progress report, and the number of reports
	go enforceLimits(req.MaxMemory, req.stall(), &progress, &steps)
	out := json.NewEncoder(stdout)
	last, err := execute(req, stdin, func(m message) error {
		if req.Op != opImage {
			progress.Store(int64(cputime.Used()))
			steps.Add(1)
		}
		return out.Encode(m)
	})
	if err != nil {
		f := toFault(err, req)
		last = message{Code: f.Code, Msg: f.Msg}
		if f.Err != nil {
			last.Log = clipLog(f.Err.Error())
		}
	}
	if err := out.Encode(last); err != nil {
		return 2
	}
	return 0
}

// clipLog returns the first 2,000 runes of s.
func clipLog(s string) string {
	n := 0
	for i := range s {
		if n++; n > 2_000 {
			return s[:i]
		}
	}
	return s
}

// enforceLimits ends the child when it exceeds its memory limit, computes
// without progress, or has lost its parent. It also limits the total CPU time
// to what undamaged pages need, because each of many deliberately slow pages is
// progress. The operating system's limits (see setLimits) are stricter where
// they exist.
func enforceLimits(maxMemory int64, stall time.Duration, progress, steps *atomic.Int64) {
	parent := os.Getppid()
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	for {
		time.Sleep(20 * time.Millisecond)
		metrics.Read(sample)
		if int64(sample[0].Value.Uint64()-sample[1].Value.Uint64()) > maxMemory {
			os.Exit(exitMemory)
		}
		cpu := cputime.Used()
		if stall > 0 && (cpu-time.Duration(progress.Load()) > stall || cpu > stall+time.Duration(steps.Load())*stall/20) {
			os.Exit(exitStall)
		}
		if os.Getppid() != parent {
			os.Exit(1)
		}
	}
}

// setLimits sets the limits of this process before it reads the file.
func setLimits(maxMemory int64) {
	debug.SetMemoryLimit(maxMemory * 3 / 4)
	debug.SetMaxStack(64 << 20)
	debug.SetTraceback("single")
	lowerLimits(maxMemory)
}

// runInChild parses the file in a child process.
func (r *Reader) runInChild(ctx context.Context, src io.Reader, req request, handle func(message) error) (message, error) {
	exe, err := r.exe()
	if err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "find the program to read files with")
	}
	text, err := json.Marshal(req)
	if err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "ask for a file to be read")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = []string{"roux-media"}
	cmd.Env = childEnvironment(string(text))
	source := &sourceReader{r: src}
	cmd.Stdin = source
	cmd.WaitDelay = time.Second
	detachFromTerminal(cmd)
	var stderr headBuffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "start the reader of files")
	}
	if err := cmd.Start(); err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "start the reader of files: %v", err)
	}
	timeout := r.idleTimeout(req)
	idle := time.AfterFunc(timeout, func() { cancel(errIdle(timeout, req)) })
	defer idle.Stop()
	last, handleErr := readMessages(io.LimitReader(stdout, req.maxReply()), func(m message) error {
		idle.Stop() // a slow handler is not the child's fault
		defer idle.Reset(timeout)
		return handle(m)
	})
	idle.Stop()
	cause := context.Cause(ctx)
	if last == nil {
		cancel(nil) // the child may be blocked writing to a pipe that is no longer read
	}
	err = cmd.Wait()
	if r.childEnded != nil {
		r.childEnded(cmd.ProcessState)
	}
	switch {
	case handleErr != nil:
		return message{}, handleErr
	case source.err.Load() != nil:
		return message{}, *source.err.Load()
	case last != nil && last.Code != "":
		return message{}, &fault.Error{Code: last.Code, Msg: last.Msg, Err: errors.New(last.Log)}
	case last != nil:
		return *last, nil
	case cause != nil:
		return message{}, cause
	}
	return message{}, exitFault(err, stderr.String(), req)
}

// childEnvironment returns the whole environment of a child. Of the parent's
// own environment, only SYSTEMROOT and GOCOVERDIR reach a process that parses
// untrusted files.
func childEnvironment(request string) []string {
	env := []string{childEnv + "=" + request, "GOTRACEBACK=single", "GOMAXPROCS=2"}
	if root, ok := os.LookupEnv("SYSTEMROOT"); ok {
		env = append(env, "SYSTEMROOT="+root) // Windows starts no process without it
	}
	if cover, ok := os.LookupEnv("GOCOVERDIR"); ok {
		env = append(env, "GOCOVERDIR="+cover)
	}
	return env
}

// exitFault returns the fault for a child that ended without a final message.
func exitFault(err error, stderr string, req request) error {
	log := fmt.Errorf("media child: %w: %s", err, stderr)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if code == exitStall {
		return errTooSlow(req.stall(), req)
	}
	if code == exitMemory || slices.ContainsFunc(outOfMemoryTexts, func(text string) bool { return strings.Contains(stderr, text) }) {
		return fault.Wrap(fault.FileTooLarge, log, "%s cannot be read within %d MiB of memory", req.subject(), req.MaxMemory>>20)
	}
	return fault.Wrap(fault.FileInvalid, log, "%s is damaged beyond repair", req.subject())
}

// outOfMemoryTexts are what the Go runtime, or that of the race detector,
// prints when the operating system's limit stops it: an allocation failure by
// name, a thread whose stack could not be allocated, or a fault inside the
// runtime, because the garbage collector does not check every allocation. Our
// own code cannot cause these; its bugs are panics.
var outOfMemoryTexts = []string{
	"out of memory", "cannot allocate memory", "failed to allocate", "-byte limit",
	"pthread_create failed", "failed to create new OS thread",
	"SIGSEGV: segmentation violation\nPC=", "unexpected signal during runtime execution",
}

// readMessages calls handle for each message up to the final one, which it
// returns. last is nil when the child ended without one, or handle failed with
// handleErr.
func readMessages(stdout io.Reader, handle func(message) error) (last *message, handleErr error) {
	dec := json.NewDecoder(bufio.NewReaderSize(stdout, 64<<10))
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			return nil, nil //nolint:nilerr // the exit code tells why
		}
		if m.final() {
			return &m, nil
		}
		if err := handle(m); err != nil {
			return nil, err
		}
	}
}

// sourceReader remembers an error of the source, for which the child is not to
// blame.
type sourceReader struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}

// headBuffer keeps the first 8 KiB that a child writes to standard error, for
// the log.
type headBuffer struct{ buf bytes.Buffer }

func (t *headBuffer) Write(p []byte) (int, error) {
	if room := 8<<10 - t.buf.Len(); room > 0 {
		t.buf.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (t *headBuffer) String() string { return t.buf.String() }

// runInProcess parses the file in this process, for programs that cannot start
// themselves as a child. A parser that hangs is abandoned: its goroutine ends
// when the parser does.
func (r *Reader) runInProcess(ctx context.Context, src io.Reader, req request, handle func(message) error) (message, error) {
	type result struct {
		last message
		err  error
	}
	results := make(chan result, 1)
	messages := make(chan message, 16)
	done := make(chan struct{})
	defer close(done)
	// The source belongs to the caller and must not be read after this function
	// has returned, so all of it is read here.
	data, err := io.ReadAll(io.LimitReader(src, req.MaxBytes+1))
	if err != nil {
		return message{}, err
	}
	go func() {
		last, err := execute(req, bytes.NewReader(data), func(m message) error {
			m.Data = bytes.Clone(m.Data) // the encoder reuses its buffer
			select {
			case messages <- m:
				return nil
			case <-done:
				return errAbandoned
			}
		})
		results <- result{last, err}
	}()
	timeout := r.idleTimeout(req)
	idle := time.NewTimer(timeout)
	defer idle.Stop()
	for {
		select {
		case m := <-messages:
			if err := handle(m); err != nil {
				return message{}, err
			}
			idle.Reset(timeout)
		case res := <-results:
			for len(messages) > 0 { // messages sent before the result
				if err := handle(<-messages); err != nil {
					return message{}, err
				}
			}
			if res.err != nil {
				return message{}, toFault(res.err, req)
			}
			return res.last, nil
		case <-idle.C:
			return message{}, errTooSlow(timeout, req)
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
}

// errAbandoned ends work whose result is no longer wanted.
var errAbandoned = errors.New("the result is no longer wanted")
