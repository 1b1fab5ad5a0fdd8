// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
)

// fixturePrefix begins a text that stands for the hash of a file.
const fixturePrefix = "fixture:"

// fixtures are the files of the tests of one test file, and those that their runs make. They are
// in a directory of their own, which is made when there is the first.
type fixtures struct {
	dir string // of the test file

	mu    sync.Mutex
	temp  string
	store *blob.Store
	known map[string]action.FileInfo // by path
	read  ReadFile                   // reads what is not in the directory; nil = nothing is
}

// A ReadFile reads a whole file by its hash.
type ReadFile func(ctx context.Context, hash string) (io.ReadCloser, error)

func newFixtures(dir string) *fixtures {
	return &fixtures{dir: dir, known: map[string]action.FileInfo{}}
}

// close removes the files.
func (f *fixtures) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != nil {
		_ = f.store.Close()
		_ = os.RemoveAll(f.temp)
		f.store = nil
	}
}

// open returns the store of the files.
func (f *fixtures) open() (*blob.Store, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.store != nil {
		return f.store, nil
	}
	temp, err := os.MkdirTemp("", "roux-test-")
	if err != nil {
		return nil, err
	}
	st, err := blob.Open(blob.Config{Dir: filepath.Join(temp, "files"), Inspect: builtin.AtUpload()})
	if err != nil {
		_ = os.RemoveAll(temp)
		return nil, err
	}
	f.temp, f.store = temp, st
	return st, nil
}

// openRegular opens a file below the directory of the test file, or of its parent if it is in a directory tests. Links
// do not lead out of there.
func (f *fixtures) openRegular(name string) (*os.File, error) {
	dir, name := f.dir, filepath.FromSlash(name)
	if filepath.Base(dir) == "tests" {
		dir, name = filepath.Dir(dir), filepath.Join("tests", name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(filepath.Clean(name))
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.FileNotFound, err, "%q cannot be read: files of tests are in the directory of the test file or below it", name)
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.FileNotFound, "%q is not a regular file", name)
	}
	return root.Open(filepath.Clean(name))
}

// fixture returns a file that a test names.
func (f *fixtures) fixture(ctx context.Context, path string) (action.FileInfo, error) {
	if filepath.IsAbs(path) {
		return action.FileInfo{}, fault.New(fault.FileNotFound, "%q is an absolute path: want one relative to the test file", path)
	}
	f.mu.Lock()
	info, ok := f.known[path]
	f.mu.Unlock()
	if ok {
		return info, nil
	}
	st, err := f.open()
	if err != nil {
		return info, err
	}
	file, err := f.openRegular(path)
	if err != nil {
		return info, err
	}
	defer func() { _ = file.Close() }()
	info, err = st.Put(ctx, account, file, filepath.Base(path), "")
	if err == nil {
		f.mu.Lock()
		f.known[path] = info
		f.mu.Unlock()
	}
	return info, err
}

// inputs returns the input files of a run.
func (f *fixtures) inputs(ctx context.Context, paths []string) (files []journal.File, err error) {
	for _, path := range paths {
		info, err := f.fixture(ctx, path)
		if err != nil {
			return nil, err
		}
		files = append(files, journal.File{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size, Extended: info.Extended})
	}
	return files, nil
}

// value decodes a value of a test file, in which texts may stand for files.
func (f *fixtures) value(ctx context.Context, raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return nil, err
	}
	return f.filled(ctx, v)
}

// filled replaces the texts in a value that stand for files.
func (f *fixtures) filled(ctx context.Context, v any) (any, error) {
	switch v := v.(type) {
	case string:
		path, ok := strings.CutPrefix(v, fixturePrefix)
		if !ok {
			return v, nil
		}
		info, err := f.fixture(ctx, path)
		return info.Hash, err
	case []any:
		for i := range v {
			var err error
			if v[i], err = f.filled(ctx, v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			var err error
			if v[k], err = f.filled(ctx, v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// Open implements action.Files.
func (f *fixtures) Open(ctx context.Context, hash string) (action.File, error) {
	st, err := f.open()
	if err != nil {
		return nil, err
	}
	file, err := st.Open(ctx, account, hash)
	if f.read == nil || !errors.Is(err, fault.FileNotFound) {
		return file, err
	}
	if err := f.fetch(ctx, st, hash); err != nil {
		return nil, err
	}
	return st.Open(ctx, account, hash)
}

// fetch copies a file into the directory.
func (f *fixtures) fetch(ctx context.Context, st *blob.Store, hash string) error {
	src, err := f.read(ctx, hash)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	_, err = st.Put(ctx, account, src, "", "")
	return err
}

// Put implements action.Files.
func (f *fixtures) Put(ctx context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	st, err := f.open()
	if err != nil {
		return action.FileInfo{}, err
	}
	return st.Files(account).Put(ctx, r, name, mimeType)
}
