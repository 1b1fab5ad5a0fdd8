// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/view"
)

const (
	// maxStacks bounds the different stacks of a profile. The items of a loop share theirs, so few recipes have
	// more; the time of further ones is added to one that says so.
	maxStacks   = 100_000
	otherStacks = "(other)"
	// maxProfilePlans is how many plans are kept while the runs of a tree are read: most of them have the same few.
	maxProfilePlans = 100
)

// A treeProfile is what `roux trace --runs` shows.
type treeProfile struct {
	ID       string            `json:"id"`
	Recipe   string            `json:"recipe"`
	Runs     int               `json:"runs"` // of the tree, with the run itself
	OwnMs    float64           `json:"ownMs"`
	WaitMs   float64           `json:"waitMs"`
	Steps    int64             `json:"steps"`
	Attempts int64             `json:"attempts"`
	List     []view.RunProfile `json:"list"`              // the runs that worked longest, in this order
	Missing  int               `json:"missing,omitempty"` // child runs whose journals are not here

	most int // runs of the list
}

// A stackTime is one line of `roux trace --folded`.
type stackTime struct {
	Frames []string `json:"frames"`
	OwnUs  int64    `json:"ownUs"`
	WaitUs int64    `json:"waitUs"`
}

// profiling reads the journals of a tree of runs, one after the other. It holds what a [view.Profiler] holds of
// each run on the way down to the one that it reads, and of the others only what is shown.
type profiling struct {
	app    *app
	reader store.Reader
	plans  map[string]*plan.Plan
	onPath map[string]bool
	tree   treeProfile
	stacks map[string]*stackTime // by their frames, joined
}

// profileRun prints the profile of a run and of the runs inside it.
func (a *app) profileRun(ctx context.Context, j store.Reader, head store.Head, most int, folded string) error {
	x := &profiling{
		app: a, reader: j, plans: map[string]*plan.Plan{}, onPath: map[string]bool{}, stacks: map[string]*stackTime{},
		tree: treeProfile{ID: head.Run, Recipe: head.Recipe, most: most},
	}
	if err := x.walk(ctx, head, nil); err != nil {
		return err
	}
	if x.tree.Missing > 0 {
		a.say("the journals of %s are not here: their time is left out", view.Count(x.tree.Missing, "child run"))
	}
	if folded == "" {
		x.tree.cut(0)
		a.show(&x.tree, func() { a.printTreeProfile(&x.tree) })
		return nil
	}
	list := make([]*stackTime, 0, len(x.stacks))
	for _, key := range slices.Sorted(maps.Keys(x.stacks)) {
		list = append(list, x.stacks[key])
	}
	a.show(list, func() { a.printStacks(list, folded) })
	return nil
}

// walk reads a run, and then the runs inside it. above are the frames that it stands in.
func (x *profiling) walk(ctx context.Context, head store.Head, above []string) error {
	x.onPath[head.Run] = true
	defer delete(x.onPath, head.Run)
	p, err := x.plan(ctx, head)
	if err != nil {
		return err
	}
	pr := view.NewProfiler(p, view.RunProfile{Run: head.Run, Recipe: head.Recipe, Depth: len(x.onPath) - 1, Status: head.Status}, head.Ended)
	if err := store.EachEvent(ctx, x.reader, head.Key, 0, pr.Apply); err != nil {
		return err
	}
	x.tree.add(pr.Profile(x.app.now().UnixMicro()))
	above = append(above, frameName(cmp.Or(head.Recipe, "inline")))
	for i, t := range pr.Times {
		if t.Own+t.Wait > 0 {
			x.stack(slices.Concat(above, view.StepFrames(p, int32(i))), t)
		}
	}
	for _, c := range pr.Children {
		inner, err := x.reader.Head(ctx, store.Key{Account: head.Account, Run: c.Run})
		if fault.CodeOf(err) == fault.RunNotFound {
			x.tree.Missing++
			continue
		}
		if err != nil {
			return err
		}
		if inner.Parent != head.Run || x.onPath[c.Run] { // a journal that was made by hand may name any run
			continue
		}
		if err := x.walk(ctx, inner, slices.Concat(above, view.StepFrames(p, c.Step))); err != nil {
			return err
		}
	}
	return nil
}

func (x *profiling) plan(ctx context.Context, head store.Head) (*plan.Plan, error) {
	if p := x.plans[head.PlanHash]; p != nil {
		return p, nil
	}
	p, err := store.LoadPlan(ctx, x.reader, head)
	if err != nil {
		return nil, err
	}
	if len(x.plans) >= maxProfilePlans {
		clear(x.plans)
	}
	x.plans[head.PlanHash] = p
	return p, nil
}

// stack adds the time of a step.
func (x *profiling) stack(frames []string, t view.StepTime) {
	key := strings.Join(frames, ";")
	s := x.stacks[key]
	if s == nil && len(x.stacks) >= maxStacks {
		frames = []string{frames[0], otherStacks}
		key = strings.Join(frames, ";")
		s = x.stacks[key]
	}
	if s == nil {
		s = &stackTime{Frames: frames}
		x.stacks[key] = s
	}
	s.OwnUs, s.WaitUs = s.OwnUs+t.Own, s.WaitUs+t.Wait
}

// frameName is the name of a recipe as a frame. Frames are separated by semicolons.
func frameName(name string) string { return strings.ReplaceAll(view.OneLine(name), ";", ":") }

// add adds a run.
func (t *treeProfile) add(r view.RunProfile) {
	t.Runs++
	t.OwnMs, t.WaitMs, t.Steps, t.Attempts = t.OwnMs+r.OwnMs, t.WaitMs+r.WaitMs, t.Steps+r.Steps, t.Attempts+r.Attempts
	t.List = append(t.List, r)
	t.cut(1_000)
}

// cut removes the runs that are not shown, if there are more of them than slack.
func (t *treeProfile) cut(slack int) {
	if slack > 0 && len(t.List)-slack <= t.most {
		return
	}
	slices.SortStableFunc(t.List, func(a, b view.RunProfile) int { return cmp.Compare(b.OwnMs, a.OwnMs) })
	t.List = t.List[:min(len(t.List), t.most)]
}

func (a *app) printTreeProfile(t *treeProfile) {
	rows := [][]string{{"recipe", "depth", "own", "waited", "total", "steps", "attempts", "credits", "status", "run"}}
	for _, r := range t.List {
		rows = append(rows, []string{
			view.OneLine(r.Recipe), fmt.Sprint(r.Depth), view.Took(micros(r.OwnMs)), view.Took(micros(r.WaitMs)), view.Took(micros(r.TookMs)),
			fmt.Sprint(r.Steps), fmt.Sprint(r.Attempts), view.Credits(r.Credits), r.Status, r.Run,
		})
	}
	a.table(rows, 0)
	a.text("%s: %s\n", view.Count(t.Runs, "run"), view.Join(", ", view.Took(micros(t.OwnMs))+" at work", view.Took(micros(t.WaitMs))+" waited",
		view.Count(int(t.Steps), "step"), view.Count(int(t.Attempts), "attempt")))
	if n := t.Runs - len(t.List); n > 0 {
		a.say("%s not shown, which worked less: `%s` shows all", view.CountAre(n, "run"), a.hint("trace", t.ID+" --runs --children all"))
	}
}

// printStacks prints a line for each stack, as flamegraph.pl, inferno and speedscope read them: the frames from the
// outermost inward, and a whole number.
func (a *app) printStacks(list []*stackTime, what string) {
	for _, s := range list {
		n := s.OwnUs
		if what == "wait" {
			n = s.WaitUs
		}
		if n > 0 {
			a.text("%s %d\n", strings.Join(s.Frames, ";"), n)
		}
	}
}
