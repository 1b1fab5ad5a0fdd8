// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// leased returns a client whose requests for files show a lease.
func (c *Client) leased(lease string) *Client {
	other := *c
	other.cfg.Header = c.cfg.Header.Clone()
	if other.cfg.Header == nil {
		other.cfg.Header = map[string][]string{}
	}
	other.cfg.Header.Set("Roux-Lease", lease)
	other.Files = &Files{&other}
	return &other
}

// leaseFiles are the files of the account of a task. One that is opened is copied to a temporary
// file, which is removed at the end of the task.
type leaseFiles struct {
	client *Client
	lease  string

	mu   sync.Mutex
	with *Client // shows the lease; nil = no file has been used
	open []*os.File
}

// files returns the files as the lease shows them.
func (f *leaseFiles) files() *Files {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.with == nil {
		f.with = f.client.leased(f.lease)
	}
	return f.with.Files
}

// Open implements action.Files.
func (f *leaseFiles) Open(ctx context.Context, hash string) (action.File, error) {
	r, err := f.files().Open(ctx, hash, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	tmp, size, err := f.copied(r)
	if err != nil {
		return nil, err
	}
	info := action.FileInfo{Hash: hash, MimeType: "application/octet-stream", Size: size}
	if known, err := f.files().Get(ctx, hash); err == nil {
		info = action.FileInfo{Hash: known.Hash, Name: known.Name, MimeType: known.MimeType, Size: known.SizeBytes, Extended: known.Extended}
	}
	return &leaseFile{tmp, info}, nil
}

// copied returns a temporary file with what r has, which close removes, and how much that is.
func (f *leaseFiles) copied(r io.Reader) (*os.File, int64, error) {
	tmp, err := os.CreateTemp("", "roux-task-*")
	if err != nil {
		return nil, 0, fault.Wrap(fault.StoreFailed, err, "a file of the task cannot be stored: %v", err)
	}
	_ = os.Remove(tmp.Name()) // where that is not possible yet, close does it
	f.mu.Lock()
	f.open = append(f.open, tmp)
	f.mu.Unlock()
	size, err := io.Copy(tmp, r)
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	return tmp, size, err
}

type leaseFile struct {
	*os.File
	info action.FileInfo
}

// Info implements action.File.
func (f *leaseFile) Info() action.FileInfo { return f.info }

// smallFile is how much of a file is held in memory.
const smallFile = 64 << 10

// again returns a source that can be read again: the server may stop while the file is sent, and what the
// action has made it of, such as an answer of a service, is gone then.
func (f *leaseFiles) again(r io.Reader) (again io.Reader, done func(), err error) {
	done = func() {}
	if s, ok := r.(io.Seeker); ok {
		if _, err := s.Seek(0, io.SeekCurrent); err == nil {
			return r, done, nil
		}
	}
	var head bytes.Buffer
	if _, err := io.CopyN(&head, r, smallFile); err != nil {
		if errors.Is(err, io.EOF) {
			return bytes.NewReader(head.Bytes()), done, nil
		}
		return nil, done, fault.Wrap(fault.FileInvalid, err, "the file to upload cannot be read: %v", err)
	}
	tmp, _, err := f.copied(io.MultiReader(&head, r))
	if tmp != nil {
		done = func() { _ = tmp.Close() }
	}
	return tmp, done, err
}

// Put implements action.Files.
func (f *leaseFiles) Put(ctx context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	r, done, err := f.again(r)
	defer done()
	if err != nil {
		return action.FileInfo{}, err
	}
	up, err := f.files().Upload(ctx, r, UploadOptions{Name: name, Type: mimeType})
	if err != nil {
		return action.FileInfo{}, err
	}
	return action.FileInfo{Hash: up.Hash, Name: up.Name, MimeType: up.MimeType, Size: up.SizeBytes, Extended: up.Extended}, nil
}

func (f *leaseFiles) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tmp := range f.open {
		if err := tmp.Close(); errors.Is(err, os.ErrClosed) || err == nil {
			_ = os.Remove(tmp.Name()) // it may be gone
		}
	}
}
