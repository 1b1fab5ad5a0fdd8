// SPDX-License-Identifier: Apache-2.0

package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Files are the files of the account. A file is named by its hash: sha256_ and the SHA-256 of
// its content.
type Files struct{ c *Client }

// A File is a file as it was described when it was uploaded.
type File struct {
	Hash      string          `json:"hash"`
	Name      string          `json:"name"`
	MimeType  string          `json:"mimeType"`
	SizeBytes int64           `json:"sizeBytes"`
	Extended  json.RawMessage `json:"extended,omitempty"` // what inspection found, such as pageCount
	UsedAt    *time.Time      `json:"usedAt,omitempty"`   // when it was last uploaded or named
	Runs      []string        `json:"runs,omitempty"`     // that name it, at most 20; only Get sets them
}

// FileQuery selects files. Fields left zero do not restrict.
type FileQuery struct {
	Name string // a text in the name
	Type string // a media type, or a pattern such as image/*
}

// List returns the files.
func (f *Files) List(ctx context.Context, q FileQuery) iter.Seq2[File, error] {
	return list[File](ctx, f.c, func() *call { return at(http.MethodGet, "v1", "files").with("name", q.Name).with("type", q.Type) })
}

// Get describes a file.
func (f *Files) Get(ctx context.Context, hash string) (*File, error) {
	out := new(File)
	_, err := f.c.do(ctx, at(http.MethodGet, "v1", "files", hash), out)
	return result(out, err)
}

// Delete deletes a file that no run names.
func (f *Files) Delete(ctx context.Context, hash string) error {
	_, err := f.c.do(ctx, at(http.MethodDelete, "v1", "files", hash), nil)
	return err
}

// UploadOptions describe a file. Fields left zero take the default that their comment names.
type UploadOptions struct {
	Name string // for people and for actions
	Type string // the media type; default: what the content says
	Hash string // that the content must have, as File.Hash has it; default: any
}

// Upload uploads what r has, without holding it in memory, and compares the hash of what was
// sent with that of what has arrived. If r is an io.Seeker, such as a file, an upload that was
// cut off is sent again from where r stood; else it is an error. Upload does not close r.
func (f *Files) Upload(ctx context.Context, r io.Reader, o UploadOptions) (*File, error) {
	u, err := newUpload(r)
	if err != nil {
		return nil, err
	}
	cl := at(http.MethodPost, "v1", "files").with("name", o.Name).set("X-Content-Sha256", o.Hash)
	cl.set("Content-Type", cmp.Or(o.Type, "application/octet-stream"))
	cl.body = u.body
	out := new(File)
	if _, err := f.c.do(ctx, cl, out); err != nil {
		return nil, err
	}
	if sent := u.hash(); out.Hash != sent {
		return nil, fault.New(fault.FileInvalid, "the file has arrived as %s, and was sent as %s", out.Hash, sent)
	}
	return out, nil
}

// An upload is a source that is sent, again if it can be.
type upload struct {
	r     io.Reader
	seek  io.Seeker // nil = r is read once
	begin int64
	size  int64 // -1 = not known
	part  *uploadPart
}

func newUpload(r io.Reader) (*upload, error) {
	u := &upload{r: r, size: -1}
	s, ok := r.(io.Seeker)
	if !ok {
		return u, nil
	}
	begin, err := s.Seek(0, io.SeekCurrent)
	if err != nil {
		return u, nil //nolint:nilerr // such as a pipe, which has the method and no places
	}
	end, err := s.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = s.Seek(begin, io.SeekStart)
	}
	if err != nil {
		return nil, fault.Wrap(fault.FileInvalid, err, "the file to upload cannot be read: %v", err)
	}
	u.seek, u.begin, u.size = s, begin, max(end-begin, 0)
	return u, nil
}

// body returns the content for another attempt.
func (u *upload) body() (io.Reader, int64, error) {
	if last := u.part; last != nil {
		last.over.Store(true)
		last.mu.Lock() // the transport of the attempt before may still read
		defer last.mu.Unlock()
		switch {
		case u.seek != nil:
			if _, err := u.seek.Seek(u.begin, io.SeekStart); err != nil {
				return nil, 0, fault.Wrap(fault.FileInvalid, err, "the file to upload cannot be read again: %v", err)
			}
		case last.began:
			return nil, 0, &fault.Error{
				Code: fault.ServerUnreachable, Msg: "the upload was cut off, and its source cannot be read again",
				Remedy: "Upload a file, or read the source into one.",
			}
		}
	}
	r := u.r
	if u.size >= 0 {
		r = io.LimitReader(r, u.size) // a file may grow meanwhile
	}
	u.part = &uploadPart{r: r, sum: sha256.New()}
	if u.size == 0 {
		return http.NoBody, 0, nil
	}
	return u.part, u.size, nil
}

// hash returns the hash of what was sent.
func (u *upload) hash() string { return nameOf(u.part.sum) }

func nameOf(sum hash.Hash) string { return "sha256_" + hex.EncodeToString(sum.Sum(nil)) }

// An uploadPart is the body of one attempt.
type uploadPart struct {
	mu    sync.Mutex
	r     io.Reader
	sum   hash.Hash
	began bool
	over  atomic.Bool
}

// Read implements io.Reader.
func (p *uploadPart) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over.Load() {
		return 0, errors.New("the attempt is over")
	}
	n, err := p.r.Read(b)
	p.began = p.began || n > 0
	_, _ = p.sum.Write(b[:n]) // never fails (hash.Hash)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault.Wrap(fault.FileInvalid, err, "the source of the upload cannot be read: %v", err)
	}
	return n, err
}

// Close implements io.Closer. It does not wait for a Read.
func (p *uploadPart) Close() error {
	p.over.Store(true)
	return nil
}

// A Range is a part of a file: N bytes from the byte From on. N 0 = up to the end.
type Range struct{ From, N int64 }

// Open returns the content of a file, or a range of it; nil = all. A connection that is cut off
// is made again for the rest. The hash of a whole file is checked at its end: a reader that
// ends with io.EOF has read what the file has.
func (f *Files) Open(ctx context.Context, hash string, part *Range) (*FileReader, error) {
	r := &FileReader{ctx: ctx, c: f.c, hash: hash, end: -1}
	if part != nil {
		if part.From < 0 || part.N < 0 {
			return nil, fault.New(fault.Usage, "the range of a file must not begin or end before 0")
		}
		r.at, r.part = part.From, true
		if part.N > 0 {
			r.end = part.From + part.N
		}
	}
	r.sum = sha256.New()
	res, err := f.c.open(ctx, r.call())
	if err != nil {
		return nil, err
	}
	return r, r.take(res)
}

// Download writes the content of a file to w.
func (f *Files) Download(ctx context.Context, hash string, w io.Writer) (int64, error) {
	r, err := f.Open(ctx, hash, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Close() }()
	return io.Copy(w, r)
}

// A FileReader reads the content of a file.
type FileReader struct {
	ctx    context.Context //nolint:containedctx // of Open: Read has none
	c      *Client
	hash   string
	part   bool
	at     int64 // where the next byte is
	end    int64 // where the content ends; -1 = not known
	sum    hash.Hash
	body   io.ReadCloser
	failed int // attempts since the last byte
	err    error
}

// call asks for the content from where the reader is.
func (r *FileReader) call() *call {
	cl := at(http.MethodGet, "v1", "files", r.hash, "content")
	switch {
	case r.end >= 0:
		cl.set("Range", fmt.Sprintf("bytes=%d-%d", r.at, r.end-1))
	case r.part || r.at > 0:
		cl.set("Range", fmt.Sprintf("bytes=%d-", r.at))
	}
	return cl
}

// take begins to read an answer.
func (r *FileReader) take(res *http.Response) error {
	r.body = res.Body
	if res.StatusCode == http.StatusPartialContent {
		span, _, _ := strings.Cut(strings.TrimPrefix(res.Header.Get("Content-Range"), "bytes "), "/")
		first, last, _ := strings.Cut(span, "-")
		from, err1 := strconv.ParseInt(first, 10, 64)
		to, err2 := strconv.ParseInt(last, 10, 64)
		if err1 != nil || err2 != nil || from != r.at {
			_ = res.Body.Close()
			return fault.New(fault.InternalError, "the server sent another part of the file than it was asked for")
		}
		r.end = to + 1
		return nil
	}
	if r.at > 0 { // the server knows no ranges
		if _, err := io.CopyN(io.Discard, res.Body, r.at); err != nil {
			_ = res.Body.Close()
			return unreachable(r.ctx, r.call(), err)
		}
	}
	if res.ContentLength >= 0 && r.end < 0 {
		r.end = res.ContentLength
	}
	return nil
}

// Read implements io.Reader.
func (r *FileReader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if r.end >= 0 {
		if r.at >= r.end {
			return 0, r.finish()
		}
		b = b[:min(int64(len(b)), r.end-r.at)]
	}
	n, err := r.body.Read(b)
	r.at += int64(n)
	_, _ = r.sum.Write(b[:n]) // never fails (hash.Hash)
	if n > 0 {
		r.failed = 0
		return n, nil
	}
	switch {
	case err == nil:
		return 0, nil
	case errors.Is(err, io.EOF) && r.end < 0:
		return 0, r.finish()
	}
	r.err = r.again(unreachable(r.ctx, r.call(), err))
	return 0, r.err
}

// again makes the connection again for the rest of the content.
func (r *FileReader) again(err error) error {
	for {
		_ = r.body.Close()
		r.body = http.NoBody
		if r.failed++; r.failed >= r.c.cfg.Attempts || r.ctx.Err() != nil {
			return err
		}
		if serr := r.c.cfg.Sleep(r.ctx, r.c.backoff(r.failed)); serr != nil {
			return fmt.Errorf("%w; the rest was not read: %w", err, serr)
		}
		res, oerr := r.c.open(r.ctx, r.call())
		if oerr != nil {
			return oerr
		}
		if terr := r.take(res); terr == nil {
			return nil
		} else if !errors.Is(terr, fault.ServerUnreachable) {
			return terr
		}
	}
}

// finish checks the content at its end.
func (r *FileReader) finish() error {
	r.err = io.EOF
	if got := nameOf(r.sum); !r.part && got != r.hash {
		r.err = fault.New(fault.FileInvalid, "the content of the file %s has arrived as %s", r.hash, got)
	}
	return r.err
}

// Close ends the download.
func (r *FileReader) Close() error { return r.body.Close() }
