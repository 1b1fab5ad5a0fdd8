// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
)

// What a run holds besides its values: open scopes, the steps in them, and what
// loops know of their items. The figures are what a 64-bit machine takes for
// them, map entries and worklist included, rounded up. They are the same on every
// machine because decisions depend on them.
//
// The root scope is not counted: it is as large as the recipe is, whatever the
// input. Snapshots hold none of this: it follows from the scopes.
const (
	scopeBytes     = 768 // a scope, its item and its outputs without their text
	stepBytes      = 128 // a step of it
	compositeBytes = 512 // a step that owns scopes
	branchBytes    = 64
	itemBytes      = 72 // an item of a loop that is in memory, beside its text
	outBytes       = 96 // an output of an iteration, beside its text
	errorBytes     = 64 // an error, beside its text
)

// Memory is how many bytes the run holds, as its memory limit counts them:
// values, open scopes, and what its loops know of their items.
func (r *Run) Memory() int64 { return r.valueMem + r.structMem }

// holds refuses values past the run's memory.
func (r *Run) checkMemory(n int) *Failure {
	if r.Memory()+int64(n) > r.limits.MemoryBytes {
		return &Failure{Code: fault.MemoryLimit, Msg: "the run's values would exceed " + sizeText(r.limits.MemoryBytes) + "; pass files, or raise limits.memory_limit_mb"}
	}
	return nil
}

// opens refuses scopes past the run's memory, before they are made.
func (r *Run) checkOpen(graphs ...int32) *Failure {
	total := r.Memory()
	for _, g := range graphs {
		if g != plan.None {
			total += graphBytes(&r.plan.Graphs[g])
		}
	}
	if total <= r.limits.MemoryBytes {
		return nil
	}
	return &Failure{Code: fault.MemoryLimit, Msg: fmt.Sprintf(
		"%d open iterations and branches, with their values, would exceed %s; lower maxConcurrency, pass files, or raise limits.memory_limit_mb",
		len(r.scopes)+len(graphs), sizeText(r.limits.MemoryBytes))}
}

// graphBytes is what a scope of a graph takes when it is opened.
func graphBytes(g *plan.Graph) int64 { return scopeBytes + int64(g.N)*stepBytes }

// frameBytes is what a scope takes, without its composites.
func (s *scope) structBytes() int64 {
	if s.parent == nil {
		return 0
	}
	n := graphBytes(s.g)
	for _, e := range s.errs {
		n += e.bytes()
	}
	return n
}

func (e stepError) bytes() int64 { return errorBytes + int64(len(e.msg)) }

// frameBytes is what a composite takes, without its scopes.
func (c *composite) structBytes() int64 {
	return compositeBytes + int64(len(c.branches))*branchBytes + c.loop.structBytes()
}

func (l *loopState) structBytes() int64 {
	if l == nil {
		return 0
	}
	return (l.have-l.from)*itemBytes + int64(len(l.outs))*outBytes
}

// recountFrames adds up what scopes and composites take.
func (r *Run) recountStructs() (total int64) {
	r.eachScope(func(s *scope) {
		total += s.structBytes()
		for _, c := range s.comps {
			total += c.structBytes()
		}
	})
	return total
}

// eachValue visits every place that refers to a value, which may be nil.
func (r *Run) eachValue(fn func(*value)) {
	for _, sig := range r.signals {
		fn(sig.val)
	}
	r.eachScope(func(s *scope) {
		for _, v := range s.outs {
			fn(v)
		}
		for _, v := range s.slots {
			fn(v)
		}
		fn(s.out)
		fn(s.item)
		for _, c := range s.comps {
			fn(c.out)
			for k := range c.branches {
				fn(c.branches[k].out)
			}
			if c.loop != nil {
				fn(c.loop.list)
				for _, v := range c.loop.outs {
					fn(v)
				}
			}
		}
	})
}

// minDecoded is how many bytes of values may stand decoded in any run.
const minDecoded = 4 << 20

// forgetDecoded drops the decoded form of values once many were decoded. A list
// of small numbers takes twelve times its text when it is decoded, and nothing
// counts that: what is decoded at any time is held to a share of the run's memory.
func (r *Run) forgetDecoded() {
	if r.input == nil || r.input.decoded.Load() <= max(minDecoded, r.limits.MemoryBytes/32) {
		return
	}
	r.input.decoded.Store(0)
	r.eachValue(func(v *value) {
		if v != nil {
			v.dec.Store(nil)
		}
	})
}
