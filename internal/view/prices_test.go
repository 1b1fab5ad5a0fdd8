// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// What steps with a price cost is the same in every view of a run: of its last
// completion, of all completions, and rounded up once for the run. What attempts cost
// that did not complete their step is told apart.
func TestViewsOfPrices(t *testing.T) {
	const base = "../machine/testdata/journals/prices"
	data, err := os.ReadFile(base + ".plan.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	frames, err := os.ReadFile(base + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	run, tally, tracer := NewRun(p, "run_1"), NewTally(p, false), NewTracer(p, "run_1", 100)
	ref, err := journal.ParseRef(p, "a")
	if err != nil {
		t.Fatal(err)
	}
	explainer := NewExplainer(p, "run_1", ref)
	var texts []string
	whyBefore := ""
	if err := journal.EachEvent(frames, func(ev *journal.Event) error {
		tally.Add(ev)
		if ev.Kind == journal.EvNodeCharged {
			texts = append(texts, EventText(p, ev))
		}
		for _, apply := range []func(*journal.Event) error{run.Apply, tracer.Apply, explainer.Apply} {
			if err := apply(ev); err != nil {
				return err
			}
		}
		if ev.Kind == journal.EvRunFailed { // the first generation
			whyBefore = strings.Join(explainer.Explain().Why, "; ")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0.3 cr, not charged", "0.25 cr", "0.4 cr", "0.4 cr", "0.000001 cr", "0.4 cr", "0.4 cr"}; !slices.Equal(texts, want) {
		t.Errorf("the events say %q, want %q", texts, want)
	}
	a := run.ByPath["a"]
	if a.Cost != 1 || a.Lost != 0 || run.Used() != 8 || run.ByPath["each[0].x"].Cost != 400_000 || run.ByPath["each[0].y"].Cost != 2*ledger.Credit {
		t.Errorf("step a cost %s and %s, the run %d", a.Cost, a.Lost, run.Used())
	}
	if got := tally.Steps[ref.Step].Cost; got != 250_001 {
		t.Errorf("all completions of a cost %s", got)
	}
	trace, err := json.Marshal(tracer.Trace(0))
	if err != nil || !strings.Contains(string(trace), `"credits":0.250001`) || !strings.Contains(string(trace), `"credits":8`) {
		t.Errorf("the trace is %s, %v", trace, err)
	}
	why := strings.Join(explainer.Explain().Why, "; ")
	if !strings.Contains(why, "it cost 0.000001 of the 8 credits the run has used") || strings.Contains(why, "not charged") {
		t.Errorf("the explanation is %q", why)
	}
	if !strings.Contains(whyBefore, "it cost 0.25 of the 3 credits the run has used; attempts that did not complete it cost 0.3, which is not charged") {
		t.Errorf("before the retry the explanation is %q", whyBefore)
	}
}
