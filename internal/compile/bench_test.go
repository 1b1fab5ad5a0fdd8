// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/cputime"
)

// longRecipe returns a recipe of n steps in sequence, each with inputs of its own: half of
// them name the step before, every tenth one a binding, and no two texts are equal.
func longRecipe(n int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: long\nlimits: {max_total_steps: %d}\nsteps:\n", n+1)
	for i := range n {
		switch {
		case i == 0:
			b.WriteString("  - {id: s0, action: {name: echo}, outputBinding: b0}\n")
		case i%10 == 0:
			fmt.Fprintf(&b, "  - {id: s%d, transform: {expression: size(string(b%d)) + %d, outputBinding: b%d}}\n", i, i-10, i, i)
		case i%2 == 0:
			fmt.Fprintf(&b, "  - {id: s%d, action: {name: echo, parameters: {n: %d, text: \"from {{ steps.s%d.output }}\"}}}\n", i, i, i-1)
		default:
			fmt.Fprintf(&b, "  - {id: s%d, action: {name: echo, parameters: {n: %d}}, inputBindings: {x: steps.s%d.status}}\n", i, i, i-1)
		}
	}
	return []byte(b.String())
}

// BenchmarkCompile shows that the time per step does not grow.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		text := longRecipe(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			began := cputime.Used()
			for b.Loop() {
				p, _, _, diags := Source("long.yaml", text, Options{Actions: testActions(), MaxSource: 16 << 20})
				if p == nil {
					b.Fatal(dumpDiagnostics(diags[:1]))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/step")
			b.ReportMetric(float64((cputime.Used()-began).Milliseconds())/float64(b.N), "cpu-ms") // the same on a busy machine
		})
	}
}
