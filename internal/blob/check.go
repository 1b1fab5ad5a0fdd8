// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// A Checked counts what Check has read.
type Checked struct {
	Files int
	Bytes int64
}

// Check reads every file of every account and compares it with its hash. It calls
// complain with each damaged file, each directory of an unknown account and everything
// the store did not make, until complain returns an error. It changes nothing but modes
// that give access to others, and returns soon after ctx is done.
func (s *Store) Check(ctx context.Context, complain func(error) error) (read Checked, err error) {
	dirs, err := s.names(".")
	if err != nil {
		return read, err
	}
	for _, dir := range dirs {
		if dir != tmpDir && !strings.HasPrefix(dir, accountPrefix) {
			continue
		}
		err := s.wantDir(dir)
		if _, known := s.accountOf(dir); err == nil && !known && dir != tmpDir && !s.begun(dir) {
			err = fault.New(fault.FileInvalid, "the files in %s belong to no known account: %s there is damaged or missing", dir, path.Join(dir, accountFile))
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := complain(err); err != nil {
			return read, err
		}
	}
	_, err = s.walk(ctx, "", -1, func(e Entry) error {
		n, err := s.readWhole(ctx, e)
		read.Files++
		read.Bytes += n
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, fault.FileNotFound):
			return nil // removed meanwhile
		case err != nil:
			return complain(err)
		}
		return nil
	}, complain)
	return read, err
}

// begun reports whether a directory of an account has no file yet: a process that ended while
// it put the first one has left it, and the next one to put a file completes it.
func (s *Store) begun(dir string) bool {
	inside, err := s.names(dir)
	for _, name := range inside {
		var files []string
		if files, err = s.names(path.Join(dir, name)); err != nil || len(files) > 0 {
			return false
		}
	}
	return err == nil
}

// readWhole reads a file to its end, where its reader compares the hash, and reads its
// sidecar.
func (s *Store) readWhole(ctx context.Context, e Entry) (n int64, err error) {
	f, err := s.Open(ctx, e.Account, e.Info.Hash)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err = io.Copy(io.Discard, &untilDone{ctx, f})
	if err != nil {
		return n, err
	}
	p := placeOf(e.Account, e.Info.Hash)
	if _, err := s.root.Lstat(p.sidecar()); err == nil {
		if _, err := s.readSidecar(p); err != nil {
			return n, fault.Wrap(fault.FileInvalid, err, "file %s: its record of name and type is damaged: %v", e.Info.Hash, err)
		}
	}
	return n, nil
}

// An untilDone reads until its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
