// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/compile/repair"
)

// checkMalformed is the error recovery of the compiler: it finds further problems in a
// recipe whose text is malformed, so that a person can fix all of them at once. It
// compiles the recipe without its malformed parts; a step of which nothing else is left
// becomes a placeholder with its id.
func checkMalformed(src *recipe.Source, diags []fault.Diagnostic, opt Options) []fault.Diagnostic {
	recovered := src.Recovered()
	if recovered == nil || len(recovered.Steps) == 0 || len(diags) >= form.MaxDiagnostics {
		return diags
	}
	m := repair.Repairer{Recovered: recovered}
	broken, unknown := make(map[string]bool, len(diags)), ""
	for _, d := range diags {
		d.Pointer = src.ModelPointer(d.Pointer)
		if d.Rule == "unknown-field" {
			unknown = d.Pointer
		}
		switch {
		case unknown != "" && (d.Pointer == unknown || strings.HasPrefix(d.Pointer, unknown+"/")):
			// The recovered recipe does not have the unknown field, so nothing needs repair.
		case m.InSteps(d.Pointer):
			m.Repair(d)
		default:
			for at := d.Pointer; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
				broken[at] = true
			}
		}
	}
	clearFields(recovered, broken)
	recovered.Steps = repair.AddPlaceholders(recovered.Steps)
	_, more := Compile(recovered, src, opt)
	for _, d := range more {
		in := d
		in.Pointer = src.ModelPointer(d.Pointer)
		if d.Severity == fault.SeverityError && (!src.Partial() || !slices.Contains(wholeTextRules, d.Rule)) && !m.Cascades(in) {
			diags = append(diags, d)
		}
	}
	sortDiagnostics(diags, src.File())
	return diags[:min(len(diags), form.MaxDiagnostics)]
}

// wholeTextRules are the rules that can be judged only when the whole text could be
// read, because what a step or field refers to may be in the part that could not.
var wholeTextRules = []string{
	"unknown-step", "undefined-name", "invisible-step", "other-scope", "missing-input", "missing-field", "stray-fallback",
	"no-steps", "not-parallelizable",
}

// clearFields clears the top-level fields of the recipe that have a problem.
func clearFields(r *recipe.Recipe, broken map[string]bool) {
	v := reflect.ValueOf(r).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "steps" && !f.Anonymous && broken[r.Ptr+"/"+name] {
			v.FieldByIndex(f.Index).SetZero()
		}
	}
}
