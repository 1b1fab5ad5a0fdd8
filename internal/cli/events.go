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
			from := after
			var public *journal.Renderer
			if a.output != asTable {
				from = 0 // what caused an event is among those before it
			}
			err := a.followEvents(cmd.Context(), args[0], from, follow, func(t *followedEvents, ev *journal.Event) error {
				if a.output == asTable {
					if wanted(kinds, ev.Name()) {
						a.text("%s\n", a.eventLine(t.plan, ev))
					}
					return nil
				}
				if public == nil {
					public = journal.NewRenderer(t.plan, t.head.Run)
				}
				if ev.Seq > after && wanted(kinds, ev.Name()) {
					out.add(public.Render(ev))
				} else {
					public.Note(ev)
				}
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
