// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

var stories = []string{"everything", "generations", "nested", "waves"}

// TestX222_StatusOfEveryStep: after every event of the golden journals, which
// contain every kind of event, the picture shows of each step what the history
// of the run says of its instances: which have completed or failed, which are
// running or waiting.
func TestX222_StatusOfEveryStep(t *testing.T) {
	for _, name := range stories {
		t.Run(name, func(t *testing.T) {
			p, frames := story(t, name)
			f, h := NewFold(p, false), journal.NewHistory(p, 0)
			withdrawn := map[string]bool{}
			err := journal.EachEvent(frames, func(ev *journal.Event) error {
				f.Add(ev)
				h.Add(ev)
				path := journal.StepPath(p, ev.Ref())
				delete(withdrawn, path)
				if _, paths := h.Steps(); ev.Kind == journal.EvNodeInvalidated && ev.N != 1 {
					for _, inner := range paths {
						if strings.HasPrefix(inner, path+".") || strings.HasPrefix(inner, path+"[") {
							withdrawn[inner] = true
						}
					}
				}
				compare(t, p, f, h, withdrawn, ev.Seq)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// compare compares a fold with the history: the counts of each step are those
// of its instances. A loop that is not itself repeated counts its iterations
// and has its own status. Instances inside a step that is retried are withdrawn
// with it.
func compare(t *testing.T, p *plan.Plan, f *Fold, h *journal.History, withdrawn map[string]bool, seq uint64) {
	t.Helper()
	want := make([]map[string]int, len(p.Steps))
	results, paths := h.Steps()
	for _, path := range paths {
		if withdrawn[path] {
			continue
		}
		ref, err := journal.ParseRef(p, path)
		if err != nil {
			t.Fatal(err)
		}
		status := results[path].Status
		if e := results[path].Error; e != nil && status == "failed" && fault.CauseOf(fault.Code(e.Code)) == fault.CauseTimeout {
			status = "timed_out"
		}
		if status == "" {
			status = "pending"
		}
		if want[ref.Step] == nil {
			want[ref.Step] = map[string]int{}
		}
		want[ref.Step][status]++
	}
	for i := range p.Steps {
		got := maps.Clone(f.Steps[i].Counts)
		if own := f.Steps[i].Own; own != "" {
			got = map[string]int{own: 1}
		}
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(got, want[i]) {
			t.Errorf("event %d: %s is %v, the history says %v", seq, p.Steps[i].ID, got, want[i])
		}
	}
}

// TestPicturesOfAStory: a run at some of its events, as text: an attempt that
// failed and waits for the next, branches of which one fell back, the side not
// taken, a loop in progress, a wait for a signal, pending steps and what they
// wait for, compensation, and the second generation.
func TestPicturesOfAStory(t *testing.T) {
	p, frames := story(t, "everything")
	var all strings.Builder
	for _, at := range []uint64{12, 28, 45, 55, 70, 90, 0} {
		pic, err := until(t, p, frames, at, false).Picture("everything", false)
		if err != nil {
			t.Fatal(err)
		}
		text, err := pic.Text(Options{Width: 120})
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(text + "\n" + pic.list(120) + "\n")
	}
	golden(t, "everything.txt", all.String())
	pic, err := until(t, p, frames, 45, false).Picture("everything", false)
	if err != nil {
		t.Fatal(err)
	}
	for ending, text := range all3(t, pic) {
		golden(t, "everything-45"+ending, text)
	}
}

func all3(t *testing.T, pic *Picture) map[string]string {
	t.Helper()
	forms := all(t, pic, Options{})
	delete(forms, ".txt")
	elements(t, forms[".svg"])
	return forms
}

// TestCriticalPath: the chain of steps that determined when the run ended,
// through the iteration that ended last. A run that has not ended has none.
func TestCriticalPath(t *testing.T) {
	p, frames := story(t, "nested")
	pic, err := until(t, p, frames, 0, true).Picture("nested", false)
	if err != nil {
		t.Fatal(err)
	}
	var steps, edges []string
	for _, n := range pic.Nodes {
		if n.Critical {
			steps = append(steps, n.ID)
		}
	}
	for _, e := range pic.Edges {
		if e.Critical {
			edges = append(edges, e.ID)
		}
	}
	slices.Sort(steps)
	slices.Sort(edges)
	if want := []string{"outer", "outer[].inner", "outer[].inner[].x", "outer[].t"}; !slices.Equal(steps, want) {
		t.Errorf("critical are %q, want %q", steps, want)
	}
	want := []string{"outer > outer[]", "outer[].inner > outer[].inner[]", "outer[].t > outer[].inner"}
	if !slices.Equal(edges, want) {
		t.Errorf("critical are %q, want %q", edges, want)
	}
	if _, err := until(t, p, frames, 4, true).Picture("nested", false); !errors.Is(err, fault.Usage) {
		t.Errorf("a critical path of a live run: %v, want %s", err, fault.Usage)
	}
}

// TestCriticalPathTakesTheLaterWay: of two predecessors, the path leads through
// the one that ended last.
func TestCriticalPathTakesTheLaterWay(t *testing.T) {
	p := &plan.Plan{
		Graphs: []plan.Graph{{N: 3, Owner: plan.None}},
		Steps: []plan.Step{
			{ID: "quick", Then: plan.None, Else: plan.None, Body: plan.None, Fallback: plan.None, Compensate: plan.None, Action: plan.None, Kind: plan.Transform, Slot: plan.None},
			{ID: "slow", Then: plan.None, Else: plan.None, Body: plan.None, Fallback: plan.None, Compensate: plan.None, Action: plan.None, Kind: plan.Transform, Slot: plan.None},
			{ID: "last", Then: plan.None, Else: plan.None, Body: plan.None, Fallback: plan.None, Compensate: plan.None, Action: plan.None, Kind: plan.Transform, Slot: plan.None, Preds: []int32{0, 1}, Wave: 1},
		},
	}
	f := NewFold(p, true)
	for i, ev := range []journal.Event{
		{Kind: journal.EvRunStarted, Step: -1, At: 1},
		{Kind: journal.EvNodeCompleted, Step: 0, At: 2},
		{Kind: journal.EvNodeCompleted, Step: 1, At: 3},
		{Kind: journal.EvNodeCompleted, Step: 2, At: 4},
		{Kind: journal.EvRunCompleted, Step: -1, At: 4},
	} {
		ev.Seq = uint64(i + 1)
		f.Add(&ev)
	}
	pic, err := f.Picture("two", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range pic.Nodes {
		if n.Critical != (n.ID != "quick") {
			t.Errorf("%s: critical = %v", n.ID, n.Critical)
		}
	}
}

// TestLineOfAStack: a card for all iterations has their number and the count of
// each status, in figures and in words.
func TestLineOfAStack(t *testing.T) {
	s := &State{view.StepTally{Counts: map[string]int{"completed": 231, "failed": 6, "running": 3}, Items: 240, Tries: 3}}
	if got := s.summary(true); got != "×240 ✓231 ✕6 ◐3" {
		t.Errorf("line = %q", got)
	}
	if got := s.accessibleText(true); got != "running: 231 completed, 6 failed, 3 running" {
		t.Errorf("words = %q", got)
	}
	one := &State{view.StepTally{Counts: map[string]int{"completed": 1}, Items: -1, Attempts: 2, Tries: 3, Micros: 41_000, Cost: 30 * ledger.Credit}}
	if got := one.summary(false); got != "completed · 41 ms · try 2/3 · 30 cr" {
		t.Errorf("line = %q", got)
	}
}

// TestI15_FoldIsBounded: a loop of 300,000 iterations needs a limited number of
// entries, and its card still counts them all.
func TestI15_FoldIsBounded(t *testing.T) {
	const items = 300_000
	none := plan.Step{Then: plan.None, Else: plan.None, Body: plan.None, Fallback: plan.None, Compensate: plan.None, Action: plan.None, Slot: plan.None}
	loop, inner := none, none
	loop.ID, loop.Kind, loop.Body = "loop", plan.Loop, 1
	inner.ID, inner.Kind, inner.Graph = "inner", plan.Transform, 1
	p := &plan.Plan{
		Graphs: []plan.Graph{{N: 1, Owner: plan.None}, {First: 1, N: 1, Owner: 0, Role: plan.Body, Out: 1}},
		Steps:  []plan.Step{loop, inner},
	}
	f := NewFold(p, false)
	f.Add(&journal.Event{Kind: journal.EvRunStarted, Step: -1})
	f.Add(&journal.Event{Kind: journal.EvNodeOpened, N: items})
	for i := range items {
		path := journal.Path(fmt.Sprint(i))
		f.Add(&journal.Event{Kind: journal.EvNodeIteration, N: int64(i)})
		f.Add(&journal.Event{Kind: journal.EvNodeWaiting, Step: 1, Path: path})
		f.Add(&journal.Event{Kind: journal.EvNodeCompleted, Step: 1, Path: path})
	}
	if got := f.Known(); got > view.MaxKnown+2 {
		t.Errorf("%d entries, want at most %d", got, view.MaxKnown)
	}
	for _, want := range []struct {
		step int
		line string
	}{{0, "running · ×300000 ✓300000"}, {1, "×300000 ✓300000"}} {
		if got := (&State{f.Steps[want.step]}).summary(want.step == 1); got != want.line {
			t.Errorf("step %d: %q, want %q", want.step, got, want.line)
		}
	}
}
