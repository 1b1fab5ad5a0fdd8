// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"

	"github.com/roux-engine/roux/internal/spell"
)

// suggest returns a hint with the known name that is closest to name, or "" when none is
// close.
func suggest(name string, known []string) string {
	if best := nearest(name, known); best != "" {
		return didYouMean(best)
	}
	return ""
}

func didYouMean(name string) string { return `did you mean "` + name + `"?` }

func nearest(name string, known []string) string {
	best, least := "", min(max(1, len(name)/3), len(name)-1)
	for _, k := range known {
		if d := spell.Distance(strings.ToLower(name), strings.ToLower(k), least+1); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// A callForm is how a function is called.
type callForm struct {
	global string // before its arguments: toJson, math.sqrt
	member string // after its first argument: list.sum
	counts []int  // of arguments, if it is a macro
}

// callForms are the functions and macros that an expression may call, by the last part of
// their names.
var callForms = sync.OnceValue(func() map[string]*callForm {
	all := map[string]*callForm{}
	at := func(name string) *callForm {
		name = lastName(name)
		if all[name] == nil {
			all[name] = &callForm{}
		}
		return all[name]
	}
	functions := base().Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		if first := lastName(name)[0]; first < 'a' || first > 'z' {
			continue
		}
		for _, o := range functions[name].OverloadDecls() {
			switch c := at(name); {
			case o.IsMemberFunction():
				c.member = cmp.Or(c.member, receiver(o.ArgTypes()[0])+"."+name)
			case c.global == "" || !strings.Contains(name, "."):
				c.global = name
			}
		}
	}
	for _, m := range base().Macros() {
		c := at(m.Function())
		if m.IsReceiverStyle() {
			c.member = cmp.Or(c.member, cmp.Or(macroReceivers[m.Function()], "list")+"."+m.Function())
		} else {
			c.global = m.Function()
		}
		c.counts = append(c.counts, m.ArgCount())
	}
	return all
})

// macroReceivers are the words before the dot of macros whose receiver is not a list.
var macroReceivers = map[string]string{
	"bind": "cel", "greatest": "math", "least": "math", "optMap": "optional", "optFlatMap": "optional",
}

// receiver returns a word for the values of a type.
func receiver(t *cel.Type) string {
	name, _, _ := strings.Cut(t.String(), "(")
	return strings.ToLower(strings.TrimSuffix(lastName(name), "_type"))
}

// functionHint returns a hint for an undefined function. member is set when it was called
// after a dot.
func functionHint(name string, member bool) string {
	best := nearest(name, slices.Sorted(maps.Keys(callForms())))
	if best == "" {
		return ""
	}
	if hint := callFormHint(best, member); hint != "" {
		return hint
	}
	if best != name {
		return didYouMean(best)
	}
	var counts []string
	for _, n := range slices.Compact(slices.Sorted(slices.Values(callForms()[name].counts))) {
		counts = append(counts, strconv.Itoa(n))
	}
	if len(counts) == 0 {
		return ""
	}
	return "it takes " + strings.Join(counts, " or ") + " arguments"
}

// callFormHint returns a hint for a function that exists but is not called in this form.
func callFormHint(name string, member bool) string {
	c := callForms()[name]
	switch {
	case c == nil, member && c.member != "", !member && c.global == name:
		return ""
	case member:
		return didYouMean(c.global + "(…)")
	}
	return didYouMean(cmp.Or(c.member, c.global) + "(…)")
}

// lastName returns a name without its namespace.
func lastName(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }
