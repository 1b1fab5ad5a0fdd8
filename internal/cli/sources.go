// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/sources"
	"github.com/roux-engine/roux/internal/userfile"
)

// origins are the recipes of one command that come from outside, and what they must be.
type origins struct {
	client  *egress.Client
	lock    *sources.Lock     // nil = there is no lock file
	read    bool              // lock was read
	dirs    map[string]string // with what was fetched, by source and hash
	offline bool              // the command uses no network
	cleared []string          // directories that are removed when the command ends
}

// fetcher returns what gets recipes from outside, through the guard of outgoing connections.
func (a *app) fetcher() (*sources.Fetcher, error) {
	o := &a.origins
	if o.client == nil && !o.offline {
		allow, err := egress.ParseAllow(settingOr(a.config.Get("egress.allow"), ""))
		if err != nil {
			return nil, err
		}
		o.client = egress.New(egress.Config{Allow: allow})
	}
	cfg := sources.Config{HTTP: o.client}
	if dir, err := os.UserCacheDir(); err == nil { // without one everything is fetched each time
		cfg.Cache = filepath.Join(dir, "roux", "sources")
	}
	return sources.New(cfg), nil
}

// tidy removes what was fetched for the command.
func (a *app) tidy() {
	for _, dir := range a.origins.cleared {
		if err := os.RemoveAll(dir); err != nil {
			a.log.Warn("a directory was not removed", "dir", dir, "error", err)
		}
	}
	if a.origins.client != nil {
		a.origins.client.Close()
	}
}

// lockPath is where the lock file of the project is.
func (a *app) lockPath() string { return filepath.Join(a.config.ProjectDir(), sources.LockFile) }

// locked returns the lock of the project, or nil when it has none.
func (a *app) locked() (*sources.Lock, error) {
	o := &a.origins
	if o.read {
		return o.lock, nil
	}
	text, err := userfile.ReadWithin(a.config.ProjectDir(), sources.LockFile, sources.MaxLock, fault.FileNotFound)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	o.lock = nil
	if err == nil {
		l, _, diags := sources.ParseLock(a.lockPath(), text)
		if l == nil {
			return nil, fault.Invalid(fault.ConfigInvalid, diags)
		}
		o.lock = l
	}
	o.read = true
	return o.lock, nil
}

// source reads a source. The file of a package is named in the lock by its path from the
// project, so that the lock is the same wherever the project lies.
func (a *app) source(text string, inLock bool) (*sources.Source, error) {
	s, err := sources.Parse(text)
	if err != nil || s.Kind != sources.Package || s.IsURL() {
		return s, err
	}
	if inLock && !filepath.IsAbs(s.Where) {
		s.As, s.Where = filepath.ToSlash(s.Where), filepath.Join(a.config.ProjectDir(), filepath.FromSlash(s.Where))
		return s, nil
	}
	home, err := filepath.Abs(a.config.ProjectDir())
	if err != nil {
		return s, nil
	}
	if at, err := filepath.Abs(s.Where); err == nil {
		if rel, err := filepath.Rel(home, at); err == nil && filepath.IsLocal(rel) {
			s.As = filepath.ToSlash(rel)
		}
	}
	return s, nil
}

// fetched returns the directory of a source: the one that it is, or one with what was fetched,
// which has the hash that is pinned. It is removed when the command ends.
func (a *app) fetched(source string) (string, error) {
	if source == "" || source == "-" {
		return source, nil
	}
	s, err := a.source(source, false)
	if err != nil || !s.External() {
		return source, err
	}
	l, err := a.locked()
	if err != nil {
		return "", err
	}
	pin := l.Pin(s)
	key := source + " " + pin
	if dir := a.origins.dirs[key]; dir != "" {
		return dir, nil
	}
	f, err := a.fetcher()
	if err != nil {
		return "", err
	}
	dir := ""
	err = a.fetching(func(ctx context.Context) error {
		got, err := f.Pinned(ctx, s, pin)
		if err == nil {
			dir, err = a.unpack(got)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if a.origins.dirs == nil {
		a.origins.dirs = map[string]string{}
	}
	a.origins.dirs[key] = dir
	return dir, nil
}

// shownSource is how messages name a source that was fetched: without the values of a query,
// which may be secrets.
func (a *app) shownSource(text string) string {
	if s, err := sources.Parse(text); err == nil {
		return s.Show()
	}
	return text
}

// fetching calls fn with a context that Ctrl-C and SIGTERM end. So nothing of a fetch is left
// behind: neither a directory, nor git, which Ctrl-C of a terminal does not reach.
func (a *app) fetching(fn func(ctx context.Context) error) error {
	ctx, stop := signal.NotifyContext(a.commandContext(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := fn(ctx)
	if ctx.Err() != nil && !waited(ctx) {
		return exit(fault.ExitInterrupted)
	}
	return err
}

// unpack writes what was fetched into a directory that is removed when the command ends.
func (a *app) unpack(got *sources.Fetched) (string, error) {
	dir, err := os.MkdirTemp("", "roux-recipes-")
	if err != nil {
		return "", err
	}
	a.origins.cleared = append(a.origins.cleared, dir)
	return dir, got.Unpack(dir)
}

// checkLocked compares what the references of a recipe stood for with the lock of the project.
func (a *app) checkLocked(files *registry.Files) error {
	if len(files.Found()) == 0 {
		return nil
	}
	l, err := a.locked()
	if err != nil {
		return err
	}
	for _, found := range files.Found() {
		if err := l.Check(lockedReference(found)); err != nil {
			return err
		}
	}
	return nil
}

// lockedReference is what a lock file has of a reference.
func lockedReference(found registry.Found) sources.LockedReference {
	r := sources.LockedReference{Kind: found.Kind, Ref: found.Ref, Version: found.Version, SHA256: hex.EncodeToString(found.Text[:]), Files: hex.EncodeToString(found.Files)}
	if name, _, _ := strings.Cut(found.Ref, "@"); name != found.Name {
		r.Name = found.Name
	}
	return r
}

// checkTextLocked compares a text that is to be registered with the lock of the project.
func (a *app) checkTextLocked(text registry.Found, isDraft bool) error {
	l, err := a.locked()
	if err != nil {
		return err
	}
	return l.CheckText(lockedReference(text), isDraft)
}
