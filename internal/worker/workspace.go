// SPDX-License-Identifier: Apache-2.0

//go:build !small

package worker

import (
	"os"
	"sync"

	"github.com/roux-engine/roux/fault"
)

// A workspace is that of an attempt's run, which is opened when the action asks for it.
type workspace struct {
	mu      sync.Mutex
	root    *os.Root // nil = it is not open
	release func()
	closed  bool // the action has returned
}

// giveWorkspace lets the action open the workspace of its run, if that has one.
func (a *attempt) giveWorkspace() {
	all, t := a.pool.cfg.Workspaces, &a.task
	if all == nil || t.Workspace == "" {
		return
	}
	w := &workspace{}
	a.space = w
	t.Task.Root = func() (*os.Root, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.closed {
			return nil, fault.New(fault.StepFailed, "the attempt has ended, and its workspace is closed")
		}
		if w.root != nil {
			return w.root, nil
		}
		var err error
		w.root, w.release, err = all.Open(a, t.Task.Account, t.Task.Run, t.Workspace)
		return w.root, err
	}
}

// used reports whether the action has opened the workspace. w may be nil.
func (w *workspace) used() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.root != nil
}

// close closes the workspace once the action has returned. w may be nil.
func (w *workspace) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.root == nil {
		return
	}
	_ = w.root.Close() // nothing is written through it
	w.release()
	w.root = nil
}
