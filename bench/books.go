// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// paidSteps are the steps of a run of the shape books.
const paidSteps = 3

// books measures how long it takes to prove the credits of an account from the journals
// of -n runs, which have ended.
func books(ctx context.Context, b *bench) (lines []Line, err error) {
	runs := b.few(b.waiting, 200)
	l := b.line("books", runs)
	dir := filepath.Join(b.fresh(), "data")
	w, err := openPriced(ctx, dir, echo, engine.Config{Accounts: func(string) engine.AccountRules { return engine.AccountRules{} }}, "0.0025")
	if err != nil {
		return nil, err
	}
	if err := payRuns(ctx, w, runs); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if err := w.close(); err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(st.Close, err) }()
	began, used := time.Now(), cpu()
	report, err := reconcile.Account(ctx, st, account, nil)
	if err != nil {
		return nil, err
	}
	l.Seconds = time.Since(began).Seconds()
	l.put("cpu_s", (cpu() - used).Seconds())
	l.put("entries", float64(report.Entries))
	l.put("us_per_run", l.Seconds*1e6/float64(runs))
	l.RSSMB = rss()
	size, err := diskUse(dir)
	l.put("disk_mb", float64(size)/(1<<20))
	if err == nil && (len(report.Findings) > 0 || report.Runs != int64(runs)) {
		err = fmt.Errorf("the books of %d runs do not agree: %+v", report.Runs, report.Findings)
	}
	return []Line{l}, err
}

// echo returns its input.
func echo(_ context.Context, t *action.Task) (action.Result, error) {
	n, err := number(t.Input)
	return action.Result{Output: map[string]any{"n": n}}, err
}

// payRuns makes the runs, some hundred at a time.
func payRuns(ctx context.Context, w *instance, runs int) error {
	for lot := range 10 {
		if _, err := w.e.Grant(ctx, engine.GrantRequest{Account: account, Key: fmt.Sprint("lot", lot), Amount: int64(runs),
			Terms: ledger.Terms{Source: ledger.Paid}}); err != nil {
			return err
		}
	}
	pl, err := planOf(boundOf(paidSteps), w.act)
	if err != nil {
		return err
	}
	var next atomic.Int64
	return together(500, func(int) error {
		for n := next.Add(1); n <= int64(runs); n = next.Add(1) {
			if err := w.once(ctx, pl, map[string]any{"n": n}); err != nil {
				return err
			}
		}
		return nil
	})
}
