// SPDX-License-Identifier: Apache-2.0

//go:build !small

package extend_test

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/fuzztest"
	"github.com/roux-engine/roux/internal/plan"
)

// FuzzExtend: a text that extends another one, and perhaps itself, has a plan or problems, at a bounded cost.
func FuzzExtend(f *testing.F) {
	f.Add("name: own\nextends: [base.yaml]\noverride: [functions.f, a]\nfunctions: {f: {expression: '2'}}\nsteps:\n  - {id: a, transform: {expression: f()}}\n",
		"name: base\nfunctions: {f: {expression: '1'}}\nsteps:\n  - {id: a, transform: {expression: f()}}\n")
	f.Add("name: own\nextends: [{file: base.yaml, with: {text: '{{ input.x }}'}}, own.yaml]\noutputs: {b: steps.b.output}\n",
		"name: base\nextends: [root.yaml]\ntemplateParameters: {text: {type: string}}\nsteps:\n  - {id: b, transform: {value: '{{ workflow.text }}'}}\n")
	for _, text := range fuzztest.Strings(fuzztest.Recipes(f)) {
		own := "name: own\nextends: [base.yaml]\nsteps:\n  - {id: last, transform: {expression: '1'}}\n"
		f.Add(own, text)
		if strings.Contains(text, "\nsteps:") {
			f.Add("extends: [base.yaml]\n"+text, "name: base\nextends: []\nvalues: {v: 1}\nlimits: {max_loop_items: 5}\n")
		}
	}
	opt := options(nil)
	f.Fuzz(func(t *testing.T, own, base string) {
		if len(own)+len(base) > 32<<10 {
			return
		}
		opt := opt
		opt.Recipes = texts{"own.yaml": own, "base.yaml": base, "root.yaml": "name: root\nvalues: {v: 1}\nsteps:\n  - {id: r, transform: {expression: workflow.v}}\n"}
		var p *plan.Plan
		failed := false
		fuzztest.Bounded(t, "Source", func() {
			q, _, _, diags := compile.Source("own.yaml", []byte(own), opt)
			p, failed = q, compile.HasErrors(diags)
		})
		if (p == nil) != failed {
			t.Errorf("a plan: %t, errors: %t", p != nil, failed)
		}
	})
}
