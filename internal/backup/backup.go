// SPDX-License-Identifier: Apache-2.0

// Package backup copies a data directory while an engine runs on it, and restores such
// copies.
//
// It decides what a backup consists of, in which order its parts are copied, when it counts
// as complete, and what is verified before anything is restored. Backups are directories
// below one directory, which they share the files of runs in:
//
//	DIR/files/                        files by their hash, as in a data directory
//	DIR/20261126T193520.123Z/         a backup
//	    roux.db                       the database, as it was at one commit
//	    files.jsonl                   the files that belong to it, one a line
//	    manifest.json                 what it is, with the SHA-256 of these two
//
// It never changes the data directory that it copies, and never writes over anything.
package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
)

const (
	format       = 1
	manifestName = "manifest.json"
	listName     = "files.jsonl"
	// partial is a backup that is being written or removed. It is renamed when it is
	// complete.
	partial  = ".partial"
	idLayout = "20060102T150405.000Z"

	maxManifest = 1 << 20
	maxLine     = 64 << 10 // of the list of files; the name of an account may be long
	maxDamaged  = 100
)

var validID = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}\.[0-9]{3}Z$`)

// A Manifest says what a backup holds.
type Manifest struct {
	ID        string    `json:"id"`
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"createdAt"` // what was committed before this time is in it
	Roux      string    `json:"roux"`      // the release that wrote it
	Schema    int       `json:"schema"`    // of the database
	Source    string    `json:"source"`    // the data directory
	Runs      int64     `json:"runs"`
	Files     int       `json:"files"`
	FileBytes int64     `json:"fileBytes"`
	Database  Part      `json:"database"`
	List      Part      `json:"fileList"`
	// Damaged are files that are not in the backup because they were damaged in the data
	// directory, at most 100.
	Damaged []string `json:"damaged,omitempty"`
	// SHA256 is that of the manifest without this field.
	SHA256 string `json:"sha256"`
}

// A Part is a file of a backup.
type Part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// sum returns the SHA-256 of the manifest without the field for it.
func (m Manifest) sum() (string, error) { //nolint:gocritic // a copy is what is changed
	m.SHA256 = ""
	text, err := json.Marshal(m)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// A Progress says how far an operation is.
type Progress struct {
	What  string `json:"what"`  // what is being copied or read: files or database
	Done  int64  `json:"done"`  // bytes of files; of a database its share
	Total int64  `json:"total"` // 0: not known
}

// An entry is a line of the list of files.
type entry struct {
	Account string `json:"account"`
	Hash    string `json:"hash"`
	Size    int64  `json:"size"`
}

// A dir is a directory with backups.
type dir struct {
	root *os.Root
	path string
}

// openDir opens a directory with backups, which may be named by a link.
func openDir(name string) (*dir, error) {
	at, err := filepath.Abs(name)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Usage, "%s does not exist: want a directory that `roux backup --to` has made", name)
	}
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err, "%s cannot be opened: %v", name, err)
	}
	info, err := os.Stat(at)
	if err != nil {
		return nil, diskError(at, err)
	}
	if why := datadir.Refuse(info, fs.ModeDir); why != nil {
		return nil, fault.Wrap(fault.Usage, why, "%s %v: want a directory of backups", name, why)
	}
	root, err := os.OpenRoot(at + string(filepath.Separator))
	if err != nil {
		return nil, diskError(at, err)
	}
	return &dir{root, at}, nil
}

// Close closes the directory.
func (d *dir) Close() error { return d.root.Close() }

// files opens the files that the backups share.
func (d *dir) files(cfg blob.Config) (*blob.Store, error) {
	cfg.Dir = filepath.Join(d.path, datadir.Files)
	return blob.Open(cfg)
}

// ids returns the names of the complete backups, the oldest first.
func (d *dir) ids() (ids []string, err error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, diskError(d.path, err)
	}
	names, err := f.Readdirnames(-1)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, diskError(d.path, err)
	}
	for _, name := range names {
		if validID.MatchString(name) {
			ids = append(ids, name)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// open opens a part of a backup to read it.
func (d *dir) open(id, name string) (*os.File, error) {
	at, err := datadir.OpenBelow(d.root, id, fs.ModeDir)
	if err != nil {
		return nil, d.odd(id, err)
	}
	if err := at.Close(); err != nil {
		return nil, d.odd(id, err)
	}
	f, err := datadir.OpenBelow(d.root, path.Join(id, name), 0)
	if err != nil {
		return nil, d.odd(path.Join(id, name), err)
	}
	return f, nil
}

// odd returns the error for a part that is not as it was written.
func (d *dir) odd(name string, err error) error {
	at := filepath.Join(d.path, filepath.FromSlash(name))
	var known *fault.Error
	var refusal *datadir.Refusal
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return fault.Wrap(fault.StoreCorrupt, err, "the backup is damaged: %s is missing: use another backup", at)
	case errors.As(err, &refusal):
		return fault.Wrap(fault.StoreCorrupt, err, "the backup is damaged: %s %v: use another backup", at, refusal.Why)
	}
	return diskError(at, err)
}

// damaged returns the error for a backup that is not as it was written.
func (d *dir) damaged(id, name, why string) error {
	return fault.New(fault.StoreCorrupt, "the backup is damaged: %s %s: use another backup", filepath.Join(d.path, id, name), why)
}

// manifest reads and checks the manifest of a backup.
func (d *dir) manifest(id string) (*Manifest, error) {
	f, err := d.open(id, manifestName)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxManifest+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, d.odd(path.Join(id, manifestName), err)
	}
	m := &Manifest{}
	if len(text) > maxManifest || json.Unmarshal(text, m) != nil {
		return nil, d.damaged(id, manifestName, "cannot be read")
	}
	if m.Format > format {
		return nil, fault.New(fault.StoreNewer, "a newer release of Roux (%q) wrote the backup %s: use that release", m.Roux, filepath.Join(d.path, id))
	}
	sum, err := m.sum()
	if err != nil || sum != m.SHA256 || m.ID != id || m.Format < 1 {
		return nil, d.damaged(id, manifestName, "fails its checksum")
	}
	return m, nil
}

// each calls fn with every file that belongs to a backup. The list was verified.
func (d *dir) each(ctx context.Context, m *Manifest, fn func(entry) error) error {
	f, err := d.open(m.ID, listName)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(io.LimitReader(f, m.List.Size))
	lines.Buffer(nil, maxLine)
	n := 0
	for ; lines.Scan(); n++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil || !blob.ValidHash(e.Hash) || n == m.Files {
			return d.damaged(m.ID, listName, "is no list of its files")
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	if lines.Err() != nil || n != m.Files {
		return d.damaged(m.ID, listName, "is no list of its files")
	}
	return nil
}

// A Found is a backup in a directory.
type Found struct {
	*Manifest
	Path    string `json:"path"`
	Problem string `json:"problem,omitempty"`
}

// List returns the backups in a directory, the oldest first. It reads their manifests only.
func List(name string) (list []Found, err error) {
	d, err := openDir(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	ids, err := d.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		f := Found{Path: filepath.Join(d.path, id)}
		if f.Manifest, err = d.manifest(id); err != nil {
			f.Manifest, f.Problem = &Manifest{ID: id}, fault.Message(err)
		}
		list = append(list, f)
	}
	return list, nil
}

// find opens the directory of a backup that is named by its own path, or the newest one in
// the directory that is named.
func find(name string) (*dir, string, error) {
	if at, err := filepath.Abs(name); err == nil && validID.MatchString(filepath.Base(at)) {
		if _, err := os.Lstat(at); err != nil {
			return nil, "", fault.New(fault.Usage, "%s does not exist: `roux backup list %s` shows the backups there", name, filepath.Dir(name))
		}
		d, err := openDir(filepath.Dir(at))
		return d, filepath.Base(at), err
	}
	d, err := openDir(name)
	if err != nil {
		return nil, "", err
	}
	ids, err := d.ids()
	if err == nil && len(ids) == 0 {
		err = fault.New(fault.Usage, "%s has no backup: `roux backup --to %s` makes one", name, name)
	}
	if err != nil {
		return nil, "", errors.Join(err, d.Close())
	}
	return d, ids[len(ids)-1], nil
}

// diskError gives an error of a disk that is not the data directory's its code.
func diskError(at string, err error) error {
	err = datadir.Error(at, err)
	var e *fault.Error
	if errors.As(err, &e) && e.Code == fault.StoreReadOnly {
		return fault.Wrap(fault.StoreReadOnly, e.Err, "%s cannot be read or written: correct its permissions, or name another directory", at)
	}
	return err
}

// line returns an entry as a line of the list.
func (e entry) line() ([]byte, error) {
	text, err := json.Marshal(e)
	if err == nil && len(text) >= maxLine {
		err = fault.New(fault.ValueTooLarge, "the name of an account has more than %d bytes and does not fit into a backup", maxLine)
	}
	return append(bytes.TrimSpace(text), '\n'), err
}
