// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// nested is a loop in a loop: 1,000 items of the outer loop, and atOnce of each inner
// loop, run at the same time.
func nested(over, inner string, atOnce int, steps string) string {
	return fmt.Sprintf("name: r\nlimits: {memory_limit_mb: 16, max_total_steps: 1000000}\nsteps:\n"+
		"  - {id: outer, loop: {over: '%s', maxConcurrency: 1000, steps: [{id: inner, loop: {over: '%s', maxConcurrency: %d, steps: [%s]}}]}}\n",
		over, inner, atOnce, steps)
}

// TestMemoryLimitIsKept: a run fails with MEMORY_LIMIT before the heap grows by twice
// its limit, whatever it holds: open iterations and their steps, the items of loops,
// small outputs, decoded lists.
func TestMemoryLimitIsKept(t *testing.T) {
	const thousand = "lists.range(1000)"
	for _, tt := range []struct{ name, src string }{
		{"iterations", nested(thousand, thousand, 1000, "{id: x, transform: {expression: item}}")},
		{"iterations of 20 steps", nested(thousand, thousand, 1000, strings.Repeat("{transform: {expression: item}}, ", 20))},
		{"iterations over lists of lists", nested("input.lists", "item", 1000, "{id: x, transform: {expression: item}}")},
		{"items", nested(thousand, thousand, 1, "{id: w, wait: {signal: go}}")},
		{"sides of conditions", nested(thousand, thousand, 1000,
			"{id: c, condition: {expression: \"true\", then: [{id: x, wait: {signal: go}}]}}")},
		{"branches", nested(thousand, thousand, 1000,
			"{id: p, parallel: {branches: [[{id: a, wait: {signal: go}}], [{id: b, wait: {signal: go}}]]}}")},
		{"outputs", nested(thousand, thousand, 1000, "{id: x, transform: {expression: \"[item, item]\"}}, {id: w, wait: {signal: go}}")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prog := Prepare(compilePlan(t, tt.src))
			limit := prog.plan.Limits.MemoryBytes
			run := NewRun(prog)
			most := growth(t, run)
			if run.code != fault.MemoryLimit {
				t.Errorf("the run is %s: %s %s", run.status, run.code, run.message)
			}
			if most > 2*limit {
				t.Errorf("the heap grew by %d bytes; the limit is %d, of which %d were counted", most, limit, run.Memory())
			}
		})
	}
}

// growth runs the machine until nothing is left to decide, and returns the largest
// growth of the heap.
func growth(t *testing.T, run *Run) (most int64) {
	var turn Turn
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	ones := make([]any, 1000)
	for k := range ones {
		ones[k] = int64(1)
	}
	lists := make([]any, 400)
	for k := range lists {
		lists[k] = ones
	}
	base := heap()
	in := &Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "a", Parameters: map[string]any{"lists": lists}}}
	for turns := 0; ; turns++ {
		run.Decide(in, &turn)
		if n := len(turn.Commands); n == 0 || turn.Commands[n-1].Kind != CmdContinue {
			break
		}
		if turns%8 == 0 {
			clear(turn.Events[:cap(turn.Events)])
			if most = max(most, heap()-base); most > 4*run.limits.MemoryBytes {
				break
			}
		}
		in = &Input{Kind: InContinue, At: t0}
	}
	if err := run.Check(); err != nil {
		t.Error(err)
	}
	return max(most, heap()-base)
}

// TestDecodedValuesAreForgotten: decoded values do not accumulate. Each list of 200 kB
// takes 2.4 MB once an expression has read it.
func TestDecodedValuesAreForgotten(t *testing.T) {
	var b strings.Builder
	const n = 60
	for k := range n {
		fmt.Fprintf(&b, "  - {id: s%d, action: {name: work}}\n  - {id: t%d, transform: {expression: 'size(steps.s%d.output)'}}\n", k, k, k)
	}
	src := "name: r\nlimits: {memory_limit_mb: 16}\nsteps:\n" + b.String() + "  - {id: last, wait: {signal: go}}\noutputs: {all: '"
	for k := range n {
		src += fmt.Sprintf("steps.s%d.output == 1 || ", k)
	}
	run := NewRun(Prepare(compilePlan(t, src+"true'}\n")))
	var turn Turn
	run.Decide(&Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "a", Pins: pinsOf(run.plan)}}, &turn)
	list := "[" + strings.TrimSuffix(strings.Repeat("7,", 100_000), ",") + "]"
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for len(turn.Commands) > 0 {
		c := turn.Commands[0]
		in := &Input{Kind: InGranted, At: t0, Ref: c.Ref}
		if c.Kind == CmdDispatch {
			in = &Input{Kind: InResult, At: t0, Ref: c.Ref, Fence: c.Fence, Outcome: Success, Output: []byte(list)}
		}
		run.Decide(in, &turn)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if run.status != journal.RunRunning || run.valueMem < n*200_000 {
		t.Fatalf("the run is %s (%s) and holds %d bytes of values", run.status, run.message, run.valueMem)
	}
	if limit := run.limits.MemoryBytes; grown > 2*limit+12*minDecoded {
		t.Errorf("%d bytes of values take %d of the heap; the limit is %d", run.valueMem, grown, limit)
	}
}

// TestMemoryOfScopesIsGivenBack: the memory of scopes is counted while they are open,
// and a restored run counts the same.
func TestMemoryOfScopesIsGivenBack(t *testing.T) {
	src := "name: r\nsteps:\n  - {id: l, loop: {over: 'lists.range(20)', maxConcurrency: 5, steps: [{id: x, action: {name: work}}]}}\n  - {id: w, wait: {signal: go}}\n"
	prog := Prepare(compilePlan(t, src))
	run := NewRun(prog)
	var turn Turn
	run.Decide(&Input{Kind: InStart, At: t0, Start: &journal.Start{Run: "run_1", Account: "a", Pins: pinsOf(run.plan)}}, &turn)
	open := run.structMem
	if want := int64(5*(scopeBytes+stepBytes) + compositeBytes + 20*itemBytes); open != want {
		t.Errorf("five open iterations are counted as %d bytes, want %d", open, want)
	}
	for k := 0; len(turn.Commands) > 0; k++ {
		c := turn.Commands[0]
		in := &Input{Kind: InGranted, At: t0, Ref: c.Ref}
		if c.Kind == CmdDispatch {
			in = &Input{Kind: InResult, At: t0, Ref: c.Ref, Fence: c.Fence, Outcome: Success, Output: []byte(`1`)}
		}
		rest := append([]Command(nil), turn.Commands[1:]...)
		run.Decide(in, &turn)
		turn.Commands = append(rest, turn.Commands...)
		if err := run.Check(); err != nil {
			t.Fatal(err)
		}
		back, err := Restore(prog, run.Snapshot(nil))
		if err != nil {
			t.Fatal(err)
		}
		if back.structMem != run.structMem {
			t.Fatalf("input %d: a restored run counts %d bytes, want %d", k, back.structMem, run.structMem)
		}
	}
	if run.status != journal.RunRunning || run.structMem != 0 {
		t.Errorf("the run is %s (%s) and counts %d bytes of scopes, none is open", run.status, run.message, run.structMem)
	}
}
