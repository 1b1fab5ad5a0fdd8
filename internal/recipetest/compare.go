// SPDX-License-Identifier: Apache-2.0

package recipetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/linediff"
	"github.com/roux-engine/roux/internal/view"
	"github.com/roux-engine/roux/internal/yamlx"
)

// A Mismatch is an expectation that does not hold.
type Mismatch struct {
	Pos fault.Pos `json:"pos"`
	// Pointer is where the expectation is in the test file (RFC 6901).
	Pointer string `json:"pointer"`
	Where   string `json:"where"` // such as output.total, or steps.b.status
	Want    any    `json:"want,omitempty"`
	Got     any    `json:"got,omitempty"`
	Msg     string `json:"message,omitempty"`
	Diff    string `json:"diff,omitempty"`

	update any  // what Update writes in place of it
	fixed  bool // it cannot be updated
}

// maxMismatches bounds how many mismatches of one test are kept.
const maxMismatches = 100

// A comparison compares the outcome of a run with what a test expects.
type comparison struct {
	pos  func(pointer string) fault.Pos
	list []Mismatch
	fill func(v any) (any, error) // replaces texts that stand for files
}

func (c *comparison) add(m Mismatch) {
	if len(c.list) < maxMismatches {
		m.Pos = c.pos(m.Pointer)
		c.list = append(c.list, m)
	}
}

// differs adds a mismatch of two values.
func (c *comparison) differs(pointer, where string, want, got any) {
	c.add(Mismatch{Pointer: pointer, Where: where, Want: want, Got: got, update: got})
}

// compare finds all that differs.
func (c *comparison) compare(t *Test, o *outcome) {
	e := t.Expect
	if e == nil {
		e = &Expect{}
	}
	at := t.pointer + "/expect"
	c.status(at, e, o)
	if e.Error != nil {
		c.error(at+"/error", "error", e.Error, o.error)
	}
	got := view.Decoded(o.outputs)
	if e.Output != nil {
		c.value(at+"/output", "output", e.Output, got, false)
	}
	if e.Exactly != nil {
		c.value(at+"/exactly", "output", e.Exactly, got, true)
	}
	c.pathOf(at, e, o)
	for _, path := range slices.Sorted(maps.Keys(e.Steps)) {
		c.step(at+"/steps/"+jsonx.EscapeToken(path), path, e.Steps[path], o)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Calls)) {
		if want, got := e.Calls[name], o.calls[name]; want != got {
			c.differs(at+"/calls/"+jsonx.EscapeToken(name), "calls of "+name, want, got)
		}
	}
	if e.Credits != nil {
		c.number(at+"/credits/estimated", "credits estimated", e.Credits.Estimated, o.bill.Estimated)
		c.number(at+"/credits/reserved", "credits reserved", e.Credits.Reserved, o.bill.Reserved)
		c.number(at+"/credits/charged", "credits charged", e.Credits.Charged, o.bill.Paid)
	}
	if e.Duration != "" && micros(e.Duration) != o.micros/1000*1000 {
		c.differs(at+"/duration", "duration", string(e.Duration), duration(o.micros))
	}
	for i, src := range e.Assert {
		c.assert(fmt.Sprintf("%s/assert/%d", at, i), src, o)
	}
}

// duration writes a virtual duration as a test file has it, in whole milliseconds.
func duration(us int64) string {
	return (time.Duration(us/1000) * time.Millisecond).String()
}

// status compares how the run has ended.
func (c *comparison) status(at string, e *Expect, o *outcome) {
	want := e.Status
	if want == "" {
		if want = "completed"; e.Error != nil {
			want = "failed"
		}
		if e.Error != nil && o.status == statusRefused {
			return // its error says why
		}
	}
	if o.status == want {
		return
	}
	m := Mismatch{Pointer: at + "/status", Where: "status", Want: want, Got: o.status, update: o.status}
	if o.error != nil {
		m.Msg = o.error.Code + ": " + o.error.Message
	}
	c.add(m)
}

func (c *comparison) error(at, where string, want *ExpectError, got *journal.StepError) {
	if got == nil {
		c.add(Mismatch{Pointer: at, Where: where, Want: "an error", Got: nil, Msg: "there is no error", fixed: true})
		return
	}
	if want.Code != "" && want.Code != got.Code {
		c.add(Mismatch{Pointer: at + "/code", Where: where + ".code", Want: want.Code, Got: got.Code, Msg: got.Message, update: got.Code})
	}
	if want.Message != "" && !strings.Contains(got.Message, want.Message) {
		c.differs(at+"/message", where+".message", want.Message, got.Message)
	}
}

func (c *comparison) number(at, where string, want *int64, got int64) {
	if want != nil && *want != got {
		c.differs(at, where, *want, got)
	}
}

// pathOf compares which steps ran, and in which order.
func (c *comparison) pathOf(at string, e *Expect, o *outcome) {
	if e.Path != nil {
		if got := o.ran(); !slices.Equal(e.Path, got) {
			c.add(Mismatch{Pointer: at + "/path", Where: "path", Want: e.Path, Got: got, Diff: diffOf(anyList(e.Path), anyList(got)), update: anyList(got)})
		}
	}
	last, lastName := "", ""
	for i, name := range e.Order {
		pointer := fmt.Sprintf("%s/order/%d", at, i)
		path, problem := o.find(name)
		switch {
		case problem != "":
			c.add(Mismatch{Pointer: pointer, Where: "order: " + name, Msg: problem, fixed: true})
			continue
		case o.seq.Ended[path] == 0:
			c.add(Mismatch{Pointer: pointer, Where: "order: " + name, Msg: "the step has not ended", fixed: true})
			continue
		case last != "" && o.seq.Ended[path] < o.seq.Ended[last]:
			c.add(Mismatch{Pointer: pointer, Where: "order: " + name, Msg: fmt.Sprintf("the step has ended before step %q", lastName), fixed: true})
		}
		last, lastName = path, name
	}
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// step compares a step.
func (c *comparison) step(at, path string, want ExpectStep, o *outcome) {
	where := "steps." + path
	found, problem := o.find(path)
	if problem != "" {
		if want.Status != "pending" {
			c.add(Mismatch{Pointer: at, Where: where, Msg: problem, fixed: true})
		}
		return
	}
	got := o.steps[found]
	if want.Status != "" && want.Status != got.Status {
		m := Mismatch{Pointer: at + "/status", Where: where + ".status", Want: want.Status, Got: got.Status, update: got.Status}
		if got.Error != nil {
			m.Msg = got.Error.Code + ": " + got.Error.Message
		}
		c.add(m)
	}
	if want.Reason != "" && want.Reason != got.Reason {
		c.differs(at+"/reason", where+".reason", want.Reason, got.Reason)
	}
	c.number(at+"/attempts", where+".attempts", want.Attempts, int64(got.Attempts))
	if want.Output != nil {
		c.value(at+"/output", where+".output", want.Output, view.Decoded(got.Output), false)
	}
	if want.Error != nil {
		c.error(at+"/error", where+".error", want.Error, got.Error)
	}
}

// value compares a value with what the text of a test has. With exact, objects have no further
// fields.
func (c *comparison) value(at, where string, raw json.RawMessage, got any, exact bool) {
	want, err := c.fill(decoded(raw))
	if err != nil {
		c.add(Mismatch{Pointer: at, Where: where, Msg: fault.Message(err), fixed: true})
		return
	}
	c.differences(at, where, want, got, exact)
}

func (c *comparison) differences(at, where string, want, got any, exact bool) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, name := range slices.Sorted(maps.Keys(w)) {
			v, has := g[name]
			if !has {
				c.add(Mismatch{Pointer: at + "/" + jsonx.EscapeToken(name), Where: where + "." + name, Want: w[name], Msg: "there is no such field", fixed: true})
				continue
			}
			c.differences(at+"/"+jsonx.EscapeToken(name), where+"."+name, w[name], v, exact)
		}
		if !exact {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(g)) {
			if _, named := w[name]; !named {
				c.add(Mismatch{Pointer: at, Where: where + "." + name, Got: g[name], Msg: "the field is not expected", update: got})
			}
		}
		return
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			c.differences(at+"/"+strconv.Itoa(i), fmt.Sprintf("%s[%d]", where, i), w[i], g[i], exact)
		}
		return
	}
	if bytes.Equal(view.RawOf(want), view.RawOf(got)) {
		return
	}
	c.add(Mismatch{Pointer: at, Where: where, Want: want, Got: got, Diff: diffOf(want, got), update: got})
}

// diffOf is the difference of two values that are more than a line each, as of two texts in YAML.
func diffOf(want, got any) string {
	a, b := yamlOf(want), yamlOf(got)
	if bytes.Count(a, []byte("\n")) < 2 && bytes.Count(b, []byte("\n")) < 2 {
		return ""
	}
	text := linediff.Unified("output", a, b)
	// The names of two files say nothing here.
	if _, rest, ok := strings.Cut(text, "@@\n"); ok {
		text = rest
	}
	return text
}

// yamlOf writes a value as YAML.
func yamlOf(v any) []byte {
	raw := view.RawOf(v)
	n, problems := jsonx.Parse(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if len(problems) > 0 {
		return raw
	}
	return yamlx.Encode(n)
}

// assert evaluates a condition.
func (c *comparison) assert(at, src string, o *outcome) {
	prog, err := expr.CompileWithin(src, expr.MaxCost)
	if err != nil {
		c.add(Mismatch{Pointer: at, Where: "assert", Msg: fault.Message(err), fixed: true})
		return
	}
	vars := o.vars()
	v, err := prog.Eval(expr.MapVars(vars))
	switch {
	case err != nil:
		c.add(Mismatch{Pointer: at, Where: "assert", Msg: fmt.Sprintf("`%s` cannot be evaluated: %s", view.OneLine(src), fault.Message(err)), fixed: true})
	case v != true:
		msg := fmt.Sprintf("`%s` is %s", view.OneLine(src), Short(v))
		if read := readBy(prog, vars); read != "" {
			msg += ", with " + read
		}
		c.add(Mismatch{Pointer: at, Where: "assert", Msg: msg, fixed: true})
	}
}

// readBy shows the values that an expression has read.
func readBy(prog *expr.Program, vars map[string]any) string {
	var parts []string
	for _, ref := range prog.Refs() {
		v, name := vars[ref.Name], ref.Name
		for _, field := range ref.Path {
			m, ok := v.(map[string]any)
			if !ok || m[field] == nil {
				break
			}
			v, name = m[field], name+"."+field
		}
		part := name + " = " + Short(v)
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

// Short writes a value on one line, and cuts it.
func Short(v any) string { return view.OneLine(view.Cut(string(view.RawOf(v)), 120)) }

// String describes a mismatch in one line, and the difference below it.
func (m *Mismatch) String() string {
	text := m.Where
	switch {
	case m.Diff != "":
		text += " differs"
	case m.Want != nil && m.Got != nil:
		text += ": want " + Short(m.Want) + ", got " + Short(m.Got)
	case m.Want != nil && m.Msg == "":
		text += ": want " + Short(m.Want) + ", got null"
	case m.Want != nil:
		text += ": want " + Short(m.Want)
	case m.Got != nil:
		text += ": got " + Short(m.Got)
	}
	if m.Msg != "" {
		text += ": " + view.OneLine(m.Msg)
	}
	text = m.Pos.String() + ": " + text
	if m.Diff != "" {
		text += "\n" + m.Diff
	}
	return text
}
