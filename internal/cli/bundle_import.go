// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) importCommand() *cobra.Command {
	var unverified bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Read a run that export wrote, to inspect it here",
		Long: "Read a run that export wrote, to inspect it here: runs get, events, trace, explain, diff and replay work on it. Nothing of it " +
			"is carried out, and the run is marked as imported wherever it is shown: it cannot be retried or resumed unless `roux runs adopt` " +
			"makes it one of this data directory. A bundle that was changed is refused; who wrote it is not checked. Importing the same run " +
			"again changes nothing.",
		Example: "roux import bug.roux.zip\nroux trace @last",
		Args:    wants(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := readBundle(args[0], unverified)
			if err != nil {
				return err
			}
			dir, err := a.config.DataDir()
			if err != nil {
				return err
			}
			st, err := a.openStore(cmd.Context(), dir)
			if err != nil {
				return err
			}
			state, err := b.Commit(cmd.Context(), st, a.account)
			if err = errors.Join(err, datadir.Error(dir, st.Close())); err != nil {
				return err
			}
			a.show(map[string]any{"id": b.Run, "recipe": b.Recipe, "status": b.State.Status().String(), "events": b.State.Last(), "runs": b.Runs, "state": state, "verified": !b.Unverified}, func() {
				a.text("%s%s %s: %s, %s, %d events\n", b.Run, andBelow(b.Runs), state, view.OneLine(b.Recipe), b.State.Status(), b.State.Last())
			})
			return nil
		},
	}
	cmd.Flags().BoolVar(&unverified, "unverified", false, "also read a bundle of an earlier release, which has no checksums")
	return cmd
}
