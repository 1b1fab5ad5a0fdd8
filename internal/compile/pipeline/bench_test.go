// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"testing"

	"github.com/roux-engine/roux/internal/compile/dialecttest"
)

// BenchmarkCompile: 1,000 steps with one template, and with a template each.
func BenchmarkCompile(b *testing.B) {
	dialecttest.Compile(b, "workflow:\n  name: long\n  steps:\n", "    - {name: n%d, type: claude, prompt: \"{{ inputs.text }} %d\"}\n", options())
}
