// SPDX-License-Identifier: Apache-2.0

//go:build !small

package node

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"sync"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/workspace"
)

// keepWorkspaces gives the runs of an engine workspaces. attach makes them available, and has those that
// are left over removed, once the engine is open. An engine that only changes runs has none.
func (n *Node) keepWorkspaces(cfg *engine.Config) (attach func(context.Context) error) {
	n.endSpaces = func(context.Context) {}
	if n.Config.Idle {
		return func(context.Context) error { return nil }
	}
	k := workspace.New(n.Config.Logger)
	cfg.Workspaces = k
	return func(ctx context.Context) error {
		dir, err := n.workspaces(ctx)
		if err != nil {
			return err
		}
		k.Attach(dir, headsOf{n})
		running, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { k.Run(running) })
		var ended sync.Once
		n.endSpaces = func(ctx context.Context) {
			ended.Do(func() {
				cancel()
				done.Wait()
				k.Close(ctx)
			})
		}
		return nil
	}
}

// workspaces returns the directory of the workspaces of this data directory. One outside of it may be that
// of several, on machines that see it at different places: each has a directory in it, whose name follows
// from its key and its path, so that none removes what another one has made, nor what a copy of it has.
func (n *Node) workspaces(ctx context.Context) (string, error) {
	if n.Config.Workspaces == "" {
		return filepath.Join(n.Config.Dir, datadir.Workspaces), nil
	}
	key, err := n.linkKey(ctx)
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(n.Config.Dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	sum := hmac.New(sha256.New, key)
	_, _ = sum.Write([]byte("workspaces\n" + dir))
	return filepath.Join(n.Config.Workspaces, "data_"+hex.EncodeToString(sum.Sum(nil)[:8])), nil
}

// headsOf is what a keeper of workspaces asks about runs.
type headsOf struct{ n *Node }

func (h headsOf) Head(ctx context.Context, key store.Key) (store.Head, error) {
	return h.n.Store.Head(ctx, key)
}

func (h headsOf) OnEnd(key store.Key, fn func()) (cancel func()) {
	return h.n.Engine.Feed().OnEnd(key, fn)
}
