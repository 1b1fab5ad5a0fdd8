// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/view"
)

// Update returns the text of the test file with what the runs of its tests have given in place of
// what was expected, and how many expectations it has changed. A test without any gets them. All
// else stays as it is, comments included. What cannot be updated, such as a condition, stays and
// is listed in left.
func (f *File) Update() (text []byte, changed int, left []Mismatch) {
	text = f.text
	for i := range f.Results {
		r := &f.Results[i]
		if r.outcome == nil || r.Problem != "" {
			continue
		}
		if r.missing {
			if out, ok := f.set(text, strings.TrimSuffix(f.pointerOf(r.Test), "/name")+"/expect", r.outcome.expectation()); ok {
				text, changed = out, changed+1
			}
			continue
		}
		for k := range r.Mismatches {
			m := &r.Mismatches[k]
			if m.fixed {
				left = append(left, *m)
				continue
			}
			out, ok := f.set(text, m.Pointer, m.update)
			if !ok {
				left = append(left, *m)
				continue
			}
			text, changed = out, changed+1
		}
	}
	return text, changed, left
}

// pointerOf is where a test is in the file.
func (f *File) pointerOf(name string) string {
	for i := range f.suite.Tests {
		if f.suite.Tests[i].Name == name {
			return f.suite.Tests[i].pointer
		}
	}
	return ""
}

// set sets a value in a text; if its place cannot be edited, the value around it, up to the
// expectations of the test.
func (f *File) set(text []byte, pointer string, v any) ([]byte, bool) {
	for {
		d := newDraft(f.File, text)
		if d == nil {
			return nil, false
		}
		if out, ok := d.set(pointer, v); ok {
			return out, true
		}
		up := pointer[:strings.LastIndexByte(pointer, '/')]
		if !strings.Contains(up, "/expect") {
			return nil, false
		}
		around, ok := d.with(pointer, v, up)
		if !ok {
			return nil, false
		}
		pointer, v = up, around
	}
}

// expectation is what a test may expect of a run that ends like this one.
func (o *outcome) expectation() any {
	e := map[string]any{"status": o.status}
	if o.error != nil {
		e["error"] = map[string]any{"code": o.error.Code}
	}
	if len(o.outputs) > 0 && o.status == "completed" {
		e["exactly"] = view.Decoded(o.outputs)
	}
	return e
}

// Updated returns how many tests of the file have failed and pass now that the file was updated;
// left is what Update has left.
func (f *File) Updated(left []Mismatch) (n int) {
	for i := range f.Results {
		r := &f.Results[i]
		stays := func(m Mismatch) bool { return strings.HasPrefix(m.Pointer, f.pointerOf(r.Test)+"/") }
		if r.Outcome == Failed && r.Problem == "" && !slices.ContainsFunc(left, stays) {
			n++
		}
	}
	return n
}
