// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sync/atomic"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// vars are the variables of a task: the meaning of names when the task was captured. A
// value is decoded when an expression needs it, on the goroutine that evaluates the
// expression. The zero vars is empty.
type vars struct {
	list []captured
	buf  [1]captured // enough for most tasks
	err  error       // set when a recorded value cannot be read
	// meter counts the bytes that are decoded; nil = they are not counted.
	meter *atomic.Int64
}

// captured is the meaning of one name, or of one member of it.
type captured struct {
	name, member string
	kind         capturedKind
	val          *value         // a recorded value; or the output of a step, nil when it has none
	any          any            // a plain value
	status       journal.Status // of a step, with the fields below
	failed       *stepError
	substitute   bool // an absent output reads as ''
}

type capturedKind uint8

const (
	absentVar capturedKind = iota
	plainVar
	recordedVar
	stepVar
)

// add captures the names. A name that was captured before has the same meaning and is
// skipped.
func (vs *vars) add(e *env, names []plan.Var) {
	if vs.list == nil {
		vs.list = vs.buf[:0]
	}
	vs.meter = &e.run.input.decoded
next:
	for k := range names {
		v := &names[k]
		for i := range vs.list {
			if c := &vs.list[i]; c.name == v.Name && c.member == v.Member {
				continue next
			}
		}
		vs.list = append(vs.list, e.capture(v))
	}
}

func (vs *vars) find(name, member string) *captured {
	for i := range vs.list {
		if c := &vs.list[i]; c.name == name && c.member == member {
			return c
		}
	}
	return nil
}

// Lookup implements expr.Vars.
func (vs *vars) Lookup(name string) (any, bool) {
	var members map[string]any
	for i := range vs.list {
		c := &vs.list[i]
		if c.name != name {
			continue
		}
		if c.member == "" {
			return vs.exprValue(c)
		}
		if members == nil {
			members = make(map[string]any, 2)
		}
		members[c.member], _ = vs.exprValue(c)
	}
	return members, members != nil
}

// exprValue returns a captured value as expressions see it.
func (vs *vars) exprValue(c *captured) (any, bool) {
	switch c.kind {
	case plainVar:
		return c.any, true
	case recordedVar:
		return vs.decode(c.val)
	case stepVar:
		obj := map[string]any{"status": c.status.String(), "error": nil}
		if c.failed != nil {
			obj["error"] = map[string]any{"code": string(c.failed.code), "message": c.failed.msg}
		}
		if c.val != nil {
			if d, ok := vs.decode(c.val); ok {
				obj["output"], obj["result"] = d, d
			}
		} else if c.substitute {
			obj["output"], obj["result"] = expr.Blank{}, expr.Blank{}
		}
		return obj, true
	}
	return nil, false
}

func (vs *vars) decode(v *value) (any, bool) {
	if vs.meter != nil && v != nil && v.dec.Load() == nil {
		vs.meter.Add(int64(len(v.raw)))
	}
	d, err := v.decoded()
	if err != nil {
		vs.err = err
		return nil, false
	}
	return d, true
}

// selectRaw returns the canonical JSON of the value that a program selects, if that is
// possible without decoding and evaluating; ok is false if not.
func (vs *vars) selectRaw(p *expr.Program) (raw []byte, ok bool) {
	name, path, ok := p.Selection()
	if !ok {
		return nil, false
	}
	c := vs.find(name, "")
	if c == nil {
		if len(path) == 0 {
			return nil, false
		}
		if c = vs.find(name, path[0]); c == nil {
			return nil, false
		}
		path = path[1:]
	}
	switch c.kind {
	case plainVar:
		v := c.any
		for _, name := range path {
			m, isMap := v.(map[string]any)
			if v, ok = m[name]; !isMap || !ok {
				return nil, false
			}
		}
		switch x := v.(type) {
		case nil, bool, int64, float64:
		case string:
			if len(x) > 1<<10 {
				return nil, false
			}
		default: // a large value may exceed the limits of an expression
			return nil, false
		}
		raw, err := jsonx.AppendCanonical(nil, v)
		return raw, err == nil
	case stepVar:
		if len(path) == 0 || path[0] != "output" && path[0] != "result" || c.val == nil {
			return nil, false
		}
		path = path[1:]
	case recordedVar:
		if c.val == nil {
			return nil, false
		}
	default:
		return nil, false
	}
	if raw, ok = jsonx.Select(c.val.raw, path); !ok || len(raw) > expr.MaxInput {
		return nil, false
	}
	return raw, true
}
