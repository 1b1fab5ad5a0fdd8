// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/machine"
)

func (a *app) eventsCommand() *cobra.Command {
	var after uint64
	var kinds []string
	cmd := &cobra.Command{
		Use:     "events RUN",
		Short:   "Print a run's journal, one event per line",
		Example: "roux events @last\nroux events @last --type 'node.*' -o jsonl",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.reading(cmd.Context(), func(ctx context.Context, j journal) error {
				head, err := findRun(ctx, j, args[0])
				if err != nil {
					return err
				}
				p, err := planOf(ctx, j, head)
				if err != nil {
					return err
				}
				out := a.stream()
				err = eachEvent(ctx, j, head.Key, after, func(ev *machine.Event) error {
					if !wanted(kinds, ev.Name()) {
						return nil
					}
					if a.output == asTable {
						a.text("%s\n", a.eventLine(p, ev))
						return nil
					}
					out.add(machine.Render(p, head.Run, ev))
					return nil
				})
				if err == nil {
					out.end()
				}
				return err
			})
		},
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "only events after this number")
	cmd.Flags().StringSliceVar(&kinds, "type", nil, "only these types; a trailing * means all that begin so")
	return cmd
}

// wanted says whether one of the patterns admits the name; none admits all.
func wanted(patterns []string, name string) bool {
	for _, p := range patterns {
		if head, ok := strings.CutSuffix(p, "*"); p == name || ok && strings.HasPrefix(name, head) {
			return true
		}
	}
	return len(patterns) == 0
}
