// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/builtin"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

// A Rehearsal carries out recorded runs with another revision of their recipe, without effects.
type Rehearsal struct {
	// Actions are those that the revision may call, with their present prices. None with effects is
	// called. Required.
	Actions catalogue.Actions
	// Plan and Recipe are the new revision. Required.
	Plan   *plan.Plan
	Recipe *recipe.Recipe
	// Resolve finds the recipes that expressions name. Default: nothing is found.
	Resolve program.ResolveFunc
	// Reader has the recorded runs. Nothing is written to it. Required.
	Reader store.Reader
	// ReadFile reads a file of the account of the runs. Default: files cannot be read, so actions
	// that work on them and have no recorded result fail.
	ReadFile ReadFile
	// Masked says that Reader does not have values that recipes mark as not to be shown, so that
	// runs with such values cannot be rehearsed.
	Masked bool
	// Parallel is how many runs are rehearsed at once. Default 1.
	Parallel int
}

// Outcomes of rehearsals.
const (
	Same    = "same"
	Differs = "differs"
	// Unknown is the outcome of a run that comes to a call with no recorded result: what would
	// follow is not known.
	Unknown = "unknown"
	// Left is the outcome of a run that could not be rehearsed.
	Left = "left"
)

// A Rehearsed is what the new revision would have done with one run.
type Rehearsed struct {
	Run     string       `json:"run"`
	Version string       `json:"version,omitempty"` // of the recipe that the run had
	Outcome string       `json:"outcome"`           // one of Same, Differs, Unknown, Left
	Reason  string       `json:"reason,omitempty"`  // of Left, and why a run is refused
	Status  [2]string    `json:"status"`            // recorded, and rehearsed; "" = it did not end
	Used    [2]int64     `json:"used"`              // credits
	Changes []Change     `json:"changes"`
	Calls   []ChangeCall `json:"calls"`
	Retried bool         `json:"retried,omitempty"` // a person had retried the run: its last generation is compared
	Cut     bool         `json:"truncated,omitempty"`
}

// A Change is one difference.
type Change struct {
	Group string          `json:"group"` // path, outputs, attempts or credits
	Where string          `json:"where"`
	Was   json.RawMessage `json:"was"`
	Now   json.RawMessage `json:"now"`
}

// A ChangeCall is a call that was not recorded with this input.
type ChangeCall struct {
	Step   string `json:"step"`
	Action string `json:"action"`
	Input  any    `json:"input"`
	// New is true if the step has no recorded call of the action: the rehearsal ended there.
	// Otherwise it went on with the recorded output of the other input.
	New bool `json:"new"`
}

// Run rehearses runs, and calls each with every result in the order of the heads.
func (r *Rehearsal) Run(ctx context.Context, heads []store.Head, each func(*Rehearsed)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	files := newFixtures("")
	files.read = r.ReadFile
	defer files.close()
	shared := newPreparations(r.Actions)
	type done struct {
		out *Rehearsed
		err error
	}
	results := make([]chan done, len(heads))
	for i := range heads {
		results[i] = make(chan done, 1)
	}
	slots := make(chan struct{}, max(1, r.Parallel))
	go func() {
		for i := range heads {
			slots <- struct{}{}
			go func() {
				out, err := r.one(ctx, heads[i], files, shared)
				results[i] <- done{out, err}
				<-slots
			}()
		}
	}()
	var failed error
	for i := range heads {
		switch d := <-results[i]; {
		case failed != nil:
		case d.err != nil:
			failed = d.err
			cancel()
		default:
			each(d.out)
		}
	}
	return failed
}

// one rehearses a run. An error ends the rehearsal of all.
func (r *Rehearsal) one(ctx context.Context, head store.Head, files *fixtures, shared *preparations) (*Rehearsed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := &Rehearsed{Run: head.Run, Version: head.Version, Outcome: Same, Status: [2]string{head.Status}, Used: [2]int64{head.Used}, Changes: []Change{}, Calls: []ChangeCall{}}
	left := func(format string, args ...any) (*Rehearsed, error) {
		out.Outcome, out.Reason = Left, fmt.Sprintf(format, args...)
		return out, nil
	}
	rec, err := record(ctx, r.Reader, head)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return left("its journal cannot be read: %s", fault.Message(err))
	case r.Masked && rec.mask != nil:
		return left("its recipe marks values as not to be shown, and a running server does not give them out: rehearse it in its data directory, or in a copy that `roux backup` makes, without a server")
	}
	out.Retried = rec.Retried
	w := &replay{rec: rec, out: out}
	ready := shared.take()
	defer shared.give(ready)
	box, err := openSandbox(ctx, sandboxConfig{
		actions: ready.actions, world: w, files: files, gates: passing, now: head.Created, seed: seedOf(head.Run), unpaid: rec.Start.Credits == nil, programs: ready.programs, resolve: r.Resolve,
	})
	if err != nil {
		return nil, err
	}
	defer box.close()
	run, err := box.start(&engine.StartRequest{
		Plan: r.Plan, Recipe: r.Recipe.Name, Version: r.Recipe.Version, Parameters: rec.Input, Files: rec.Start.Files,
	})
	var broke *broken
	switch {
	case errors.As(err, &broke):
		return left("%s", fault.Message(broke.err))
	case err != nil:
		out.Outcome, out.Status[1] = Differs, statusRefused
		out.Changes = append(out.Changes, Change{"path", "run", view.RawOf(head.Status), view.RawOf("refused: " + rec.shownText(fault.Message(err)))})
		return out, nil
	}
	w.plan(box, run)
	_, err = box.finish(run)
	var stop *notRecorded
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &stop):
		out.Outcome, out.Reason = Unknown, stop.reason
	case err != nil:
		return left("%s", fault.Message(err))
	}
	return out, r.compare(box, run, rec, out)
}

// passing are moderators that let everything pass: what they have said of a recorded result is part
// of it.
func passing([]string) (action.ModerationGateway, error) { return passes{}, nil }

type passes struct{}

// Check implements action.ModerationGateway.
func (passes) Check(context.Context, *action.Moderation) (action.Verdict, error) {
	return action.Verdict{}, nil
}

// A replay is the world of a rehearsal: what was recorded of a run.
type replay struct {
	rec *recording
	out *Rehearsed
}

// A notRecorded error ends a rehearsal.
type notRecorded struct{ reason string }

func (n *notRecorded) Error() string { return n.reason }

// plan plans what the run got from outside: signals, and that it was cancelled.
func (w *replay) plan(box *sandbox, run string) {
	for _, sig := range w.rec.Signals {
		box.signalAfter(run, sig.Name, sig.Data, max(0, sig.At-w.rec.head.Created))
	}
	if w.rec.Cancelled > 0 {
		box.cancelAfter(run, max(1, w.rec.Cancelled-w.rec.head.Created))
	}
}

// call implements world.
func (w *replay) call(c *call) (reply, error) {
	a, same := w.rec.find(c)
	if !same && builtin.Pure(c.action) {
		return reply{}, nil
	}
	if !same {
		w.out.Calls = append(w.out.Calls, ChangeCall{Step: c.path, Action: c.action.Name, Input: w.rec.shown(c.input), New: a == nil})
	}
	if a == nil {
		return reply{}, &notRecorded{fmt.Sprintf("step %q would call %s, and no result of that is recorded", c.path, c.action.Name)}
	}
	run := fails(a.Err)
	if a.Err == nil {
		run = returns(action.Result{Output: json.RawMessage(a.Output), Cost: a.Cost, Price: a.Price})
	}
	r := reply{run: run, delay: a.Micros}
	if a.Err == nil && jsonx.Reserved(a.Output) {
		r.raw = a.Output
	}
	if a.Job && a.Micros > 0 && r.raw == nil {
		r.delay = 0
		r.run, r.job = submits(c), &jobEnd{a.Micros, run}
	}
	return r, nil
}

// waiting implements world. The signals of the run come at their times, see plan.
func (w *replay) waiting(s *wait) (any, int64, bool, error) {
	if w.rec.waits[s.signal] || slices.ContainsFunc(w.rec.Signals, func(r view.GivenSignal) bool { return r.Name == s.signal }) {
		return nil, 0, false, nil
	}
	return nil, 0, false, &notRecorded{fmt.Sprintf("step %q would wait for the signal %q, and whether that comes is not known", s.path, s.signal)}
}

// shownText masks a text as the run may show it.
func (rec *recording) shownText(text string) string {
	v, _ := rec.shown(view.RawOf(text)).(string)
	return v
}

// compare notes what differs between the recorded run and the rehearsed one.
func (r *Rehearsal) compare(box *sandbox, run string, rec *recording, out *Rehearsed) error {
	p := r.Plan
	raw, masked := view.NewSide(p, run, false), view.NewSide(p, run, false)
	mask := view.NewMask(p).Inherit(rec.mask)
	err := box.eachEvent(store.Key{Account: account, Run: run}, func(ev *journal.Event) error {
		if err := raw.Apply(ev); err != nil || mask == nil {
			return err
		}
		return masked.Apply(mask.Event(ev))
	})
	if err != nil {
		return err
	}
	groups := []string{"path", "outputs", "attempts", "credits"}
	c := view.Compare(rec.side, raw, groups)
	shown := c
	if mask != nil {
		shown = view.Compare(rec.masked, masked, groups)
	}
	if out.Outcome != Unknown {
		out.Status[1] = raw.Status.String()
	}
	out.Used, out.Cut = [2]int64{rec.side.Used(), raw.Used()}, c.Cut
	steps, _ := raw.Steps()
	for _, group := range groups {
		for _, d := range c.Groups[group] {
			if !r.counts(group, d, out, rec, steps) || group == "outputs" && follows(d, c.Groups["path"]) {
				continue
			}
			if i := slices.IndexFunc(shown.Groups[group], func(s view.Difference) bool { return s.Where == d.Where }); i >= 0 {
				d = shown.Groups[group][i]
			} else if mask != nil {
				d.A, d.B = view.RawOf(view.Masked), view.RawOf(view.Masked)
			}
			if group == "outputs" && (d.Where == "run" || strings.HasPrefix(d.Where, "run.")) && steps["run"] == nil {
				d.Where = "output" + strings.TrimPrefix(d.Where, "run")
			}
			out.Changes = append(out.Changes, Change{group, d.Where, d.A, d.B})
		}
	}
	if out.Outcome == Same && (len(out.Changes) > 0 || len(out.Calls) > 0) {
		out.Outcome = Differs
	}
	return nil
}

// follows reports whether an output differs only because its step has or has not completed, which
// is a difference of the path.
func follows(d view.Difference, path []view.Difference) bool {
	return slices.ContainsFunc(path, func(p view.Difference) bool {
		return p.Where != "run" && (d.Where == p.Where || strings.HasPrefix(d.Where, p.Where+".") || strings.HasPrefix(d.Where, p.Where+"["))
	})
}

// counts reports whether a difference is one of the revisions.
func (r *Rehearsal) counts(group string, d view.Difference, out *Rehearsed, rec *recording, steps map[string]*journal.StepResult) bool {
	if group == "attempts" && (rec.lost[d.Where] || rec.Retried) {
		return false // a crash or a person has added attempts
	}
	if out.Outcome != Unknown {
		return true
	}
	// The run has not ended: only what has settled is known.
	if d.Where == "run" || strings.HasPrefix(d.Where, "run.") || group == "credits" {
		return false
	}
	for path, st := range steps {
		settled := st.Status == "completed" || st.Status == "failed" || st.Status == "skipped"
		if settled && (d.Where == path || strings.HasPrefix(d.Where, path+".") || strings.HasPrefix(d.Where, path+" ")) {
			return true
		}
	}
	return false
}

// A Sum is how often something differs.
type Sum struct {
	Group string `json:"group"` // that of a Change, or call
	Where string `json:"where"` // without the numbers of items
	Runs  int    `json:"runs"`
}

// Sums counts in how many runs each place differs, the most frequent first.
func Sums(list []*Rehearsed) (sums []Sum) {
	count := map[Sum]int{}
	for _, r := range list {
		seen := map[Sum]bool{}
		for _, c := range r.Changes {
			seen[Sum{Group: c.Group, Where: withoutNumbers(c.Where)}] = true
		}
		for _, c := range r.Calls {
			seen[Sum{Group: "call", Where: withoutNumbers(c.Step) + " of " + c.Action}] = true
		}
		for s := range seen {
			count[s]++
		}
	}
	for s := range maps.Keys(count) {
		s.Runs = count[s]
		sums = append(sums, s)
	}
	slices.SortFunc(sums, func(a, b Sum) int {
		if a.Runs != b.Runs {
			return b.Runs - a.Runs
		}
		return strings.Compare(a.Group+" "+a.Where, b.Group+" "+b.Where)
	})
	return sums
}

// withoutNumbers replaces the numbers of items by nothing: pages[3].resize is pages[].resize.
func withoutNumbers(path string) string {
	var b strings.Builder
	inside := false
	for _, c := range path {
		if c == ']' {
			inside = false
		}
		if !inside {
			b.WriteRune(c)
		}
		if c == '[' {
			inside = true
		}
	}
	return b.String()
}
