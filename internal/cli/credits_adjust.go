// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
)

// An adjusted is what `credits adjust` has done.
type adjusted struct {
	Account string        `json:"account"`
	Run     string        `json:"run"`
	Key     string        `json:"key"`
	Amount  int64         `json:"amount"`
	Lots    []ledger.Part `json:"lots"`           // where the credits went back to
	Ended   []ledger.Part `json:"ended,omitzero"` // those that have ended: nothing of it can be used
}

func (a *app) adjustCommand() *cobra.Command {
	var key, note string
	cmd := &cobra.Command{
		Use:   "adjust RUN AMOUNT",
		Short: "Give back credits that a run has paid",
		Long: "Give back credits that a run has paid, for example after a complaint. They go back to the lots that paid them, what was paid last first. " +
			"What goes back to a lot that has ended expires or is voided at once. The result of the run, and what it used, stay as they are. An adjustment with " +
			"a --key that was used before changes nothing, so that it can be repeated after a failure.",
		Example: "roux credits adjust @last 5 --account acme --note 'the pages were blank'\nroux credits adjust run_01K3 5 --account acme --key ticket-17",
		Args:    wants(2, 2, "RUN AMOUNT --account NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount, err := wholeCredits(args[1])
			if err != nil {
				return err
			}
			a.others = true
			if err := a.mustPay(); err != nil {
				return err
			}
			if err := a.checkAccount(cmd.Context()); err != nil {
				return err
			}
			run := args[0]
			err = a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				head, err := a.findRun(ctx, j, run)
				if err == nil {
					run = head.Run
				}
				if fault.CodeOf(err) == fault.RunNotFound && isWholeID(run) {
					return nil // the ledger keeps what removed runs have paid
				}
				return err
			})
			if err != nil {
				return err
			}
			if key == "" {
				key = newKey("adjustment")
			}
			return a.moving(cmd.Context(), true, func(ctx context.Context, c remote.Credits) (any, string, error) {
				entries, err := c.Adjust(ctx, run, key, amount, note)
				if err != nil {
					return nil, "", err
				}
				done := &adjusted{Account: a.account, Run: run, Key: key, Amount: amount}
				for _, e := range entries {
					if e.Kind == ledger.Adjust {
						done.Lots = append(done.Lots, e.Parts...)
					} else {
						done.Ended = append(done.Ended, e.Parts...)
					}
				}
				return done, a.adjustedText(done), nil
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "name of the adjustment (default: a new one)")
	cmd.Flags().StringVar(&note, "note", "", "why, for the ledger")
	return cmd
}

func (a *app) adjustedText(d *adjusted) string {
	text := fmt.Sprintf("%s has back %s of run %s: %s", d.Account, ledger.Credits(d.Amount), d.Run, lotsText(d.Lots))
	lost := int64(0)
	for _, p := range d.Ended {
		lost += p.Amount
	}
	if lost > 0 {
		text += fmt.Sprintf("; %d of them cannot be used, because their lots have ended: `%s` replaces them", lost, a.hint("credits grant", fmt.Sprint(lost)))
	}
	return text
}

// isWholeID reports whether a text has the length of a run id.
func isWholeID(s string) bool { return len(s) == len("run_")+26 }
