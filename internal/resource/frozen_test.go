// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// F46: every kind of event passes through each fold, and frozen journals are shown as they
// were when they were frozen.
func TestF46_FrozenJournals(t *testing.T) {
	kinds := map[journal.EventKind]bool{}
	frozen(t, func(t *testing.T, name string, p *plan.Plan, events []journal.Event) {
		r, state, shown, public := NewRun(p, "run_1", true), view.NewState(p), view.NewRun(p, "run_1"), journal.NewRenderer(p, "run_1")
		var join Coalescer
		var b bytes.Buffer
		percent := 0
		for i := range events {
			ev := &events[i]
			kinds[ev.Kind] = true
			for _, apply := range []func(*journal.Event) error{r.Apply, state.Apply, shown.Apply} {
				if err := apply(ev); err != nil {
					t.Fatal(err)
				}
			}
			for _, env := range join.Add(ev, public.Render(ev)) {
				b.WriteString(compact(t, env) + "\n")
			}
			for _, tag := range Tags(p, "run_1", ev) {
				b.WriteString(compact(t, tag) + "\n")
			}
			e := r.Execution(Facts{}, true)
			if ev.Kind == journal.EvRunRetried {
				percent = 0
			}
			if e.Progress.PercentComplete < percent || e.Progress.PercentComplete == 100 != (e.State == "completed") {
				t.Errorf("X100: after event %d the run is %s: %d percent, after %d", ev.Seq, e.State, e.Progress.PercentComplete, percent)
			}
			percent = e.Progress.PercentComplete
			if i+1 == len(events) || events[i+1].At != ev.At { // the end of a turn
				compare(t, r, state, shown)
			}
		}
		b.WriteString(text(t, r.Execution(Facts{}, true)) + "\n" + text(t, r.Job(Facts{})) + "\n")
		golden(t, name, b.Bytes())
	})
	for _, kind := range journal.Kinds() {
		if !kinds[kind] {
			t.Errorf("no journal has kind %d (%s)", kind, kind.Name())
		}
	}
}

// compare compares the fold with the state of the machine and with the view for people.
func compare(t *testing.T, r *Run, state *view.State, shown *view.Run) {
	t.Helper()
	e := r.Execution(Facts{}, false)
	if e.WaitState != state.WaitState() || e.ResumeToken != state.ResumeToken() || e.State != state.Status().String() || e.Generation != int64(state.Generation()) || e.Credits.Used != state.Used() {
		t.Errorf("after event %d: %s; the machine has %s, %s, %s, generation %d, used %d",
			r.Last(), text(t, e), state.WaitState(), state.ResumeToken(), state.Status(), state.Generation(), state.Used())
	}
	if f := shown.Funds; f != nil && (f.Reserved != e.Credits.Reserved || f.Estimated != e.Credits.Estimated) {
		t.Errorf("after event %d: credits %+v, want %+v", r.Last(), e.Credits, f)
	}
	for path, node := range r.Job(Facts{}).StepMetadata.WorkflowInstance.Nodes {
		s := shown.ByPath[path]
		if node.Status == "pending" || s == nil || s.Status == "invalidated" {
			continue
		}
		if node.Status != s.Status || node.Running && node.Attempt != s.Attempts {
			t.Errorf("after event %d %s is %s in attempt %d, want %s in attempt %d", r.Last(), path, node.Status, node.Attempt, s.Status, s.Attempts)
		}
	}
}

func compact(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	if err := compactJSON(&b, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares with a file, which -rewrite writes.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got\n%s", file, got)
	}
}

// Folding event by event and asking in between, in any order and at any time, gives the same
// as folding without asking.
func TestAskingChangesNothing(t *testing.T) {
	files, err := filepath.Glob("../machine/testdata/journals/*.bin")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, file := range files {
		names = append(names, filepath.Base(file[:len(file)-len(".bin")]))
	}
	rapid.Check(t, func(rt *rapid.T) {
		p, events := thaw(t, rapid.SampledFrom(names).Draw(rt, "journal"))
		n := rapid.IntRange(1, len(events)).Draw(rt, "events")
		asked := NewRun(p, "run_1", true)
		ask := []func(){
			func() { asked.Execution(Facts{}, true) }, func() { asked.Execution(Facts{}, false) },
			func() { asked.Job(Facts{}) }, func() { asked.Percent() }, func() { asked.WaitState() },
		}
		for i := range events[:n] {
			if err := asked.Apply(&events[i]); err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(0, 3).Draw(rt, "questions") {
				ask[rapid.IntRange(0, len(ask)-1).Draw(rt, "question")]()
			}
		}
		quiet := fold(t, p, events[:n])
		for _, pair := range [][2]any{{asked.Execution(Facts{}, true), quiet.Execution(Facts{}, true)}, {asked.Job(Facts{}), quiet.Job(Facts{})}} {
			if got, want := text(t, pair[0]), text(t, pair[1]); got != want {
				rt.Fatalf("after %d events of a run that was asked\n%s\nwant\n%s", n, got, want)
			}
		}
	})
}
