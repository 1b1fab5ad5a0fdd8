// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// account is the account of the runs of all shapes that need only one.
const account = "acme"

// An instance is an engine on a store in its own directory.
type instance struct {
	dir  string
	act  *action.Action
	sql  store.Store
	st   *tap
	e    *engine.Engine
	gone bool
	// opened is how long opening the store took.
	opened time.Duration
}

// noop returns an action with the given function and default settings.
func noop(run action.Func) *action.Action {
	return &action.Action{Name: actionName, Version: "1.0.0", Run: run}
}

// nothing is an action function that does nothing.
func nothing(context.Context, *action.Task) (action.Result, error) {
	return action.Result{Output: map[string]any{"ok": true}}, nil
}

// open opens an instance below dir.
func open(ctx context.Context, dir string, run action.Func, cfg engine.Config) (*instance, error) {
	return openPriced(ctx, dir, run, cfg, "")
}

// openPriced opens an instance whose action has a price, in credits.
func openPriced(ctx context.Context, dir string, run action.Func, cfg engine.Config, price string) (*instance, error) {
	w := &instance{dir: dir, act: noop(run)}
	w.act.Price = price
	began := time.Now()
	var err error
	if w.sql, err = sqlite.Open(ctx, sqlite.Options{Dir: dir}); err != nil {
		return nil, err
	}
	w.opened = time.Since(began)
	w.st = &tap{Store: w.sql}
	cfg.Store, cfg.Actions = w.st, catalogue.New(w.act)
	if cfg.Accounts == nil {
		cfg.Accounts = func(string) engine.AccountRules { return engine.AccountRules{Unmetered: true} }
	}
	if w.e, err = engine.Open(ctx, cfg); err != nil {
		return nil, errors.Join(err, w.sql.Close())
	}
	return w, nil
}

// close stops the engine cleanly and closes the store.
func (w *instance) close() error {
	if w.gone {
		return nil
	}
	w.gone = true
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := w.e.Stop(ctx)
	return errors.Join(err, w.sql.Close())
}

// once starts a run and waits for its end.
func (w *instance) once(ctx context.Context, p *plan.Plan, params map[string]any) error {
	s, err := w.e.Start(ctx, engine.StartRequest{Account: account, Plan: p, Recipe: "bench", Parameters: params})
	if err != nil {
		return err
	}
	return w.end(ctx, s.Run)
}

// end waits for the end of a run.
func (w *instance) end(ctx context.Context, run string) error {
	head, err := w.e.Wait(ctx, account, run)
	if err != nil {
		return err
	}
	return completed(head)
}

func completed(head store.Head) error {
	if head.Status != "completed" {
		return fmt.Errorf("run %s is %s (%s %s), want completed", head.Run, head.Status, string(head.Code), head.Message)
	}
	return nil
}

// together calls fn for 0..n-1 at once and returns the first error.
func together(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	for i := range n {
		wg.Go(func() {
			if err := fn(i); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// diskUse returns the size of the files below dir.
func diskUse(dir string) (int64, error) {
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
