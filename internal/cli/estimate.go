// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
)

// An estimated is what a run may cost, and what earlier runs of the recipe cost.
type estimated struct {
	Recipe string `json:"recipe"`
	*estimate.Budget
	// EstimatedDuration is the range of X202 in ISO 8601.
	EstimatedDuration [2]string        `json:"estimatedDuration"`
	Past              *pastRuns        `json:"past,omitempty"`
	Files             []map[string]any `json:"files,omitempty"`
}

// pastRuns sums up the newest completed runs of recipes of that name.
type pastRuns struct {
	Runs  int   `json:"runs"`
	P50   int64 `json:"p50"` // credits
	P95   int64 `json:"p95"`
	P50Ms int64 `json:"p50DurationMs"`
	P95Ms int64 `json:"p95DurationMs"`
}

func (a *app) estimateCommand() *cobra.Command {
	var in, files []string
	limit := int64(defaultSource)
	cmd := &cobra.Command{
		Use:   "estimate FILE|RECIPE",
		Short: "Estimate what a run costs and how long it takes, without running it",
		Long: "Estimate what a run costs and how long it takes, without running it: the least and the most its steps cost, the recipe's " +
			"formula with its values, what would be reserved, and what earlier runs took. Input files are looked at where they lie. " +
			"RECIPE names a recipe that `roux apply` has registered; its input files are kept. Over a server FILE is registered first, as `roux apply` does.",
		Example: "roux estimate examples/document-digest.yaml --file examples/report.pdf\nroux estimate recipe.yaml --input pages=12 -o json",
		Args:    wants(1, 1, "FILE|RECIPE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s, err := a.reach(cmd.Context()); err != nil {
				return err
			} else if s != nil {
				if err := a.refuseOverServer(cmd, map[string]string{"recipes": "a server finds the recipes that steps name among those that are registered"}); err != nil {
					return err
				}
				return a.estimateThere(cmd.Context(), s, &serverRun{recipe: args[0], in: in, files: files, limit: limit})
			}
			if a.isRegistered(args[0]) {
				if err := refuseOfRegistered(cmd, "recipes"); err != nil {
					return err
				}
				return a.estimateRegistered(cmd.Context(), &serverRun{recipe: args[0], in: in, files: files})
			}
			c, err := a.compileFile(args[0], limit)
			if err != nil {
				if c != nil {
					a.printDiagnostics(a.stderr, c)
					a.shown = true
				}
				return err
			}
			known := estimate.Known{}
			if known.Input, err = inputs(in, c.plan.InputSchema, a.stdin); err != nil {
				return err
			}
			if known.Input, err = withDefaults(known.Input, c.plan.InputSchema); err != nil {
				return err
			}
			paths, err := userfile.Expand(files, a.say)
			if err != nil {
				return err
			}
			for _, path := range paths {
				facts, err := inspectLocal(cmd.Context(), path)
				if err != nil {
					return err
				}
				known.Files = append(known.Files, facts)
			}
			b := estimate.Of(c.plan, a.actions, known)
			out := &estimated{Recipe: c.recipe.Name, Budget: b, Files: known.Files,
				EstimatedDuration: [2]string{plan.FormatISO(b.LeastMS), plan.FormatISO(b.MostMS)}}
			if out.Past, err = a.past(cmd.Context(), c.recipe.Name); err != nil {
				return err
			}
			a.show(out, func() { a.printEstimate(out) })
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&in, "input", nil, "input field name=value, or @file with an object of them (repeatable)")
	cmd.Flags().StringArrayVar(&files, "file", nil, "input file, or a pattern in quotes such as 'scans/*.pdf' (repeatable)")
	a.sourceFlags(cmd, &limit)
	return cmd
}

// inspectLocal returns what file-inspect would find, without storing the file. A
// file that cannot be inspected still has a type and a size.
func inspectLocal(ctx context.Context, path string) (map[string]any, error) {
	f, size, err := userfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file := localFile{f, action.FileInfo{Name: filepath.Base(path), Size: size}}
	if file.info.MimeType, err = blob.TypeOf(f, path); err != nil {
		return nil, userfile.OpenError(path, fault.FileNotFound, err)
	}
	facts := map[string]any{"name": file.info.Name, "mimeType": file.info.MimeType, "sizeBytes": size, "extended": map[string]any{}}
	extended, err := builtin.Inspect(ctx, media.New(media.Config{}), file)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		facts["problem"] = fault.Message(err)
	default:
		facts["extended"] = extended
	}
	return facts, nil
}

// A localFile is a file of the user as an action reads it.
type localFile struct {
	*os.File
	info action.FileInfo
}

func (f localFile) Info() action.FileInfo { return f.info }

// past sums up the newest completed runs of a recipe; nil when there is none. It
// leaves out imported runs, which happened elsewhere.
func (a *app) past(ctx context.Context, recipe string) (*pastRuns, error) {
	var heads []store.Head
	err := a.reading(ctx, func(ctx context.Context, j store.Reader) (err error) {
		heads, err = j.List(ctx, store.Query{Account: a.account, Recipe: recipe, Status: journal.RunCompleted.String(), Limit: 100})
		return err
	})
	if errors.Is(err, fault.RunNotFound) || err == nil && len(heads) == 0 {
		return nil, nil // there is no data directory yet
	}
	if err != nil {
		return nil, err
	}
	heads = slices.DeleteFunc(heads, func(h store.Head) bool { return h.Damage != "" || h.Imported() })
	if len(heads) == 0 {
		return nil, nil
	}
	var used, times []int64
	for _, h := range heads {
		used, times = append(used, h.Used), append(times, (h.Ended-h.Created)/1000)
	}
	return &pastRuns{len(heads), percentile(used, 50), percentile(used, 95), percentile(times, 50), percentile(times, 95)}, nil
}

// percentile returns the nearest-rank percentile.
func percentile(values []int64, p float64) int64 {
	v := slices.Sorted(slices.Values(values))
	return v[max(int(math.Ceil(p/100*float64(len(v))))-1, 0)]
}

func (a *app) printEstimate(e *estimated) {
	a.text("%s\n", view.OneLine(e.Recipe))
	rows := [][]string{
		{"  steps cost", fmt.Sprintf("%d to %d credits", e.Least, e.Most)},
	}
	switch {
	case e.Strategy == "":
		rows = append(rows, []string{"  expected", fmt.Sprintf("%d, the most the steps cost: the recipe has no creditEstimation", e.Expected)})
	case e.Formula != "":
		rows = append(rows, []string{"  formula", view.OneLine(e.Formula)}, []string{"", "= " + view.OneLine(e.Expanded)})
		fallthrough
	default:
		rows = append(rows, []string{"  expected", fmt.Sprintf("%d (%s)", e.Expected, e.Strategy)})
	}
	if e.Cap > 0 {
		rows = append(rows, []string{"  cap", fmt.Sprint(e.Cap)})
	}
	rows = append(rows,
		[]string{"  would reserve", fmt.Sprintf("%d: %s", e.Reserved, whyReserved(e))},
		[]string{"  takes", view.Took(time.Duration(e.LeastMS)*time.Millisecond) + " to " + view.Took(time.Duration(e.MostMS)*time.Millisecond) + " by the actions' own words"})
	if p := e.Past; p != nil {
		rows = append(rows, []string{"  took before", fmt.Sprintf("%s; half at most %d credits and %s, 95 %% at most %d and %s", view.Count(p.Runs, "run"),
			p.P50, view.Took(time.Duration(p.P50Ms)*time.Millisecond), p.P95, view.Took(time.Duration(p.P95Ms)*time.Millisecond))})
	}
	a.sheet(rows)
	for _, o := range e.Open {
		a.text("  open: %s\n", view.OneLine(o))
	}
	for _, f := range e.Files {
		if problem, ok := f["problem"].(string); ok {
			a.screen.Print(fmt.Sprintf("%s %v: %s\n", a.screen.Paint("warning", "warning:"), f["name"], view.OneLine(problem)))
		}
	}
}

func whyReserved(e *estimated) string {
	switch {
	case e.Problem != "":
		return "the cap, because " + view.OneLine(e.Problem)
	case len(e.Missing) > 0:
		return "the cap, because " + strings.Join(e.Missing, ", ") + " has no value before the run"
	case e.Cap > 0 && e.Reserved == e.Cap:
		return "the cap"
	}
	return "a quarter more than expected"
}
