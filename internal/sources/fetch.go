// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/userfile"
)

const (
	// MaxBytes is how many bytes may be fetched of one source, and how many its files may
	// have when they are unpacked.
	MaxBytes = 100 << 20
	// maxText is how many bytes a recipe may have.
	maxText = 16 << 20
	// maxCache is how many bytes are kept of all sources.
	maxCache = 10 * MaxBytes
	// fetchTime is how long one source may take.
	fetchTime = 2 * time.Minute
)

// A Fetcher gets what sources name. Its zero value cannot be used.
type Fetcher struct {
	cfg Config
}

// Config is what a Fetcher is made of.
type Config struct {
	// HTTP sends all requests. nil = nothing is fetched, so that only what is kept can be had.
	HTTP *egress.Client
	// Cache is a directory where what was fetched is kept under its hash; what is read there
	// is compared with the hash. "" = nothing is kept.
	Cache string
	// Git is the program git. Default: the one in PATH.
	Git string
}

// New returns a Fetcher. It reads nothing yet.
func New(cfg Config) *Fetcher { return &Fetcher{cfg: cfg} }

// A Fetched is what a source has.
type Fetched struct {
	Source *Source
	// Hash is the sha256 of what was fetched: of a text or a package its bytes, of a
	// repository the files in it, as a tar archive in one order and without times.
	Hash string
	// Commit is that of a repository, if it was asked; "" = not known.
	Commit string

	content []byte
}

// Latest gets what a source has now, whatever is pinned.
func (f *Fetcher) Latest(ctx context.Context, s *Source) (*Fetched, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTime, fault.New(fault.ServiceUnavailable, "%s took longer than %s", s.Show(), fetchTime))
	defer cancel()
	out := &Fetched{Source: s}
	var err error
	switch {
	case s.IsURL() && f.cfg.HTTP == nil:
		e := fault.New(fault.RecipeNotFound, "%s is not kept on this machine, and is not fetched here", s.Show())
		e.Remedy = "Run `roux lock`, which fetches what it has and pins it if it is not pinned."
		return nil, e
	case s.Kind == Git:
		out.content, out.Commit, err = f.repository(ctx, s)
	case s.IsURL():
		out.content, err = f.get(ctx, s)
	case s.Kind == Package:
		out.content, err = readPackage(s.Where)
	default:
		err = fmt.Errorf("%s is a directory and is not fetched", s.Where)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			err = cause
		}
		return nil, err
	}
	sum := sha256.Sum256(out.content)
	out.Hash = hex.EncodeToString(sum[:])
	return out, nil
}

// Pinned gets what a source had when it was pinned. It asks nobody when that is known. pin is
// the hash that a lock file has; "" = none. The one that the source states comes first.
func (f *Fetcher) Pinned(ctx context.Context, s *Source, pin string) (*Fetched, error) {
	if s.Pin != "" {
		pin = s.Pin
	}
	if pin != "" && s.IsURL() {
		if content := f.kept(pin); content != nil {
			return &Fetched{Source: s, Hash: pin, content: content}, nil
		}
	}
	got, err := f.Latest(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := got.Check(pin); err != nil {
		return nil, err
	}
	f.Keep(got)
	return got, nil
}

// Check compares what was fetched with the hash that was pinned; "" = none was.
func (g *Fetched) Check(pin string) error {
	switch {
	case pin == "":
		e := fault.New(fault.Conflict, "%s is not pinned: expected a hash, found sha256=%s", g.Source.Show(), g.Hash)
		e.Remedy = "Read what it has, then run `roux lock`, which writes the hash into roux.lock, or append " + g.Source.pinText(g.Hash) + " to the source."
		return e
	case pin != g.Hash:
		e := fault.New(fault.Conflict, "%s has changed: expected sha256=%s, found sha256=%s", g.Source.Show(), pin, g.Hash)
		e.Remedy = "Read what it has now, then run `roux lock --update`, or change the hash after # in the source."
		return e
	}
	return nil
}

func (s *Source) pinText(hash string) string {
	if s.Sub != "" {
		return "&sha256=" + hash
	}
	return "#sha256=" + hash
}

// IsURL reports whether the source is fetched over the network.
func (s *Source) IsURL() bool {
	return s.Kind == Git || len(s.Where) > 8 && s.Where[:8] == "https://"
}

// get fetches a URL.
func (f *Fetcher) get(ctx context.Context, s *Source) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Where, nil)
	if err != nil {
		return nil, fault.New(fault.Usage, "%s is no URL", s.Show())
	}
	// The bytes are hashed as they are kept, so no encoding is asked for.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "roux")
	resp, err := f.cfg.HTTP.DoTLS(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fault.New(fault.HTTPStatus, "%s answered with %d", s.Show(), resp.StatusCode)
	}
	most := int64(MaxBytes)
	if s.Kind == Text {
		most = maxText
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.ServiceUnavailable, err, "%s could not be read to its end", s.Show())
	case int64(len(content)) > most:
		return nil, tooLarge(s.Show())
	}
	return content, nil
}

func tooLarge(what string) error {
	return fault.New(fault.FileTooLarge, "%s has more bytes than are read: %d of a source, %d of a text", what, MaxBytes, maxText)
}

// readPackage reads a package in a file.
func readPackage(name string) ([]byte, error) {
	file, size, err := userfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if size > MaxBytes {
		return nil, tooLarge(name)
	}
	content, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	switch {
	case err != nil:
		return nil, userfile.OpenError(name, fault.RecipeNotFound, err)
	case len(content) > MaxBytes:
		return nil, tooLarge(name)
	}
	return content, nil
}

// kept returns what is kept under a hash, or nil. What does not have that hash counts as
// nothing: somebody has changed it, or it was cut off.
func (f *Fetcher) kept(pin string) []byte {
	if f.cfg.Cache == "" {
		return nil
	}
	content, err := userfile.ReadWithin(f.cfg.Cache, pin, MaxBytes, fault.FileNotFound)
	if err != nil {
		return nil
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != pin {
		return nil
	}
	if root, err := os.OpenRoot(f.cfg.Cache); err == nil {
		now := time.Now()
		_ = root.Chtimes(pin, now, now) // prune goes by the time of the last use; on a failure it is only fetched again earlier
		_ = root.Close()
	}
	return content
}

// Keep keeps what was fetched from outside and is pinned. It is only a saving, so an error has
// no effect.
func (f *Fetcher) Keep(g *Fetched) {
	if f.cfg.Cache == "" || !g.Source.IsURL() || f.kept(g.Hash) != nil {
		return
	}
	if err := os.MkdirAll(f.cfg.Cache, 0o700); err != nil {
		return
	}
	root, err := os.OpenRoot(f.cfg.Cache)
	if err != nil {
		return
	}
	defer func() { _ = root.Close() }()
	if userfile.Replace(root, g.Hash, g.Hash, g.content) == nil {
		prune(root, g.Hash)
	}
}

// prune removes what was not read for the longest time, until the rest has at most maxCache
// bytes. What has just been kept stays, and so do files that nothing was kept under.
func prune(root *os.Root, fresh string) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	var list []fs.FileInfo
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && hash.MatchString(e.Name()) {
			list, total = append(list, info), total+info.Size()
		}
	}
	slices.SortFunc(list, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range list {
		if total <= maxCache {
			return
		}
		if info.Name() != fresh && root.Remove(info.Name()) == nil {
			total -= info.Size()
		}
	}
}
