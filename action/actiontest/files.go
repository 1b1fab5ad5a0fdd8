// SPDX-License-Identifier: Apache-2.0

package actiontest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
)

// account owns the files of a test.
const account = "test"

// Files is a file store in the test's temporary directory. It has the hashes, MIME types,
// verification and bounds of a real store. Pass it to calls with [WithFiles].
type Files struct {
	action.Files
	t testing.TB
}

// NewFiles returns an empty store that is removed after the test.
func NewFiles(t testing.TB) *Files {
	t.Helper()
	s, err := blob.Open(blob.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &Files{s.Files(account), t}
}

// Add stores data under a name and returns its hash, for use in an input.
func (f *Files) Add(name string, data []byte) string {
	f.t.Helper()
	info, err := f.Put(context.Background(), bytes.NewReader(data), name, "")
	if err != nil {
		f.t.Fatal(err)
	}
	return info.Hash
}

// Read returns the content and the description of a file, such as one that an action
// made.
func (f *Files) Read(hash string) ([]byte, action.FileInfo) {
	f.t.Helper()
	file, err := f.Open(context.Background(), hash)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(file)
	if err != nil {
		f.t.Fatal(err)
	}
	return data, file.Info()
}
