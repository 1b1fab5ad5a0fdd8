// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
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
					a.addHolders(ctx, j, e, v)
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
				if command, ok := strings.CutPrefix(e.Next, "roux "); ok { // else it is a remedy in words
					e.Next = a.hint(command, "")
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
				if !e.Imported && (e.Status == "blocked" || e.Status == "queued") {
					if e.Waiting = a.waitingAt(ctx, j, e.Run, e.Step); e.Waiting != nil {
						e.Why = append(e.Why, e.Waiting.Lines()...)
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

// waitingAt returns where a step stands at this moment that waits for a limit of attempts; nil = it does
// not, no process carries the run on, or that has not answered: the journal says the rest.
func (a *app) waitingAt(ctx context.Context, r remote.Reader, run, path string) *view.Waiting {
	var from *remote.Server
	switch r := r.(type) {
	case *remote.Holder:
		from = r.Server
	case *remote.Server:
		from = r
	}
	if from == nil {
		return nil
	}
	said, err := from.Client.Runs.Explain(ctx, run, path)
	if err != nil || len(said.Steps) != 1 || said.Steps[0].Waiting == nil {
		return nil
	}
	w := said.Steps[0].Waiting
	step := func(s client.WaitedStep) view.WaitedStep { return view.WaitedStep(s) }
	at := &view.Waiting{Reason: w.Reason, Ahead: w.Ahead, Accounts: w.Accounts, Until: w.Until, Slots: w.Slots, Used: w.Used}
	for _, h := range w.Holders {
		at.Holders = append(at.Holders, step(h))
	}
	if w.Behind != nil {
		at.Behind = new(step(*w.Behind))
	}
	return at
}
