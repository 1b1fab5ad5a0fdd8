// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/recipetest"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// maxRehearsed is how many runs one command rehearses.
const maxRehearsed = 10_000

// A rehearsed is the result of `roux rehearse`.
type rehearsed struct {
	Recipe  string                  `json:"recipe"`
	Runs    int                     `json:"runs"`
	Same    int                     `json:"same"`
	Differ  int                     `json:"differ"`
	Unknown int                     `json:"unknown"`
	Left    int                     `json:"left"`
	Used    [2]int64                `json:"used"` // credits, recorded and rehearsed, of the runs that end in both
	Sums    []recipetest.Sum        `json:"sums"`
	Results []*recipetest.Rehearsed `json:"results"`
}

// rehearseOptions are the flags of `roux rehearse`.
type rehearseOptions struct {
	last     int
	since    time.Duration
	status   string
	of       string
	run      []string
	parallel int
	limit    int64
}

func (a *app) rehearseCommand() *cobra.Command {
	opt := rehearseOptions{limit: defaultSource, parallel: runtime.NumCPU()}
	cmd := &cobra.Command{
		Use:   "rehearse FILE",
		Short: "Carry out the last runs with another revision of their recipe, without effects",
		Long: "Carry out the last runs of a recipe with another revision of it, the one in FILE, and show what would differ: which steps run, their outputs, " +
			"the attempts and the price. Inputs, signals and times are those of the runs, calls of actions have their recorded results, and time is virtual: " +
			"nothing is called that has an effect, nobody pays, and nothing is stored. A call with another input than the recorded one is named, and goes on with the recorded output; " +
			"one that no run has made ends the rehearsal of its run. The exit code is 0 if all runs are the same, and 1 if one differs, is not known to its end or cannot be rehearsed.",
		Example: `roux rehearse recipes/order.yaml
roux rehearse order.yaml --last 1000 --status completed -o json
roux rehearse order.yaml --recipe order-v1 --since 24h --server https://roux.example.org`,
		Args: wants(1, 1, "FILE"), ValidArgsFunction: completeRecipes,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case opt.last < 1 || opt.last > maxRehearsed:
				return fault.New(fault.Usage, "--last %d: want 1 to %d", opt.last, maxRehearsed)
			case opt.parallel < 1 || opt.parallel > 1024:
				return fault.New(fault.Usage, "--parallel %d: want 1 to 1024", opt.parallel)
			case opt.status != "" && !knownStatus(opt.status):
				return fault.New(fault.Usage, "--status %s: want one of %s", opt.status, strings.Join(statuses(), ", "))
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			err := a.rehearse(ctx, args[0], &opt)
			if ctx.Err() != nil && cmd.Context().Err() == nil {
				return exit(fault.ExitInterrupted)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&opt.last, "last", 20, "how many runs, the newest first")
	cmd.Flags().DurationVar(&opt.since, "since", 0, "only runs created in this time, such as 24h")
	cmd.Flags().StringVar(&opt.status, "status", "", "only runs of this status")
	cmd.Flags().StringVar(&opt.of, "recipe", "", "the recipe whose runs are rehearsed (default that of FILE)")
	cmd.Flags().StringArrayVar(&opt.run, "run", nil, "only this run, or one whose id begins so (repeatable)")
	cmd.Flags().IntVar(&opt.parallel, "parallel", opt.parallel, "how many runs are rehearsed at once; the results do not depend on it")
	a.sourceFlags(cmd, &opt.limit)
	completeFlag(cmd, "status", statuses)
	return cmd
}

// rehearse compiles the revision, finds the runs and rehearses them.
func (a *app) rehearse(ctx context.Context, path string, opt *rehearseOptions) error {
	c, err := a.compileFile(path, opt.limit)
	if err != nil {
		if c != nil {
			a.printDiagnostics(a.stderr, c)
			a.annotate(c.diags)
			a.shown = true
		}
		return err
	}
	if opt.of == "" {
		opt.of = c.recipe.Name
	}
	out := &rehearsed{Recipe: opt.of, Results: []*recipetest.Rehearsed{}}
	err = a.readingAll(ctx, func(ctx context.Context, r remote.Reader) error {
		heads, err := a.rehearsable(ctx, r, opt)
		if err != nil {
			return err
		}
		files, done := a.fileReader(r)
		defer done()
		_, here := r.(node.Store) // otherwise a server, or the process that holds the directory, masks what it gives out
		reh := recipetest.Rehearsal{Actions: a.actions, Plan: c.plan, Recipe: c.recipe, Resolve: program.ResolveWith(a.resolveOptions), Reader: r, ReadFile: files, Masked: !here, Parallel: opt.parallel}
		return reh.Run(ctx, heads, out.add)
	})
	if err != nil {
		return err
	}
	out.Sums = recipetest.Sums(out.Results)
	if out.Sums == nil {
		out.Sums = []recipetest.Sum{}
	}
	a.show(out, func() { a.printRehearsed(out) })
	if out.Same < out.Runs {
		return exit(fault.ExitFailed)
	}
	return nil
}

// rehearsable returns the runs to rehearse, the newest first: those that have ended.
func (a *app) rehearsable(ctx context.Context, r store.Reader, opt *rehearseOptions) (heads []store.Head, err error) {
	if len(opt.run) > 0 {
		for _, name := range opt.run {
			head, err := a.findRun(ctx, r, name)
			if err != nil {
				return nil, err
			}
			if !head.Settled() || head.Root != "" {
				return nil, fault.New(fault.Conflict, "run %s is %s: only a run that has ended, and is no child run, can be rehearsed", head.Run, head.Status)
			}
			heads = append(heads, head)
		}
		return heads, nil
	}
	q := store.Query{Account: a.account, Recipe: opt.of, Status: opt.status, Limit: 500}
	if opt.since > 0 {
		q.Since = a.now().Add(-opt.since).UnixMicro()
	}
	for len(heads) < opt.last {
		page, err := r.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, h := range page {
			if h.Settled() && h.Damage == "" && h.Recipe == opt.of && len(heads) < opt.last {
				heads = append(heads, h)
			}
		}
		if len(page) < q.Limit {
			break
		}
		q.After = page[len(page)-1].Run
	}
	if len(heads) == 0 {
		return nil, fault.New(fault.RunNotFound, "%sno run of the recipe %q has ended: `%s` lists runs; --recipe names another recipe", a.inAccount(), opt.of, a.hint("runs list", ""))
	}
	return heads, nil
}

// fileReader returns what reads files of the account where the runs are. Of a data directory that
// this process holds they are read without a host, which would write to it.
func (a *app) fileReader(r remote.Reader) (read recipetest.ReadFile, done func()) {
	if files, ok := r.(remote.Files); ok {
		return func(ctx context.Context, hash string) (io.ReadCloser, error) { return files.ReadFile(ctx, hash, 0, -1) }, func() {}
	}
	dir, err := a.config.DataDir()
	if err != nil {
		return nil, func() {}
	}
	st, err := blob.Open(blob.Config{Dir: filepath.Join(dir, datadir.Files), KeepPartial: true})
	if err != nil {
		return nil, func() {}
	}
	return func(ctx context.Context, hash string) (io.ReadCloser, error) { return st.Open(ctx, a.account, hash) }, func() { _ = st.Close() }
}

// add counts a result.
func (r *rehearsed) add(one *recipetest.Rehearsed) {
	r.Runs++
	r.Results = append(r.Results, one)
	switch one.Outcome {
	case recipetest.Same:
		r.Same++
	case recipetest.Differs:
		r.Differ++
	case recipetest.Unknown:
		r.Unknown++
		return
	default:
		r.Left++
		return
	}
	r.Used[0] += one.Used[0]
	r.Used[1] += one.Used[1]
}

// printRehearsed prints the runs that differ, and the sums.
func (a *app) printRehearsed(out *rehearsed) {
	for _, r := range out.Results {
		if r.Outcome == recipetest.Same {
			continue
		}
		var parts []string
		for _, c := range r.Changes {
			parts = append(parts, changeText(c))
		}
		for _, c := range r.Calls {
			parts = append(parts, callText(c))
		}
		if r.Reason != "" && (r.Outcome != recipetest.Unknown || len(r.Calls) == 0) {
			parts = append(parts, view.OneLine(r.Reason))
		}
		if r.Outcome == recipetest.Unknown {
			parts = append(parts, "what follows is not known")
		}
		if r.Outcome == recipetest.Left {
			parts = slices.Insert(parts, 0, "not rehearsed")
		}
		a.text("run %s: %s\n", r.Run, a.folded(strings.Join(parts, ", "), 4))
	}
	for _, s := range out.Sums {
		a.text("  %s %s: %s\n", s.Group, view.OneLine(s.Where), view.Count(s.Runs, "run"))
	}
	parts := []string{view.Count(out.Runs, "run") + " of " + view.OneLine(out.Recipe)}
	for _, p := range []struct {
		n    int
		what string
	}{{out.Same, "the same"}, {out.Differ, "different"}, {out.Unknown, "not known to the end"}, {out.Left, "not rehearsed"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if out.Used[0] != out.Used[1] {
		parts = append(parts, fmt.Sprintf("price %d → %d", out.Used[0], out.Used[1]))
	}
	a.text("%s\n", strings.Join(parts, ", "))
}

// changeText describes a difference: "step b now skipped: condition", "output.total 10 → 12".
func changeText(c recipetest.Change) string {
	where, was, now := view.OneLine(c.Where), shortValue(c.Group, c.Was), shortValue(c.Group, c.Now)
	text := func(raw string) string { return strings.Trim(raw, `"`) }
	switch {
	case c.Group == "path" && where == "run":
		return "the run " + text(was) + " → " + text(now)
	case c.Group == "path" && now == "–":
		return "step " + where + " no longer reached"
	case c.Group == "path" && was == "–":
		return "step " + where + " now " + text(now)
	case c.Group == "path":
		return "step " + where + " now " + text(now) + " (was " + text(was) + ")"
	case c.Group == "credits":
		return "price " + strings.TrimSuffix(strings.TrimSuffix(was, "s"), " credit") + " → " + strings.TrimSuffix(strings.TrimSuffix(now, "s"), " credit")
	}
	return where + " " + was + " → " + now
}

// callText describes a call that was not recorded.
func callText(c recipetest.ChangeCall) string {
	text := fmt.Sprintf("step %s would call %s with %s", view.OneLine(c.Step), c.Action, recipetest.Short(c.Input))
	if !c.New {
		text += " (went on with the recorded output)"
	}
	return text
}
