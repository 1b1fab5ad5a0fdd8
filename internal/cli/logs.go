// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/view"
)

// levels are the levels of log lines, the lowest first.
var levels = []string{"debug", "info", "warn", "error"}

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	var since time.Duration
	var attempt uint32
	var least string
	cmd := &cobra.Command{
		Use:   "logs RUN [STEP]",
		Short: "Print the log lines of a run's steps",
		Long: "Print the log lines of a run's steps and the text they streamed. STEP is a step as `roux trace` names it; " +
			"the steps that it owns are included.",
		Example: "roux logs @last\nroux logs @last convert --attempt 2\nroux logs run_01K3 -f",
		Args:    wants(1, 2, "RUN [STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if least != "" && !slices.Contains(levels, least) {
				return fault.New(fault.Usage, "--level %s: want one of %s", least, strings.Join(levels, ", "))
			}
			if since < 0 {
				return fault.New(fault.Usage, "--since %s: want a time span such as 10m", since)
			}
			step := ""
			if len(args) == 2 {
				step = args[1]
			}
			from := int64(0)
			if since > 0 {
				from = a.now().Add(-since).UnixMicro()
			}
			w, known := saidWriter{app: a, out: a.stream()}, step == ""
			err := a.followEvents(cmd.Context(), args[0], 0, follow, func(t *followedEvents, ev *journal.Event) error {
				if !known {
					if err := knownStep(t.plan, step); err != nil {
						return err
					}
					known = true
				}
				line, ok := view.StepLog(t.plan, ev)
				if !ok || !under(line.Step, step) || ev.At < from || attempt > 0 && line.Attempt != attempt ||
					slices.Index(levels, line.Level) < slices.Index(levels, least) && line.Level != "stream" {
					return nil
				}
				w.add(line)
				return nil
			})
			if err != nil {
				return err
			}
			w.end()
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new lines until the run ends")
	cmd.Flags().DurationVar(&since, "since", 0, "only lines of this time span, such as 10m")
	cmd.Flags().Uint32Var(&attempt, "attempt", 0, "only this try")
	cmd.Flags().StringVar(&least, "level", "", "only this level and above: debug, info, warn, error")
	return cmd
}

// knownStep refuses a step that the plan does not have.
func knownStep(p *plan.Plan, step string) error {
	if _, err := journal.ParseRef(p, step); err == nil {
		return nil
	}
	// An iteration or a branch, such as pages[3], is not a step but may own steps.
	ids := make([]string, len(p.Steps))
	for i := range p.Steps {
		ids[i] = p.Steps[i].ID
	}
	first, _, _ := strings.Cut(step, ".")
	first, _, _ = strings.Cut(first, "[")
	if slices.Contains(ids, first) && first != step {
		return nil
	}
	if slices.Contains(ids, step) {
		return fault.New(fault.StepNotFound, "step %q lies inside another one: give its whole name, such as each[0].%s for the first item of the loop each", view.OneLine(step), view.OneLine(step))
	}
	if near := spell.Nearest(step, ids); near != "" {
		return fault.New(fault.StepNotFound, "no step %q in this run; did you mean %q?", view.OneLine(step), near)
	}
	_, err := journal.ParseRef(p, step)
	return err
}

// under reports whether a step is the one asked for, or owned by it.
func under(step, asked string) bool {
	rest, ok := strings.CutPrefix(step, asked)
	return ok && (rest == "" || asked == "" || rest[0] == '.' || rest[0] == '[')
}

// A saidWriter prints log lines. In table form the streamed text of a step
// continues on its line.
type saidWriter struct {
	app  *app
	out  *stream
	open string // the step whose streamed text is on an unfinished line
	said bool
}

func (w *saidWriter) add(l view.LogLine) {
	w.said = true
	if w.app.output == asTable {
		w.print(l)
	}
	w.out.add(l)
}

func (w *saidWriter) print(l view.LogLine) {
	if l.Level == "stream" {
		if w.open != l.Step {
			w.close()
			w.app.text("%s  %s  ", l.At, view.OneLine(l.Step))
		}
		w.open = l.Step
		w.app.text("%s", strings.ReplaceAll(view.Clean(l.Text), "\n", "\n  "))
		return
	}
	w.close()
	w.app.text("%s  %s  %-5s  %s\n", l.At, view.OneLine(l.Step), l.Level, view.OneLine(l.Text))
}

func (w *saidWriter) close() {
	if w.open != "" {
		w.app.text("\n")
	}
	w.open = ""
}

func (w *saidWriter) end() {
	w.close()
	w.out.end()
	if !w.said {
		w.app.say("nothing was said: `roux events RUN` shows what happened")
	}
}
