// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/spell"
)

// A location is a place in the source: a JSON pointer and the part of its value that
// is meant. Line and column are looked up only when a problem is reported there.
type location struct {
	ptr    string
	key    bool // the name of the field, not its value
	inside bool // off and n are an offset and a length within the string value, in runes
	off, n int
}

func (c *compiler) valueAt(ptr string) location { return location{ptr: ptr} }
func (c *compiler) keyAt(ptr string) location   { return location{ptr: ptr, key: true} }

// word is the name of a field in the dialect of the text, for messages.
func (c *compiler) word(ptr string) string {
	if c.src != nil {
		ptr = c.src.Pointer(ptr)
	}
	return ptr[strings.LastIndexByte(ptr, '/')+1:]
}

// depends is the name of the field with the dependencies of a step.
func (c *compiler) depends(i int32) string { return c.word(c.nodes[i].ptr + "/dependsOn") }

func (s location) in(off, n int) location {
	s.inside, s.off, s.n = true, off, n
	return s
}

func (c *compiler) pos(s location) fault.Pos {
	switch {
	case c.src == nil:
		return fault.Pos{}
	case s.inside:
		return c.src.PosIn(s.ptr, s.off, s.n)
	case s.key:
		return c.src.KeyPos(s.ptr)
	default:
		return c.src.Pos(s.ptr)
	}
}

// pointer returns the JSON pointer of a location in the text.
func (c *compiler) pointer(s location) string {
	if c.src == nil {
		return s.ptr
	}
	return c.src.Pointer(s.ptr)
}

func (c *compiler) fail(code fault.Code, rule string, at location, msg, hint string, related ...fault.Place) {
	c.report(fault.SeverityError, code, rule, at, msg, hint, related)
}

func (c *compiler) warn(rule string, at location, msg, hint string, related ...fault.Place) {
	c.report(fault.SeverityWarning, fault.RecipeInvalid, rule, at, msg, hint, related)
}

func (c *compiler) report(sev fault.Severity, code fault.Code, rule string, at location, msg, hint string, related []fault.Place) {
	// The compiler may find one mistake several times; it is reported once.
	if c.full(sev) {
		return
	}
	key := strings.Join([]string{rule, at.ptr, strconv.Itoa(at.off), msg}, "\x00")
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	c.count[sev]++
	c.diags = append(c.diags, fault.Diagnostic{
		Severity: sev, Code: code, Rule: rule, Msg: msg, Pos: c.pos(at), Hint: hint, Pointer: c.pointer(at), Related: related,
	})
}

// full reports whether there are as many diagnostics of a severity as are reported. The
// cost of a good message grows with the recipe, so callers check before they make one.
func (c *compiler) full(sev fault.Severity) bool { return c.count[sev] >= form.MaxDiagnostics }

func (c *compiler) place(at location, msg string) fault.Place {
	return fault.Place{Pos: c.pos(at), Msg: msg}
}

// sortDiagnostics sorts diagnostics in the order of the source, those in the file main
// first and those in files that it includes after it.
func sortDiagnostics(diags []fault.Diagnostic, main string) {
	other := func(d *fault.Diagnostic) int {
		if d.Pos.File == main {
			return 0
		}
		return 1
	}
	heap.Sort(diags, func(a, b fault.Diagnostic) int {
		return cmp.Or(cmp.Compare(other(&a), other(&b)), cmp.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col),
			cmp.Compare(a.Severity, b.Severity))
	})
}

// list joins names for a sentence: "a, b or c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// didYouMean returns a hint with the closest of names, or "" when none is close.
func didYouMean(name string, names []string) string {
	if best := spell.Closest(name, names); best != "" {
		return "did you mean " + strconv.Quote(best) + "?"
	}
	return ""
}
