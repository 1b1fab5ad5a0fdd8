// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/retention"
)

// infoOf describes a file of the server.
func infoOf(f *client.File) action.FileInfo {
	return action.FileInfo{Hash: f.Hash, Name: f.Name, MimeType: f.MimeType, Size: f.SizeBytes, Extended: f.Extended}
}

func entryOf(f *client.File) blob.Entry {
	e := blob.Entry{Info: infoOf(f)}
	if f.UsedAt != nil {
		e.Stored = *f.UsedAt
	} else {
		e.Stored = time.Unix(0, 0)
	}
	return e
}

// PutFile implements Files.
func (s *Server) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	f, err := s.Client.Files.Upload(ctx, r, client.UploadOptions{Name: blob.CleanName(name)})
	if err != nil {
		return action.FileInfo{}, err
	}
	return infoOf(f), nil
}

// ReadFile implements Files.
func (s *Server) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if err := checkHash(hash); err != nil {
		return nil, err
	}
	var part *client.Range
	switch {
	case n == 0:
		return io.NopCloser(strings.NewReader("")), nil
	case n > 0:
		part = &client.Range{From: from, N: n}
	}
	f, err := s.Client.Files.Open(ctx, hash, part)
	if err != nil {
		return nil, err
	}
	return &reading{FileReader: f, s: s, ctx: ctx, hash: hash, at: max(from, 0)}, nil
}

// A reading is the content of a file. When it is cut off, the server is asked why: it sends
// nothing of a piece that is damaged, and cannot say so in the middle of an answer.
type reading struct {
	*client.FileReader
	s    *Server
	ctx  context.Context //nolint:containedctx // of ReadFile: Read has none
	hash string
	at   int64
}

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	n, err := r.FileReader.Read(b)
	r.at += int64(n)
	if !errors.Is(err, fault.ServerUnreachable) || r.ctx.Err() != nil {
		return n, err
	}
	rest, why := r.s.Client.Files.Open(r.ctx, r.hash, &client.Range{From: r.at})
	if why == nil {
		return n, errors.Join(err, rest.Close())
	}
	if errors.Is(why, fault.FileInvalid) {
		return n, why
	}
	return n, err
}

// checkHash refuses what cannot name a file. In the path of a request it might mean something
// else.
func checkHash(hash string) error {
	if blob.ValidHash(hash) {
		return nil
	}
	return fault.New(fault.FileNotFound, "%.90q is no hash of a file", hash)
}

// named is the number of files that are looked at for one whose hash begins as a command says.
const named = 5_000

// FindFile implements Files.
func (s *Server) FindFile(ctx context.Context, begin string) (File, error) {
	hash := "sha256_" + strings.ToLower(strings.TrimPrefix(begin, "sha256_"))
	if !blob.ValidHash(hash) {
		var found []string
		seen := 0
		for f, err := range s.Client.Files.List(ctx, client.FileQuery{}) {
			if err != nil {
				return File{}, err
			}
			if strings.HasPrefix(f.Hash, hash) {
				found = append(found, f.Hash)
			}
			if seen++; seen >= named && s.of == nil || len(found) > 3 {
				break
			}
		}
		switch {
		case len(found) == 0 || hash == "sha256_":
			return File{}, fault.New(fault.FileNotFound, "no file of the account has a hash that begins with %.90q", begin)
		case len(found) > 1:
			return File{}, fault.New(fault.Usage, "%s is the beginning of several hashes, give more digits: %s", begin, strings.Join(found, ", "))
		}
		hash = found[0]
	}
	f, err := s.Client.Files.Get(ctx, hash)
	if err != nil {
		return File{}, err
	}
	return File{Entry: entryOf(f), Runs: f.Runs}, nil
}

// ListFiles implements Files.
func (s *Server) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	found, err := client.Collect(s.Client.Files.List(ctx, client.FileQuery{Name: q.Name, Type: q.Type}), q.Limit)
	list := make([]blob.Entry, len(found))
	for i := range found {
		list[i] = entryOf(&found[i])
	}
	return list, err
}

// RemoveFile implements Files.
func (s *Server) RemoveFile(ctx context.Context, hash string) error {
	if err := checkHash(hash); err != nil {
		return err
	}
	return s.Client.Files.Delete(ctx, hash)
}

// CleanFiles implements Files.
func (s *Server) CleanFiles(ctx context.Context, dry bool) (retention.Removed, error) {
	r, err := s.Client.Operator.Clean(ctx, dry)
	if err != nil {
		return retention.Removed{}, err
	}
	return retention.Removed{Runs: r.Runs, Keys: r.IdempotencyKeys, Records: r.Records, Files: r.Files, Bytes: r.Bytes, RunIDs: r.RunIDs, Hashes: r.FileHashes}, nil
}

// KeptResults implements Results.
func (s *Server) KeptResults(ctx context.Context) ([]resultcache.ActionUsage, error) {
	found, err := client.Collect(s.Client.Cache.List(ctx), 0)
	list := make([]resultcache.ActionUsage, len(found))
	for i := range found {
		list[i] = resultcache.ActionUsage(found[i])
	}
	return list, err
}

// ClearResults implements Results.
func (s *Server) ClearResults(ctx context.Context, action string) (int, error) {
	return s.Client.Cache.Clear(ctx, action)
}
