// SPDX-License-Identifier: Apache-2.0

// Package sanitize decides what becomes of the input of a run before the run begins, where a recipe asks for it: texts
// in which a shell would run something are refused or removed (X171, R26).
//
// It changes nothing unless a policy says so, and says what it has changed. It never decides whether an input fits its
// schema (package program asks package jsonschema), reads no files, and knows no runs.
package sanitize

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A Policy says what happens to an input with texts in which a shell would run something.
type Policy string

// The policies. "" is Keep.
const (
	Keep   Policy = "keep"   // nothing is changed
	Reject Policy = "reject" // the input is refused
	Strip  Policy = "strip"  // what a shell would run is removed
)

// With returns the policy of an input to which both apply: the stricter one.
func (p Policy) With(other Policy) Policy {
	for _, strict := range []Policy{Reject, Strip} {
		if p == strict || other == strict {
			return strict
		}
	}
	return ""
}

// maxNamed is how many places a refusal names, and a [Result] lists.
const maxNamed = 100

// maxShown is how many places a message has beside the first one.
const maxShown = 10

// maxRounds is how often what is removed from a text may leave something that is to be removed in turn.
const maxRounds = 4

// expansions are what a shell runs, first as the source of the rule has it (S1): from the first opening mark of a line to
// the last closing one. The others find what goes over several lines.
var expansions = []*regexp.Regexp{
	regexp.MustCompile(`\$\{.*\}`), regexp.MustCompile("`.*`"), regexp.MustCompile(`\$\(.*\)`),
	regexp.MustCompile(`\$\{[^}]*\}`), regexp.MustCompile("`[^`]*`"), regexp.MustCompile(`\$\([^)]*\)`),
}

// A Result is an input after a policy was applied.
type Result struct {
	Input map[string]any
	// Changed are the JSON pointers of texts from which something was removed, in order, at most 100, and Count how
	// many there are.
	Changed []string
	Count   int
}

// Apply applies a policy to an input, which it does not change. An error is of the code fault.InputInvalid and names the
// places that are refused, without their values.
func (p Policy) Apply(input map[string]any) (Result, error) {
	if p != Reject && p != Strip {
		return Result{Input: input}, nil
	}
	w := walk{strip: p == Strip}
	out, _ := w.value(input)
	if len(w.refused) > 0 {
		return Result{}, &fault.Error{Code: fault.InputInvalid, Msg: w.summary(), Diags: w.refused}
	}
	res := Result{Input: input, Changed: w.changed, Count: w.count}
	if m, ok := out.(map[string]any); ok {
		res.Input = m
	}
	return res, nil
}

// A walk goes through the values of an input.
type walk struct {
	strip   bool
	path    jsonx.Path
	changed []string
	count   int
	refused []fault.Diagnostic
	places  []string // of refused
}

// value returns a value after the policy; changed is false if it is the same.
func (w *walk) value(v any) (out any, changed bool) {
	switch v := v.(type) {
	case string:
		return w.text(v)
	case []any:
		return w.list(v)
	case map[string]any:
		return w.object(v)
	case jsonx.Large:
		w.refuse("the value is so large that it is in a file, where its texts are not looked at: give the run the file instead")
	}
	return v, false
}

// summary is the first refusal, with the other places.
func (w *walk) summary() string {
	msg := w.refused[0].Msg
	for i, at := range w.places[1:] {
		if i == maxShown {
			return msg + fmt.Sprintf(" and %d more", len(w.places)-1-i)
		}
		if i == 0 {
			msg += "; also"
		}
		msg += " input" + at
	}
	return msg
}

func (w *walk) list(v []any) (any, bool) {
	var made []any
	for i, item := range v {
		w.path.PushIndex(i)
		if got, changed := w.value(item); changed {
			if made == nil {
				made = slices.Clone(v)
			}
			made[i] = got
		}
		w.path.Pop()
	}
	if made == nil {
		return v, false
	}
	return made, true
}

// object treats the values of an object. Its names are never changed, because two could become the same one.
func (w *walk) object(v map[string]any) (any, bool) {
	var made map[string]any
	for _, name := range slices.Sorted(maps.Keys(v)) {
		w.path.Push(name)
		if found(name) {
			w.refuse("the name of the field has a pattern that a shell would expand, and names are not changed")
		}
		if got, changed := w.value(v[name]); changed {
			if made == nil {
				made = maps.Clone(v)
			}
			made[name] = got
		}
		w.path.Pop()
	}
	if made == nil {
		return v, false
	}
	return made, true
}

func (w *walk) text(text string) (any, bool) {
	switch {
	case !found(text):
		return text, false
	case !w.strip:
		w.refuse("the text has what a shell would expand, such as $(), ${} or backticks, and inputPolicy is reject")
		return text, false
	}
	for range maxRounds {
		for _, e := range expansions {
			text = e.ReplaceAllLiteralString(text, "")
		}
		if !found(text) {
			if w.count++; len(w.changed) < maxNamed {
				w.changed = append(w.changed, w.path.Pointer())
			}
			return text, true
		}
	}
	w.refuse("removing what a shell would expand leaves more of it " + strconv.Itoa(maxRounds) + " times")
	return text, false
}

// found reports whether a shell would run something in a text.
func found(text string) bool {
	for _, marks := range [...][2]string{{"${", "}"}, {"$(", ")"}, {"`", "`"}} {
		if _, after, ok := strings.Cut(text, marks[0]); ok && strings.Contains(after, marks[1]) {
			return true
		}
	}
	return false
}

func (w *walk) refuse(msg string) {
	if len(w.refused) < maxNamed {
		w.places = append(w.places, w.path.Pointer())
		w.refused = append(w.refused, fault.Diagnostic{
			Severity: fault.SeverityError, Code: fault.InputInvalid, Rule: "input-policy", Msg: fmt.Sprintf("input%s: %s", w.path.Pointer(), msg),
		})
	}
}
