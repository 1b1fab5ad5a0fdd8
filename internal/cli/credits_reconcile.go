// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) reconcileCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "reconcile",
		Short: "Prove the credits of an account from the journals of its runs",
		Long: "Prove the credits of an account from the journals of its runs. Every entry of a run must be what an event of the run says, every event " +
			"that moves credits must have its entry, what a run has paid must follow from what its steps cost, and balances must be the sum of " +
			"the entries. Runs that were deleted are known by their entries alone, which must leave nothing held. The first entry that " +
			"disagrees is named; the exit code is then 1. It needs the data directory for itself and changes nothing.",
		Example: "roux credits reconcile --account acme\nroux credits reconcile --all -o json",
		Args:    wants(0, 0, "[--all | --account NAME]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			reports, err := a.reconcile(cmd.Context(), all)
			if err != nil {
				return err
			}
			a.show(reports, func() { a.printReports(reports) })
			for _, r := range reports {
				if len(r.Findings) > 0 {
					return exit(fault.ExitFailed)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all accounts that have credits")
	return cmd
}

// reconcile proves the books of one account or of all.
func (a *app) reconcile(ctx context.Context, all bool) (reports []*reconcile.Report, err error) {
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, err
	}
	if err := datadir.MustExist(dir); err != nil {
		return nil, err
	}
	st, err := a.openStore(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, datadir.Error(dir, st.Close())) }()
	names := []string{a.account}
	if all {
		names, err = st.MeteredAccounts(ctx)
	} else {
		err = a.mustExist(ctx, st)
	}
	if err != nil {
		return nil, err
	}
	reports = []*reconcile.Report{}
	for _, name := range names {
		r, err := a.reconcileOne(ctx, st, name)
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// reconcileOne proves the books of one account, and draws how far it is.
func (a *app) reconcileOne(ctx context.Context, st node.Store, name string) (*reconcile.Report, error) {
	screen := a.screen
	if a.quiet {
		screen = nil
	}
	count := term.NewCounter(screen, a.now, name, "entries")
	defer count.End()
	return reconcile.Account(ctx, st, name, count.Set)
}

func (a *app) printReports(reports []*reconcile.Report) {
	for _, r := range reports {
		a.text("%s: %d entries, %s: %d granted = %d available + %d held + %d pending + %d spent + %d expired + %d voided\n", r.Account, r.Entries,
			view.Count(int(r.Runs), "reservation"), r.Granted, r.Available, r.Held, r.Pending, r.Spent, r.Expired, r.Voided)
		if r.Children > 0 {
			a.text("  %s, for which their roots pay\n", view.Count(int(r.Children), "child run"))
		}
		if r.Deleted > 0 {
			a.text("  %s of deleted runs balance by themselves\n", view.Count(int(r.Deleted), "reservation"))
		}
		if r.Elsewhere > 0 {
			a.text("  %s in a journal and not here, as those of an adopted run are\n", view.Count(int(r.Elsewhere), "run")+" moved credits")
		}
		for _, f := range r.Findings {
			a.text("  %s\n", view.OneLine(findingText(&f)))
		}
		switch {
		case len(r.Findings) == 0:
			a.text("  the books agree with the journals\n")
		case r.More:
			a.text("  there are more\n")
		}
		if len(r.Findings) > 0 {
			a.text("  Begin with the first one. `%s` checks the rest of the data directory; a backup from before the change has the entries as they were.\n", a.hint("doctor", ""))
		}
	}
	if len(reports) == 0 {
		a.say("no account has credits here: `%s` grants some", a.hint("credits grant 100", ""))
	}
}

func findingText(f *reconcile.Finding) string {
	where := "run " + f.Run
	if f.Entry > 0 {
		where = fmt.Sprintf("entry %d", f.Entry)
		if f.Key != "" {
			where += " (" + f.Key + ")"
		}
		if f.Run != "" {
			where += " of run " + f.Run
		}
	}
	text := where + ": " + f.Found
	if f.Want != "" {
		text += "; expected: " + f.Want
	}
	return text
}
