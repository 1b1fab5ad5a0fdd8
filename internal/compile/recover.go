// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"reflect"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/recipe"
)

// checkMalformed finds what else is wrong with a text that already has problems of
// form, so that a person mends all of it in one go. What is wrong in form is left out,
// and a step of which nothing else remains is a stand-in with its name.
func checkMalformed(src *recipe.Source, diags []fault.Diagnostic, opt Options) []fault.Diagnostic {
	draft := src.Recovered()
	if draft == nil || len(draft.Steps) == 0 || len(diags) >= recipe.MaxDiagnostics {
		return diags
	}
	m := repairer{recovered: draft}
	broken, unknown := make(map[string]bool, len(diags)), ""
	for _, d := range diags {
		if d.Rule == "unknown-field" {
			unknown = d.Pointer
		}
		switch {
		case unknown != "" && (d.Pointer == unknown || strings.HasPrefix(d.Pointer, unknown+"/")):
			// The draft is without it, and means the rest.
		case inSteps(d.Pointer):
			m.repair(d)
		default:
			for at := d.Pointer; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
				broken[at] = true
			}
		}
	}
	clearFields(draft, broken)
	draft.Steps = addPlaceholders(draft.Steps)
	_, more := Compile(draft, src, opt)
	for _, d := range more {
		if d.Severity == fault.SeverityError && (!src.Partial() || !slices.Contains(wholeTextRules, d.Rule)) && !m.cascades(d) {
			diags = append(diags, d)
		}
	}
	sortDiagnostics(diags)
	return diags[:min(len(diags), recipe.MaxDiagnostics)]
}

// wholeTextRules are the rules that a step or field breaks only if what it refers to
// is nowhere in the text.
var wholeTextRules = []string{
	"unknown-step", "undefined-name", "invisible-step", "other-scope", "missing-input", "missing-field", "stray-fallback",
	"no-steps", "not-parallelizable",
}

// clearFields empties the fields of the recipe itself that have a problem.
func clearFields(r *recipe.Recipe, broken map[string]bool) {
	v := reflect.ValueOf(r).Elem()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "steps" && (broken["/"+name] || broken["/plan_definition/"+name]) {
			v.Field(i).SetZero()
		}
	}
}
