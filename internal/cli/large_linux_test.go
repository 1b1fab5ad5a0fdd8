// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// maxResident is what a large run may take of memory, in MiB.
const maxResident = 1024

// largeRun runs a recipe in the real binary and returns its times and its peak memory.
// The process reports the peak itself, because the peak that the kernel reports for a
// child starts at that of its parent, which is this test process.
func largeRun(t *testing.T, recipe string, args ...string) (took, cpu time.Duration, peak int) {
	t.Helper()
	_, env := dataEnv(t)
	note := filepath.Join(t.TempDir(), "peak")
	cmd := command(t, append(slices.Clone(env), "PEAK="+note), append([]string{"run", write(t, "large.yaml", recipe), "-q", "-o", "json"}, args...)...)
	var out, talk strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &talk
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%.2000s", err, talk.String(), out.String())
	}
	took = time.Since(began)
	if !strings.Contains(out.String(), `"status": "completed"`) {
		t.Fatalf("%.2000s", out.String())
	}
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), noted(t, note)
}

// chainRecipe has n action steps in order, each of which waits for the one before.
func chainRecipe(n int) string {
	var b strings.Builder
	b.WriteString("name: chain\nlimits: {max_total_steps: 1000000}\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: s%d, action: {name: effect, parameters: {n: %d}}}\n", i, i)
	}
	return b.String()
}

// TestF22_LargeRuns: 10,000 steps in order, and a loop over 100,000 items, end
// within 1 GiB, and what a step costs does not grow with the number of steps.
func TestF22_LargeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs without -short")
	}
	perStep := map[int]time.Duration{}
	for _, n := range []int{100, 1_000, 10_000} {
		took, cpu, peak := largeRun(t, chainRecipe(n), "--max-source", "16MiB")
		perStep[n] = cpu / time.Duration(n)
		t.Logf("%6d steps: %v, %v a step, %v CPU a step (start included), %d MiB", n, took.Round(time.Millisecond),
			(took / time.Duration(n)).Round(time.Microsecond), perStep[n].Round(time.Microsecond), peak)
		if peak > maxResident {
			t.Errorf("%d steps took %d MiB, want at most 1024", n, peak)
		}
	}
	// CPU time is compared, because other work on the machine affects it less than
	// elapsed time.
	if perStep[10_000] > 2*perStep[1_000] {
		t.Errorf("a step of 10,000 costs %v, one of 1,000 costs %v", perStep[10_000], perStep[1_000])
	}
	var items strings.Builder
	items.WriteString(`{"items": [0`)
	for i := 1; i < 100_000; i++ {
		fmt.Fprintf(&items, ",%d", i)
	}
	items.WriteString("]}")
	loop := `name: loop
limits: {max_total_steps: 1000000, max_loop_items: 100000}
steps:
  - id: each
    loop:
      over: input.items
      as: n
      maxConcurrency: 100
      steps:
        - {id: count, transform: {expression: "{'n': n, 'text': 'item ' + string(index)}"}}
`
	took, cpu, peak := largeRun(t, loop, "--input", "@"+write(t, "items.json", items.String()))
	t.Logf("100,000 items: %v, %v CPU, %d MiB", took.Round(time.Millisecond), cpu.Round(time.Millisecond), peak)
	if peak > maxResident {
		t.Errorf("100,000 items took %d MiB, want at most 1024", peak)
	}
}
