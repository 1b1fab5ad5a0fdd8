// SPDX-License-Identifier: Apache-2.0

// Package blob keeps files by their content.
//
// A [Store] is a directory in which a file is named by the SHA-256 of its bytes (X158).
// It decides where bytes are stored, when they are durable, and whether what it reads
// is still what was written. Content is shared within an account and never across
// accounts.
//
// It never decides how long a file lives: it reports when a file was last stored, and
// removes what it is told to. It never makes a path of a name from outside: accounts
// are hashed, hashes are checked, and upload names are plain data. All access goes
// through one os.Root, so nothing outside the directory is read, written or removed
// (I19).
package blob

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
)

// DefaultMaxBytes bounds a single file unless [Config] sets another bound. Files are
// streamed, so memory does not bound them.
const DefaultMaxBytes = 16 << 30

const (
	prefix     = "sha256_"
	sidecarExt = ".json"
	// maxSidecar bounds what is read of a sidecar: a name, a MIME type, checksums and
	// what inspection found (maxExtended).
	maxSidecar = 64 << 10
)

// Config configures a Store.
type Config struct {
	// KeepPartial keeps what an interrupted Put left behind.
	KeepPartial bool
	Dir         string // required; created when missing, mode 0700
	// MaxBytes is the size that one file may have. Default 16 GiB.
	MaxBytes int64
	// Inspect looks at uploaded content; see inspect.go. It returns a JSON object, also
	// together with an error. By default nothing is inspected.
	Inspect func(ctx context.Context, file action.File) (json.RawMessage, error)
	// InspectFor is how long Inspect may take. Default 5 s.
	InspectFor time.Duration
	// Quota returns how many bytes the files of an account may have together; 0 = any number.
	// It may change. Default: no account has a quota.
	Quota func(account string) int64
	// Now is the wall clock for the time when a file is stored. When it is set back
	// while the store is open, the store goes on by the monotonic clock. Default
	// time.Now.
	Now func() time.Time
}

// A Store is a directory of files addressed by content. It is safe for concurrent use
// by one process at a time. The process that opens it holds the lock of the data
// directory, because opening removes temporary files.
type Store struct {
	root     *os.Root
	maxBytes int64
	look     func(ctx context.Context, file action.File) (json.RawMessage, error)
	lookFor  time.Duration
	now      func() time.Time
	// stripes are locks by hash. Two calls of Put with equal content rename their files
	// one after the other, because Windows refuses to replace an open file: the second
	// call then finds the file and leaves it.
	stripes [64]sync.Mutex
	usage   usages
	broken  atomic.Bool // a sync failed: nothing more is acknowledged
	// durable are directories whose names this process has synced. remembered counts
	// them, including those that were dropped from the map.
	durable    sync.Map
	remembered atomic.Int64
}

// Open opens the store and removes what an interrupted Put left behind.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, errors.New("blob: Config.Dir is required")
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	root, err := datadir.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, storageFault(err, "open the file store %s", cfg.Dir)
	}
	if err := datadir.Sync(filepath.Dir(filepath.Clean(cfg.Dir))); err != nil {
		_ = root.Close()
		return nil, storageFault(err, "create the file store %s", cfg.Dir)
	}
	s := &Store{root: root, maxBytes: cfg.MaxBytes, look: cfg.Inspect, lookFor: cmp.Or(max(cfg.InspectFor, 0), inspectFor), now: monotonic(cfg.Now), usage: usages{quota: cfg.Quota}}
	if cfg.KeepPartial {
		return s, nil
	}
	if err := s.sweep(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return s, nil
}

// monotonic returns a wall clock that never goes back. When the system's clock is set
// back, it continues by the monotonic clock, so that no file looks older than it is
// (I10).
func monotonic(wall func() time.Time) func() time.Time {
	if wall == nil {
		wall = time.Now
	}
	began := wall()
	return func() time.Time {
		now := wall()
		even := began.Add(now.Sub(began)).Round(0)
		if now = now.Round(0); now.After(even) {
			return now
		}
		return even
	}
}

// Close releases the directory. Open files stay readable.
func (s *Store) Close() error { return s.root.Close() }

// Info returns the facts of a file without reading the file.
func (s *Store) Info(ctx context.Context, account, hash string) (action.FileInfo, error) {
	f, info, err := s.open(ctx, account, hash)
	if err != nil {
		return action.FileInfo{}, err
	}
	return info, f.Close()
}

// Open returns a file whose bytes are verified while they are read: the size at once;
// the hash at the end of a sequential read, or before the first byte if the caller
// reads in another order. Damage is fault.FileInvalid.
func (s *Store) Open(ctx context.Context, account, hash string) (action.File, error) {
	f, info, err := s.open(ctx, account, hash)
	if err != nil {
		return nil, err
	}
	return newReader(f, info), nil
}

// Files returns the store as the actions of one account see it.
func (s *Store) Files(account string) action.Files { return files{s, account} }

type files struct {
	store   *Store
	account string
}

func (f files) Open(ctx context.Context, hash string) (action.File, error) {
	return f.store.Open(ctx, f.account, hash)
}

func (f files) Put(ctx context.Context, r io.Reader, name, mimeType string) (action.FileInfo, error) {
	return f.store.Put(ctx, f.account, r, name, mimeType)
}

// ValidHash reports whether hash has the form of a file hash.
func ValidHash(hash string) bool {
	digits, ok := strings.CutPrefix(hash, prefix)
	if !ok || len(digits) != 2*sha256.Size {
		return false
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// place is the location of a file of an account relative to the root, with slashes on
// every system, as os.Root requires.
type place struct{ account, shard, name string }

func placeOf(account, hash string) place {
	dir := accountDir(account)
	return place{dir, path.Join(dir, hash[len(prefix):len(prefix)+2]), hash}
}

const accountPrefix = "acct_"

func accountDir(account string) string {
	// The account is hashed with a label. It may contain any byte, and two accounts
	// that differ only in case must not share a directory on a file system that ignores
	// case.
	sum := sha256.Sum256([]byte("roux account\x00" + account))
	return accountPrefix + hex.EncodeToString(sum[:16])
}

func (p place) file() string    { return path.Join(p.shard, p.name) }
func (p place) sidecar() string { return p.file() + sidecarExt }

// sidecar is what the store records beside the bytes.
type sidecar struct {
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType"`
	Size     int64  `json:"sizeBytes"`
	// Extended is what inspection found, a JSON object. Inspected reports that there
	// was an inspection.
	Extended  json.RawMessage `json:"extended,omitempty"`
	Inspected bool            `json:"inspected,omitempty"`
	// Sums are the checksums of the file's pieces; see part.go.
	Sums []byte `json:"sums,omitempty"`
	// CRC32C covers the record without this field. Earlier releases wrote none.
	CRC32C *uint32 `json:"crc32c,omitempty"`
}

// text returns the record as it is stored, with its checksum.
func (rec sidecar) text() ([]byte, error) { //nolint:gocritic // a copy is what is changed
	sum, err := rec.sum()
	if err != nil {
		return nil, err
	}
	rec.CRC32C = &sum
	return json.Marshal(rec)
}

// sum returns the checksum of the record's content, however it is formatted.
func (rec sidecar) sum() (uint32, error) { //nolint:gocritic // a copy is what is changed
	rec.CRC32C = nil
	data, err := json.Marshal(rec)
	return crc32.Checksum(data, castagnoli), err
}

// open opens the file itself and checks that it is a regular file of the recorded size.
func (s *Store) open(ctx context.Context, account, hash string) (*os.File, action.FileInfo, error) {
	none := action.FileInfo{}
	if err := ctx.Err(); err != nil {
		return nil, none, context.Cause(ctx)
	}
	if !ValidHash(hash) {
		return nil, none, notFound(hash)
	}
	p := placeOf(account, hash)
	f, size, err := s.openRegular(p)
	if err != nil {
		return nil, none, missing(err, hash)
	}
	info := action.FileInfo{Hash: hash, Size: size}
	rec, err := s.readSidecar(p)
	if err != nil {
		// The bytes get their name before the sidecar does, and a crash may happen
		// between the two. All but the upload's name follows from the bytes.
		head, err := readHead(f)
		if err != nil {
			_ = f.Close()
			return nil, none, storageFault(err, "read file %s", hash)
		}
		info.MimeType = detect(head, "", "")
		return f, info, nil
	}
	info.Name, info.MimeType, info.Extended = rec.Name, rec.MimeType, rec.Extended
	if rec.Size != size {
		_ = f.Close()
		return nil, none, fault.New(fault.FileInvalid, "file %s is damaged in the store: it has %d bytes and was stored with %d", hash, size, rec.Size)
	}
	return f, info, nil
}

// openRegular opens the file of a place, through real directories only. os.Root already
// refuses to leave the directory, but a symbolic link inside it could still lead to
// another account's files.
func (s *Store) openRegular(p place) (*os.File, int64, error) {
	for _, dir := range []string{p.account, p.shard} {
		if err := s.wantDir(dir); err != nil {
			return nil, 0, err
		}
	}
	f, err := s.openBelow(p.file(), 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, storageFault(err, "open file %s", p.name)
	}
	return f, info.Size(), nil
}

// openBelow opens a regular file or a directory of the store to read it. A link,
// another kind of file, or one of another user is FILE_INVALID.
func (s *Store) openBelow(name string, kind fs.FileMode) (*os.File, error) {
	f, err := datadir.OpenBelow(s.root, name, kind)
	if odd := new(datadir.Refusal); errors.As(err, &odd) {
		return nil, notOurs(name, odd.Why)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storageFault(err, "open %s in the file store", name)
	}
	return f, err
}

// notOurs returns the error for something in the store that the store did not make.
func notOurs(name string, why error) error {
	return fault.New(fault.FileInvalid, "the file store is damaged: %s %v", name, why)
}

// wantDir returns an error unless dir is a directory that the store made.
func (s *Store) wantDir(dir string) error {
	info, err := s.root.Lstat(dir)
	if err != nil {
		return err
	}
	if why := datadir.Refuse(info, fs.ModeDir); why != nil {
		return notOurs(dir, why)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	d, err := s.openBelow(dir, fs.ModeDir) // also removes the access of other users
	if err != nil {
		return err
	}
	return d.Close()
}

// readSmall reads a small file of the store.
func (s *Store) readSmall(name string) ([]byte, error) {
	f, err := s.openBelow(name, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxSidecar+1))
	if err != nil {
		return nil, storageFault(err, "read %s in the file store", name)
	}
	if len(data) > maxSidecar {
		return nil, notOurs(name, errors.New("is too large"))
	}
	return data, nil
}

func (s *Store) readSidecar(p place) (sidecar, error) {
	var rec sidecar
	data, err := s.readSmall(p.sidecar())
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("sidecar of %s: %w", p.name, err)
	}
	if sum, err := rec.sum(); err != nil || rec.CRC32C != nil && *rec.CRC32C != sum {
		return rec, fmt.Errorf("sidecar of %s fails its checksum", p.name)
	}
	if rec.MimeType == "" {
		return rec, fmt.Errorf("sidecar of %s has no MIME type", p.name)
	}
	return rec, nil
}

// stripe returns the lock under which a file gets and loses its name.
func (s *Store) stripe(hash string) *sync.Mutex {
	b, _ := hex.DecodeString(hash[len(prefix) : len(prefix)+2]) // checked by ValidHash, or made here
	return &s.stripes[b[0]%64]
}

func sumName(h hash.Hash) string { return prefix + hex.EncodeToString(h.Sum(nil)) }
