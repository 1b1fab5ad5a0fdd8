// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// t0 is when every run of a test begins.
var t0 = time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC).UnixMicro()

// A player runs a recipe on the machine and folds its events.
type player struct {
	t    rapid.TB
	plan *plan.Plan
	m    *machine.Run
	run  *Run
	now  int64
	all  []journal.Event
	todo map[string]machine.Command // attempts and child runs in flight, by path
	hold bool                       // no attempt is granted
}

func compiled(t rapid.TB, src string) *plan.Plan {
	t.Helper()
	anything := json.RawMessage(`{"type":"object"}`)
	p, _, _, diags := compile.Source("recipe.yaml", []byte(src), compile.Options{Actions: catalogue.New(
		&action.Action{Name: "work", Version: "1.0.0", Input: anything},
		&action.Action{Name: "once", Version: "1.0.0", Input: anything, Delivery: action.AtMostOnce},
		&action.Action{Name: "undo", Version: "1.0.0", Input: anything},
		&action.Action{Name: "sleep", Version: "1.0.0", Waits: "duration", Input: json.RawMessage(`{"type":"object","required":["duration"],"properties":{"duration":{"type":"string"}}}`)},
	)})
	if p == nil {
		t.Fatalf("the recipe does not compile: %v", diags)
	}
	return p
}

// play starts a run of a recipe; with changes what it starts with.
func play(t testing.TB, src string, with func(*journal.Start)) *player {
	t.Helper()
	p := &player{t: t, plan: compiled(t, src), now: t0, todo: map[string]machine.Command{}}
	p.m, p.run = machine.NewRun(machine.Prepare(p.plan)), NewRun(p.plan, "run_1", true)
	st := &journal.Start{Run: "run_1", Account: "acct", Recipe: "recipe_abc123", Version: "1.0.0", PlanHash: p.plan.Hash().String(), Seed: 1, Correlation: "run_1"}
	for _, a := range p.plan.Actions {
		st.Pins = append(st.Pins, journal.Pin{Name: a.Name, Version: "1.0.0", Provider: "local", Cost: 5})
	}
	if with != nil {
		with(st)
	}
	p.do(&machine.Input{Kind: machine.InStart, Start: st})
	return p
}

// do gives an input to the run, continues it, and grants every attempt.
func (p *player) do(in *machine.Input) {
	p.t.Helper()
	in.At, in.Available = p.now, 1<<40
	var turn machine.Turn
	p.m.Decide(in, &turn)
	if turn.Err != nil {
		p.t.Fatal(turn.Err)
	}
	for i := range turn.Events {
		p.all = append(p.all, turn.Events[i])
		if err := p.run.Apply(&turn.Events[i]); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, c := range turn.Commands {
		switch c.Kind {
		case machine.CmdContinue:
			p.do(&machine.Input{Kind: machine.InContinue})
		case machine.CmdAcquire:
			if !p.hold {
				p.grant(c.Ref)
			}
		case machine.CmdDispatch, machine.CmdChild:
			p.todo[journal.StepPath(p.plan, c.Ref)] = c
		}
	}
	if got, want := p.run.WaitState(), p.m.WaitState(); got != want {
		p.t.Errorf("after event %d the run is %s, want %s", p.run.Last(), got, want)
	}
	if got, want := p.run.ResumeToken(), p.m.ResumeToken(); got != want {
		p.t.Errorf("the resume token is %s, want %s", got, want)
	}
}

func (p *player) grant(ref journal.Ref) {
	in := &machine.Input{Kind: machine.InGranted, Ref: ref}
	if p.plan.Steps[ref.Step].Kind == plan.Recipe {
		in.Child = &machine.ChildGrant{Share: journal.Share{Credits: 50, Steps: 10, Memory: 1 << 20}}
	}
	p.do(in)
}

// after lets time pass.
func (p *player) after(d time.Duration) {
	p.now += d.Microseconds()
	p.do(&machine.Input{Kind: machine.InTimer})
}

// result reports how the attempt of a step has ended, with its cost of 5 credits.
func (p *player) result(path, output string, code fault.Code) {
	p.t.Helper()
	c, ok := p.todo[path]
	if !ok {
		p.t.Fatalf("%s is not in flight", path)
	}
	delete(p.todo, path)
	in := &machine.Input{Kind: machine.InResult, Ref: c.Ref, Fence: c.Fence, Outcome: machine.Success, Output: []byte(output), Cost: 5}
	if code != "" {
		in.Outcome, in.Output, in.Cost, in.Err = machine.Failed, nil, 0, &machine.Failure{Code: code, Msg: "it went wrong"}
	}
	p.do(in)
}

func (p *player) child(path string, end *machine.ChildEnd) {
	p.t.Helper()
	c := p.todo[path]
	delete(p.todo, path)
	p.do(&machine.Input{Kind: machine.InChildEnded, Ref: c.Ref, Fence: c.Fence, End: end})
}

// frozen calls fn for each frozen journal of the machine, which together have every kind of
// event.
func frozen(t *testing.T, fn func(t *testing.T, name string, p *plan.Plan, events []journal.Event)) {
	t.Helper()
	files, err := filepath.Glob("../machine/testdata/journals/*.bin")
	if err != nil || len(files) == 0 {
		t.Fatal("no journals", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".bin")
		t.Run(name, func(t *testing.T) {
			p, events := thaw(t, name)
			fn(t, name, p, events)
		})
	}
}

func thaw(t testing.TB, name string) (*plan.Plan, []journal.Event) {
	t.Helper()
	base := "../machine/testdata/journals/" + name
	text, err := os.ReadFile(base + ".plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := os.ReadFile(base + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	var events []journal.Event
	if err := journal.EachEvent(frames, func(ev *journal.Event) error { events = append(events, *ev); return nil }); err != nil {
		t.Fatal(err)
	}
	return p, events
}

func fold(t rapid.TB, p *plan.Plan, events []journal.Event) *Run {
	t.Helper()
	r := NewRun(p, "run_1", true)
	for i := range events {
		if err := r.Apply(&events[i]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func text(t rapid.TB, v any) string {
	t.Helper()
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
