// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/failpoint"
)

const (
	// accountFile, in the directory of an account, contains its name. The directory is
	// named by a hash, and the caller that decides what is still needed asks by
	// account.
	accountFile = "account"
	// freshFor is how old a file's time must be before Touch writes it again.
	freshFor = time.Minute
)

// An Entry is a file in lists and sweeps.
type Entry struct {
	Account string          `json:"-"`
	Info    action.FileInfo `json:"file"` // from Walk: hash and size only
	// Stored is when the file was last put or touched.
	Stored time.Time `json:"stored"`
}

// Touch makes a file count as just stored, because it is about to be used. A missing
// file is fault.FileNotFound.
func (s *Store) Touch(ctx context.Context, account, hash string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if !ValidHash(hash) {
		return notFound(hash)
	}
	p := placeOf(account, hash)
	lock := s.stripe(hash)
	lock.Lock()
	defer lock.Unlock()
	info, err := s.regular(p)
	if err != nil {
		return err
	}
	if err := s.nameAccount(p, account); err != nil {
		return err
	}
	if age := s.now().Sub(info.ModTime()); age >= 0 && age < freshFor {
		return nil
	}
	return s.stamp(p)
}

// stamp makes a file count as stored now.
func (s *Store) stamp(p place) error {
	now := s.now()
	if err := s.root.Chtimes(p.file(), now, now); err != nil {
		return storageFault(err, "note the use of file %s", p.name)
	}
	return nil
}

// Remove deletes a file that was neither put nor touched after notAfter, and reports
// whether it did. It excludes Put and Touch, so it never deletes a file that another
// goroutine has just renewed.
func (s *Store) Remove(ctx context.Context, account, hash string, notAfter time.Time) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	if !ValidHash(hash) {
		return false, notFound(hash)
	}
	p := placeOf(account, hash)
	lock := s.stripe(hash)
	lock.Lock()
	defer lock.Unlock()
	info, err := s.regular(p)
	if err != nil {
		return false, err
	}
	if info.ModTime().After(notAfter) {
		return false, nil
	}
	// Bytes without a sidecar are still a file. A sidecar without bytes would never be
	// found again.
	if err := s.root.Remove(p.sidecar()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, storageFault(err, "remove file %s", hash)
	}
	if err := failpoint.Hit(failpoint.BlobRemove); err != nil {
		return false, storageFault(err, "remove file %s", hash)
	}
	if err := s.usage.remove(account, info.Size(), func() error { return s.root.Remove(p.file()) }); err != nil {
		return false, storageFault(err, "remove file %s", hash)
	}
	return true, nil
}

// regular returns the file of a place, reached through real directories and itself not
// a link.
func (s *Store) regular(p place) (fs.FileInfo, error) {
	for _, dir := range []string{p.account, p.shard} {
		if err := s.wantDir(dir); err != nil {
			return nil, missing(err, p.name)
		}
	}
	info, err := s.root.Lstat(p.file())
	if err != nil {
		return nil, missing(err, p.name)
	}
	if why := datadir.Refuse(info, 0); why != nil {
		return nil, notOurs(p.file(), why)
	}
	return info, nil
}

func missing(err error, hash string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return notFound(hash)
	}
	return err
}

func notFound(hash string) error {
	if !ValidHash(hash) {
		return fault.New(fault.FileNotFound, "no file has the hash %.90q: want %q and 64 hexadecimal digits", hash, prefix)
	}
	return fault.New(fault.FileNotFound, "file %s is not in this account's store", hash)
}

// nameAccount records the account of a directory unless it is already recorded.
func (s *Store) nameAccount(p place, account string) error {
	at := path.Join(p.account, accountFile)
	if name, err := s.readSmall(at); err == nil && string(name) == account {
		return nil
	}
	return s.writeSmall(at, []byte(account), "record the account of a directory")
}

// accountOf returns the account of a directory; ok is false when it is not known.
func (s *Store) accountOf(dir string) (string, bool) {
	name, err := s.readSmall(path.Join(dir, accountFile))
	return string(name), err == nil && accountDir(string(name)) == dir
}

// Walk calls fn with at most limit files of all accounts, in a fixed order, beginning
// at the position that an earlier call returned ("" = the start). It returns the next
// position, or "" at the end. It skips directories whose account is not known, because
// it is not known what is needed in them, and everything the store did not make.
func (s *Store) Walk(ctx context.Context, from string, limit int, fn func(Entry) error) (next string, err error) {
	return s.walk(ctx, from, limit, fn, func(error) error { return nil })
}

// walk is Walk; it also calls odd with everything in a known account that the store did
// not make.
func (s *Store) walk(ctx context.Context, from string, limit int, fn func(Entry) error, odd func(error) error) (next string, err error) {
	accounts, err := s.names(".")
	if err != nil {
		return from, err
	}
	left := limit
	for _, dir := range accounts {
		if dir < firstOf(from) {
			continue
		}
		if !strings.HasPrefix(dir, accountPrefix) || s.wantDir(dir) != nil {
			continue
		}
		account, known := s.accountOf(dir)
		if !known {
			continue
		}
		shards, err := s.names(dir)
		if err != nil {
			return from, err
		}
		for _, shard := range shards {
			at := path.Join(dir, shard)
			if len(shard) != 2 || from != "" && at < path.Dir(from) {
				continue
			}
			if err := s.wantDir(at); err != nil {
				if err := odd(err); err != nil {
					return from, err
				}
				continue
			}
			hashes, err := s.names(at)
			if err != nil {
				return from, err
			}
			for _, hash := range hashes {
				p := path.Join(at, hash)
				if !ValidHash(hash) || p <= from {
					continue
				}
				if left == 0 {
					return from, nil
				}
				left--
				from = p
				info, err := s.root.Lstat(p)
				if err != nil {
					continue // removed meanwhile
				}
				if why := datadir.Refuse(info, 0); why != nil {
					if err := odd(notOurs(p, why)); err != nil {
						return from, err
					}
					continue
				}
				if err := ctx.Err(); err != nil {
					return from, context.Cause(ctx)
				}
				if err := fn(Entry{Account: account, Info: action.FileInfo{Hash: hash, Size: info.Size()}, Stored: info.ModTime()}); err != nil {
					return from, err
				}
			}
		}
	}
	return "", nil
}

func firstOf(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}

// names lists a directory, sorted.
func (s *Store) names(dir string) ([]string, error) {
	d, err := s.openBelow(dir, fs.ModeDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, storageFault(err, "list the file store")
	}
	slices.Sort(names)
	return names, nil
}

// A Query selects files of an account. Zero fields do not restrict.
type Query struct {
	Name  string `json:"name,omitempty"` // part of the name, in any case
	Type  string `json:"type,omitempty"` // MIME type, or a pattern such as image/*
	Limit int    `json:"limit,omitempty"`
	// After is the last file of the page before; its hash and when it was stored count.
	After Entry `json:"-"`
}

// List returns files of an account, the newest first. It reads every file's facts, and
// keeps no more of them than it returns.
func (s *Store) List(ctx context.Context, account string, q Query) ([]Entry, error) {
	if q.Limit <= 0 {
		q.Limit = 50
	}
	newest := func(a, b Entry) int {
		return cmp.Or(b.Stored.Compare(a.Stored), cmp.Compare(a.Info.Hash, b.Info.Hash))
	}
	var found []Entry
	err := s.each(ctx, account, "", func(e Entry) error {
		if q.After.Info.Hash != "" && newest(e, q.After) <= 0 {
			return nil // of a page before
		}
		if len(found) == q.Limit && newest(e, found[len(found)-1]) > 0 {
			return nil
		}
		info, err := s.Info(ctx, account, e.Info.Hash)
		if err != nil {
			if errors.Is(err, fault.FileNotFound) {
				return nil // removed meanwhile
			}
			if !errors.Is(err, fault.FileInvalid) {
				return err
			}
			info = e.Info // a damaged file is listed, too
		}
		if !q.fits(info) {
			return nil
		}
		e.Info = info
		at, _ := slices.BinarySearchFunc(found, e, newest)
		found = slices.Insert(found, at, e)
		found = found[:min(len(found), q.Limit)]
		return nil
	})
	return found, err
}

func (q *Query) fits(info action.FileInfo) bool {
	if q.Name != "" && !strings.Contains(strings.ToLower(info.Name), strings.ToLower(q.Name)) {
		return false
	}
	kind, any := strings.CutSuffix(strings.ToLower(q.Type), "*")
	if any {
		return strings.HasPrefix(info.MimeType, kind)
	}
	return q.Type == "" || info.MimeType == kind
}

// each calls fn with the files of an account whose digits begin with want.
func (s *Store) each(ctx context.Context, account, want string, fn func(Entry) error) error {
	dir := accountDir(account)
	if err := s.wantDir(dir); err != nil {
		return ignoreMissing(err)
	}
	shards, err := s.names(dir)
	if err != nil {
		return err
	}
	for _, shard := range shards {
		at := path.Join(dir, shard)
		if len(shard) != 2 || !strings.HasPrefix(want, shard) && !strings.HasPrefix(shard, want) || s.wantDir(at) != nil {
			continue
		}
		hashes, err := s.names(at)
		if err != nil {
			return err
		}
		for _, hash := range hashes {
			if !ValidHash(hash) || !strings.HasPrefix(hash, prefix+want) {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info, err := s.root.Lstat(path.Join(at, hash))
			if err != nil || info.IsDir() {
				continue // removed meanwhile, or was never a file
			}
			if err := fn(Entry{Account: account, Info: action.FileInfo{Hash: hash, Size: info.Size()}, Stored: info.ModTime()}); err != nil {
				return err
			}
		}
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Find returns the one file of an account whose hash begins with begin, with or without
// "sha256_". fault.FileNotFound means that there is none. fault.Usage means that there
// are several, and names some.
func (s *Store) Find(ctx context.Context, account, begin string) (Entry, error) {
	digits := strings.ToLower(strings.TrimPrefix(begin, prefix))
	if digits == "" || len(digits) > 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return Entry{}, fault.New(fault.FileNotFound, "no file has the hash %.90q: want the beginning of one, such as sha256_1f3a", begin)
	}
	var found []Entry
	stop := errors.New("enough")
	err := s.each(ctx, account, digits, func(e Entry) error {
		if found = append(found, e); len(found) > 3 {
			return stop
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, stop):
		return Entry{}, err
	case len(found) == 0:
		return Entry{}, fault.New(fault.FileNotFound, "no file has a hash that begins with %s", prefix+digits)
	case len(found) > 1:
		return Entry{}, ambiguous(prefix+digits, found)
	}
	e := found[0]
	e.Info, err = s.Info(ctx, account, e.Info.Hash)
	return e, err
}

func ambiguous(begin string, found []Entry) error {
	var some []string
	for _, e := range found[:min(len(found), 3)] {
		some = append(some, e.Info.Hash[:len(prefix)+12])
	}
	more := ""
	if len(found) > 3 {
		more = " …"
	}
	return fault.New(fault.Usage, "%s is the beginning of several hashes (%s%s): give more of it", begin, strings.Join(some, ", "), more)
}
