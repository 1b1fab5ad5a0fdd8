// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A chosen store shows an engine only the runs this command is about. A run
// that was interrupted with Ctrl-C was promised to rest until `roux resume`: it
// must not go on because another one is started in the same directory.
type chosen struct {
	*sqlite.Store

	mu   sync.Mutex
	all  bool
	runs map[string]bool

	// failed gets the first error of a commit, for the person who waits.
	failed chan error
}

func newChosen(st *sqlite.Store) *chosen {
	return &chosen{Store: st, runs: map[string]bool{}, failed: make(chan error, 1)}
}

// choose adds a run.
func (c *chosen) choose(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[run] = true
}

func (c *chosen) has(run string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all || c.runs[run]
}

// Recover implements store.Store for the chosen runs.
func (c *chosen) Recover(ctx context.Context, fn func(*store.Saved) error) error {
	return c.Store.Recover(ctx, func(saved *store.Saved) error {
		if !c.has(saved.Head.Run) {
			return nil
		}
		return fn(saved)
	})
}

// Due implements store.Store for the chosen runs. Wakes of others do not count
// towards the limit: the caller takes a short answer for all there is.
func (c *chosen) Due(ctx context.Context, until int64, limit int) ([]store.Wake, error) {
	for n := limit; ; n *= 4 {
		all, err := c.Store.Due(ctx, until, n)
		if err != nil {
			return nil, err
		}
		var mine []store.Wake
		for _, w := range all {
			if c.has(w.Run) && len(mine) < limit {
				mine = append(mine, w)
			}
		}
		if len(all) < n || len(mine) == limit {
			return mine, nil
		}
	}
}

// Commit implements store.Store. The runs of a batch are chosen from then on:
// a run that starts here is this command's.
func (c *chosen) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	for i := range batch {
		if batch[i].First == 1 {
			c.choose(batch[i].Run)
		}
	}
	verdicts, err := c.Store.Commit(ctx, batch)
	if err != nil && ctx.Err() == nil {
		select {
		case c.failed <- err:
		default:
		}
	}
	return verdicts, err
}
