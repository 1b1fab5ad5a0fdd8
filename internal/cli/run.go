// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/masks"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func (a *app) runCommand() *cobra.Command {
	var in, files []string
	var into string
	limit := int64(defaultSource)
	var pay payment
	draft, dry := false, false
	cmd := &cobra.Command{
		Use:   "run FILE|RECIPE",
		Short: "Run a recipe and follow it to its end",
		Long: "Run a recipe and follow it to its end. FILE is YAML or JSON; - is standard input. Every step is recorded before anything " +
			"is shown: after Ctrl-C or a crash `roux resume` goes on with what is left. The account of --account pays for the run unless " +
			"it is unmetered; with --dry-run nothing is run, and the exit code is 6 if the account cannot pay. " +
			"RECIPE names a recipe that `roux apply` has registered, such as pdf-report@1.2; a file of that name goes before it. " +
			"Over a server FILE is registered first, as `roux apply` does; files are kept on the server, and after Ctrl-C the run goes on there.",
		Example: `roux run examples/document-digest.yaml --file examples/report.pdf
roux run examples/photo-pack.yaml --file examples/photo.jpg --save pictures
roux run recipe.yaml --input language=en --input @more.json
roux run recipe.yaml --account acme --max-credits 50 --dry-run
roux run pdf-report@1.2 --file report.pdf --server https://roux.example.org
cat recipe.yaml | roux run - -o json`,
		Args:              oneAndFiles(&files, "FILE|RECIPE"),
		ValidArgsFunction: completeRecipes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("max-credits") && pay.most < 1 {
				return fault.New(fault.Usage, "--max-credits %d: want at least 1", pay.most)
			}
			if s, err := a.reach(cmd.Context()); err != nil {
				return err
			} else if s != nil {
				if err := a.refuseOverServer(cmd, map[string]string{
					"draft": "a server executes no drafts", "key": "the run spends the budget of the key that the request has", "recipes": "a server finds the recipes that steps name among those that are registered",
				}); err != nil {
					return err
				}
				return a.runThere(cmd.Context(), s, &serverRun{recipe: args[0], in: in, files: files, into: into, limit: limit, most: pay.most, fresh: pay.noCache, dry: dry})
			}
			if a.isRegistered(args[0]) {
				if err := refuseOfRegistered(cmd, "draft", "key", "recipes"); err != nil {
					return err
				}
				return a.runRegistered(cmd.Context(), &serverRun{recipe: args[0], in: in, files: files, into: into, most: pay.most, fresh: pay.noCache, dry: dry})
			}
			c, err := a.compileFile(args[0], limit)
			if err != nil {
				if c != nil {
					a.printDiagnostics(a.stderr, c)
					a.annotate(c.diags)
					a.shown = true
					_, _, problems := countDiagnostics(c.diags)
					a.screen.Print(fmt.Sprintf("%s: %s; nothing was run\n", view.OneLine(c.name), problems))
				}
				return err
			}
			if !a.quiet {
				a.printDiagnostics(a.stderr, c)
			}
			if err := c.recipe.Runnable(); err != nil && !draft {
				return fault.New(fault.CodeOf(err), "%s; --draft runs it as it is", fault.Message(err))
			}
			if args[0] == "-" && slices.Contains(in, "@-") {
				return fault.New(fault.Usage, "standard input is the recipe already: give --input @file instead of @-")
			}
			params, err := inputs(in, c.plan.InputSchema, a.stdin)
			if err != nil {
				return err
			}
			if dry {
				return a.dryRun(cmd.Context(), c, params, files, pay)
			}
			return a.start(cmd.Context(), c, params, files, into, pay)
		},
	}
	cmd.Flags().StringArrayVar(&in, "input", nil, "input field name=value, or @file with an object of them (repeatable)")
	cmd.Flags().StringArrayVar(&files, "file", nil, "input file, a pattern in quotes such as 'scans/*.pdf', or the hash of a file that is kept (repeatable)")
	cmd.Flags().StringVar(&into, "save", "", "write the files that the outputs name into this directory")
	a.sourceFlags(cmd, &limit)
	cmd.Flags().StringVar(&pay.key, "key", "", "name of a key of the account whose budget the run spends")
	cmd.Flags().Int64Var(&pay.most, "max-credits", 0, "the most credits that the run pays, if the recipe and the account do not allow less")
	cmd.Flags().BoolVar(&pay.noCache, "no-cache", false, "call every action, also in steps that may use an earlier result")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "check the input, show what would be reserved and whether the account can pay; run nothing")
	cmd.Flags().BoolVar(&draft, "draft", false, "run a recipe whose status is draft")
	return cmd
}

// A payment is how a run is to be paid.
type payment struct {
	most int64  // credits; 0 = what the recipe and the account allow
	key  string // a key of the account; "" = none
	// noCache makes it pay for calls in place of which it could have earlier results.
	noCache bool
}

// oneAndFiles requires one argument beside the files of --file. The shell has
// expanded a pattern without quotes into several arguments.
func oneAndFiles(files *[]string, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 && len(*files) > 0 {
			return fault.New(fault.Usage, "--file takes one path, and %s came after it: give --file before each, or put the pattern in quotes: --file 'scans/*.pdf'",
				view.OneLine(args[len(args)-1]))
		}
		return wants(1, 1, usage)(cmd, args)
	}
}

// start runs a compiled recipe. It opens the files before it touches the data
// directory, so that a misspelt path leaves nothing behind.
func (a *app) start(ctx context.Context, c *compiled, params map[string]any, files []string, into string, pay payment) error {
	ctx = a.following(ctx)
	if len(files) == 0 && readsFiles(c.plan) {
		a.say("this recipe works on files and gets none: --file gives it some")
	}
	list, err := a.openInputs(files)
	if err != nil {
		return err
	}
	defer closeInputs(list)
	if slices.ContainsFunc(list, func(g inputFile) bool { return g.f == nil }) {
		dir, err := a.config.DataDir()
		if err == nil {
			err = mustHold(dir)
		}
		if err != nil {
			return err
		}
	}
	if err := canSave(into); err != nil {
		return err
	}
	if err := a.checkAccount(ctx); err != nil {
		return err
	}
	sigs, unhook := interrupts()
	defer unhook()
	run := ""
	h, err := a.carrying(ctx, nil, func(ctx context.Context, r *relay) error {
		infos, err := a.storeInputs(ctx, r.remote, list)
		if err == nil {
			run, err = r.hand(ctx, c, params, infos, pay)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer h.abandon()
	if own, ok := h.(*host); ok {
		infos, err := a.storeInputs(ctx, own, list)
		if err != nil {
			return err
		}
		if run, err = own.start(ctx, c, params, infos, pay); err != nil {
			return own.refused(err)
		}
	}
	a.log.Debug("run started", "run", run, "plan", c.plan.Hash().String())
	if !a.screen.Live() {
		a.say("%s %s", view.OneLine(c.recipe.Name), run)
	}
	a.sayElsewhere(h)
	return a.carry(ctx, h, sigs, []*followed{{id: run, plan: c.plan, into: into}}, false)
}

// sayElsewhere says that another process carries on what the command follows.
func (a *app) sayElsewhere(h carrier) {
	if who := h.elsewhere(); who != "" {
		a.say("%s holds the data directory and carries it on", who)
	}
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume [RUN…]",
		Short: "Resume runs that were interrupted",
		Long: "Resume runs that a crash, Ctrl-C or a full disk interrupted: all that have not ended, or those named. " +
			"Recorded steps are not repeated.",
		Example: "roux resume\nroux resume run_01K3",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := a.following(cmd.Context())
			dir, err := a.config.DataDir()
			if err != nil {
				return err
			}
			if err := datadir.MustExist(dir); err != nil {
				return err
			}
			sigs, unhook := interrupts()
			defer unhook()
			var heads []store.Head
			h, err := a.carrying(ctx, func(ctx context.Context, r store.Reader) ([]store.Head, error) {
				heads, err = a.resumable(ctx, r, args)
				return heads, err
			}, func(ctx context.Context, r *relay) (err error) {
				if heads, err = a.resumable(ctx, r.remote, args); err != nil {
					return err
				}
				return r.resume(ctx, heads)
			})
			if err != nil {
				return err
			}
			defer h.abandon()
			if len(heads) == 0 {
				a.say("nothing to resume: every run here has ended")
				return h.finish(sigs)
			}
			a.sayElsewhere(h)
			runs := make([]*followed, len(heads))
			err = a.readFrom(ctx, h, func(from source) error {
				plans := map[string]*plan.Plan{} // thousands of runs may share one
				for i, head := range heads {
					if plans[head.PlanHash] == nil {
						if plans[head.PlanHash], err = store.LoadPlan(ctx, from, head); err != nil {
							return err
						}
					}
					runs[i] = &followed{id: head.Run, plan: plans[head.PlanHash]}
					if runs[i].skip, err = lastEvent(ctx, from, head.Key); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.carry(ctx, h, sigs, runs, len(args) != 1)
		},
	}
}

// resumable returns the runs to resume.
func (a *app) resumable(ctx context.Context, j store.Reader, args []string) ([]store.Head, error) {
	if len(args) == 0 {
		return a.unended(ctx, j)
	}
	var heads []store.Head
	for _, arg := range args {
		head, err := a.findRun(ctx, j, arg)
		if err != nil {
			return nil, err
		}
		switch {
		case head.Imported():
			return nil, fault.New(fault.Quarantined, "run %s was imported and is not carried on here: `%s` makes it a run of this data directory", head.Run, a.hint("runs adopt", head.Run))
		case head.Quarantine != "":
			return nil, fault.New(fault.Quarantined, "run %s is quarantined: %s; `%s` lets it go on", head.Run, head.Quarantine, a.hint("runs release", head.Run))
		case head.Ended != 0 && !head.Owes:
			return nil, fault.New(fault.TooLate, "run %s has already ended: %s; `%s` opens it again from what failed", head.Run, head.Status, a.hint("runs retry", head.Run))
		}
		if head.Root != "" {
			return nil, fault.New(fault.Conflict, "run %s is a child run, which goes on with its root: `%s`", head.Run, a.hint("resume", head.Root))
		}
		heads = append(heads, head)
	}
	return heads, nil
}

// unended returns all runs that have not ended and are not quarantined, oldest
// first. The engine quarantines those that are damaged.
func (a *app) unended(ctx context.Context, j store.Reader) ([]store.Head, error) {
	var open []store.Head
	q := store.Query{Account: a.account, Limit: 500}
	for {
		heads, err := j.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if !h.Settled() && h.Quarantine == "" && h.Damage == "" {
				open = append(open, h)
			}
		}
		if len(heads) < q.Limit {
			slices.Reverse(open)
			return open, nil
		}
		q.After = heads[len(heads)-1].Run
	}
}

// carry follows runs to their end, prints their results and closes the host. If list is
// set, the result is a list even for one run.
func (a *app) carry(ctx context.Context, h carrier, sigs <-chan os.Signal, runs []*followed, list bool) error {
	err := a.readFrom(ctx, h, func(from source) error {
		for _, r := range runs {
			head, err := from.Head(ctx, store.Key{Account: a.account, Run: r.id})
			if err == nil {
				r.mask, err = masks.Of(ctx, from, head, r.plan)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, a.timeout, errWaited)
		defer cancel()
	}
	interrupted, err := a.follow(ctx, h.watch, sigs, h.failures(), runs)
	switch {
	case err != nil:
		return h.lost(err)
	case interrupted && waited(ctx):
		return a.waitedLong(h, sigs, runs)
	case interrupted:
		return a.interrupted(ctx, h, sigs, runs)
	}
	for _, r := range runs {
		if r.err != nil {
			return a.broken(h, r)
		}
		if r.into != "" && len(r.view.Outputs) > 0 {
			if err := a.saveFrom(ctx, h, r); err != nil {
				return err
			}
		}
	}
	h.serveGuests(ctx, sigs)
	if err := h.finish(sigs); err != nil {
		return err
	}
	code := fault.ExitOK
	var results []result
	for _, r := range runs {
		res := resultOf(r.view)
		res.Saved = r.saved
		results = append(results, res)
		a.printEnd(r.view, res, len(runs) > 1)
		if c := exitOf(r.view); c != fault.ExitOK && (code == fault.ExitOK || c == fault.ExitFailed) {
			code = c
		}
	}
	switch {
	case !a.forPrograms():
	case list:
		a.show(results, nil)
	default:
		a.show(results[0], nil)
	}
	if code != fault.ExitOK {
		return exit(code)
	}
	return nil
}

// saveFrom saves the outputs of a run.
func (a *app) saveFrom(ctx context.Context, h carrier, r *followed) error {
	return a.readFrom(ctx, h, func(from source) (err error) {
		r.saved, err = a.saveOutputs(ctx, from, r.view, r.into)
		return err
	})
}

// raisedBy maps the code of an exceeded limit to the flag of a retry that raises it.
var raisedBy = map[fault.Code]string{
	fault.StepLimit:       " --set limits.max_total_steps=N",
	fault.ItemLimit:       " --set limits.max_loop_items=N",
	fault.MemoryLimit:     " --set limits.memory_limit_mb=N",
	fault.ExpressionLimit: " --set limits.max_expression_cost=N",
}

// printEnd prints how a run ended, and its outputs.
func (a *app) printEnd(v *view.Run, res result, several bool) {
	if res.Error != nil {
		a.annotateRun(v.Recipe, res)
	}
	if a.forPrograms() {
		return
	}
	if res.Error != nil {
		msg := view.OneLine(res.Error.Message)
		a.screen.Print(fmt.Sprintf("%s %s %s: %s: %s\n", a.screen.Glyph(v.Status.String()), v.ID, v.Status, res.Error.Code, msg))
		if s := v.FailedStep(); s != nil && s.Child != nil && !a.quiet {
			a.say("  step %s ran it as run %s: `%s` shows the steps of both", view.OneLine(s.Path), s.Child.Run, a.hint("trace", v.ID))
		}
		if row, ok := fault.Lookup(res.Error.Code); ok && !a.quiet {
			a.screen.Print("  " + row.Remedy + "\n")
		}
		if !a.quiet && v.Status != journal.RunCompleted {
			a.say("  it goes on from what is recorded with `%s`", a.hint("runs retry", v.ID+raisedBy[res.Error.Code]))
		}
		return
	}
	if v.Passed > 0 {
		// The recipe asked for this, but a user who gave a folder of files wants to
		// know.
		a.say("skipped after a failure: %s; `%s` says why", view.Count(v.Passed, "step"), a.hint("explain", v.ID+" "+term.ShellQuote(v.FirstPassed)))
	}
	if several {
		a.text("%s %s\n", v.ID, v.Status)
	}
	if len(v.Outputs) > 0 {
		a.printOutputs(v.Outputs)
	}
	for _, f := range res.Saved {
		a.text("%s  %s\n", f.Done, view.OneLine(f.Path))
	}
}

// waitedLong ends a command when --timeout has passed. The runs stay as they are,
// as after Ctrl-C, because no other process carries them on.
func (a *app) waitedLong(h carrier, sigs <-chan os.Signal, runs []*followed) error {
	who := h.elsewhere()
	if err := h.finish(sigs); err != nil {
		return err
	}
	var open []string
	for _, r := range runs {
		if !r.view.Done() {
			open = append(open, r.id)
		}
	}
	if len(open) == 1 {
		for _, r := range runs {
			if why := a.waitsFor(r.view); why != "" {
				a.screen.Print(why + "\n")
			}
		}
		if who != "" {
			return fault.New(fault.CommandTimeout, "waited %s, as long as --timeout says; %s has not ended and goes on in %s: `%s` follows it, `%s` ends it",
				a.timeout, open[0], who, a.hint("events", open[0]+" --follow"), a.hint("runs cancel", open[0]))
		}
		return fault.New(fault.CommandTimeout, "waited %s, as long as --timeout says; %s has not ended and stands still: `%s` goes on with it, `%s` ends it",
			a.timeout, open[0], a.hint("resume", open[0]), a.hint("runs cancel", open[0]))
	}
	return fault.New(fault.CommandTimeout, "waited %s, as long as --timeout says; %s have not ended and stand still: `%s` goes on with them",
		a.timeout, view.Count(len(open), "run"), a.hint("resume", ""))
}

// fewHints is the number of runs for which an interrupted command prints how to
// resume them.
const fewHints = 3

// interrupted stops the engine in order and prints how to resume the runs. A
// second Ctrl-C ends the wait.
func (a *app) interrupted(ctx context.Context, h carrier, sigs <-chan os.Signal, runs []*followed) error {
	if who := h.elsewhere(); who != "" {
		for _, r := range runs {
			if !r.view.Done() {
				a.screen.Print(fmt.Sprintf("%s goes on in %s: `%s` follows it, `%s` ends it\n", r.id, who, a.hint("events", r.id+" --follow"), a.hint("runs cancel", r.id)))
			}
		}
		return exit(fault.ExitInterrupted)
	}
	h.handBack(ctx)
	a.say("stopping; Ctrl-C again stops at once")
	err := h.close(sigs)
	if errors.Is(err, errAtOnce) {
		a.screen.Print("stopped at once; nothing recorded is lost\n")
	} else if err != nil {
		a.report(err)
	}
	open := slices.DeleteFunc(slices.Clone(runs), func(r *followed) bool { return r.view.Done() })
	for _, r := range open[:min(len(open), fewHints)] {
		a.screen.Print(fmt.Sprintf("%s has not ended: `%s` goes on with it, `%s` ends it\n",
			r.id, a.hint("resume", r.id), a.hint("runs cancel", r.id)))
		if why := a.waitsFor(r.view); why != "" {
			a.screen.Print("  " + why + "\n")
		}
	}
	if more := len(open) - fewHints; more > 0 {
		a.screen.Print(fmt.Sprintf("nor have %d more: `%s` goes on with all of them\n", more, a.hint("resume", "")))
	}
	return exit(fault.ExitInterrupted)
}

// broken returns the error when a run cannot be followed any more: the engine has
// ended, or the journal cannot be read.
func (a *app) broken(h carrier, r *followed) error {
	err := r.err
	if cause := h.failure(); cause != nil {
		err = cause
	}
	return a.inDir(err)
}
