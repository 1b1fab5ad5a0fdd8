// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/control"
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

// PutFile implements control.Files.
func (s *Server) PutFile(ctx context.Context, r io.Reader, name string) (action.FileInfo, error) {
	f, err := s.Client.Files.Upload(ctx, r, client.UploadOptions{Name: name})
	if err != nil {
		return action.FileInfo{}, err
	}
	return infoOf(f), nil
}

// ReadFile implements control.Files.
func (s *Server) ReadFile(ctx context.Context, hash string, from, n int64) (io.ReadCloser, error) {
	if n < 0 {
		return s.Client.Files.Open(ctx, hash, nil)
	}
	return s.Client.Files.Open(ctx, hash, &client.Range{From: from, N: n})
}

// named is the number of files that are looked at for one whose hash begins as a command says.
const named = 5_000

// FindFile implements control.Files.
func (s *Server) FindFile(ctx context.Context, begin string) (control.File, error) {
	hash := "sha256_" + strings.ToLower(strings.TrimPrefix(begin, "sha256_"))
	if !blob.ValidHash(hash) {
		var found []string
		seen := 0
		for f, err := range s.Client.Files.List(ctx, client.FileQuery{}) {
			if err != nil {
				return control.File{}, err
			}
			if strings.HasPrefix(f.Hash, hash) {
				found = append(found, f.Hash)
			}
			if seen++; seen >= named || len(found) > 3 {
				break
			}
		}
		switch {
		case len(found) == 0 || hash == "sha256_":
			return control.File{}, fault.New(fault.FileNotFound, "no file of the account has a hash that begins with %.90q", begin)
		case len(found) > 1:
			return control.File{}, fault.New(fault.Usage, "%s is the beginning of several hashes, give more digits: %s", begin, strings.Join(found, ", "))
		}
		hash = found[0]
	}
	f, err := s.Client.Files.Get(ctx, hash)
	if err != nil {
		return control.File{}, err
	}
	return control.File{Entry: entryOf(f), Runs: f.Runs}, nil
}

// ListFiles implements control.Files.
func (s *Server) ListFiles(ctx context.Context, q blob.Query) ([]blob.Entry, error) {
	found, err := client.Collect(s.Client.Files.List(ctx, client.FileQuery{Name: q.Name, Type: q.Type}), q.Limit)
	list := make([]blob.Entry, len(found))
	for i := range found {
		list[i] = entryOf(&found[i])
	}
	return list, err
}

// RemoveFile implements control.Files.
func (s *Server) RemoveFile(ctx context.Context, hash string) error {
	return s.Client.Files.Delete(ctx, hash)
}

// CleanFiles implements control.Files.
func (s *Server) CleanFiles(context.Context, bool) (retention.Removed, error) {
	return retention.Removed{}, Unsupported("deleting what is no longer kept")
}
