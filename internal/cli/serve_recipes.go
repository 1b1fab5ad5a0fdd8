// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/sources"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// recipesServed are the recipes that a server registers, and where they come from.
type recipesServed struct {
	source   *sources.Source // nil = none, or a directory
	name     string          // the source as it was given; "" = none
	fetcher  *sources.Fetcher
	got      *sources.Fetched // what is to be unpacked when the data directory is open
	home     string           // has the directories that recipes are unpacked to
	unpacked int              // how often, so that each directory has a name of its own
	hash     string           // what is served
	files    int              // how many files that has
	every    time.Duration    // how long that counts as fresh
	next     time.Time        // when it is looked for anew
	failed   string           // why the last look failed
	// lock is the stamp of the lock file when it was read, and seen the one of the last look.
	lock, seen userfile.Stamp
}

// fetchAgain is when a source is asked again that could not be fetched.
const fetchAgain = time.Minute

func (s *serve) recipesFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.served.name, "recipes", "", "recipes and lenses to register, and again when they change: a directory, a package, an https URL or git+https://host/repository@ref#directory (default none)")
	if err := cmd.MarkFlagDirname("recipes"); err != nil {
		panic(err) // a flag that was never defined: no input can cause it
	}
}

// by marks the versions that are registered for a server.
func (r *recipesServed) by() string {
	if r.name == "" {
		return ""
	}
	return "roux serve"
}

// shown is how the recipes from outside are named in messages.
func (r *recipesServed) shown() string {
	if r.source == nil {
		return ""
	}
	return r.source.Show()
}

// admit refuses texts that the lock of the project knows otherwise. What is written while `roux dev`
// runs is not locked yet.
func (r *recipesServed) admit(a *app) func(text registry.Found, isDraft bool) error {
	if r.name == "" {
		return nil
	}
	return a.checkTextLocked
}

// openRecipes fetches the recipes to register, before anything is opened.
func (s *serve) openRecipes() error {
	r := &s.served
	if r.name == "" {
		return nil
	}
	src, err := s.source(r.name, false)
	if err != nil {
		return err
	}
	r.lock = s.lockStamp()
	r.seen = r.lock
	l, err := s.locked()
	if err != nil {
		return err
	}
	if !src.External() {
		s.folder = r.name
		return nil
	}
	if r.fetcher, err = s.fetcher(); err != nil {
		return err
	}
	r.source, r.every = src, s.config.Nesting().Refresh
	r.next = s.now().Add(r.every)
	return s.fetching(func(ctx context.Context) error {
		r.got, err = r.fetcher.Pinned(ctx, src, l.Pin(src))
		return err
	})
}

// unpackRecipes writes what was fetched into the data directory, which this process holds. What
// an earlier one has left there is removed.
func (s *serve) unpackRecipes(dir string) error {
	r := &s.served
	r.home = filepath.Join(dir, datadir.Fetched)
	if _, err := os.Lstat(r.home); err != nil && r.source == nil {
		return nil // there is nothing
	}
	root, err := datadir.OpenRoot(r.home)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := root.RemoveAll(e.Name()); err != nil {
			return err
		}
	}
	if r.source == nil {
		return nil
	}
	got := r.got
	r.got = nil
	return s.unpackServed(got)
}

// unpackServed makes what was fetched the folder that is served.
func (s *serve) unpackServed(got *sources.Fetched) error {
	r := &s.served
	root, err := datadir.OpenRoot(r.home)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r.unpacked++
	name := fmt.Sprintf("%s-%d", got.Hash[:12], r.unpacked)
	if err := root.Mkdir(name, 0o700); err != nil {
		return err
	}
	dir, old := filepath.Join(r.home, name), s.folder
	if err := got.Unpack(dir); err != nil {
		return errors.Join(err, root.RemoveAll(name))
	}
	s.folder, r.hash, r.files = dir, got.Hash, countFiles(dir)
	if old == "" {
		return nil
	}
	return root.RemoveAll(filepath.Base(old))
}

// countFiles counts the files that a folder may register.
func countFiles(dir string) (n int) {
	for _, dir := range []string{dir, filepath.Join(dir, "lenses")} {
		stamps, _ := userfile.StampsWithin(dir, maxApplied, ".yaml", ".yml", ".json") // none, if it has gone
		n += len(stamps)
	}
	return n
}

// lockStamp is the stamp of the lock file; that of none is zero.
func (s *serve) lockStamp() userfile.Stamp {
	info, err := os.Stat(s.lockPath())
	if err != nil {
		return userfile.Stamp{}
	}
	return userfile.Stamp{Size: info.Size(), Modified: info.ModTime()}
}

// lockChanged reports whether the lock file has changed. It is read anew then, once two looks
// have found it the same: somebody may be writing it.
func (s *serve) lockChanged() bool {
	r := &s.served
	now := s.lockStamp()
	settled := now == r.seen
	r.seen = now
	if !settled || now == r.lock {
		return false
	}
	r.lock = now
	s.origins.read, s.origins.lock = false, nil
	return true
}

// refresh prepares a look at the folder, and reports whether it may be looked at. When the lock
// file has changed, what was refused is looked at again, and what is pinned now is served from
// then on. After a while, and when files have vanished, a source from outside is fetched anew; if it
// has another hash, the lock must change first.
func (s *serve) refresh(ctx context.Context, folder *registry.Folder) bool {
	r := &s.served
	if r.name == "" {
		return true
	}
	if s.lockChanged() {
		folder.Again()
		r.next = time.Time{}
	}
	if r.source == nil {
		return true
	}
	whole := countFiles(s.folder) == r.files
	if !s.now().Before(r.next) {
		err := s.fetchAnew(ctx, whole)
		if ctx.Err() != nil {
			return false
		}
		folder.Move(s.folder)
		r.next = s.now().Add(r.every)
		if err != nil && fault.CodeOf(err) != fault.Conflict {
			r.next = s.now().Add(min(r.every, fetchAgain))
		}
		s.tellRefresh(err)
		whole = err == nil || whole
	} else if !whole && r.failed == "" {
		r.next = time.Time{} // at the next look
	}
	return whole
}

// fetchAnew serves what is pinned now. If that is served already, it asks the source whether it
// has something else, which is an error.
func (s *serve) fetchAnew(ctx context.Context, whole bool) error {
	r := &s.served
	l, err := s.locked()
	if err != nil {
		return err
	}
	pin := cmp.Or(r.source.Pin, l.Pin(r.source))
	if pin == r.hash && whole {
		got, err := r.fetcher.Latest(ctx, r.source)
		if err != nil {
			return err
		}
		return got.Check(pin)
	}
	got, err := r.fetcher.Pinned(ctx, r.source, pin)
	if err != nil {
		return err
	}
	if err := s.unpackServed(got); err != nil {
		return err
	}
	s.say("%s: sha256=%s is served now", view.OneLine(r.source.Show()), r.hash)
	s.log.Info("recipes refreshed", "source", r.source.Show(), "sha256", r.hash)
	return nil
}

// tellRefresh reports why the recipes were not refreshed, once for each reason.
func (s *serve) tellRefresh(err error) {
	r := &s.served
	why := ""
	if err != nil {
		why = view.OneLine(fault.Message(err))
	}
	if why != "" && why != r.failed {
		s.screen.Print(s.screen.Paint("error", "error:") + " " + why + "\n")
		s.say("%s: not refreshed; sha256=%s goes on", view.OneLine(r.source.Show()), r.hash)
		s.log.Warn("recipes not refreshed", "source", r.source.Show(), "sha256", r.hash, "error", why)
	}
	r.failed = why
}
