// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) diffCommand() *cobra.Command {
	var only []string
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Compare two runs and show where they first differ",
		Long: "Compare two runs: definition, inputs, the path they took, outputs, attempts, credits and time. The first step that " +
			"differs is named. Exit code 1 when something but time differs.",
		Example: "roux diff @last-failed @last\nroux diff run_01K3 run_01K4 --only outputs,credits",
		Args:    wants(2, 2, "RUN RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, g := range only {
				if !slices.Contains(view.Groups, g) {
					return fault.New(fault.Usage, "--only %s: want some of %s", view.OneLine(g), strings.Join(view.Groups, ", "))
				}
			}
			return a.reading(cmd.Context(), func(ctx context.Context, j store.Reader) error {
				var sides [2]*view.Side
				for i, name := range args {
					var err error
					if sides[i], err = a.readSide(ctx, j, name); err != nil {
						return err
					}
				}
				c := view.Compare(sides[0], sides[1], only)
				a.show(c, func() { a.printCompared(c, sides) })
				if !c.Same {
					return exit(fault.ExitFailed)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "only these groups: "+strings.Join(view.Groups, ", "))
	return cmd
}

func (a *app) printCompared(c *view.Comparison, sides [2]*view.Side) {
	rows := make([][]string, 2)
	for i, s := range sides {
		rows[i] = []string{[]string{"a", "b"}[i], s.ID, view.OneLine(s.Recipe), view.Join(", ", importedWord(s.Imported), s.Status.String()), view.Took(micros(s.TookMS())), view.Credits(ledger.Whole(s.Used()))}
	}
	a.table(rows, 2)
	if c.First != nil {
		a.text("first divergence: %s (%s)\n", view.OneLine(c.First.Step), c.First.Text)
	}
	for _, g := range view.Groups {
		list := c.Groups[g]
		if len(list) == 0 {
			continue
		}
		a.text("%s\n", g)
		rows := make([][]string, len(list))
		for i, d := range list {
			rows[i] = []string{"  " + view.OneLine(d.Where), shortValue(g, d.A), "→ " + shortValue(g, d.B)}
		}
		a.table(rows, 2, 1, 0)
	}
	switch {
	case c.Same:
		a.text("the runs are the same but for time\n")
	case c.First != nil:
		a.say("next: %s", a.hint("explain", c.Runs[1]+" "+view.OneLine(c.First.Step)))
	}
	if c.Cut {
		a.say("more differs than is listed: -o json with --only lists one group at a time")
	}
}

// shortValue formats a value for a table cell, with the unit of its group.
func shortValue(group string, raw json.RawMessage) string {
	if string(raw) == "null" {
		return "–"
	}
	var n float64
	if unit := units[group]; unit != nil && json.Unmarshal(raw, &n) == nil {
		return unit(n)
	}
	return view.Cut(view.OneLine(string(raw)), 48)
}

// units format the numbers of a group.
var units = map[string]func(n float64) string{
	"attempts": func(n float64) string { return view.Count(int(n), "attempt") },
	"credits":  func(n float64) string { return view.Count(int(n), "credit") },
	"time":     func(n float64) string { return view.Took(micros(n)) },
}
