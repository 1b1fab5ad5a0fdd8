// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A serverRun is what a command executes or estimates on a server.
type serverRun struct {
	recipe string   // a file, or the name of a registered recipe
	in     []string // of --input
	files  []string // of --file
	into   string   // of --save
	limit  int64    // of the source
	most   int64    // of --max-credits
	fresh  bool     // --no-cache
	dry    bool
}

// prepared is a serverRun that is about to be executed.
type prepared struct {
	id   string // of the version, NAME@VERSION
	name string
	req  client.ExecuteRequest
}

// refuseOverServer refuses flags that say how a recipe is run in this process.
func (a *app) refuseOverServer(cmd *cobra.Command, why map[string]string) error {
	for flag, text := range why {
		if cmd.Flags().Changed(flag) {
			e := fault.New(fault.Usage, "--%s does not work over a server: %s", flag, text)
			e.Remedy = "Leave it out, or name a data directory with --data DIR or `--profile none`."
			return e
		}
	}
	return nil
}

// runThere executes a recipe on a server and follows its run to the end.
func (a *app) runThere(ctx context.Context, s *remote.Server, r *serverRun) error {
	ctx = a.following(ctx)
	if err := canSave(r.into); err != nil {
		return err
	}
	sigs, unhook := interrupts()
	defer unhook()
	p, err := a.prepareThere(ctx, s, r)
	if err != nil {
		return err
	}
	if r.dry {
		return a.estimateOf(ctx, s, p, true)
	}
	run, err := a.execute(ctx, s, p, r.into)
	if err != nil {
		return err
	}
	return a.carry(ctx, &visitor{a, s}, sigs, []*followed{run}, false)
}

// execute starts what was prepared, and says so.
func (a *app) execute(ctx context.Context, s *remote.Server, p *prepared, into string) (*followed, error) {
	started, err := s.Client.Recipes.Execute(ctx, p.id, p.req)
	if err != nil {
		return nil, err
	}
	for _, w := range started.Warnings {
		a.say("warning: %s", view.OneLine(w))
	}
	head, err := s.Head(ctx, store.Key{Account: a.account, Run: started.ID})
	if err != nil {
		return nil, err
	}
	plan, err := store.LoadPlan(ctx, s, head)
	if err != nil {
		return nil, err
	}
	if !a.screen.Live() {
		a.say("%s %s", view.OneLine(p.name), started.ID)
	}
	return &followed{id: started.ID, plan: plan, into: into}, nil
}

// runRegistered executes a recipe that is registered in the data directory and follows its run
// to the end: in the process that holds the directory, or in this one.
func (a *app) runRegistered(ctx context.Context, r *serverRun) error {
	if r.dry {
		return a.estimateRegistered(ctx, r)
	}
	ctx = a.following(ctx)
	if err := canSave(r.into); err != nil {
		return err
	}
	sigs, unhook := interrupts()
	defer unhook()
	var run *followed
	begin := func(s *remote.Server) error {
		p, err := a.prepareThere(ctx, s, r)
		if err == nil {
			run, err = a.execute(ctx, s, p, r.into)
		}
		return err
	}
	h, err := a.carrying(ctx, nil, func(ctx context.Context, to *relay) error {
		if err := begin(to.remote.Server); err != nil {
			return err
		}
		to.runs = []string{run.id}
		// A process that is about to end takes no run. This one then carries it on.
		if _, err := to.remote.Client.Runs.Continue(ctx, run.id); err != nil && !errors.Is(err, fault.TooLate) && !refusedForNow(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer h.abandon()
	if own, ok := h.(*host); ok {
		c, err := remote.ClientOf(own.pipe.Transport(), a.account, a.agent())
		if err == nil {
			err = begin(remote.New(c, a.account, a.account))
		}
		if err != nil {
			return own.refused(err)
		}
	}
	a.sayElsewhere(h)
	return a.carry(ctx, h, sigs, []*followed{run}, false)
}

// estimateRegistered estimates what a run of a recipe costs that is registered in the data
// directory.
func (a *app) estimateRegistered(ctx context.Context, r *serverRun) error {
	return a.operating(ctx, false, func(ctx context.Context, c *client.Client) error {
		s := remote.New(c, a.account, a.account)
		p, err := a.prepareThere(ctx, s, r)
		if err != nil {
			return err
		}
		return a.estimateOf(ctx, s, p, r.dry)
	})
}

// prepareThere finds the recipe, reads the input and keeps the files on the server.
func (a *app) prepareThere(ctx context.Context, s *remote.Server, r *serverRun) (*prepared, error) {
	list, err := a.openInputs(r.files)
	if err != nil {
		return nil, err
	}
	defer closeInputs(list)
	id, err := a.registered(ctx, s.Client, r)
	if err != nil {
		return nil, err
	}
	v, err := s.Client.Recipes.Get(ctx, id)
	if errors.Is(err, fault.RecipeNotFound) {
		err = fault.Wrap(fault.RecipeNotFound, err, "there is no file %s: %s", view.OneLine(r.recipe), fault.Message(err))
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if err := json.Unmarshal(v.Document, &doc); err != nil {
		return nil, fault.Wrap(fault.InternalError, err, "the recipe cannot be read: %v", err)
	}
	params, err := inputs(r.in, doc.InputSchema, a.stdin)
	if err != nil {
		return nil, err
	}
	infos, err := a.storeInputs(ctx, s, list)
	if err != nil {
		return nil, err
	}
	p := &prepared{id: v.ID + "@" + v.Version, name: v.Name, req: client.ExecuteRequest{MaxCredits: r.most, NoCache: r.fresh}}
	if len(params) > 0 {
		p.req.Parameters = params
	}
	for _, f := range infos {
		p.req.FileHashes = append(p.req.FileHashes, f.Hash)
	}
	return p, nil
}

// isRecipe reports whether an argument is the name of a registered recipe, and not a file.
func isRecipe(arg string) bool {
	ext := filepath.Ext(arg)
	if arg == "-" || ext == ".yaml" || ext == ".yml" || ext == ".json" || strings.ContainsAny(arg, `/\`) {
		return false
	}
	_, err := os.Stat(arg)
	return errors.Is(err, fs.ErrNotExist)
}

// isRegistered reports whether an argument can be the name of a recipe that is registered in the
// data directory. Without a directory it is a file that does not exist.
func (a *app) isRegistered(arg string) bool {
	dir, err := a.config.DataDir()
	return err == nil && isRecipe(arg) && datadir.MustExist(dir) == nil
}

// refuseOfRegistered refuses flags that say how a file is run.
func refuseOfRegistered(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if cmd.Flags().Changed(name) {
			return fault.New(fault.Usage, "--%s is for the recipe in a file: leave it out for one that is registered", name)
		}
	}
	return nil
}

// registered returns the name of a registered version: the one that is named, or that of a
// file, which is registered as `roux apply` does.
func (a *app) registered(ctx context.Context, c *client.Client, r *serverRun) (string, error) {
	if isRecipe(r.recipe) {
		return r.recipe, nil
	}
	ap := &applier{app: a, limit: r.limit}
	err := ap.collect([]string{r.recipe})
	if err == nil {
		err = ap.parse()
	}
	if err == nil {
		err = ap.check(ctx, c)
	}
	f := (*applyFile)(nil)
	if len(ap.files) == 1 {
		f = ap.files[0]
	}
	switch {
	case err != nil && f == nil, err != nil && f.Outcome != applyInvalid:
		return "", err
	case f == nil:
		return "", fault.New(fault.Usage, "%s is a directory: `roux apply` registers the recipes in it", view.OneLine(r.recipe))
	case f.Outcome == applyInvalid:
		a.printDiagnostics(a.stderr, &compiled{source: f.source, diags: f.Diagnostics})
		a.annotate(f.Diagnostics)
		a.shown = true
		_, _, problems := countDiagnostics(f.Diagnostics)
		a.screen.Print(fmt.Sprintf("%s: %s; nothing was run\n", view.OneLine(f.File), problems))
		return "", fault.Invalid(fault.RecipeInvalid, f.Diagnostics)
	case f.err != nil:
		return "", f.err
	}
	if err := ap.registerAll(ctx, c); err != nil {
		return "", err
	}
	if f.Outcome != applyUnchanged {
		a.say("%s: %s as %s@%s", view.OneLine(f.File), f.Outcome, view.OneLine(f.Name), f.Version)
	}
	return f.ID + "@" + f.Version, nil
}

// estimateThere estimates what a run on a server costs.
func (a *app) estimateThere(ctx context.Context, s *remote.Server, r *serverRun) error {
	p, err := a.prepareThere(ctx, s, r)
	if err != nil {
		return err
	}
	return a.estimateOf(ctx, s, p, false)
}

// estimateOf shows an estimate. If pays is set, the exit code says whether the account can pay.
func (a *app) estimateOf(ctx context.Context, s *remote.Server, p *prepared, pays bool) error {
	e, err := s.Client.Recipes.Estimate(ctx, p.id, p.req)
	if err != nil {
		return err
	}
	a.show(e, func() {
		if pays {
			a.text("%s: the input fits, nothing was run\n", view.OneLine(p.name))
		} else {
			a.text("%s\n", view.OneLine(p.name))
		}
		rows := [][]string{{"  expected", ledger.Credits(e.EstimatedCredits)}, {"  at least", ledger.Credits(e.MinCredits)}}
		if e.MaxCredits > 0 {
			rows = append(rows, []string{"  at most", ledger.Credits(e.MaxCredits)})
		}
		if d := e.Detail; d != nil && d.Formula != "" {
			rows = append(rows, []string{"  formula", view.OneLine(d.Formula)}, []string{"", "= " + view.OneLine(d.Expanded)})
		}
		rows = append(rows, []string{"  reserved", ledger.Credits(e.CreditsReserved)})
		switch {
		case e.BalanceAfter == nil:
			rows = append(rows, []string{"  account", a.account + ", which is unmetered: the run costs it nothing"})
		case *e.BalanceAfter < 0:
			rows = append(rows, []string{"  missing", ledger.Credits(-*e.BalanceAfter) + ": the start would be refused"})
		default:
			rows = append(rows, []string{"  balance", ledger.Credits(*e.BalanceAfter) + " are left then"})
		}
		if e.EstimatedDuration != "" {
			rows = append(rows, []string{"  takes", e.EstimatedDuration})
		}
		a.sheet(rows)
	})
	if pays && e.BalanceAfter != nil && *e.BalanceAfter < 0 {
		return exit(fault.ExitCredits)
	}
	return nil
}

// A visitor follows runs on a server, which carries them on whatever this process does.
type visitor struct {
	a      *app
	server *remote.Server
}

func (v *visitor) source(context.Context) (source, error) { return v.server, nil }
func (v *visitor) watch(ctx context.Context, run string, after uint64, fn func(*journal.Event) error) error {
	return v.server.Watch(ctx, run, after, fn)
}
func (v *visitor) failures() <-chan error                        { return nil }
func (v *visitor) refused(err error) error                       { return err }
func (v *visitor) lost(err error) error                          { return err }
func (v *visitor) failure() error                                { return nil }
func (v *visitor) elsewhere() string                             { return "the server " + view.OneLine(v.a.target.URL.Value) }
func (v *visitor) close(<-chan os.Signal) error                  { return nil }
func (v *visitor) finish(<-chan os.Signal) error                 { return nil }
func (v *visitor) abandon()                                      {}
func (v *visitor) serveGuests(context.Context, <-chan os.Signal) {}

func (v *visitor) handBack(context.Context) {}

var _ carrier = (*visitor)(nil)
