// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/internal/journal"
)

func (a *app) eventsCommand() *cobra.Command {
	var after uint64
	var kinds []string
	var follow bool
	cmd := &cobra.Command{
		Use:     "events RUN",
		Short:   "Print a run's journal, one event per line",
		Example: "roux events @last\nroux events @last --type 'node.*' -o jsonl\nroux events run_01K3 -f",
		Args:    wants(1, 1, "RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := a.stream()
			err := a.followEvents(cmd.Context(), args[0], after, follow, func(t *followedEvents, ev *journal.Event) error {
				if !wanted(kinds, ev.Name()) {
					return nil
				}
				if a.output == asTable {
					a.text("%s\n", a.eventLine(t.plan, ev))
					return nil
				}
				out.add(journal.Render(t.plan, t.head.Run, ev))
				return nil
			})
			if err == nil {
				out.end()
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new events until the run ends")
	cmd.Flags().Uint64Var(&after, "after", 0, "only events after this number")
	cmd.Flags().StringSliceVar(&kinds, "type", nil, "only these types; a trailing * means all that begin so")
	return cmd
}

// wanted reports whether one of the patterns matches the name. Without patterns
// every name matches.
func wanted(patterns []string, name string) bool {
	for _, p := range patterns {
		if head, ok := strings.CutSuffix(p, "*"); p == name || ok && strings.HasPrefix(name, head) {
			return true
		}
	}
	return len(patterns) == 0
}
