// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/bulk"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A runFilter is what the flags of a command on many runs say.
type runFilter struct {
	client.BulkFilter
	since, before string
	dry, yes      bool
}

func (f *runFilter) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Status, "status", "", "runs of this status")
	cmd.Flags().StringVar(&f.Recipe, "recipe", "", "runs of this recipe")
	cmd.Flags().StringVar(&f.ErrorCode, "error-code", "", "runs that ended with this code, such as STEP_TIMEOUT")
	cmd.Flags().StringVar(&f.Step, "step", "", "runs whose first failed step is this one")
	cmd.Flags().StringVar(&f.Q, "text", "", "runs with this text in recipe, id, error or the value of a label")
	cmd.Flags().StringToStringVar(&f.Labels, "label", nil, "runs with this label, name=value (repeatable)")
	cmd.Flags().StringVar(&f.since, "since", "", "runs created at this time or later: 2027-01-31, or 24h for the last day")
	cmd.Flags().StringVar(&f.before, "before", "", "runs created before this time: 2027-01-31, or 30d for those that are older")
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "show how many runs there are and the first ones, and change nothing")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do it for all runs that the flags select")
}

// selects reports whether a flag was given that selects runs.
func (f *runFilter) selects(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"status", "recipe", "error-code", "step", "text", "label", "since", "before"}, cmd.Flags().Changed)
}

// filter returns the filter of a bulk.
func (f *runFilter) filter(a *app) (*client.BulkFilter, error) {
	if f.Status != "" && !knownStatus(f.Status) {
		return nil, fault.New(fault.Usage, "--status %s: want one of %s", view.OneLine(f.Status), strings.Join(statuses(), ", "))
	}
	out := f.BulkFilter
	for _, t := range []struct {
		flag, text string
		to         **time.Time
	}{{"since", f.since, &out.CreatedAfter}, {"before", f.before, &out.CreatedBefore}} {
		if t.text == "" {
			continue
		}
		at, err := a.pastFlag(t.flag, t.text)
		if err != nil {
			return nil, err
		}
		*t.to = &at
	}
	return &out, nil
}

// pastFlag reads the time of a flag: as timeFlag, where a duration counts back from now.
func (a *app) pastFlag(flag, text string) (time.Time, error) {
	at, err := a.timeFlag(flag, text)
	if err != nil {
		return time.Time{}, fault.New(fault.Usage, "--%s %s: want a time such as 2027-01-31 or 2027-01-31T12:00:00Z or, before now, 12h or 30d", flag, view.OneLine(view.Cut(text, 40)))
	}
	t := view.UTC(at)
	if ahead := t.Sub(a.now()); ahead > 0 && !strings.Contains(text, "-") {
		t = a.now().Add(-ahead)
	}
	return t, nil
}

func (a *app) deleteRunsCommand() *cobra.Command {
	var f runFilter
	cmd := &cobra.Command{
		Use:   "delete [RUN...]",
		Short: "Delete runs that have ended",
		Long: "Delete runs that have ended: those that are named, or those that flags select. A deleted run is shown no more, and is removed with its values " +
			"when it is no longer kept (`roux config get retain.runs`). Runs that have not ended stay; `roux runs cancel` ends one. " +
			"Flags that select runs need --dry-run, which shows them, or --yes.",
		Example: `roux runs delete @last
roux runs delete --status failed --recipe nightly --dry-run
roux runs delete --status completed --before 30d --yes`,
		Args: wants(0, bulk.MaxIDs, "[RUN...]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filtered := f.selects(cmd)
			switch {
			case filtered && len(args) > 0:
				return fault.New(fault.Usage, "want runs, or flags that select runs, and not both")
			case !filtered && len(args) == 0:
				return fault.New(fault.Usage, "which runs? Name some, as in `roux runs delete @last`, or select them, as in `roux runs delete --status failed --dry-run`")
			case f.dry && f.yes:
				return fault.New(fault.Usage, "--dry-run and --yes: want one")
			case len(args) == 1 && !f.dry:
				return a.deleteRun(cmd.Context(), args[0])
			case filtered && !f.dry && !f.yes:
				return fault.New(fault.Usage, "--yes deletes all runs that the flags select; --dry-run shows them before")
			}
			req := client.BulkRequest{Verb: string(bulk.Delete)}
			var err error
			if filtered {
				if req.Filter, err = f.filter(a); err != nil {
					return err
				}
			} else if req.IDs, err = a.runIDs(cmd.Context(), args); err != nil {
				return err
			}
			return a.doBulk(cmd.Context(), req, f.dry)
		},
	}
	f.flags(cmd)
	return cmd
}

// deleteRun deletes one run.
func (a *app) deleteRun(ctx context.Context, name string) error {
	return a.apply(ctx, name, change{
		done: "is deleted",
		act: func(ctx context.Context, c *client.Client, _ store.Reader, head store.Head) error {
			return c.Runs.Delete(ctx, head.Run)
		},
		stays: true,
	})
}

// runIDs returns the ids of runs that the user names.
func (a *app) runIDs(ctx context.Context, names []string) (ids []string, err error) {
	err = a.reading(ctx, func(ctx context.Context, j store.Reader) error {
		for _, name := range names {
			head, err := a.findRun(ctx, j, name)
			if err != nil {
				return err
			}
			ids = append(ids, head.Run)
		}
		return nil
	})
	return ids, err
}

// lastTime bounds the last request of a command that ends.
const lastTime = 15 * time.Second

// doBulk does one thing to many runs, waits until all have a result, and shows what came of it.
func (a *app) doBulk(ctx context.Context, req client.BulkRequest, dry bool) error {
	var b *client.Bulk
	var odd []client.BulkItem
	err := a.operating(ctx, false, func(ctx context.Context, c *client.Client) (err error) {
		if dry {
			b, err = c.Bulks.Preview(ctx, req)
			return err
		}
		if b, err = c.Bulks.Create(ctx, req); err != nil {
			return err
		}
		for b.CompletedAt == nil {
			if !pause(ctx, pollInterval) {
				// What is done stays done, and nothing goes on behind the user's back.
				stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
				defer cancel()
				_, _ = c.Bulks.Cancel(stop, b.ID)
				return ctx.Err()
			}
			if b, err = c.Bulks.Get(ctx, b.ID); err != nil {
				return err
			}
		}
		odd, err = notDone(ctx, c, b)
		return err
	})
	if err != nil {
		return err
	}
	a.show(b, func() { a.printBulk(b, odd) })
	switch {
	case b.Failed > 0:
		return exit(fault.ExitFailed)
	case b.Skipped > 0 && len(req.IDs) > 0: // the user has named it
		return exit(fault.ExitConflict)
	}
	return nil
}

// mostOdd is how many runs with which nothing was done are named.
const mostOdd = 20

// notDone returns the first runs of a bulk with which nothing was done.
func notDone(ctx context.Context, c *client.Client, b *client.Bulk) (list []client.BulkItem, err error) {
	if b.Skipped+b.Failed == 0 {
		return nil, nil
	}
	for it, err := range c.Bulks.Items(ctx, b.ID) {
		if err != nil {
			return nil, err
		}
		if it.Result != "done" {
			list = append(list, it)
		}
		if len(list) == mostOdd {
			break
		}
	}
	return list, nil
}

func (a *app) printBulk(b *client.Bulk, odd []client.BulkItem) {
	more := ""
	if b.More {
		more = " or more"
	}
	if b.DryRun {
		a.text("%s%s would be taken\n", view.Count(b.Matched, "run"), more)
		odd = b.Sample
	} else {
		a.text("%s: %d deleted, %d skipped, %d failed\n", view.Count(b.Matched, "run"), b.Done, b.Skipped, b.Failed)
	}
	if len(odd) == 0 {
		return
	}
	rows := [][]string{{"RUN", "RECIPE", "RESULT", ""}}
	for _, it := range odd {
		result, why := it.Result, view.Join(": ", it.Code, it.Detail)
		if b.DryRun {
			result, why = "", view.Join(" at ", it.ErrorCode, it.Step)
		}
		rows = append(rows, []string{it.ExecutionID, view.OneLine(view.Cut(it.RecipeName, 40)), result, view.OneLine(view.Cut(why, 120))})
	}
	a.table(rows, 3, 1)
	if n := len(odd); b.DryRun && b.Matched > n {
		a.text("… and %s\n", fmt.Sprintf("%d more", b.Matched-n))
	}
}
