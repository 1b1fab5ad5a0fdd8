// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/roux-engine/roux/fault"
)

// A Result tells what happened to a file that a command offers to write.
type Result struct {
	File string `json:"file"`
	Done string `json:"done"` // written, unchanged, updated or kept
	Why  string `json:"why,omitempty"`
}

// The values of Result.Done.
const (
	Written   = "written"
	Unchanged = "unchanged"
	Updated   = "updated"
	Kept      = "kept"
)

// A Dir writes files below one directory and never leaves it: names are resolved
// through a rooted handle, which refuses symbolic links out of it.
type Dir struct {
	root *os.Root
	Path string // as the user called it
}

// OpenDir opens a directory and creates it if necessary.
func OpenDir(dir string) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s cannot be made a directory: %v", Relative(dir), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s cannot be opened: %v", Relative(dir), err)
	}
	return &Dir{root, dir}, nil
}

// Close closes the directory.
func (p *Dir) Close() { _ = p.root.Close() }

// Name returns the path of a file as the user would write it.
func (p *Dir) Name(name string) string { return path.Join(p.Path, name) }

// Read returns the content of a file; ok is false when there is no such file.
func (p *Dir) Read(name string) (text []byte, ok bool, err error) {
	text, err = p.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fault.Wrap(fault.Usage, err, "%s cannot be read: %v", p.Name(name), err)
	}
	return text, true, nil
}

// Offer writes a file unless it exists. An existing file with other content
// belongs to the user and is kept, unless ours is set: only Roux writes it.
func (p *Dir) Offer(name string, text []byte, ours bool) (Result, error) {
	old, there, err := p.Read(name)
	switch {
	case err != nil:
		return Result{}, err
	case there && bytes.Equal(old, text):
		return Result{p.Name(name), Unchanged, ""}, nil
	case there && !ours:
		return Result{p.Name(name), Kept, "you have changed it"}, nil
	}
	if err := p.Write(name, text); err != nil {
		return Result{}, err
	}
	if there {
		return Result{p.Name(name), Updated, ""}, nil
	}
	return Result{p.Name(name), Written, ""}, nil
}

// Write replaces a file in one step, so that no reader sees half of it.
func (p *Dir) Write(name string, text []byte) error {
	if err := p.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return WriteError(p.Name(name), err)
	}
	return Replace(p.root, name, p.Name(name), text)
}

// Holds reports whether there is a file of that name and content.
func (p *Dir) Holds(name, hash string) (bool, error) {
	info, err := p.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	f, err := p.root.Open(name)
	if err != nil {
		return false, nil // it cannot be read; the caller takes another name
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, fault.Wrap(fault.Usage, err, "%s cannot be read: %v", p.Name(name), err)
	}
	return "sha256_"+hex.EncodeToString(sum.Sum(nil)) == hash, nil
}

// Exists reports whether there is something of that name.
func (p *Dir) Exists(name string) bool {
	_, err := p.root.Lstat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
