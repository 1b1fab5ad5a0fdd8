// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) billCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain RUN",
		Short: "Explain what a run reserved, used and paid",
		Long: "Explain what a run reserved, used and paid: the estimate, what each attempt cost, what attempts cost that are recorded and not " +
			"charged, and for each generation of the run what it owed, paid and released, and with which lots. Everything is read from the " +
			"run's journal and the account's ledger.",
		Example: "roux credits explain @last --account acme",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readingAll(cmd.Context(), func(ctx context.Context, r remote.Reader) error {
				head, err := a.findRun(ctx, r, args[0])
				if err != nil {
					return err
				}
				b, err := a.billFrom(ctx, r, head)
				if err != nil {
					return err
				}
				a.show(b, func() { a.printBill(b) })
				return nil
			})
		},
	}
}

// billFrom returns the bill of a run, which a server makes itself.
func (a *app) billFrom(ctx context.Context, r remote.Reader, head store.Head) (*view.Bill, error) {
	if s, ok := r.(*remote.Server); ok {
		return s.Bill(ctx, head.Run)
	}
	return a.billOf(ctx, r, head)
}

// billOf makes the bill of a run.
func (a *app) billOf(ctx context.Context, r remote.Reader, head store.Head) (*view.Bill, error) {
	p, err := store.LoadPlan(ctx, r, head)
	if err != nil {
		return nil, err
	}
	x := view.NewBiller(p, head.Run)
	if err := eachShown(ctx, r, head.Key, p, 0, x.Apply); err != nil {
		return nil, err
	}
	b := x.Bill()
	b.Imported = head.Imported()
	b.Expanded = program.Expanded(p, a.actions, x.Start())
	if !b.Metered || b.Imported || b.Root != "" {
		return b, nil // the entries are elsewhere, if at all
	}
	budgets := ruleOf(a.rules(), head.Account).Budgets
	if budgets.Day.Limit != 0 || b.Key != "" {
		now := a.now().UnixMicro()
		account, err := r.Account(ctx, head.Account, now)
		if err != nil {
			return nil, err
		}
		b.Budgets = budgets.Standings(account, b.Key, max(now, account.At()))
	}
	_, err = purse.EachEntry(ctx, r, head.Account, head.Created, 0, x.Entry)
	return b, err
}

func (a *app) printBill(b *view.Bill) {
	a.text("%s of account %s, %s\n", b.Run, view.OneLine(b.Account), b.Status)
	if b.Imported {
		a.text("  which was imported: what it says was paid elsewhere, if at all\n")
	}
	var rows [][]string
	add := func(name, format string, args ...any) {
		rows = append(rows, []string{"  " + name, view.OneLine(fmt.Sprintf(format, args...))})
	}
	switch {
	case !b.Metered:
		add("paid", "nothing: the account is unmetered; its steps cost %s", b.Used)
	case b.Root != "":
		add("estimate", "%d", b.Estimated)
		add("share", "%d when it started", b.Reserved)
		for _, e := range b.Added {
			add("", "%d more at event %d, %s", e.Credits, e.Event, e.At)
		}
		add("used", "%s", b.Used)
		if b.Uncharged > 0 {
			add("not charged", "%s, which is recorded only", b.Uncharged)
		}
		add("paid", "by its root run: `%s`", a.hint("credits explain", b.Root))
	default:
		switch {
		case b.Formula != "" && b.Expanded != "":
			add("estimate", "%d (%s: %s = %s)", b.Estimated, b.Strategy, b.Formula, b.Expanded)
		case b.Strategy != "":
			add("estimate", "%d (%s)", b.Estimated, view.Join(": ", b.Strategy, b.Formula))
		default:
			add("estimate", "%d, the most that the steps cost: the recipe has no creditEstimation", b.Estimated)
		}
		if first := b.Generations[0].Expected; first != b.Estimated {
			add("", "%d when it started, because the formula names what a step was yet to return", first)
		}
		add("reserved", "%d when it started: a quarter more, and never more than %d in all", b.Reserved, b.Most)
		if b.Key != "" {
			add("key", "%s", b.Key)
		}
		for _, s := range b.Budgets {
			mode := ""
			if s.Audit {
				mode = ", in audit mode"
			}
			add("budget", "%s (reset %s%s): %d of %d used now, by all runs", s.Source, s.Reset, mode, s.Used, s.Limit)
		}
		add("used", "%s", b.Used)
		if b.Uncharged > 0 {
			add("not charged", "%s, which is recorded only", b.Uncharged)
		}
		add("paid", "%d", b.Paid)
		for _, back := range b.Back {
			add("given back", "%s", view.Join(": ", fmt.Sprintf("%d at %s, %s", back.Amount, back.At, lotsText(back.Lots)), back.Note))
		}
		if b.Held > 0 {
			add("held", "%d", b.Held)
		}
	}
	a.sheet(rows)
	if b.Metered && b.Root == "" {
		for _, g := range b.Generations {
			a.printGeneration(g, len(b.Generations) > 1)
		}
	}
	if len(b.Charges) == 0 {
		return
	}
	rows = [][]string{{"EVENT", "STEP", "TRY", "COST", ""}}
	for _, c := range b.Charges {
		try := ""
		if c.Attempt > 0 {
			try = fmt.Sprint(c.Attempt)
		}
		note := ""
		if !c.Charged {
			note = view.Join(": ", "not charged", c.Why)
		}
		if c.Run != "" {
			note = view.Join("; ", "run "+c.Run, note)
		}
		rows = append(rows, []string{fmt.Sprint(c.Event), view.OneLine(c.Step), try, c.Amount.String(), note})
	}
	a.table(rows, 1)
	if b.Truncated {
		a.text("… only the first %d charges are listed\n", view.MaxSteps)
	}
}

func (a *app) printGeneration(g *view.GenerationBill, several bool) {
	title := "reservation"
	if several {
		title = fmt.Sprintf("generation %d", g.Generation)
	}
	a.text("%s\n", title)
	rows := [][]string{{"  held", fmt.Sprintf("%d for an estimate of %d", g.Reserved, g.Expected)}}
	for _, e := range g.Extensions {
		rows = append(rows, []string{"  extended", fmt.Sprintf("%d more at event %d, %s", e.Credits, e.Event, e.At)})
	}
	if len(g.Took) > 0 {
		rows = append(rows, []string{"  of lots", lotsText(g.Took)})
	}
	if g.Why != "" {
		rows = append(rows, []string{"  settled", g.Why})
	}
	if len(g.Lots) > 0 {
		rows = append(rows, []string{"  paid with", lotsText(g.Lots)})
	}
	a.sheet(rows)
}
