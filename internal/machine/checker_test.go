// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// TestCheckerItems: after a retry a loop may open an item again whose steps an earlier
// generation had queued, but only once.
func TestCheckerItems(t *testing.T) {
	p := compilePlan(t, `
name: r
steps:
  - id: each
    loop: {over: '[1]', steps: [{id: s, action: {name: work}}]}
`)
	d := &driven{t: t, run: NewRun(Prepare(p))}
	w := journal.NewChecker(p)
	see := func(ev journal.Event) error {
		ev.Seq = w.Last() + 1
		return w.Check(&ev)
	}
	var again []journal.Event // the item and its step
	for _, ev := range d.do(&Input{Kind: InStart, Start: &journal.Start{Run: "run_1", Account: "acct", Seed: 1, Pins: pinsOf(p)}}) {
		if ev.Kind == journal.EvNodeIteration || ev.Kind == journal.EvNodeQueued {
			again = append(again, ev)
		}
		if err := see(ev); err != nil {
			t.Fatal(err)
		}
	}
	if len(again) != 2 {
		t.Fatalf("%d events of the item", len(again))
	}
	for _, ev := range []journal.Event{{Kind: journal.EvRunFailed, At: w.At(), Step: -1}, {Kind: journal.EvRunRetried, At: w.At(), Step: -1, N: 2}} {
		if err := see(ev); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		var err error
		for _, ev := range again {
			if e := see(ev); e != nil {
				err = e
			}
		}
		if refused := err != nil && strings.Contains(err.Error(), "X76"); refused != (n > 0) {
			t.Errorf("time %d in generation 2: %v", n+1, err)
		}
	}
}
