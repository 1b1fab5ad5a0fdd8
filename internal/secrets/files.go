// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/datadir"
)

// files keep sealed values in a directory of the data directory: a directory for each
// account, and in it a file for each value, so that two processes that set different secrets
// do not meet. Names are written in hexadecimal, because some file systems take letters of
// different case for equal.
type files struct{ dir, data string }

const accountPrefix = "acct_"

// maxSealed bounds a file.
const maxSealed = 64 << 10

func (f files) account(account string) string {
	return filepath.Join(f.dir, accountPrefix+hex.EncodeToString([]byte(account)))
}

// open opens the directory of an account; fs.ErrNotExist when it has none.
func (f files) open(account string) (*os.Root, error) {
	for _, dir := range []string{f.dir, f.account(account)} {
		if _, err := os.Lstat(dir); err != nil {
			return nil, err
		}
	}
	return datadir.OpenRoot(f.account(account))
}

// Put implements Records.
func (f files) Put(_ context.Context, account, name string, sealed []byte) error {
	if err := ensure(f.data); err != nil {
		return err
	}
	for _, dir := range []string{f.dir, f.account(account)} {
		root, err := datadir.OpenRoot(dir)
		if err != nil {
			return err
		}
		if err := cmp.Or(root.Close(), datadir.Sync(filepath.Dir(dir))); err != nil {
			return err
		}
	}
	root, err := datadir.OpenRoot(f.account(account))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := replace(root, hex.EncodeToString([]byte(name)), sealed); err != nil {
		return err
	}
	return datadir.Sync(f.account(account))
}

// ensure creates the data directory, and refuses one that is not this user's.
func ensure(data string) error {
	if err := datadir.Check(data); err != nil {
		return err
	}
	return os.MkdirAll(data, 0o700)
}

// replace writes a file so that a reader sees the earlier content or the new one.
func replace(root *os.Root, name string, data []byte) error {
	tmp := name[:min(len(name), 64)] + "." + strings.ToLower(rand.Text()) + ".tmp"
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

// Get implements Records.
func (f files) Get(_ context.Context, account, name string) ([]byte, error) {
	root, err := f.open(account)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	file, err := datadir.OpenBelow(root, hex.EncodeToString([]byte(name)), 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxSealed))
}

// Written implements Records.
func (f files) Written(_ context.Context, account, name string) (time.Time, error) {
	root, err := f.open(account)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(hex.EncodeToString([]byte(name)))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// Names implements Records.
func (f files) Names(_ context.Context, account string) ([]string, error) {
	root, err := f.open(account)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return decoded(root, "")
}

// Accounts implements Records.
func (f files) Accounts(context.Context) ([]string, error) {
	if _, err := os.Lstat(f.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	root, err := datadir.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return decoded(root, accountPrefix)
}

// decoded returns the names that the entries of a directory stand for, sorted. It leaves out
// what is not named as an entry is.
func decoded(root *os.Root, prefix string) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		text, ok := strings.CutPrefix(e, prefix)
		name, err := hex.DecodeString(text)
		if ok && err == nil && len(name) > 0 {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements Records.
func (f files) Delete(_ context.Context, account, name string) error {
	root, err := f.open(account)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(hex.EncodeToString([]byte(name))); err != nil {
		return err
	}
	return datadir.Sync(f.account(account))
}

var _ Records = files{}
