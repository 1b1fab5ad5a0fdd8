// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "explain RUN [STEP]",
		Short:   "Explain what a run waits for or why it failed, or why a step ran, was skipped, waits or failed",
		Example: "roux explain @last\nroux explain @last convert\nroux explain @last-failed 'pages[3].resize'",
		Args:    wants(1, 2, "RUN [STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.readingAll(cmd.Context(), func(ctx context.Context, j remote.Reader) error {
				head, err := a.findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				if len(args) == 1 {
					v, waits, err := a.waits(ctx, j, head)
					if err != nil {
						return err
					}
					e := a.explainRun(v, head, waits)
					if err := a.explainBelow(ctx, j, e, head, v); err != nil {
						return err
					}
					a.show(e, func() { a.printRunExplanation(e) })
					return nil
				}
				p, err := store.LoadPlan(ctx, j, head)
				if err != nil {
					return err
				}
				if err := knownStep(p, args[1]); err != nil {
					return err
				}
				ref, err := journal.ParseRef(p, args[1])
				if err != nil {
					return fault.Wrap(fault.StepNotFound, err, "%s is no step but a part of one: name a step in it; `%s` lists them", view.OneLine(args[1]), a.hint("trace", head.Run))
				}
				x := view.NewExplainer(p, head.Run, ref)
				if err := eachShown(ctx, j, head.Key, p, 0, x.Apply); err != nil {
					return err
				}
				e := x.Explain()
				e.Imported = head.Imported()
				if e.Next != "" {
					e.Next = a.hint(strings.TrimPrefix(e.Next, "roux "), "")
				}
				if e.Status == "blocked" {
					_, waits, err := a.waits(ctx, j, head)
					if err != nil {
						return err
					}
					if waits != nil && waits.Step == e.Step {
						e.Next = waits.Next
					}
				}
				a.show(e, func() { a.printExplanation(e) })
				return nil
			})
		},
	}
}

func (a *app) printExplanation(e *view.Explanation) {
	a.text("%s is %s\n", e.Step, e.Status)
	if e.Imported {
		a.text("  in a run that was imported: what it says happened elsewhere, if at all\n")
	}
	for _, w := range e.Why {
		a.text("  because %s\n", view.OneLine(w))
	}
	if len(e.DependsOn) > 0 {
		a.text("depends on\n")
		for _, p := range e.DependsOn {
			a.text("  %s, %s\n", p.Step, p.Status)
		}
	}
	if len(e.Facts) > 0 {
		a.text("facts\n")
		rows := make([][]string, len(e.Facts))
		for i, f := range e.Facts {
			rows[i] = []string{fmt.Sprintf("  %6d", f.Event), f.At, f.Type, f.Text}
		}
		a.table(rows, 3)
	}
	if e.Next != "" {
		a.text("next: %s\n", view.OneLine(e.Next))
	}
}
