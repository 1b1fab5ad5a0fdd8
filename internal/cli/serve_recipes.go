// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/sources"
	"github.com/roux-engine/roux/internal/view"
)

// recipesServed are the recipes that a server registers, and where they come from.
type recipesServed struct {
	source  *sources.Source // nil = none, or a directory
	name    string          // the source as it was given; "" = none
	fetcher *sources.Fetcher
	hash    string        // what is served
	every   time.Duration // how long that counts as fresh
	next    time.Time     // when it is looked for anew
	asked   chan refreshed
	busy    bool
	failed  string // why the last look failed
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

// A refreshed is what a source had when it was looked for anew.
type refreshed struct {
	got *sources.Fetched
	err error
}

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
func (r *recipesServed) admit(a *app) func(text registry.Found, draft bool) error {
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
	if s.folder, err = s.fetched(r.name); err != nil || !src.External() {
		return err
	}
	l, err := s.locked()
	if err != nil {
		return err
	}
	if r.fetcher, err = s.fetcher(); err != nil {
		return err
	}
	r.source, r.hash, r.every = src, l.Pin(src), s.config.Nesting().Refresh
	if src.Pin != "" {
		r.hash = src.Pin
	}
	r.next, r.asked = s.now().Add(r.every), make(chan refreshed, 1)
	return nil
}

// endRecipes waits for a look that is in progress.
func (s *serve) endRecipes() {
	if s.served.cancel != nil {
		s.served.cancel()
	}
	s.served.ended.Wait()
}

// refresh looks for the recipes anew when they have been served for a while. What is pinned
// by then is served from then on; anything else is reported, and what there is goes on.
func (s *serve) refresh(ctx context.Context) {
	r := &s.served
	if r.source == nil {
		return
	}
	select {
	case at := <-r.asked:
		r.busy, r.next = false, s.now().Add(r.every)
		s.tellRefresh(s.take(at))
	default:
	}
	if r.busy || s.now().Before(r.next) {
		return
	}
	r.busy = true
	ctx, r.cancel = context.WithCancel(ctx) // the one before has ended
	r.ended.Go(func() {
		got, err := r.fetcher.Latest(ctx, r.source)
		r.asked <- refreshed{got, err}
	})
}

// take puts what was fetched in place of what is served, if it is what is pinned now.
func (s *serve) take(at refreshed) error {
	r := &s.served
	if at.err != nil {
		return at.err
	}
	s.origins.read = false // the file may be another one now
	s.origins.lock = nil
	l, err := s.locked()
	if err != nil {
		return err
	}
	pin := r.source.Pin
	if pin == "" {
		pin = l.Pin(r.source)
	}
	if err := at.got.Check(pin); err != nil || at.got.Hash == r.hash {
		return err
	}
	dir, err := s.unpack(at.got)
	if err != nil {
		return err
	}
	if err := replaceDir(s.folder, dir); err != nil {
		return err
	}
	r.hash = at.got.Hash
	s.say("%s: sha256=%s is served now", view.OneLine(r.source.Show()), r.hash)
	s.log.Info("recipes refreshed", "source", r.source.Show(), "sha256", r.hash)
	return nil
}

// replaceDir moves what is in a directory into another one, in place of what is there.
func replaceDir(to, from string) error {
	old, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	for _, e := range old {
		if err := os.RemoveAll(filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	fresh, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range fresh {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
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
