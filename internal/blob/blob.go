// SPDX-License-Identifier: Apache-2.0

// Package blob keeps files by what they contain.
//
// A [Store] is a directory in which a file is named by the SHA-256 of its
// bytes (X158). It decides where bytes lie, when they are durable, and whether
// what it reads back is still what was written. Content is shared within an
// account and never across accounts.
//
// It never decides how long a file lives (it says when one was last stored, and
// removes what it is told to), and never lets a name from outside
// become a path: accounts are hashed, hashes are checked, upload names are
// plain data. Everything goes through one os.Root, so nothing outside the
// directory is read, written or removed (I19).
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

// DefaultMaxBytes bounds a single file where [Config] does not. Files are
// streamed, so what bounds them is the disk.
const DefaultMaxBytes = 16 << 30

const (
	prefix     = "sha256_"
	sidecarExt = ".json"
	// maxSidecar bounds what is read of a sidecar: a name, a MIME type and what
	// inspection found (maxExtended).
	maxSidecar = 64 << 10
)

// Config is what a Store is made of.
type Config struct {
	// Sparing leaves what an interrupted Put left behind where it is.
	Sparing bool
	Dir     string // required; created where missing, mode 0700
	// MaxBytes is how large one file may be. Default 16 GiB.
	MaxBytes int64
	// Inspect looks at what was uploaded; see inspect.go. It returns a JSON
	// object, also beside an error. Default: nothing is looked for.
	Inspect func(ctx context.Context, file action.File) (json.RawMessage, error)
	// InspectFor is how long it may take. Default 5 s.
	InspectFor time.Duration
	// Now is the wall clock, which says when a file was stored; set back while the
	// store is open it goes on as before. Default time.Now.
	Now func() time.Time
}

// A Store is a directory of files addressed by content. It is safe for
// concurrent use, and for use by one process at a time: whoever opens it holds
// the lock of the data directory, because opening removes temporary files.
type Store struct {
	root     *os.Root
	maxBytes int64
	look     func(ctx context.Context, file action.File) (json.RawMessage, error)
	lookFor  time.Duration
	now      func() time.Time
	// stripes serialise naming of equal content: replacing a file that somebody
	// has open is refused on Windows, so the second Put must see the first.
	stripes [64]sync.Mutex
	broken  atomic.Bool // a sync failed: nothing more is acknowledged
	// durable are directories whose names this process has synced; remembered
	// counts them, those forgotten included.
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
	s := &Store{root: root, maxBytes: cfg.MaxBytes, look: cfg.Inspect, lookFor: cmp.Or(max(cfg.InspectFor, 0), inspectFor), now: onward(cfg.Now)}
	if cfg.Sparing {
		return s, nil
	}
	if err := s.sweep(); err != nil {
		_ = root.Close()
		return nil, err
	}
	return s, nil
}

// onward is a wall clock that is not set back: then it goes on by its monotonic
// reading, so that no file looks older than it is (I10).
func onward(wall func() time.Time) func() time.Time {
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

// Close releases the directory. Files that are open stay readable.
func (s *Store) Close() error { return s.root.Close() }

// Info returns what is known of a file without reading it.
func (s *Store) Info(ctx context.Context, account, hash string) (action.FileInfo, error) {
	f, info, err := s.open(ctx, account, hash)
	if err != nil {
		return action.FileInfo{}, err
	}
	return info, f.Close()
}

// Open returns a file whose bytes are verified while they are read: the size at
// once; the hash at the end of a sequential read, or before the first byte when
// the caller reads in any other order. Damage is fault.FileInvalid.
func (s *Store) Open(ctx context.Context, account, hash string) (action.File, error) {
	f, info, err := s.open(ctx, account, hash)
	if err != nil {
		return nil, err
	}
	return newReader(f, info), nil
}

// Files is the store as the actions of one account see it.
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

// place is where a file of an account lies, relative to the root: slashes on
// every system, as os.Root takes them.
type place struct{ account, shard, name string }

func placeOf(account, hash string) place {
	dir := accountDir(account)
	return place{dir, path.Join(dir, hash[len(prefix):len(prefix)+2]), hash}
}

const accountPrefix = "acct_"

func accountDir(account string) string {
	// The account is hashed with a label: it may hold any byte, and equal names
	// that differ in case must not meet on a file system that ignores case.
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
	// Extended is what inspection found, a JSON object; Inspected says that it
	// was looked for.
	Extended  json.RawMessage `json:"extended,omitempty"`
	Inspected bool            `json:"inspected,omitempty"`
	// Sums are the checksums of the file's pieces; see part.go.
	Sums []byte `json:"sums,omitempty"`
	// CRC32C covers the record without it. Earlier releases wrote none.
	CRC32C *uint32 `json:"crc32c,omitempty"`
}

// text is the record as it is stored, with its checksum.
func (rec sidecar) text() ([]byte, error) { //nolint:gocritic // a copy is what is changed
	sum, err := rec.sum()
	if err != nil {
		return nil, err
	}
	rec.CRC32C = &sum
	return json.Marshal(rec)
}

// sum is the checksum of what the record says, however it is written.
func (rec sidecar) sum() (uint32, error) { //nolint:gocritic // a copy is what is changed
	rec.CRC32C = nil
	data, err := json.Marshal(rec)
	return crc32.Checksum(data, castagnoli), err
}

// open opens the file itself, checked to be a regular file of the recorded size.
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
		// The bytes are named before the sidecar, and a crash may fall between
		// the two. All but the upload's name can be told from the bytes.
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

// openRegular opens the file of a place through real directories only. os.Root
// already refuses to leave the directory; a symbolic link inside it could still
// lead into another account's files.
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

// openBelow opens a regular file or a directory of the store to read it. What is
// not the store's own, a link, or of another kind, is FILE_INVALID.
func (s *Store) openBelow(name string, kind fs.FileMode) (*os.File, error) {
	f, err := datadir.OpenBelow(s.root, name, kind)
	if odd := new(datadir.Refusal); errors.As(err, &odd) {
		return nil, strange(name, odd.Why)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, storageFault(err, "open %s in the file store", name)
	}
	return f, err
}

// strange says that something in the store is not what the store made there.
func strange(name string, why error) error {
	return fault.New(fault.FileInvalid, "the file store is damaged: %s %v", name, why)
}

// wantDir refuses a directory of the store that is none, or not its own.
func (s *Store) wantDir(dir string) error {
	info, err := s.root.Lstat(dir)
	if err != nil {
		return err
	}
	if why := datadir.Refuse(info, fs.ModeDir); why != nil {
		return strange(dir, why)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	d, err := s.openBelow(dir, fs.ModeDir) // takes the rights of others away
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
		return nil, strange(name, errors.New("is too large"))
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

// stripe is the lock under which a file gets and loses its name.
func (s *Store) stripe(hash string) *sync.Mutex {
	b, _ := hex.DecodeString(hash[len(prefix) : len(prefix)+2]) // checked by ValidHash, or made here
	return &s.stripes[b[0]%64]
}

func sumName(h hash.Hash) string { return prefix + hex.EncodeToString(h.Sum(nil)) }
