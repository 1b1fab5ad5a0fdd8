// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/config"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/term"
	"github.com/roux-engine/roux/internal/view"
)

func planFor(t *testing.T, text string) *plan.Plan {
	t.Helper()
	r, src, diags := dialect.Parse("test.yaml", []byte(text), form.Options{})
	if r == nil {
		t.Fatal(diags)
	}
	p, diags := compile.Compile(r, src, compile.Options{Actions: node.Catalogue(testActions())})
	if p == nil {
		t.Fatal(diags)
	}
	return p
}

func stepNamed(t *testing.T, p *plan.Plan, path string) journal.Ref {
	t.Helper()
	ref, err := journal.ParseRef(p, path)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

const everyLook = `name: looks
steps:
  - {id: done, transform: {expression: '1'}}
  - {id: tried, action: {name: flaky}, retryPolicy: {maxAttempts: 3}, dependsOn: []}
  - {id: awaited, wait: {signal: go}, dependsOn: []}
  - {id: side, condition: {expression: 'true', then: [{id: yes, transform: {expression: '1'}}]}, dependsOn: []}
  - {id: many, loop: {over: '[1, 2]', steps: [{id: each, action: {name: effect}}]}, dependsOn: []}
  - {id: bad, action: {name: broken}, dependsOn: []}
  - {id: later, transform: {expression: '2'}, dependsOn: [bad]}
`

// TestTreeLooks draws each status with its glyph and what a person needs to know.
func TestTreeLooks(t *testing.T) {
	p := planFor(t, everyLook)
	v := view.NewRun(p, "run_1")
	now := int64(1_000_000_000_000_000)
	var seq uint64
	say := func(path string, ev journal.Event) {
		t.Helper()
		seq++
		ev.Seq, ev.At = seq, now
		ev.Step = -1
		if path != "" {
			ref := stepNamed(t, p, path)
			ev.Path, ev.Step = ref.Path, ref.Step
		}
		if err := v.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	say("", journal.Event{Kind: journal.EvRunStarted, Data: []byte(`{"recipe":"looks\u001b[2J"}`)})
	say("", journal.Event{Kind: journal.EvRunStatus, Flag: uint8(journal.RunRunning)})
	say("done", journal.Event{Kind: journal.EvNodeCompleted, Data: []byte(`{"pages":6}`), N: 3, M: 41_000})
	say("tried", journal.Event{Kind: journal.EvNodeStarted, Attempt: 2})
	say("tried", journal.Event{Kind: journal.EvNodeRetried, Attempt: 2, Code: fault.ServiceUnavailable, Text: "away", N: now + 812_000})
	say("awaited", journal.Event{Kind: journal.EvNodeWaiting, Text: "go", N: now + 60_000_000})
	say("side", journal.Event{Kind: journal.EvNodeOpened, Flag: 1})
	say("many", journal.Event{Kind: journal.EvNodeOpened, N: 2})
	say("many", journal.Event{Kind: journal.EvNodeIteration, N: 0})
	say("many[0].each", journal.Event{Kind: journal.EvNodeStarted, Attempt: 1})
	say("many[0].each", journal.Event{Kind: journal.EvNodeProgress, N: 500_000, Text: "half"})
	say("bad", journal.Event{Kind: journal.EvNodeFailed, Code: fault.StepTimeout, Text: "too slow", M: 2_000_000})

	var out bytes.Buffer
	tr := &tree{screen: term.NewScreen(&out, true, func(string) string { return "" }), now: func() time.Time { return time.UnixMicro(now + 500_000) }, hint: (&app{account: config.Account}).hint}
	got := strings.Join(tr.lines(v, 30), "\n")
	for _, want := range []string{
		`▸ looks\x1b[2J  run_1`,
		"✓ done                     41 ms     3 cr  pages 6",
		"↻ tried  try 2/3           in 312 ms SERVICE_UNAVAILABLE: away",
		"⧗ awaited                  waiting   for the signal go, at most 59.5 s",
		"  next: roux runs signal run_1 go",
		"◐ side                     500 ms    → then",
		"◐ many                     500 ms    1 of 2 items begun",
		"◐ [0].each               500 ms    50 % half",
		"⏱ bad                      2.0 s     STEP_TIMEOUT: too slow",
		"○ later",
		"running · used 3 · elapsed 500 ms",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the tree lacks %q:\n%s", want, got)
		}
	}

	tr.draw(v)
	first := out.String()
	out.Reset()
	tr.draw(v)
	if up := fmt.Sprintf("\x1b[%dA", strings.Count(first, "\n")); !strings.HasPrefix(out.String(), up) {
		t.Errorf("the second drawing begins with %q, want %q", out.String()[:8], up)
	}
	if strings.Contains(first, "[38;") {
		t.Error("colour although none was wanted")
	}
}

// TestTreeFits checks that the tree of a large run fits the screen and shows the steps
// in progress.
func TestTreeFits(t *testing.T) {
	var text strings.Builder
	text.WriteString("name: large\nsteps:\n")
	for i := range 500 {
		fmt.Fprintf(&text, "  - {id: s%d, transform: {expression: '%d'}}\n", i, i)
	}
	p := planFor(t, text.String())
	v := view.NewRun(p, "run_1")
	for i := range 250 {
		ref := stepNamed(t, p, fmt.Sprintf("s%d", i))
		if err := v.Apply(&journal.Event{Seq: uint64(i + 1), Kind: journal.EvNodeCompleted, Step: ref.Step}); err != nil {
			t.Fatal(err)
		}
	}
	ref := stepNamed(t, p, "s250")
	if err := v.Apply(&journal.Event{Seq: 251, Kind: journal.EvNodeStarted, Step: ref.Step, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	tr := &tree{screen: term.NewScreen(&bytes.Buffer{}, true, func(string) string { return "" }), now: time.Now}
	lines := tr.lines(v, 22)
	got := strings.Join(lines, "\n")
	if len(lines) > 22 || !strings.Contains(got, "◐ s250") || !strings.Contains(got, "above") || !strings.Contains(got, "below") {
		t.Errorf("%d lines:\n%s", len(lines), got)
	}
}

// TestF22_ViewIsBounded checks that the view of a loop over 100,000 items holds only
// the items in progress and the first MaxSteps results.
func TestF22_ViewIsBounded(t *testing.T) {
	p := planFor(t, "name: many\nsteps:\n  - id: loop\n    loop: {over: '[1]', steps: [{id: each, action: {name: effect}}]}\n")
	v := view.NewRun(p, "run_1")
	seq := uint64(0)
	say := func(ref journal.Ref, ev journal.Event) {
		seq++
		ev.Seq, ev.Path, ev.Step = seq, ref.Path, ref.Step
		if err := v.Apply(&ev); err != nil {
			t.Fatal(err)
		}
	}
	loop := stepNamed(t, p, "loop")
	say(loop, journal.Event{Kind: journal.EvNodeOpened, N: 20_000})
	for i := range 20_000 {
		ref := stepNamed(t, p, fmt.Sprintf("loop[%d].each", i))
		say(ref, journal.Event{Kind: journal.EvNodeStarted, Attempt: 1})
		say(ref, journal.Event{Kind: journal.EvNodeCompleted, Data: []byte(`{"n":1}`), N: 1})
	}
	if len(v.Order) > 2*view.MaxSteps || len(v.ByPath) > 2*view.MaxSteps {
		t.Errorf("the view holds %d and %d steps", len(v.Order), len(v.ByPath))
	}
	r := resultOf(v)
	if len(r.Steps) != view.MaxSteps || !r.Truncated || r.Credits.Used != 20_000 {
		t.Errorf("the result has %d steps, truncated %t, used %d", len(r.Steps), r.Truncated, r.Credits.Used)
	}
}
