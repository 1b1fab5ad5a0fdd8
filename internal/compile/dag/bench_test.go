// SPDX-License-Identifier: Apache-2.0

package dag_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/cputime"
)

// BenchmarkCompile: 1,000 nodes with one template, and with a template each.
func BenchmarkCompile(b *testing.B) {
	for _, distinct := range []bool{false, true} {
		var text strings.Builder
		text.WriteString("nodes:\n")
		for i := range 1000 {
			n := 0
			if distinct {
				n = i
			}
			fmt.Fprintf(&text, "  - {id: n%d, handler: echo, config: {text: \"{{ input.text }} %d\"}}\n", i, n)
		}
		b.Run(fmt.Sprintf("distinct=%t", distinct), func(b *testing.B) {
			began := cputime.Used()
			for b.Loop() {
				if p, _, _, diags := compile.Source("n.yaml", []byte(text.String()), options()); p == nil {
					b.Fatal(diags)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms")
			b.ReportMetric(float64((cputime.Used()-began).Milliseconds())/float64(b.N), "cpu-ms") // the same on a busy machine
		})
	}
}
