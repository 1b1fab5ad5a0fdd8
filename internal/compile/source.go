// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/extend"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/plan"
)

// Source parses and compiles a text. The plan is nil when one of the diagnostics is an
// error, and the recipe is nil when the text is malformed. The source is never nil: it
// has the lines that diagnostics point at.
func Source(file string, text []byte, opt Options) (*plan.Plan, *recipe.Recipe, *recipe.Source, []fault.Diagnostic) {
	how := opt.extending(opt.Name)
	how.Form.YAML = opt.YAML
	r, src, diags := extend.Parse(file, text, how)
	if r == nil {
		diags = checkMalformed(src, diags, opt)
		sortDiagnostics(diags, file)
		return nil, nil, src, diags
	}
	p, more := Compile(r, src, opt)
	diags = append(diags, more...)
	sortDiagnostics(diags, file)
	if HasErrors(diags) {
		p = nil
	}
	return p, r, src, diags
}

// extending returns how a text and what it extends are read. name is that of a text that has none.
func (opt Options) extending(name string) extend.Options {
	return extend.Options{Form: form.Options{MaxBytes: int(opt.MaxSource), Name: name}, Recipes: opt.Recipes}
}
