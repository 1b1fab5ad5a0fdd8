// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"fmt"
	"strings"
	"testing"
)

// sized writes a recipe of n steps in YAML.
func sized(n int) []byte {
	var b strings.Builder
	b.WriteString("name: sized\nsteps:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - id: step_%d\n    type: action\n    action:\n      name: resize-image\n      parameters: {width: %d, label: \"{{ input.label }}\"}\n"+
			"    inputBindings:\n      file: fileHashes[0]\n    outputBinding: out_%d\n    timeout: 5m\n", i, i, i)
	}
	return []byte(b.String())
}

// BenchmarkParse shows that the cost of a step does not grow with their number.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		text := sized(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if r, _, diags := Parse("sized.yaml", text, Options{MaxBytes: MaxBytes}); r == nil {
					b.Fatal(diags)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/step")
		})
	}
}
