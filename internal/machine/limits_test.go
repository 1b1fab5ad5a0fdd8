// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// TestContinue: one Decide yields at most 1,000 events or 1 MiB, then owes
// CmdContinue. The events are the same as without the limit, and a run that is
// restored in between owes the same (design 3).
func TestContinue(t *testing.T) {
	src := "name: r\nlimits: {max_total_steps: 5000}\nsteps:\n  - {id: l, loop: {over: input.list, maxConcurrency: 7, steps: [{id: x, transform: {expression: item + 1}}]}, outputBinding: all}\noutputs: {n: size(all)}\n"
	prog := Prepare(compilePlan(t, src))
	list := make([]any, 1200)
	for k := range list {
		list[k] = int64(k)
	}
	run := NewRun(prog)
	led := newLedger(run)
	in := &Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "a", Parameters: map[string]any{"list": list}}}
	var turn Turn
	turns, events := 0, 0
	for {
		turns++
		led.run.Decide(in, &turn)
		events += len(turn.Events)
		if len(turn.Events) > MaxEvents {
			t.Fatalf("turn %d has %d events", turns, len(turn.Events))
		}
		if err := led.turn(&turn); err != nil {
			t.Fatal(err)
		}
		if len(turn.Commands) == 0 {
			break
		}
		if len(turn.Commands) != 1 || turn.Commands[0].Kind != CmdContinue {
			t.Fatalf("turn %d owes %v", turns, turn.Commands)
		}
		back, err := Restore(prog, led.run.Snapshot(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := supplyAll(back, led.frames); err != nil {
			t.Fatal(err)
		}
		led.run = back
		in = &Input{Kind: InContinue, At: t0}
	}
	if led.run.status != journal.RunCompleted || turns < 3 {
		t.Fatalf("the run is %s after %d turns of %d events", led.run.status, turns, events)
	}
	last := turn.Events[len(turn.Events)-1]
	if got := string(last.Data); got != `{"n":1200}` {
		t.Errorf("outputs %s", got)
	}
}

// The same by size: a turn stops once it holds 1 MiB, so that a batch of large outputs
// becomes several commits.
func TestContinueBySize(t *testing.T) {
	src := "name: r\nsteps:\n  - {id: l, loop: {over: '[1, 2, 3, 4, 5, 6, 7, 8]', steps: [{id: x, transform: {expression: input.text + string(item)}}]}}\n"
	prog := Prepare(compilePlan(t, src))
	run := NewRun(prog)
	var turn Turn
	run.Decide(&Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Parameters: map[string]any{"text": strings.Repeat("x", 200_000)}}}, &turn)
	for turns := 0; ; turns++ {
		size := 0
		for i := range turn.Events {
			size += len(turn.Events[i].Data)
		}
		if size > MaxBytes+200_100 {
			t.Fatalf("turn %d holds %d bytes", turns, size)
		}
		if run.status.Terminal() {
			if turns < 2 {
				t.Fatalf("1.6 MB went through %d turns: %s %s", turns+1, run.code, run.message)
			}
			return
		}
		if len(turn.Commands) == 1 && turn.Commands[0].Kind == CmdCollect {
			run.Decide(&Input{Kind: InResult, At: t0, Ref: turn.Commands[0].Ref, Fence: turn.Commands[0].Fence, Outcome: Success, Output: []byte(`{"file":"x"}`)}, &turn)
			continue
		}
		run.Decide(&Input{Kind: InContinue, At: t0}, &turn)
	}
}

// TestF21_Boundaries: each limit allows its exact figure and refuses one more.
func TestF21_Boundaries(t *testing.T) {
	word := func(n int64) []byte { return append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, int(n)-2)...), '"') }
	t.Run("an output of 1 MiB", func(t *testing.T) {
		for n, want := range map[int64]journal.Status{maxInline: journal.Completed, maxInline + 1: journal.StepFailed} {
			d := drive(t, Prepare(compilePlan(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n")))
			d.do(&Input{Kind: InGranted, Ref: journal.Ref{}})
			d.do(&Input{Kind: InResult, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Success, Output: word(n)})
			st := d.run.root
			if st.steps[0].status != want || want == journal.StepFailed && st.errs[0].code != fault.OutputTooLarge {
				t.Errorf("%d bytes: %s %v", n, st.steps[0].status, st.errs[0])
			}
		}
	})
	t.Run("memory", func(t *testing.T) {
		for extra, want := range map[int64]journal.Status{0: journal.Completed, 1: journal.StepFailed} {
			d := drive(t, Prepare(compilePlan(t, "name: r\nlimits: {memory_limit_mb: 1}\nsteps:\n  - {id: a, action: {name: work}, outputBinding: x}\noutputs: {n: size(x)}\n")))
			d.do(&Input{Kind: InGranted, Ref: journal.Ref{}})
			left := d.run.plan.Limits.MemoryBytes - d.run.Memory()
			d.do(&Input{Kind: InResult, Ref: journal.Ref{}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Success, Output: word(left + extra)})
			st := d.run.root
			if st.steps[0].status != want || want == journal.StepFailed && st.errs[0].code != fault.MemoryLimit {
				t.Errorf("%d bytes past the limit: %s %v", extra, st.steps[0].status, st.errs[0])
			}
		}
	})
	t.Run("a batch of items in memory", func(t *testing.T) {
		for extra, want := range map[int64]journal.Status{0: journal.Running, 1: journal.StepFailed} {
			d := drive(t, Prepare(compilePlan(t, "name: r\nlimits: {memory_limit_mb: 1}\nsteps:\n  - {id: l, loop: {over: \"'sha256_"+strings.Repeat("a", 64)+"'\", steps: [{id: x, action: {name: work}}]}}\n")))
			left := d.run.plan.Limits.MemoryBytes - d.run.Memory()
			d.do(&Input{Kind: InItems, Ref: journal.Ref{}, Items: &Items{List: [][]byte{word(left - itemBytes - scopeBytes - stepBytes - 2 + extra)}}})
			if st := d.run.root; st.steps[0].status != want || want == journal.StepFailed && st.errs[0].code != fault.MemoryLimit {
				t.Errorf("%d bytes past the limit: %s %v", extra, st.steps[0].status, st.errs[0])
			}
		}
	})
	t.Run("steps", func(t *testing.T) { // X231
		for n, want := range map[int]journal.RunStatus{3: journal.RunCompleted, 4: journal.RunFailed} {
			items := strings.TrimSuffix(strings.Repeat("1, ", n), ", ")
			d := drive(t, Prepare(compilePlan(t, "name: r\nlimits: {max_total_steps: 4}\nsteps:\n  - {id: l, loop: {over: '["+items+"]', steps: [{id: x, transform: {expression: '1'}}]}}\n")))
			if d.run.status != want || want == journal.RunFailed && d.run.code != fault.StepLimit {
				t.Errorf("a loop of %d steps: %s %s", n, d.run.status, d.run.code)
			}
		}
	})
	t.Run("items", func(t *testing.T) {
		for n, want := range map[int]journal.RunStatus{5: journal.RunCompleted, 6: journal.RunFailed} {
			items := strings.TrimSuffix(strings.Repeat("1, ", n), ", ")
			d := drive(t, Prepare(compilePlan(t, "name: r\nlimits: {max_loop_items: 5}\nsteps:\n  - {id: l, loop: {over: '["+items+"]', steps: [{id: x, transform: {expression: '1'}}]}}\n")))
			if d.run.status != want || want == journal.RunFailed && d.run.code != fault.ItemLimit {
				t.Errorf("a loop of %d items: %s %s", n, d.run.status, d.run.code)
			}
		}
	})
	t.Run("signals that nobody waits for", func(t *testing.T) { // I15
		d := drive(t, Prepare(compilePlan(t, "name: r\nsteps:\n  - {id: a, action: {name: work}}\n")))
		for n := range maxSignals + 1 {
			d.do(&Input{Kind: InSignal, Name: "s" + strconv.Itoa(n)})
			if got, want := fault.CodeOf(d.turn.Err), fault.QuotaExceeded; d.turn.Err != nil && (n < maxSignals || got != want) {
				t.Fatalf("signal %d: %v", n, d.turn.Err)
			}
		}
		if d.turn.Err == nil {
			t.Error("one signal too many was taken")
		}
		d.do(&Input{Kind: InSignal, Name: "big", Data: word(maxInline + 1)})
		if fault.CodeOf(d.turn.Err) == "" || d.turn.Err == nil {
			t.Error("a signal of more than 1 MiB was taken")
		}
	})
}

// TestF21_OversizedRunIsCancelled: a run whose values, steps and pending signals are
// all at their limits can be cancelled.
func TestF21_OversizedRunIsCancelled(t *testing.T) {
	const src = "name: r\norder: none\nlimits: {memory_limit_mb: 1, max_total_steps: 3}\nsteps:\n" +
		"  - {id: a, action: {name: work}, outputBinding: x}\n  - {id: b, wait: {signal: never}}\n  - {id: c, action: {name: work}}\noutputs: {n: size(x)}\n"
	d := drive(t, Prepare(compilePlan(t, src)))
	d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: 0}})
	d.do(&Input{Kind: InGranted, Ref: journal.Ref{Step: 2}})
	for n := range maxSignals {
		d.do(&Input{Kind: InSignal, Name: "s" + strconv.Itoa(n)})
	}
	left := d.run.plan.Limits.MemoryBytes - d.run.Memory()
	d.do(&Input{Kind: InResult, Ref: journal.Ref{Step: 0}, Fence: journal.Fence{Gen: 1, Attempt: 1}, Outcome: Success, Output: []byte(`"` + strings.Repeat("x", int(left)-2) + `"`)})
	if got, limit := d.run.Memory(), d.run.plan.Limits.MemoryBytes; got != limit || d.run.status != journal.RunRunning {
		t.Fatalf("the run holds %d bytes of %d and is %s", got, limit, d.run.status)
	}
	d.do(&Input{Kind: InCancel, Text: "too big"})
	if d.turn.Err != nil || d.run.status != journal.RunCancelled || d.run.code != fault.ExecutionCancelled {
		t.Errorf("cancelled: %v, the run is %s %s", d.turn.Err, d.run.status, d.run.code)
	}
}

// TestF22_DeepAndWide: ten nested scopes with a thousand steps each end within the
// step limit, and no turn exceeds its limit.
func TestF22_DeepAndWide(t *testing.T) {
	const depth, wide = 10, 1_000
	steps := `{"id": "last", "action": {"name": "work"}}`
	for level := range depth {
		var b strings.Builder
		for i := range wide - 1 {
			b.WriteString(`{"id": "s` + strconv.Itoa(level) + "x" + strconv.Itoa(i) + `", "transform": {"expression": "1"}}, `)
		}
		steps = b.String() + steps
		if level < depth-1 {
			steps = `{"id": "c` + strconv.Itoa(level) + `", "condition": {"expression": "true", "then": [` + steps + `]}}`
		}
	}
	run := NewRun(Prepare(compilePlan(t, `{"name": "r", "order": "none", "limits": {"max_total_steps": 10000}, "steps": [`+steps+`]}`)))
	var turn Turn
	in, turns := &Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Pins: pinsOf(run.plan)}}, 0
	for ; !run.status.Terminal(); turns++ {
		run.Decide(in, &turn)
		if len(turn.Events) > MaxEvents || turns > 100 {
			t.Fatalf("turn %d has %d events", turns, len(turn.Events))
		}
		in = &Input{Kind: InContinue, At: t0}
		for _, c := range turn.Commands {
			switch c.Kind {
			case CmdAcquire:
				in = &Input{Kind: InGranted, At: t0, Ref: c.Ref}
			case CmdDispatch:
				in = &Input{Kind: InResult, At: t0, Ref: c.Ref, Fence: c.Fence, Outcome: Success, Output: []byte("1")}
			}
		}
	}
	if run.status != journal.RunCompleted || run.started != depth*wide || turns < depth {
		t.Errorf("%s (%s) after %d steps in %d turns", run.status, run.message, run.started, turns)
	}
}

// Sizes are printed in the largest unit that is at least one.
func TestSizeText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1023: "1023 bytes", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1024.0 KiB", 1 << 20: "1.0 MiB", 5 << 19: "2.5 MiB",
	} {
		if got := sizeText(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
