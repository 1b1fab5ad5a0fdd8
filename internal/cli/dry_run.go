// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// A dryRun is what `run --dry-run` shows: on what terms the run would start.
type dryRun struct {
	Recipe    string           `json:"recipe"`
	Account   string           `json:"account"`
	Metered   bool             `json:"metered"`
	Estimate  *estimate.Budget `json:"estimate"`
	Estimated int64            `json:"estimated"`
	Reserved  int64            `json:"creditsReserved"`
	Most      int64            `json:"maxCredits"`
	Available int64            `json:"available"` // to the run, of balance and budgets
	Missing   int64            `json:"missing"`   // what the account cannot give to start the run
	Limit     string           `json:"limitSource,omitempty"`
	CanStart  bool             `json:"canStart"`
	bound     ledger.Bound
}

// dryRun checks a request as run does, and shows what it would reserve.
func (a *app) dryRun(ctx context.Context, c *compiled, params map[string]any, files []string, pay payment) error {
	req := engine.StartRequest{Account: a.account, Plan: c.plan, Parameters: params, MaxCredits: pay.most, Key: pay.key}
	paths, err := userfile.Expand(files, a.say)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil && hashLike(path) {
			return fault.New(fault.Usage, "--dry-run reads files by their paths only: %s is a file that is kept", path)
		}
		f, err := plannedFile(ctx, path)
		if err != nil {
			return err
		}
		req.Files = append(req.Files, f)
	}
	rules := ruleOf(a.rules(), a.account)
	q, err := starts.QuoteOf(&req, a.actions, rules)
	if err != nil {
		return err
	}
	out := &dryRun{Recipe: c.recipe.Name, Account: a.account, Estimate: q.Budget, Estimated: q.Budget.Expected, CanStart: true}
	if t := q.Credits; t != nil {
		out.Metered, out.Estimated, out.Reserved, out.Most = true, t.Estimated, t.Reserved, t.Most
	}
	if err := a.readingBooks(ctx, func(ctx context.Context, r remote.Reader) error { return out.pay(ctx, a, r, rules.Budgets, pay.key) }); err != nil {
		return err
	}
	a.show(out, func() { a.printDryRun(out) })
	if !out.CanStart {
		return exit(fault.ExitCredits)
	}
	return nil
}

// pay finds out whether the account can pay the run.
func (d *dryRun) pay(ctx context.Context, a *app, r remote.Reader, budgets ledger.Budgets, key string) error {
	if err := a.mustExist(ctx, r); err != nil || !d.Metered {
		return err
	}
	if r != nil {
		now := a.now().UnixMicro()
		account, err := r.Account(ctx, a.account, now)
		if err != nil {
			return err
		}
		d.Available, d.bound = budgets.Offer(account, key, now)
	}
	d.Missing = max(0, d.Reserved-d.Available)
	if d.CanStart = d.Missing == 0; !d.CanStart {
		d.Limit = d.bound.Source()
	}
	return nil
}

// readingBooks is readingAll for a data directory that may not exist yet: fn gets nil
// then.
func (a *app) readingBooks(ctx context.Context, fn func(ctx context.Context, r remote.Reader) error) error {
	err := a.readingAll(ctx, fn)
	if errors.Is(err, fault.RunNotFound) { // there is no data directory yet
		return fn(ctx, nil)
	}
	return err
}

// plannedFile describes a file as the run would get it, without storing it.
func plannedFile(ctx context.Context, path string) (journal.File, error) {
	facts, err := inspectLocal(ctx, path)
	if err != nil {
		return journal.File{}, err
	}
	f, size, err := userfile.OpenRegular(path)
	if err != nil {
		return journal.File{}, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return journal.File{}, userfile.OpenError(path, fault.FileNotFound, err)
	}
	extended, err := json.Marshal(facts["extended"])
	if err != nil {
		return journal.File{}, err
	}
	name, _ := facts["name"].(string)
	mime, _ := facts["mimeType"].(string)
	return journal.File{Hash: "sha256_" + hex.EncodeToString(h.Sum(nil)), Name: name, MimeType: mime, Size: size, Extended: extended}, nil
}

func (a *app) printDryRun(d *dryRun) {
	a.text("%s: the input fits, nothing was run\n", view.OneLine(d.Recipe))
	rows := [][]string{{"  expected", ledger.Credits(d.Estimated)}}
	if d.Estimate.Formula != "" {
		rows = append(rows, []string{"  formula", view.OneLine(d.Estimate.Formula)}, []string{"", "= " + view.OneLine(d.Estimate.Expanded)})
	}
	if !d.Metered {
		rows = append(rows, []string{"  account", d.Account + ", which is unmetered: the run costs it nothing"})
		a.sheet(rows)
		return
	}
	rows = append(rows,
		[]string{"  would reserve", ledger.Credits(d.Reserved)},
		[]string{"  pays at most", ledger.Credits(d.Most)},
		[]string{"  account", fmt.Sprintf("%s has %d available", d.Account, max(0, d.Available))})
	if d.CanStart {
		a.sheet(append(rows, []string{"  so", "the run can start"}))
		return
	}
	if d.Limit != "account" {
		a.sheet(append(rows, []string{"  so", "the run cannot start: " + fault.Message(d.bound.Refuse(d.Reserved, d.Available))}))
		return
	}
	a.sheet(append(rows, []string{"  so", fmt.Sprintf("the run cannot start: %s missing; `%s` adds them", view.CountAre(int(d.Missing), "credit"), a.hint(fmt.Sprintf("credits grant %d", d.Missing), ""))}))
}
