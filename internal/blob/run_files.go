// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"io"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// WithNames returns files as they are seen by a run that was started with the given
// input files. Equal bytes are stored once, under the name and type that they were first
// given; in a run an input file has the name and type that the run was started with.
func WithNames(files action.Files, given []journal.File) action.Files {
	if len(given) == 0 {
		return files
	}
	return runFiles{files, given}
}

type runFiles struct {
	action.Files
	given []journal.File
}

// Open implements action.Files.
func (r runFiles) Open(ctx context.Context, hash string) (action.File, error) {
	f, err := r.Files.Open(ctx, hash)
	if err != nil {
		return nil, err
	}
	for i := range r.given {
		if g := &r.given[i]; g.Hash == hash && g.Name != "" {
			return namedFile{f, g}, nil
		}
	}
	return f, nil
}

// A namedFile is an open file under the name that its run has for it.
type namedFile struct {
	action.File
	given *journal.File
}

// Info implements action.File.
func (f namedFile) Info() action.FileInfo {
	info := f.File.Info()
	info.Name = f.given.Name
	if f.given.MimeType != "" {
		info.MimeType = f.given.MimeType
	}
	return info
}

// None is what actions get where no files are kept.
type None struct{}

// Open implements action.Files.
func (None) Open(context.Context, string) (action.File, error) {
	return nil, fault.New(fault.FileNotFound, "this engine keeps no files")
}

// Put implements action.Files.
func (None) Put(context.Context, io.Reader, string, string) (action.FileInfo, error) {
	return action.FileInfo{}, fault.New(fault.StoreReadOnly, "this engine keeps no files")
}
