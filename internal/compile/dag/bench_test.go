// SPDX-License-Identifier: Apache-2.0

package dag_test

import (
	"testing"

	"github.com/roux-engine/roux/internal/compile/dialecttest"
)

// BenchmarkCompile: 1,000 nodes with one template, and with a template each.
func BenchmarkCompile(b *testing.B) {
	dialecttest.Compile(b, "nodes:\n", "  - {id: n%d, handler: echo, config: {text: \"{{ input.text }} %d\"}}\n", options())
}
