// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

// Runs are what a keeper asks about runs.
type Runs interface {
	// Head returns the head of a run; see store.Reader.
	Head(ctx context.Context, key store.Key) (store.Head, error)
	// OnEnd has fn called whenever the run may have ended, durably, until the returned function is called.
	// fn does not block.
	OnEnd(key store.Key, fn func()) (cancel func())
}

const (
	sweepInterval = time.Hour   // how often the directory is looked through
	retryInterval = time.Minute // how soon something that failed is tried again
)

// A Keeper makes and removes the workspaces of one data directory.
type Keeper struct {
	logger *slog.Logger
	ready  chan struct{} // closed by Attach, which sets dir and runs
	dir    string
	runs   Runs
	wake   chan struct{} // 1 slot

	mu    sync.Mutex        // held while a run is subscribed to
	known map[string]*entry // by the names of their directories

	dueMu sync.Mutex      // taken by whoever publishes ends of runs, so nothing else is done under it
	due   map[string]bool // those whose runs may have ended
}

// An entry is a workspace that exists, or is being made.
type entry struct {
	key      store.Key
	users    int           // attempts that have it open
	uses     int           // how many have had it open so far
	cancel   func()        // ends the subscription to the run
	removing chan struct{} // closed when it has been removed; nil = nobody removes it
}

// New returns a keeper. Open waits until it is attached, and Run removes what is left over.
func New(logger *slog.Logger) *Keeper {
	return &Keeper{logger: logger, ready: make(chan struct{}), wake: make(chan struct{}, 1), known: map[string]*entry{}, due: map[string]bool{}}
}

// Attach tells the keeper the directory of the workspaces, which is of this data directory alone, and
// whom to ask about runs. It is called once.
func (k *Keeper) Attach(dir string, runs Runs) {
	k.dir, k.runs = dir, runs
	close(k.ready)
}

// Open implements worker.Workspaces.
func (k *Keeper) Open(ctx context.Context, account, run, path string) (*os.Root, func(), error) {
	select {
	case <-k.ready:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	key := store.Key{Account: account, Run: run}
	name := nameOf(key)
	if err := k.use(ctx, name, key); err != nil {
		return nil, nil, err
	}
	root, err := open(k.dir, name, key, path)
	if err != nil {
		k.release(name)
		var f *fault.Error
		if !errors.As(err, &f) {
			err = fault.Wrap(datadir.Code(err, fault.StoreFailed), err, "the workspace of the run cannot be used: %v", err)
		}
		return nil, nil, err
	}
	return root, func() { k.release(name) }, nil
}

// use counts a user of a workspace, once nobody removes it.
func (k *Keeper) use(ctx context.Context, name string, key store.Key) error {
	for {
		k.mu.Lock()
		e := k.entryLocked(name, key)
		removing := e.removing
		if removing == nil {
			e.users++
			e.uses++
		}
		k.mu.Unlock()
		if removing == nil {
			return nil
		}
		select {
		case <-removing:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// entryLocked returns the entry of a workspace. From then on the end of its run is noticed.
func (k *Keeper) entryLocked(name string, key store.Key) *entry {
	e := k.known[name]
	if e == nil {
		e = &entry{key: key}
		k.known[name] = e
		e.cancel = k.runs.OnEnd(key, func() { k.check(name) })
	}
	return e
}

// release ends the use of a workspace. Its run may have ended before.
func (k *Keeper) release(name string) {
	k.mu.Lock()
	k.known[name].users--
	k.mu.Unlock()
	k.check(name)
}

// check has Run find out whether the run of a workspace has ended.
func (k *Keeper) check(name string) {
	k.markDue(name)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *Keeper) markDue(name string) {
	k.dueMu.Lock()
	k.due[name] = true
	k.dueMu.Unlock()
}

// Run removes the workspaces of runs that have ended, and those that earlier processes have left, until
// ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	select {
	case <-k.ready:
	case <-ctx.Done():
		return
	}
	timer := time.NewTimer(sweepInterval)
	defer timer.Stop()
	next := time.Now()
	for ctx.Err() == nil {
		ok := true
		if now := time.Now(); !now.Before(next) {
			ok, next = k.find(ctx), now.Add(sweepInterval)
		}
		if ok = k.removeDue(ctx) && ok; !ok {
			next = time.Now().Add(retryInterval)
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// find looks the directory through for workspaces, and reports whether it could.
func (k *Keeper) find(ctx context.Context) bool {
	err := each(k.dir, func(all *os.Root, name string) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.known[name] == nil {
			key, ok := ours(all, name) // Open does not make it meanwhile
			if !ok {
				return ctx.Err()
			}
			k.entryLocked(name, key)
		}
		k.markDue(name)
		return ctx.Err()
	})
	if err == nil || errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
		return true
	}
	k.logger.Warn("the workspaces of runs cannot be looked through; trying again", "dir", k.dir, "err", err)
	return false
}

// removeDue removes the workspaces that are due and whose runs have ended, and reports whether nothing
// failed. What failed is found again by the next sweep.
func (k *Keeper) removeDue(ctx context.Context) (ok bool) {
	k.dueMu.Lock()
	due := k.due
	k.due = map[string]bool{}
	k.dueMu.Unlock()
	failed, first := 0, error(nil)
	for name := range due {
		err := k.removeEnded(ctx, name)
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			continue
		}
		if failed++; first == nil {
			first = fmt.Errorf("%s: %w", name, err)
		}
	}
	if failed > 0 { // in one line, because all fail when the disk does
		k.logger.Warn("workspaces could not be removed; trying again", "count", failed, "dir", k.dir, "err", first)
	}
	return failed == 0
}

// removeEnded removes a workspace if its run has ended and no attempt has it open.
func (k *Keeper) removeEnded(ctx context.Context, name string) error {
	k.mu.Lock()
	e := k.known[name]
	if e == nil {
		k.mu.Unlock()
		return nil
	}
	uses := e.uses
	k.mu.Unlock()
	// An attempt that opens it from here on may be one of a run that was retried. Then release asks again.
	head, err := k.runs.Head(ctx, e.key)
	switch {
	case errors.Is(err, fault.RunNotFound):
	case err != nil:
		return err
	case head.Ended == 0 && !mutation.Foreign, mutation.Cleanup:
		return nil
	}
	k.mu.Lock()
	if k.known[name] != e || e.users > 0 || e.uses != uses {
		k.mu.Unlock()
		return nil
	}
	e.removing = make(chan struct{})
	k.mu.Unlock()
	left, err := remove(k.dir, name)
	if left != nil {
		k.logger.Warn("a workspace was removed, and what else is in its directory was left", "dir", filepath.Join(k.dir, name), "err", left)
	}
	k.mu.Lock()
	if close(e.removing); err != nil {
		e.removing = nil
	} else {
		delete(k.known, name)
	}
	k.mu.Unlock()
	if err == nil {
		e.cancel()
	}
	return err
}

// Close removes the workspaces of runs that have ended, as far as it can until ctx ends, and ends the
// subscriptions to runs. Run has returned before, perhaps without having found any, and no attempt begins
// any more.
func (k *Keeper) Close(ctx context.Context) {
	k.find(ctx)
	k.removeDue(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.known {
		e.cancel()
	}
}
