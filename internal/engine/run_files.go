// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
)

// runFiles are the files of an account as a run sees them. Equal bytes are stored once,
// under the name and type that they were first given; in a run an input file has the
// name and type that the run was started with.
type runFiles struct {
	action.Files
	given []journal.File
}

// withNames returns files as they are seen by a run that was started with the given
// input files.
func withNames(files action.Files, given []journal.File) action.Files {
	if len(given) == 0 {
		return files
	}
	return runFiles{files, given}
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
