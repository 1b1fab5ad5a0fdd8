// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/moderation"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/terms"
	"github.com/roux-engine/roux/internal/userfile"
)

// Config is what tests are run with.
type Config struct {
	// Actions are those that recipes may call. Required.
	Actions catalogue.Actions
	// Options returns what the recipe in a file is compiled against, as `roux validate` does it. dir is the directory
	// of the recipes that steps name with ref, if the test file names one; "" = it does not. Several files are
	// asked for at once. Required.
	Options func(file, dir string) (Options, error)
	// Selected reports whether a test is run. Default: all are.
	Selected func(name string) bool
	// Parallel is how many tests run at once. Default 1. Results do not depend on it.
	Parallel int
	// Now is the wall clock, for how long tests take. Default time.Now.
	Now func() time.Time

	slots chan struct{} // holds one for each test that runs; nil = one of its own for each file
}

// Options are what a recipe is compiled against.
type Options struct {
	compile.Options
	// Pinned refuses what the recipe names if it is not what is pinned. It is called when the recipe
	// is compiled. nil = nothing is refused.
	Pinned func() error
}

// Outcomes of tests.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped"
)

// A Result is the result of a test.
type Result struct {
	File    string    `json:"file"`
	Recipe  string    `json:"recipe,omitempty"` // its file
	Test    string    `json:"test"`
	Pos     fault.Pos `json:"pos"`
	Outcome string    `json:"outcome"` // one of Passed, Failed, Skipped
	// Reason is why a test is skipped.
	Reason string `json:"reason,omitempty"`
	// Problem is why the test could not be carried out.
	Problem    string     `json:"problem,omitempty"`
	Mismatches []Mismatch `json:"mismatches,omitempty"`
	Hints      []string   `json:"hints,omitempty"`
	TookMS     float64    `json:"tookMs"`
	VirtualMS  float64    `json:"virtualMs"` // of the run

	outcome *outcome
	missing bool // the test says nothing of what is expected
}

// A File is a test file with the results of its tests.
type File struct {
	File    string
	Source  *form.Source
	Results []Result
	// Diags are the problems of the test file or of its recipe, which keep its tests from being
	// run. Recipe has the lines of the recipe, if they are its problems.
	Diags  []fault.Diagnostic
	Recipe *form.Source
	// Coverage is what the tests cover of the recipe; nil if nothing was run.
	Coverage *Coverage

	text  []byte
	suite *Suite
	mu    sync.Mutex // of Source, which several tests ask for places
}

// pos is the place of a value in the file.
func (f *File) pos(pointer string) fault.Pos {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Source.Pos(pointer)
}

// defaultNow is the time at which runs of tests start.
const defaultNow = "2026-01-01T00:00:00Z"

// RunFile reads a test file and runs its tests.
func RunFile(ctx context.Context, file string, cfg Config) (*File, error) {
	text, err := readTest(file)
	if err != nil {
		return nil, err
	}
	r := check(file, text, cfg)
	if r.shared == nil || len(r.file.Diags) > 0 {
		return r.file, nil
	}
	defer r.fixtures.close()
	return r.file, r.runAll(ctx)
}

// Check reads the text of a test file and compiles its recipe, and runs nothing.
func Check(file string, text []byte, cfg Config) *File { return check(file, text, cfg).file }

func check(file string, text []byte, cfg Config) *runner {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	dir := filepath.Dir(file)
	r := &runner{cfg: cfg, file: &File{File: file, text: text}, dir: dir, prepared: newPreparations(cfg.Actions), fixtures: newFixtures(dir)}
	if r.file.suite, r.file.Source, r.file.Diags = Parse(file, text); r.file.suite != nil {
		r.compile()
	}
	return r
}

func readTest(file string) ([]byte, error) {
	text, err := userfile.ReadWithin(filepath.Dir(file), filepath.Base(file), MaxSource, fault.FileNotFound)
	return bytes.TrimPrefix(text, []byte("\ufeff")), err
}

// A runner runs the tests of one file.
type runner struct {
	cfg      Config
	file     *File
	dir      string
	path     string // of the recipe
	text     []byte // of the recipe
	fixtures *fixtures
	prepared *preparations
	shared   *compiled // for tests without mocked recipes of their own
}

// compile compiles the recipe. What keeps the tests from being run is noted in the file.
func (r *runner) compile() {
	s := r.file.suite
	r.path = filepath.Join(r.dir, filepath.FromSlash(s.Recipe))
	refuse := func(pointer, rule, hint, msg string) {
		r.file.Diags = append(r.file.Diags, fault.Diagnostic{Code: fault.RecipeNotFound, Rule: rule, Msg: msg, Hint: hint, Pointer: pointer, Pos: r.file.Source.Pos(pointer)})
	}
	if filepath.IsAbs(s.Recipe) {
		refuse("/recipe", "bad-path", "write a path relative to the test file", "the recipe is an absolute path")
		return
	}
	opt, err := r.options()
	if err != nil {
		refuse("/recipe", "no-recipe", "", fault.Message(err))
		return
	}
	r.text, err = userfile.ReadWithin(filepath.Dir(r.path), filepath.Base(r.path), cmp.Or(opt.MaxSource, form.DefaultBytes), fault.RecipeNotFound)
	if err != nil {
		refuse("/recipe", "no-recipe", "", fault.Message(err))
		return
	}
	r.shared = compileRecipe(r.path, r.text, opt.Options, s.Mocks.Recipes)
	if r.shared.plan == nil {
		r.file.Diags, r.file.Recipe = r.shared.diags, r.shared.source.Source
		return
	}
	if opt.Pinned != nil {
		if err := opt.Pinned(); err != nil {
			refuse("/recipe", "not-pinned", "", fault.Message(err))
			return
		}
	}
	r.checkNames(r.shared.plan)
}

// options returns what the recipe is compiled against. They are for one compilation.
func (r *runner) options() (Options, error) {
	dir := r.file.suite.Recipes
	if dir != "" {
		dir = filepath.Join(r.dir, filepath.FromSlash(dir))
	}
	return r.cfg.Options(r.path, dir)
}

// resolve finds the recipes that expressions name, with stubs in place of the mocked ones.
func (r *runner) resolve(m *Mocks) program.ResolveFunc {
	return program.ResolveWith(func(context.Context, string) (compile.Options, error) {
		opt, err := r.options()
		return withStubs(opt.Options, m.Recipes), err
	})
}

// checkNames finds names of steps and actions that the recipe does not have.
func (r *runner) checkNames(p *plan.Plan) {
	ids, suite := stepIDs(p), r.file.suite
	// The steps of a recipe that an expression names are not known before it runs.
	open := slices.ContainsFunc(p.Children, func(c plan.ChildRef) bool { return c.By != "" })
	known := func(pointer, name string, all []string, noun string) {
		if open && noun == "step" {
			return
		}
		if id := idOf(name); slices.Contains(all, id) || slices.Contains(all, name) {
			return
		}
		d := fault.Diagnostic{Code: fault.StepNotFound, Rule: "unknown-name", Msg: fmt.Sprintf("the recipe has no %s %q", noun, name), Pointer: pointer, Pos: r.file.Source.KeyPos(pointer)}
		if near := spell.Nearest(idOf(name), all); near != "" {
			d.Hint = fmt.Sprintf("did you mean %q?", near)
		}
		r.file.Diags = append(r.file.Diags, d)
	}
	check := func(at string, m *Mocks) {
		for _, name := range slices.Sorted(maps.Keys(m.Steps)) {
			known(at+"/steps/"+name, name, ids, "step")
		}
		for _, name := range slices.Sorted(maps.Keys(m.Approvals)) {
			known(at+"/approvals/"+name, name, ids, "step")
		}
		names := r.cfg.Actions.Names()
		for _, name := range slices.Sorted(maps.Keys(m.Actions)) {
			known(at+"/actions/"+name, name, names, "action")
		}
	}
	check("/mocks", &suite.Mocks)
	for i := range suite.Tests {
		t := &suite.Tests[i]
		check(t.pointer+"/mocks", &t.Mocks)
		if t.Expect != nil {
			for _, name := range slices.Sorted(maps.Keys(t.Expect.Steps)) {
				known(t.pointer+"/expect/steps/"+name, name, ids, "step")
			}
		}
	}
}

// runAll runs the tests, several at once, and keeps their results in the order of the file.
func (r *runner) runAll(ctx context.Context) error {
	tests := r.file.suite.Tests
	results := make([]*Result, len(tests))
	errs := make([]error, len(tests))
	slots := r.cfg.slots
	if slots == nil {
		slots = make(chan struct{}, max(1, r.cfg.Parallel))
	}
	done := make(chan struct{})
	for i := range tests {
		go func() {
			defer func() { done <- struct{}{} }()
			slots <- struct{}{}
			defer func() { <-slots }()
			if t := &tests[i]; (r.cfg.Selected == nil || r.cfg.Selected(t.Name)) && ctx.Err() == nil {
				results[i], errs[i] = r.run(ctx, t)
			}
		}()
	}
	for range tests {
		<-done
	}
	cover := newCoverage(r.path, r.shared.plan)
	for i, res := range results {
		if errs[i] != nil {
			return errs[i]
		}
		if res == nil {
			continue
		}
		r.file.Results = append(r.file.Results, *res)
		if res.outcome != nil && res.outcome.tally != nil {
			cover.add(res.outcome.tally)
		}
	}
	r.file.Coverage = cover
	return ctx.Err()
}

// run runs a test. An error ends all tests.
func (r *runner) run(ctx context.Context, t *Test) (*Result, error) {
	began := r.cfg.Now()
	res := &Result{File: r.file.File, Recipe: r.path, Test: t.Name, Pos: r.file.pos(t.pointer + "/name"), Outcome: Passed, missing: t.Expect == nil}
	if t.Skip != "" {
		res.Outcome, res.Reason = Skipped, t.Skip
		return res, nil
	}
	o, world, err := r.carryOut(ctx, t)
	res.TookMS = float64(r.cfg.Now().Sub(began).Microseconds()) / 1000
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		res.Outcome, res.Problem = Failed, fault.Message(err)
		return res, nil
	}
	o.calls = world.calls
	res.outcome, res.VirtualMS, res.Hints = o, float64(o.micros)/1000, world.lacks
	c := &comparison{pos: r.file.pos, fill: func(v any) (any, error) { return r.fixtures.filled(ctx, v) }}
	c.compare(t, o)
	if res.Mismatches = c.list; len(c.list) > 0 {
		res.Outcome = Failed
	}
	return res, nil
}

// carryOut carries out the run of a test.
func (r *runner) carryOut(ctx context.Context, t *Test) (*outcome, *mocked, error) {
	s := r.file.suite
	mocks, c := t.Mocks.merged(&s.Mocks), r.shared
	if len(t.Mocks.Recipes) > 0 {
		opt, err := r.options()
		if err != nil {
			return nil, nil, err
		}
		if c = compileRecipe(r.path, r.text, opt.Options, mocks.Recipes); c.plan == nil {
			return nil, nil, fault.Invalid(fault.RecipeInvalid, c.diags)
		}
	}
	world := newMocked(mocks, append(slices.Clone(s.Allow), t.Allow...), func(raw json.RawMessage) (any, error) { return r.fixtures.value(ctx, raw) })
	req, err := r.request(ctx, t, c)
	if err != nil {
		return nil, nil, err
	}
	now, _ := time.Parse(time.RFC3339Nano, cmp.Or(t.Now, s.Now, defaultNow)) // Parse has checked it
	gates, err := moderators(mocks.Moderators)
	if err != nil {
		return nil, nil, err
	}
	ready := r.prepared.take()
	defer r.prepared.give(ready)
	box, err := openSandbox(ctx, sandboxConfig{
		actions: ready.actions, world: world, files: r.fixtures, secrets: testSecrets(mocks.Secrets), gates: gates, now: now.UnixMicro(), seed: seedOf(t.Name),
		balance: t.Balance, unpaid: t.unpaid(req, r.cfg.Actions), programs: ready.programs, resolve: r.resolve(mocks),
	})
	if err != nil {
		return nil, nil, err
	}
	defer box.close()
	run, err := box.start(req)
	var broke *broken
	switch {
	case errors.As(err, &broke):
		return nil, nil, broke.err
	case err != nil:
		return refused(err, req.Parameters), world, nil
	}
	if t.Cancel != "" {
		box.cancelAfter(run, micros(t.Cancel))
	}
	if _, err := box.finish(run); err != nil {
		return nil, nil, err
	}
	o, err := box.outcomeOf(c.plan, run)
	return o, world, err
}

// unpaid reports whether the run of a test costs its account nothing: one whose price cannot be
// estimated, unless the test says something of credits.
func (t *Test) unpaid(req *engine.StartRequest, actions catalogue.Actions) bool {
	if t.Balance > 0 || t.MaxCredits > 0 || t.Expect != nil && t.Expect.Credits != nil {
		return false
	}
	_, err := starts.QuoteOf(req, withStub{actions}, terms.Rules{})
	return errors.Is(err, fault.PriceUnknown)
}

// request returns what the run of a test is started with.
func (r *runner) request(ctx context.Context, t *Test, c *compiled) (*engine.StartRequest, error) {
	input := map[string]any{}
	for name, raw := range with(t.Input, r.file.suite.Input) {
		v, err := r.fixtures.value(ctx, raw)
		if err != nil {
			return nil, err
		}
		input[name] = v
	}
	paths := t.Files
	if paths == nil {
		paths = r.file.suite.Files
	}
	files, err := r.fixtures.inputs(ctx, paths)
	return &engine.StartRequest{
		Account: account, Plan: c.plan, Recipe: c.recipe.Name, Version: c.recipe.Version, Parameters: input, Files: files, MaxCredits: t.MaxCredits,
	}, err
}

// moderators are the moderators of a test, which look for words.
func moderators(words map[string][]string) (program.Moderators, error) {
	table := map[string]moderation.Config{}
	for name, list := range words {
		table[name] = moderation.Config{Kind: moderation.Terms, Terms: list}
	}
	set, err := moderation.New(table, nil, func(string) string { return "" })
	if err != nil {
		return nil, fault.New(fault.RecipeInvalid, "mocks.moderators: %s", err)
	}
	return set.Of, nil
}

// seedOf is the seed of a test, so that its run has the same random numbers each time.
func seedOf(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// Format writes the problems of a file with their lines.
func (f *File) Format() string {
	src := f.Source
	if f.Recipe != nil {
		src = f.Recipe
	}
	var b strings.Builder
	for _, d := range f.Diags {
		b.WriteString(src.Format(d))
	}
	return b.String()
}
