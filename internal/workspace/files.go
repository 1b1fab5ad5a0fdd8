// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/plan"
)

// temporary begins the names of files that are not complete.
const temporary = ".roux-tmp-"

// maxDepth is how deep the directories of a workspace may be that are walked.
const maxDepth = 16

// writing has the runs, by their hashes, in whose workspaces one attempt writes, so that several at once
// do not exceed the bounds together. Each is a semaphore.
var writing [64]chan struct{}

var writingSeed = maphash.MakeSeed()

func init() {
	for i := range writing {
		writing[i] = make(chan struct{}, 1)
	}
}

func write(ctx context.Context, task *action.Task) (action.Result, error) {
	var in struct {
		Path string  `json:"path"`
		Text *string `json:"text"`
		File string  `json:"file"`
	}
	root, name, err := begin(task, &in, func() *string { return &in.Path })
	if err != nil {
		return action.Result{}, err
	}
	if strings.HasPrefix(path.Base(name), temporary) {
		return action.Result{}, fault.New(fault.InputInvalid, "%.200q cannot be written: names with %s are those of files that are not complete", name, temporary)
	}
	if (in.Text != nil) == (in.File != "") {
		return action.Result{}, fault.New(fault.InputInvalid, `want one of "text" and "file", or a run with exactly one file`)
	}
	var from io.Reader
	if in.Text != nil {
		from = strings.NewReader(*in.Text)
	} else {
		f, err := task.Files.Open(ctx, in.File)
		if err != nil {
			return action.Result{}, err
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	mine := writing[maphash.String(writingSeed, task.Account+"\n"+task.Run)%uint64(len(writing))]
	select {
	case mine <- struct{}{}:
		defer func() { <-mine }()
	case <-ctx.Done():
		return action.Result{}, context.Cause(ctx)
	}
	n, err := put(ctx, root, name, from)
	if err != nil {
		return action.Result{}, failed(name, err)
	}
	return action.Result{Output: map[string]any{"path": name, "sizeBytes": n}}, nil
}

// begin decodes an input and opens the workspace. said returns the path that is then in the input; nil = none.
func begin(task *action.Task, in any, said func() *string) (root *os.Root, name string, err error) {
	if err := task.Decode(in); err != nil {
		return nil, "", fault.Wrap(fault.InputInvalid, err, "the input does not fit the action: %v", err)
	}
	name = "."
	if at := said(); at != nil {
		if name, err = plan.WorkspacePath(*at); err != nil {
			return nil, "", err
		}
	}
	root, err = task.Workspace()
	return root, name, err
}

// failed returns the failure of an attempt that could not read or write a file.
func failed(name string, err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.FileNotFound, err, "there is no file %.200q in the workspace", name)
	}
	return fault.Wrap(datadir.Code(err, fault.FileInvalid), err, "%.200q cannot be used in the workspace: %v", name, err)
}

// put writes a file. It appears under its name when it is complete.
func put(ctx context.Context, root *os.Root, name string, from io.Reader) (n int64, err error) {
	used := usage{ctx: ctx, tidy: true}
	if err := used.walk(root, ".", 0); err != nil {
		return 0, err
	}
	old, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		used.files++
	case err != nil:
		return 0, err
	case !old.Mode().IsRegular():
		return 0, fault.New(fault.FileInvalid, "%.200q in the workspace is no regular file, and is not replaced", name)
	default:
		used.bytes -= old.Size()
	}
	if used.files > maxFiles {
		return 0, fault.New(fault.FileTooLarge, "the workspace has %d files, and may have no more", maxFiles)
	}
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return 0, err
	}
	temp := path.Join(path.Dir(name), temporary+rand.Text())
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	room := max(maxBytes-used.bytes, 0)
	n, err = io.Copy(f, io.LimitReader(reader{ctx, from}, room+1))
	if err == nil && n > room {
		err = fault.New(fault.FileTooLarge, "the files of the workspace would have more than 1 GiB together")
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return 0, errors.Join(err, root.Remove(temp))
	}
	return n, nil
}

func read(ctx context.Context, task *action.Task) (action.Result, error) {
	in := struct {
		Path   string `json:"path"`
		Output string `json:"output"`
		Name   string `json:"name"`
	}{Output: "inline"}
	root, name, err := begin(task, &in, func() *string { return &in.Path })
	if err != nil {
		return action.Result{}, err
	}
	out, err := get(ctx, task, root, name, in.Output == "file", in.Name)
	if err != nil {
		return action.Result{}, failed(name, err)
	}
	return action.Result{Output: out}, nil
}

// get reads a regular file.
func get(ctx context.Context, task *action.Task, root *os.Root, name string, asFile bool, called string) (map[string]any, error) {
	f, err := datadir.OpenBelow(root, name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if asFile {
		if called == "" {
			called = path.Base(name)
		}
		info, err := task.Files.Put(ctx, reader{ctx, f}, called, "")
		return map[string]any{"file": info.Hash, "name": info.Name, "sizeBytes": info.Size}, err
	}
	text, err := io.ReadAll(io.LimitReader(reader{ctx, f}, maxText+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxText:
		return nil, fault.New(fault.FileTooLarge, `%.200q has more than 16 MiB: ask for "output": "file"`, name)
	case !utf8.Valid(text):
		return nil, fault.New(fault.FileInvalid, `%.200q is no text in UTF-8: ask for "output": "file"`, name)
	}
	return map[string]any{"text": string(text), "sizeBytes": int64(len(text))}, nil
}

func list(ctx context.Context, task *action.Task) (action.Result, error) {
	var in struct {
		Under *string `json:"under"`
	}
	root, name, err := begin(task, &in, func() *string { return in.Under })
	if err != nil {
		return action.Result{}, err
	}
	entries, total := []any{}, int64(0)
	used := usage{ctx: ctx, found: func(at string, size int64) {
		total += size
		entries = append(entries, map[string]any{"path": at, "sizeBytes": size})
	}}
	if err := used.under(root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return action.Result{}, failed(name, err)
	}
	return action.Result{Output: map[string]any{"files": entries, "count": int64(len(entries)), "totalBytes": total}}, nil
}

// A usage is how much is in a workspace.
type usage struct {
	ctx   context.Context
	files int
	bytes int64
	found func(at string, size int64) // nil = the files are only counted
	tidy  bool                        // incomplete files are removed: no other attempt writes, so a killed process has left them
}

// under walks the directory at a path below root. Anything else there has no files.
func (u *usage) under(root *os.Root, at string) error {
	if info, err := root.Lstat(at); err != nil || !info.IsDir() {
		return err
	}
	return u.inner(root, at, "", 0)
}

// walk counts the files in a directory, in the order of their names. It follows no link. at is the path of
// the directory; files are looked up in dir, so that the system does not resolve their whole paths.
func (u *usage) walk(dir *os.Root, at string, depth int) error {
	if depth > maxDepth {
		return fault.New(fault.FileTooLarge, "the workspace has directories deeper than %d", maxDepth)
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(maxFiles + 1)
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(names) > maxFiles {
		return tooMany()
	}
	slices.Sort(names)
	for _, name := range names {
		if u.ctx.Err() != nil {
			return context.Cause(u.ctx)
		}
		info, err := dir.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case info.IsDir():
			err = u.inner(dir, name, at, depth+1)
		default:
			err = u.file(dir, info, path.Join(at, name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inner walks a directory in a directory, unless it has been removed meanwhile.
func (u *usage) inner(dir *os.Root, name, at string, depth int) error {
	in, err := dir.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(u.walk(in, path.Join(at, name), depth), in.Close())
}

// file counts a file, a link or what else there is.
func (u *usage) file(dir *os.Root, info fs.FileInfo, at string) error {
	regular, partial := info.Mode().IsRegular(), strings.HasPrefix(info.Name(), temporary)
	if regular && partial && u.tidy && dir.Remove(info.Name()) == nil {
		return nil
	}
	if u.files++; u.files > maxFiles {
		return tooMany()
	}
	if u.bytes += info.Size(); u.found != nil && regular && !partial {
		u.found(at, info.Size())
	}
	return nil
}

func tooMany() error {
	return fault.New(fault.FileTooLarge, "the workspace has more than %d files", maxFiles)
}

// A reader fails when its context has ended.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(p)
}
