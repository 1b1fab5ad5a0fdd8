// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/confine"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/redact"
	"github.com/roux-engine/roux/internal/view"
)

// A job is one attempt.
type job struct {
	*command
	task   *action.Task
	values values
	box    confine.Box
	root   *os.Root    // the working directory
	hidden *redact.Set // removes what the operator calls a secret
	stdin  *os.File
	stdout *output
	stderr *diagnostics
}

// run is the function of the action.
func (c *command) run(ctx context.Context, task *action.Task) (action.Result, error) {
	if !c.permits(task.Account) {
		return action.Result{}, fault.New(fault.ActionNotFound, "the account has no action %s%s", Prefix, c.name)
	}
	dir, program := c.set.dir.Load(), c.program.Load()
	if dir == nil || program == nil {
		return action.Result{}, fault.New(fault.InternalError, "command %s was not prepared", c.name)
	}
	j := &job{command: c, task: task}
	if err := j.prepare(*dir, *program); err != nil {
		return action.Result{}, err
	}
	defer j.close()
	if err := j.placeFiles(ctx); err != nil {
		return action.Result{}, err
	}
	if err := j.execute(ctx); err != nil {
		return action.Result{}, err
	}
	out, err := j.collect(ctx)
	return action.Result{Output: out}, err
}

// prepare checks the inputs and makes the directories.
func (j *job) prepare(dir, program string) (err error) {
	if j.values, err = j.spec.read(j.task.Input); err != nil {
		return err
	}
	args, err := j.spec.argv(j.values)
	if err != nil {
		return err
	}
	if j.hidden, err = j.spec.hidden(j.values); err != nil {
		return err
	}
	j.box = confine.Box{
		Program: program, Args: append([]string{program}, args...), Env: j.spec.environ(j.values), Read: j.spec.Read,
		Network: j.spec.Network, None: j.spec.Confine == confineNone, Memory: j.limits.memory, Disk: j.limits.disk, Processes: j.limits.processes,
	}
	if j.box.Dir, err = os.MkdirTemp(dir, "run-"); err != nil {
		return fault.Wrap(fault.InternalError, err, "make a working directory")
	}
	err = confine.Prepare(&j.box)
	if err == nil {
		j.root, err = os.OpenRoot(j.box.WorkDir())
	}
	if err != nil {
		j.close()
		return fault.Wrap(fault.InternalError, err, "make a working directory")
	}
	return nil
}

// hidden returns what removes the values of parameters that the operator calls secrets.
func (s *Spec) hidden(v values) (*redact.Set, error) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s.Parameters)) {
		if !s.Parameters[name].Secret {
			continue
		}
		if err := redact.Check(v[name]); err != nil {
			return nil, fault.New(fault.InputInvalid, "input %q is a secret: %v", name, err)
		}
		list = append(list, v[name])
	}
	set, err := redact.New(list...)
	if err != nil {
		return nil, fault.Wrap(fault.InputInvalid, err, "the secrets of the input cannot be used: %v", err)
	}
	return set, nil
}

// close removes the directories.
func (j *job) close() {
	if j.root != nil {
		_ = j.root.Close()
	}
	if j.stdin != nil {
		_ = j.stdin.Close()
	}
	if j.stdout != nil {
		j.stdout.close()
	}
	_ = datadir.RemoveAll(j.box.Dir) // the next start tries again
}

// placeFiles writes the files of the input into the working directory.
func (j *job) placeFiles(ctx context.Context) error {
	room := j.limits.disk
	for _, name := range slices.Sorted(maps.Keys(j.spec.Parameters)) {
		p := j.spec.Parameters[name]
		if p.kind() != typeFile {
			continue
		}
		n, err := j.placeFile(ctx, j.values[name], p.at(name), room)
		if err != nil {
			return err
		}
		room -= n
	}
	return j.openStdin()
}

func (j *job) placeFile(ctx context.Context, hash, at string, room int64) (int64, error) {
	if j.task.Files == nil {
		return 0, fault.New(fault.FileNotFound, "there are no files here")
	}
	f, err := j.task.Files.Open(ctx, hash)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if size := f.Info().Size; size > room {
		return 0, fault.New(fault.FileTooLarge, "the files of the input have more than %s together, the limit `disk` of the command", view.ShortBytes(j.limits.disk))
	}
	if dir := filepath.Dir(at); dir != "." {
		if err := j.makeDirs(dir); err != nil {
			return 0, fault.Wrap(fault.InternalError, err, "make a directory for the files of the input")
		}
	}
	to, err := j.root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fault.Wrap(fault.InternalError, err, "write a file of the input")
	}
	n, err := io.Copy(to, readerOf(ctx, f))
	if err = errors.Join(err, to.Close(), confine.Own(&j.box, filepath.Join(j.box.WorkDir(), at))); err != nil {
		return n, fault.Wrap(fault.InternalError, err, "write a file of the input")
	}
	return n, nil
}

func (j *job) makeDirs(dir string) error {
	at := ""
	for part := range strings.SplitSeq(filepath.ToSlash(dir), "/") {
		at = filepath.Join(at, part)
		if err := j.root.Mkdir(at, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err := confine.Own(&j.box, filepath.Join(j.box.WorkDir(), at)); err != nil {
			return err
		}
	}
	return nil
}

// readerOf returns a reader that fails when ctx has ended.
func readerOf(ctx context.Context, r io.Reader) io.Reader { return &ctxReader{ctx, r} }

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// openStdin opens what the program reads as its standard input. It is a file: a program need not
// read it.
func (j *job) openStdin() error {
	name, ok := whole(j.spec.Stdin)
	if !ok {
		return nil
	}
	p := j.spec.Parameters[name]
	var err error
	if p.kind() == typeFile {
		j.stdin, err = j.root.Open(p.at(name))
	} else {
		path := filepath.Join(j.box.Dir, "stdin")
		err = os.WriteFile(path, []byte(j.values[name]), 0o600)
		if err == nil {
			// A program with another user may open it as /dev/stdin.
			err = os.Chmod(path, 0o444) //nolint:gosec // nobody else can enter the directory
		}
		if err == nil {
			j.stdin, err = os.Open(path) // read only: the file does not count in the limit of the disk
		}
	}
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "write the standard input")
	}
	return nil
}

// execute runs the program. It returns an error unless it succeeded.
func (j *job) execute(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, j.limits.timeout,
		fault.New(fault.StepTimeout, "command %s was killed after %s, the limit `timeout` of the command", j.name, j.limits.timeout))
	defer stop()
	j.stderr = newDiagnostics(j.task.Report, j.hidden, "info")
	var err error
	if j.stdout, err = j.newOutput(cancel); err != nil {
		return err
	}
	res, err := confine.Run(ctx, &j.box, confine.Streams{Stdin: j.stdin, Stdout: j.stdout, Stderr: j.stderr})
	j.stdout.end()
	j.stderr.end()
	switch {
	case err != nil && fault.CodeOf(err) == fault.CommandLimit: // it was killed in the middle of its work
		return fault.Unsure(j.withEnd(err))
	case err != nil:
		return j.withEnd(err)
	case res.Limit != "" || res.Signal != "" || j.stdout.failed != nil:
		return fault.Unsure(j.judge(res))
	}
	return j.judge(res)
}

// withEnd adds the end of the standard error to an error of a limit.
func (j *job) withEnd(err error) error {
	f := new(fault.Error)
	if text := endOf(j.stderr.tail()); errors.As(err, &f) && text != "" && (f.Code == fault.StepTimeout || f.Code == fault.CommandLimit) {
		return fault.Wrap(f.Code, f.Err, "%s; it has printed: %s", f.Msg, text)
	}
	return err
}

// exitFileSize is the exit code of a shell whose program was ended by SIGXFSZ.
const exitFileSize = 128 + 25

// judge returns what a result means.
func (j *job) judge(res confine.Result) error {
	l := j.limits
	switch {
	case j.stdout.failed != nil:
		return fault.Wrap(fault.InternalError, j.stdout.failed, "the standard output of command %s could not be kept", j.name)
	case res.Failed != "":
		return fault.New(fault.CommandFailed, "command %s could not be started: %s", j.name, res.Failed)
	case res.Limit == confine.LimitMemory:
		return j.withEnd(fault.New(fault.CommandLimit, "command %s was killed because it used more than %s, the limit `memory` of the command", j.name, view.ShortBytes(l.memory)))
	case res.Limit == confine.LimitDisk:
		return j.withEnd(fault.New(fault.CommandLimit, "command %s was killed because its files had more than %s, the limit `disk` of the command", j.name, view.ShortBytes(l.disk)))
	case res.Limit == confine.LimitEntries:
		return j.withEnd(fault.New(fault.CommandLimit, "command %s was killed because it made more than %d files and directories, or some that are too deep to be counted; no field of the command raises this", j.name, confine.MaxEntries))
	case res.Signal == "SIGXFSZ" && !j.box.None:
		return j.tooLargeFile()
	case res.Signal != "":
		return j.ended("was ended by the signal "+res.Signal, fault.CommandFailed)
	case res.Exit == 0 || slices.Contains(j.spec.OKExitCodes, res.Exit):
		j.stdout.exit = res.Exit
		return nil
	case slices.Contains(j.spec.RetryExitCodes, res.Exit):
		return j.ended(fmt.Sprintf("ended with exit code %d, which is temporary", res.Exit), fault.CommandTemporary)
	case res.Exit == exitFileSize && !j.box.None:
		return j.tooLargeFile()
	}
	return j.ended(fmt.Sprintf("ended with exit code %d", res.Exit), fault.CommandFailed)
}

func (j *job) tooLargeFile() error {
	return fault.New(fault.CommandLimit, "command %s was killed because a file had more than %s, the limit `disk` of the command", j.name, view.ShortBytes(j.limits.disk))
}

func (j *job) ended(how string, code fault.Code) error {
	if text := endOf(j.stderr.tail()); text != "" {
		return fault.New(code, "command %s %s: %s", j.name, how, text)
	}
	return fault.New(code, "command %s %s, and printed nothing on its standard error", j.name, how)
}

// collect returns the output of the step, and stores the files.
func (j *job) collect(ctx context.Context) (map[string]any, error) {
	if j.task.Files == nil {
		return nil, fault.New(fault.FileNotFound, "there are no files here")
	}
	out := map[string]any{"exitCode": j.stdout.exit, "stderr": j.stderr.tail()}
	if err := j.collectStdout(ctx, out); err != nil {
		return nil, err
	}
	room := j.limits.disk
	for _, name := range slices.Sorted(maps.Keys(j.spec.Outputs)) {
		o := j.spec.Outputs[name]
		hashes, err := j.store(ctx, name, o, &room)
		switch {
		case err != nil:
			return nil, err
		case o.list():
			out[name] = hashes
		case len(hashes) > 0:
			out[name] = hashes[0]
		}
	}
	return out, nil
}

// maxTokens bounds the names and values of a JSON output, as package worker does.
const maxTokens = 4 << 20

func (j *job) collectStdout(ctx context.Context, out map[string]any) error {
	o := j.stdout
	switch {
	case o.mode == stdoutLog:
		return nil
	case o.mode == stdoutJSON:
		v, err := jsonx.Decode(o.buf.Bytes(), jsonx.Limits{Bytes: o.buf.Len() + 1, Tokens: maxTokens})
		if err != nil {
			return j.ended("printed something that is not JSON on its standard output ("+j.hidden.String(err.Error())+")", fault.CommandFailed)
		}
		out["result"] = j.hidden.Value(v)
		return nil
	case o.mode == stdoutText && isText(o.buf.Bytes()):
		out["stdout"], out["stdoutBytes"] = j.hidden.String(o.buf.String()), o.n
		return nil
	}
	r, err := o.reader()
	if err != nil {
		return fault.Wrap(fault.InternalError, err, "read the standard output")
	}
	info, err := j.task.Files.Put(ctx, j.hidden.Reader(r), "stdout", "")
	if err != nil {
		return err
	}
	if o.mode == stdoutText {
		out["stdout"] = ""
	}
	out["stdoutFile"], out["stdoutBytes"] = info.Hash, o.n
	return nil
}

// maxFiles bounds the files of one output.
const maxFiles = 1000

// store stores the files of an output. The program has ended, and nothing changes them any more.
// A link is no file, so that nothing outside the working directory is stored.
func (j *job) store(ctx context.Context, name string, o Output, room *int64) ([]string, error) {
	names := []string{o.Path}
	if o.list() {
		var err error
		if names, err = j.glob(o.Path); err != nil {
			return nil, fault.Wrap(fault.CommandFailed, err, "output %q of command %s: %v", name, j.name, err)
		}
	}
	hashes := []string{}
	for _, at := range names {
		info, err := j.root.Lstat(at)
		switch {
		case err != nil && (o.Optional || o.list()):
			continue
		case err != nil:
			return nil, j.ended(fmt.Sprintf("left no file %s, which is its output %q", at, name), fault.CommandFailed)
		case !info.Mode().IsRegular():
			return nil, fault.New(fault.CommandFailed, "output %q of command %s: %s is no regular file", name, j.name, view.OneLine(at))
		}
		if *room -= info.Size(); *room < 0 {
			return nil, fault.New(fault.CommandLimit, "the outputs of command %s have more than %s together, the limit `disk` of the command", j.name, view.ShortBytes(j.limits.disk))
		}
		hash, err := j.storeFile(ctx, at, o.MimeType, info)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}

func (j *job) storeFile(ctx context.Context, at, mimeType string, was os.FileInfo) (string, error) {
	_ = j.root.Chmod(at, 0o600) // the program may have taken the permission to read it away
	f, err := j.root.Open(at)
	if err != nil {
		return "", fault.Wrap(fault.CommandFailed, err, "a file of command %s cannot be read", j.name)
	}
	defer f.Close()
	if is, err := f.Stat(); err != nil || !os.SameFile(is, was) || !is.Mode().IsRegular() {
		return "", fault.Wrap(fault.CommandFailed, err, "a file of command %s changed after it had ended", j.name)
	}
	info, err := j.task.Files.Put(ctx, j.hidden.Reader(readerOf(ctx, f)), filepath.Base(at), mimeType)
	return info.Hash, err
}

// glob returns the names of the files that match a pattern, sorted.
func (j *job) glob(pattern string) ([]string, error) {
	names := []string{"."}
	for part := range strings.SplitSeq(pattern, "/") {
		var next []string
		for _, dir := range names {
			found, err := j.matching(dir, part)
			if err != nil {
				return nil, err
			}
			if next = append(next, found...); len(next) > maxFiles {
				return nil, fmt.Errorf("more than %d files match %s", maxFiles, pattern)
			}
		}
		names = next
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "." }), nil
}

// matching returns the entries of a directory that match one part of a pattern. Links are not
// followed.
func (j *job) matching(dir, part string) ([]string, error) {
	info, err := j.root.Lstat(dir)
	if err != nil || !info.IsDir() {
		return nil, nil //nolint:nilerr // nothing matches
	}
	f, err := j.root.Open(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // nothing that can be read matches
	}
	defer f.Close()
	entries, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(entries)
	var found []string
	for _, e := range entries {
		if ok, err := filepath.Match(part, e); err != nil {
			return nil, err
		} else if ok && (!strings.HasPrefix(e, ".") || strings.HasPrefix(part, ".")) {
			found = append(found, filepath.Join(dir, e))
		}
	}
	return found, nil
}
