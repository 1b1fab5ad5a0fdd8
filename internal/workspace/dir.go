// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// The workspace of a run is ws_…/files/PATH. Its name is a digest of the account and the run, so that no
// two runs share one and no text of theirs is part of a path; the file ws_…/run says whose it is.
const (
	prefix     = "ws_"
	digestSize = 20
	ownerFile  = "run"
	filesDir   = "files"
	maxOwner   = 4 << 10
)

// nameOf is the name of the directory of a run's workspace.
func nameOf(key store.Key) string {
	sum := sha256.Sum256([]byte(key.Run + "\n" + key.Account))
	return prefix + hex.EncodeToString(sum[:digestSize])
}

// open opens the workspace of a run, and makes it if there is none.
func open(dir, name string, key store.Key, path string) (_ *os.Root, err error) {
	// It was checked when the recipe was compiled, but the journal may come from elsewhere.
	if path, err = plan.WorkspacePath(path); err != nil {
		return nil, err
	}
	all, err := datadir.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	own, err := enter(all, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	if err := failpoint.Hit(failpoint.SpaceMade); err != nil {
		return nil, err
	}
	if err := claim(own, key); err != nil {
		return nil, err
	}
	if err := failpoint.Hit(failpoint.SpaceClaimed); err != nil {
		return nil, err
	}
	at, err := enter(own, filesDir)
	for part := range strings.SplitSeq(path, "/") {
		if err != nil {
			return nil, err
		}
		var next *os.Root
		next, err = enter(at, part)
		err = errors.Join(err, at.Close())
		at = next
	}
	return at, err
}

// enter is inside, and makes the directory if there is none.
func enter(in *os.Root, name string) (*os.Root, error) {
	if err := in.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return inside(in, name)
}

// inside opens a directory, which must be no link, and of this user.
func inside(in *os.Root, name string) (*os.Root, error) {
	before, err := in.Lstat(name)
	if err != nil {
		return nil, err
	}
	if why := datadir.Refuse(before, fs.ModeDir); why != nil {
		return nil, &datadir.Refusal{Name: name, Why: why}
	}
	root, err := in.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if is, err := root.Stat("."); err != nil || !os.SameFile(before, is) {
		return nil, errors.Join(&datadir.Refusal{Name: name, Why: errors.New("was replaced while it was opened")}, err, root.Close())
	}
	return root, nil
}

// claim writes whose a workspace is, unless that is written there. It is on the disk before anything
// else is in the directory, so that all of it is found after a crash.
func claim(own *os.Root, key store.Key) error {
	text := key.Run + "\n" + key.Account
	switch is, err := owner(own); {
	case err == nil && nameOf(is) == nameOf(key):
		return nil
	case err != nil && !errors.Is(err, errUnclaimed) && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := own.OpenFile(ownerFile, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

var errUnclaimed = errors.New("it does not say whose it is")

// owner reads whose a workspace is.
func owner(own *os.Root) (key store.Key, err error) {
	f, err := datadir.OpenBelow(own, ownerFile, 0)
	if err != nil {
		return key, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxOwner))
	if err = errors.Join(err, f.Close()); err != nil {
		return key, err
	}
	run, account, ok := strings.Cut(string(text), "\n")
	if !ok {
		return key, errUnclaimed
	}
	return store.Key{Account: account, Run: run}, nil
}

// each calls fn for each name in a directory that may be a workspace. Anything else is not ours.
func each(dir string, fn func(all *os.Root, name string) error) error {
	if _, err := os.Lstat(dir); err != nil {
		return err
	}
	all, err := datadir.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	f, err := all.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for {
		names, err := f.Readdirnames(1000)
		for _, name := range names {
			if !formed(name) {
				continue
			}
			if err := fn(all, name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// formed reports whether a name is one that nameOf may return.
func formed(name string) bool {
	digest, ok := strings.CutPrefix(name, prefix)
	_, err := hex.DecodeString(digest)
	return ok && err == nil && len(digest) == 2*digestSize && digest == strings.ToLower(digest)
}

// ours reports whether a directory that nobody makes at the moment is a workspace, and of which run. If
// the process ended while it was being made, so that nothing is in it, it is removed.
func ours(all *os.Root, name string) (key store.Key, ok bool) {
	own, err := inside(all, name)
	if err != nil {
		return key, false
	}
	defer func() { _ = own.Close() }()
	key, err = owner(own)
	if err == nil {
		return key, nameOf(key) == name
	}
	if info, statErr := own.Lstat(ownerFile); statErr == nil && info.Mode().IsRegular() && info.Size() == 0 {
		_ = own.Remove(ownerFile)
	}
	_ = all.Remove(name) // it stays if it is not empty
	return key, false
}

// remove removes a workspace. What says whose it is goes last, so that the rest is found when the
// process ends meanwhile. left is what somebody has put beside the files of the run: it stays.
func remove(dir, name string) (left error, err error) {
	all, err := datadir.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, all.Close()) }()
	own, err := inside(all, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err = failpoint.Hit(failpoint.SpaceRemove); err == nil {
		err = datadir.RemoveBelow(own, filesDir)
	}
	if err == nil {
		err = failpoint.Hit(failpoint.SpaceEmptied)
	}
	if err == nil {
		err = datadir.RemoveBelow(own, ownerFile)
	}
	if err == nil {
		err = failpoint.Hit(failpoint.SpaceLast)
	}
	if err = errors.Join(err, own.Close()); err != nil {
		return nil, err
	}
	return all.Remove(name), nil
}
