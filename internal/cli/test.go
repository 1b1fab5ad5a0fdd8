// SPDX-License-Identifier: Apache-2.0

//go:build !small

package cli

import (
	"bytes"
	"context"
	"fmt"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/pattern"
	"github.com/roux-engine/roux/internal/recipetest"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/userfile"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// asTAP is the form of -o that only test has: the Test Anything Protocol.
const asTAP = "tap"

// A tested is the result of `roux test`.
type tested struct {
	Passed   int                    `json:"passed"`
	Failed   int                    `json:"failed"`
	Skipped  int                    `json:"skipped"`
	Broken   int                    `json:"broken"` // files whose tests could not be run
	Results  []recipetest.Result    `json:"results"`
	Problems []fault.Diagnostic     `json:"problems"`
	Coverage []*recipetest.Coverage `json:"coverage,omitempty"`

	files []*recipetest.File
	took  time.Duration
}

// testFlags are the flags of `roux test`.
type testFlags struct {
	run, junit       string
	update, coverage bool
	least            float64
	unlocked         bool // what recipes name need not be what is pinned
	parallel         int
	limit            int64
}

func (a *app) testCommands() []*cobra.Command {
	return []*cobra.Command{a.testCommand(), a.rehearseCommand()}
}

// testKinds are the kinds of files with tests that have a JSON Schema.
func testKinds() []schemaKind {
	var globs []string
	for _, end := range registry.TestEndings {
		globs = append(globs, "*"+end)
	}
	return []schemaKind{{"test", "tests of a recipe", globs, recipetest.Schema}}
}

// keyOrder is the order in which fmt writes the fields of a text.
func keyOrder(name string, text []byte) *yamlx.Order {
	if recipetest.Is(name, text) {
		return recipetest.Form.KeyOrder()
	}
	return dialect.Of(name, text).Form.KeyOrder()
}

// checkTest checks a test file and its recipe; ok is false for another file.
func (a *app) checkTest(name string, text []byte, limit int64) (c *compiled, ok bool, err error) {
	if !recipetest.Is(name, text) {
		return nil, false, nil
	}
	f := recipetest.Check(name, text, recipetest.Config{Actions: a.actions, Options: a.testOptions(limit, true)})
	src := f.Source
	if f.Recipe != nil {
		src = f.Recipe
	}
	c = &compiled{text: text, name: name, kind: "tests of a recipe", source: recipe.NewSource(src, nil), diags: f.Diags}
	if len(f.Diags) > 0 {
		err = fault.Invalid(fault.RecipeInvalid, f.Diags)
	}
	return c, true, err
}

func (a *app) testCommand() *cobra.Command {
	opt := testFlags{limit: defaultSource, parallel: runtime.NumCPU()}
	cmd := &cobra.Command{
		Use:   "test [DIR|FILE…]",
		Short: "Run the tests of recipes, without effects and in virtual time",
		Long: "Run the tests of recipes: all files that end in .test.yaml, .test.yml or .test.json, and test files in directories called tests, in DIR and below. " +
			"A recipe as FILE stands for its test files. The engine is the real one; actions with effects have the answers of the test file, " +
			"and a wait of three days takes no time. The exit code is 11 if a test fails, and 3 if a file or its recipe is invalid. " +
			"Beside the usual forms -o takes tap. `roux schema test` describes the files.",
		Example: `roux test
roux test recipes/order.yaml --run refund
roux test --coverage --min-coverage 80 --junit results.xml
roux test recipes/order.test.yaml --update`,
		Annotations: map[string]string{"forms": asTAP},
		Args:        cobra.ArbitraryArgs, ValidArgsFunction: completeRecipes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("min-coverage") {
				opt.coverage = true
			}
			if opt.parallel < 1 || opt.parallel > 1024 {
				return fault.New(fault.Usage, "--parallel %d: want 1 to 1024", opt.parallel)
			}
			if opt.limit < 1 || opt.limit > maxSource {
				return fault.New(fault.Usage, "--max-source %d: want 1 byte to 16MiB", opt.limit)
			}
			if opt.least < 0 || opt.least > 100 {
				return fault.New(fault.Usage, "--min-coverage %v: want a percentage from 0 to 100", opt.least)
			}
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.test(cmd.Context(), args, &opt)
		},
	}
	cmd.Flags().StringVar(&opt.run, "run", "", "run only the tests whose name matches this regular expression")
	cmd.Flags().BoolVar(&opt.update, "update", false, "write what the runs have given into the expectations that differ; comments stay")
	cmd.Flags().BoolVar(&opt.coverage, "coverage", false, "show how many steps and branches of each recipe the tests run, and which they do not")
	cmd.Flags().Float64Var(&opt.least, "min-coverage", 0, "exit with code 11 if the coverage of a recipe is less than so many percent")
	cmd.Flags().StringVar(&opt.junit, "junit", "", "write the results as JUnit XML to this file")
	cmd.Flags().IntVar(&opt.parallel, "parallel", opt.parallel, "how many tests run at once; their results do not depend on it")
	a.sourceFlags(cmd, &opt.limit)
	return cmd
}

// test finds and runs tests.
func (a *app) test(ctx context.Context, paths []string, opt *testFlags) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	selected := func(string) bool { return true }
	if opt.run != "" {
		p, err := pattern.Compile(opt.run)
		if err != nil {
			return fault.New(fault.Usage, "--run %s: %s", view.OneLine(opt.run), fault.Message(err))
		}
		selected = p.MatchString
	}
	files, err := recipetest.Find(paths)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fault.New(fault.FileNotFound, "there is no test in %s: want files that end in .test.yaml; `roux help test` says more", view.OneLine(strings.Join(paths, " ")))
	}
	out, began := &tested{}, a.now()
	err = recipetest.Run(ctx, files, a.testConfig(opt, selected), func(f *recipetest.File) {
		out.files = append(out.files, f)
		if !a.forPrograms() {
			a.printTested(f)
		}
	})
	if ctx.Err() != nil {
		return exit(fault.ExitInterrupted)
	}
	if err != nil {
		return err
	}
	out.took = a.now().Sub(began)
	return a.finishTest(out, opt)
}

// testConfig is what tests are run with.
func (a *app) testConfig(opt *testFlags, selected func(string) bool) recipetest.Config {
	return recipetest.Config{Actions: a.actions, Options: a.testOptions(opt.limit, !opt.unlocked), Selected: selected, Parallel: opt.parallel, Now: a.now}
}

// testOptions returns what says what the recipe of a test file is compiled against. What comes from elsewhere is
// fetched once, when it is first wanted. A directory that a test file names has what its tests need, and not what
// the project has pinned.
func (a *app) testOptions(limit int64, locked bool) func(file, dir string) (recipetest.Options, error) {
	fetched := sync.OnceValues(func() (string, error) { return a.fetched(a.recipes) })
	var one sync.Mutex // the lock of the project is read by one at a time
	return func(file, dir string) (recipetest.Options, error) {
		own := dir != ""
		if !own {
			var err error
			if dir, err = fetched(); err != nil {
				return recipetest.Options{}, err
			}
		}
		files := registry.NewFiles(a.recipesIn(file, dir, limit))
		opt := recipetest.Options{Options: a.compileOptions(files, limit)}
		opt.Secret = nil // a test has secrets of its own
		if locked && !own {
			opt.Pinned = func() error {
				one.Lock()
				defer one.Unlock()
				return a.checkLocked(files)
			}
		}
		return opt, nil
	}
}

// printTested prints the results of a file.
func (a *app) printTested(f *recipetest.File) {
	name := view.OneLine(userfile.Relative(f.File))
	if len(f.Diags) > 0 {
		a.annotate(f.Diags)
		a.text("%s\n", a.screen.Glyph("failed")+" "+name)
		a.text("%s", view.Clean(f.Format()))
		return
	}
	if len(f.Results) == 0 {
		return
	}
	passed, failed, skipped, _ := recipetest.Counts([]*recipetest.File{f})
	glyph := a.screen.Glyph("completed")
	if failed > 0 {
		glyph = a.screen.Glyph("failed")
	}
	a.text("%s %s  %s\n", glyph, name, counted(passed, failed, skipped))
	for i := range f.Results {
		r := &f.Results[i]
		switch {
		case r.Outcome == recipetest.Failed:
			a.text("  %s %s\n    %s\n", a.screen.Glyph("failed"), view.OneLine(r.Test), strings.ReplaceAll(view.Clean(r.Report()), "\n", "\n    "))
			a.annotateTest(r)
		case r.Outcome == recipetest.Skipped:
			a.text("  %s %s: %s\n", a.screen.Glyph("skipped"), view.OneLine(r.Test), view.OneLine(r.Reason))
		case a.verbose:
			a.text("  %s %s  %.0f ms, %s in virtual time\n", a.screen.Glyph("completed"), view.OneLine(r.Test), r.TookMS, view.Took(time.Duration(r.VirtualMS)*time.Millisecond))
		}
	}
}

// annotateTest writes annotations for a failed test.
func (a *app) annotateTest(r *recipetest.Result) {
	if !a.screen.CI() {
		return
	}
	diag := func(pos fault.Pos, text string) fault.Diagnostic {
		return fault.Diagnostic{Code: fault.AssertionFailed, Rule: "test", Msg: r.Test + ": " + text, Pos: pos}
	}
	if r.Problem != "" {
		a.screen.Print(annotation(diag(r.Pos, r.Problem)))
	}
	for i := range r.Mismatches {
		m := &r.Mismatches[i]
		text, _, _ := strings.Cut(m.String(), "\n")
		a.screen.Print(annotation(diag(m.Pos, strings.TrimPrefix(text, m.Pos.String()+": "))))
	}
}

func counted(passed, failed, skipped int) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{passed, "passed"}, {failed, "failed"}, {skipped, "skipped"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// finishTest writes what was asked for beside the results, and returns the exit code.
func (a *app) finishTest(out *tested, opt *testFlags) error {
	out.Passed, out.Failed, out.Skipped, out.Broken = recipetest.Counts(out.files)
	out.Results, out.Problems = []recipetest.Result{}, []fault.Diagnostic{}
	for _, f := range out.files {
		out.Results = append(out.Results, f.Results...)
		out.Problems = append(out.Problems, f.Diags...)
	}
	if len(out.Results) == 0 && out.Broken == 0 {
		return fault.New(fault.Usage, "--run %s: no test has such a name", view.OneLine(opt.run))
	}
	if opt.junit != "" {
		if err := writeJUnit(opt.junit, out.files); err != nil {
			return err
		}
	}
	if opt.coverage {
		out.Coverage = recipetest.Coverages(out.files)
	}
	if a.output == asTAP {
		if err := recipetest.WriteTAP(a.stdout, out.files); err != nil {
			return err
		}
	} else {
		a.show(out, func() { a.printTotals(out) })
	}
	if opt.update {
		if err := a.updateTests(out); err != nil {
			return err
		}
	}
	return a.testExit(out, opt)
}

func (a *app) printTotals(out *tested) {
	for _, c := range out.Coverage {
		a.text("%s: %.1f %% covered, %d of %s, %d of %s\n", view.OneLine(userfile.Relative(c.Recipe)), c.Percent(), c.Ran, view.Count(c.Steps, "step"), c.Taken, branchCount(c.Branches))
		for _, what := range c.Missed {
			a.text("  not run: %s\n", view.OneLine(what))
		}
	}
	parts := []string{counted(out.Passed, out.Failed, out.Skipped)}
	if out.Broken > 0 {
		parts = append(parts, view.Count(out.Broken, "file")+" invalid")
	}
	a.text("%s in %s\n", view.Join(", ", parts...), view.Took(out.took))
}

func branchCount(n int) string {
	if n == 1 {
		return "1 branch"
	}
	return fmt.Sprintf("%d branches", n)
}

// writeJUnit writes the results for a service.
func writeJUnit(path string, files []*recipetest.File) error {
	var b bytes.Buffer
	if err := recipetest.WriteJUnit(&b, files); err != nil {
		return err
	}
	root, base, err := userfile.OpenParent(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return userfile.Replace(root, base, path, b.Bytes())
}

// updateTests writes what the runs have given into the test files.
func (a *app) updateTests(out *tested) error {
	for _, f := range out.files {
		text, changed, left := f.Update()
		if changed > 0 {
			if err := replaceInPlace(f.File, text); err != nil {
				return err
			}
			a.say("%s: %s updated", view.OneLine(userfile.Relative(f.File)), view.Count(changed, "expectation"))
		}
		for i := range left {
			a.say("left as it is: %s", view.OneLine(left[i].String()))
		}
		out.Failed -= f.Updated(left)
	}
	return nil
}

// testExit is the exit code.
func (a *app) testExit(out *tested, opt *testFlags) error {
	for _, c := range out.Coverage {
		if c.Percent() < opt.least {
			a.say("%s: %.1f %% covered, want at least %v %%", view.OneLine(userfile.Relative(c.Recipe)), c.Percent(), opt.least)
			return exit(fault.ExitAssertion)
		}
	}
	switch {
	case out.Broken > 0:
		return exit(fault.ExitDefinition)
	case out.Failed > 0:
		return exit(fault.ExitAssertion)
	}
	return nil
}
