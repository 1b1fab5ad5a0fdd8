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
	// Ctrl-C, and a service manager that stops everything at once, mean the
	// parent; a child that died of it would have called the file damaged.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var req request
	if err := json.Unmarshal([]byte(text), &req); err != nil {
		fmt.Fprintln(os.Stderr, "roux media child: the request is no JSON:", err)
		return 2
	}
	confine(req.MaxMemory)
	var progress, steps atomic.Int64 // CPU time at the last sign of progress, and how many there were
	go watch(req.MaxMemory, req.stall(), &progress, &steps)
	out := json.NewEncoder(stdout)
	last, err := answer(req, stdin, func(m message) error {
		if req.Op != opImage {
			progress.Store(int64(cputime.Used()))
			steps.Add(1)
		}
		return out.Encode(m)
	})
	if err != nil {
		f := asFault(err, req)
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

// clipLog keeps the first 2,000 runes of a cause.
func clipLog(s string) string {
	n := 0
	for i := range s {
		if n++; n > 2_000 {
			return s[:i]
		}
	}
	return s
}

// watch ends the child when it has grown past its limit, computes without
// progress, or has lost its parent. On the whole it may compute no longer than
// sound pages take: a file of many pages that are slow on purpose ends too. The
// operating system's limits (see confine) are the harder ones where they exist.
func watch(maxMemory int64, stall time.Duration, progress, steps *atomic.Int64) {
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

// askChild has the file parsed by a process of its own.
func (r *Reader) askChild(ctx context.Context, src io.Reader, req request, hear func(message) error) (message, error) {
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
	source := &sourceErr{r: src}
	cmd.Stdin = source
	cmd.WaitDelay = time.Second
	apart(cmd)
	var stderr tail
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "start the reader of files")
	}
	if err := cmd.Start(); err != nil {
		return message{}, fault.Wrap(fault.InternalError, err, "start the reader of files: %v", err)
	}
	silence := r.silence(req)
	stalled := time.AfterFunc(silence, func() { cancel(silent(silence, req)) })
	defer stalled.Stop()
	last, deaf := listen(io.LimitReader(stdout, req.maxReply()), func(m message) error {
		stalled.Stop() // who takes the bytes may be slow; that is not the child's fault
		defer stalled.Reset(silence)
		return hear(m)
	})
	stalled.Stop()
	cause := context.Cause(ctx)
	if last == nil {
		cancel(nil) // it may still write to a pipe that nobody reads
	}
	err = cmd.Wait()
	if r.ended != nil {
		r.ended(cmd.ProcessState)
	}
	switch {
	case deaf != nil:
		return message{}, deaf
	case source.err.Load() != nil:
		return message{}, *source.err.Load()
	case last != nil && last.Code != "":
		return message{}, &fault.Error{Code: last.Code, Msg: last.Msg, Err: errors.New(last.Log)}
	case last != nil:
		return *last, nil
	case cause != nil:
		return message{}, cause
	}
	return message{}, died(err, stderr.String(), req)
}

// childEnvironment is all that a child sees: nothing of our environment reaches
// a process that parses foreign files.
func childEnvironment(request string) []string {
	env := []string{childEnv + "=" + request, "GOTRACEBACK=single", "GOMAXPROCS=2"}
	if root, ok := os.LookupEnv("SYSTEMROOT"); ok {
		env = append(env, "SYSTEMROOT="+root) // Windows starts nothing without it
	}
	if cover, ok := os.LookupEnv("GOCOVERDIR"); ok {
		env = append(env, "GOCOVERDIR="+cover)
	}
	return env
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
		return tooLong(req.stall(), req)
	}
	if code == exitMemory || slices.ContainsFunc(noMemory, func(said string) bool { return strings.Contains(stderr, said) }) {
		return fault.Wrap(fault.FileTooLarge, log, "%s cannot be read within %d MiB of memory", req.subject(), req.MaxMemory>>20)
	}
	return fault.Wrap(fault.FileInvalid, log, "%s is damaged beyond repair", req.subject())
}

// noMemory is what the runtime, and that of the race detector, says when the
// operating system's limit stops it: by name, by a thread whose stack it did
// not get, or by a fault of its own, since its collector does not look at every
// piece that it asks for. Our code cannot end so; what it does wrong is a panic.
var noMemory = []string{
	"out of memory", "cannot allocate memory", "failed to allocate", "-byte limit",
	"pthread_create failed", "failed to create new OS thread",
	"SIGSEGV: segmentation violation\nPC=", "unexpected signal during runtime execution",
}

// listen reads messages until the last one; nil = the child ended without one,
// or hear did not want to go on.
func listen(stdout io.Reader, hear func(message) error) (last *message, deaf error) {
	dec := json.NewDecoder(bufio.NewReaderSize(stdout, 64<<10))
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			return nil, nil //nolint:nilerr // why it ended is told by the child's exit
		}
		if m.last() {
			return &m, nil
		}
		if err := hear(m); err != nil {
			return nil, err
		}
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

// askHere parses in this process, for programs that cannot be their own child.
// A parser that hangs is left behind: its goroutine ends when it ends.
func (r *Reader) askHere(ctx context.Context, src io.Reader, req request, hear func(message) error) (message, error) {
	type result struct {
		last message
		err  error
	}
	results := make(chan result, 1)
	said := make(chan message, 16)
	gone := make(chan struct{})
	defer close(gone)
	// The source is the caller's and must not be read after this function has
	// returned, so it is read here.
	data, err := io.ReadAll(io.LimitReader(src, req.MaxBytes+1))
	if err != nil {
		return message{}, err
	}
	go func() {
		last, err := answer(req, bytes.NewReader(data), func(m message) error {
			m.Data = bytes.Clone(m.Data) // the encoder uses its buffer again
			select {
			case said <- m:
				return nil
			case <-gone:
				return errGone
			}
		})
		results <- result{last, err}
	}()
	silence := r.silence(req)
	stall := time.NewTimer(silence)
	defer stall.Stop()
	for {
		select {
		case m := <-said:
			if err := hear(m); err != nil {
				return message{}, err
			}
			stall.Reset(silence)
		case res := <-results:
			for len(said) > 0 { // what was said before the result
				if err := hear(<-said); err != nil {
					return message{}, err
				}
			}
			if res.err != nil {
				return message{}, asFault(res.err, req)
			}
			return res.last, nil
		case <-stall.C:
			return message{}, tooLong(silence, req)
		case <-ctx.Done():
			return message{}, context.Cause(ctx)
		}
	}
}

// errGone ends work whose result nobody waits for any more.
var errGone = errors.New("nobody waits for the result")
