// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// A reader returns bytes and verifies that they are those that were stored.
//
// A sequential read hashes while it reads and reports damage instead of io.EOF. In any
// other order (ReadAt, or Read after Seek) the reader first hashes the whole file once,
// because a parser that seeks may never reach the end.
type reader struct {
	f    *os.File
	info action.FileInfo

	mu       sync.Mutex
	pos      int64
	hashed   int64     // bytes in running, from the start of the file
	running  hash.Hash // nil once verified
	verified bool
	err      error // damage, once found; every later read reports it
}

func newReader(f *os.File, info action.FileInfo) *reader {
	return &reader{f: f, info: info, running: sha256.New()}
}

func (r *reader) Info() action.FileInfo { return r.info }
func (r *reader) Close() error          { return r.f.Close() }

func (r *reader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	if r.pos != r.hashed && !r.verified {
		if err := r.verifyAll(); err != nil {
			return 0, err
		}
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.f.ReadAt(p, r.pos)
	r.pos += int64(n)
	if r.verified {
		if n > 0 && err == io.EOF {
			err = nil
		}
		return n, err
	}
	_, _ = r.running.Write(p[:n])
	r.hashed += int64(n)
	if err == io.EOF {
		if sumName(r.running) != r.info.Hash || r.hashed != r.info.Size {
			r.err = damaged(r.info.Hash)
			return n, r.err
		}
		r.verified, r.running = true, nil
		if n > 0 {
			err = nil
		}
	}
	return n, err
}

func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	r.mu.Lock()
	if !r.verified && r.err == nil {
		_ = r.verifyAll()
	}
	err := r.err
	r.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return r.f.ReadAt(p, off)
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.info.Size
	default:
		return 0, fault.New(fault.InternalError, "seek in %s: unknown whence %d", r.info.Hash, whence)
	}
	if offset < 0 {
		return 0, fault.New(fault.InternalError, "seek in %s: position %d is before its start", r.info.Hash, offset)
	}
	r.pos = offset
	return offset, nil
}

func (r *reader) verifyAll() error {
	if err := verify(context.Background(), r.f, r.info.Size, r.info.Hash); err != nil {
		r.err = err
		return err
	}
	r.verified, r.running = true, nil
	return nil
}

// verify hashes a whole file of the wanted size without moving its position.
func verify(ctx context.Context, f *os.File, size int64, want string) error {
	h := sha256.New()
	src := io.NewSectionReader(f, 0, size+1)
	buf := make([]byte, 256<<10)
	var n int64
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m, err := src.Read(buf)
		_, _ = h.Write(buf[:m])
		n += int64(m)
		if err == io.EOF {
			break
		}
		if err != nil {
			return storageFault(err, "read file %s", want)
		}
	}
	if n != size || sumName(h) != want {
		return damaged(want)
	}
	return nil
}

func damaged(hash string) error {
	return fault.New(fault.FileInvalid, "file %s is damaged in the store: its bytes no longer have that hash", hash)
}
