// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// The sizes of what a run holds besides its values: open scopes, the steps in them,
// and the known items of loops. The figures are those of a 64-bit machine, map entries
// and worklist included, rounded up. They are the same on every machine because
// decisions depend on them.
//
// The root scope is not counted, because its size depends on the recipe and not on the
// input. Snapshots leave these counts out, because they follow from the scopes.
const (
	scopeBytes     = 768 // a scope, its item, and its outputs without their text
	stepBytes      = 128 // a step of a scope
	compositeBytes = 512 // a step that owns scopes
	branchBytes    = 64
	itemBytes      = 72 // an item of a loop in memory, without its text
	outBytes       = 96 // an output of an iteration, without its text
	errorBytes     = 64 // an error, without its text
)

// Memory is how many bytes the run holds, as its memory limit counts them: values,
// open scopes, and the known items of loops.
func (r *Run) Memory() int64 { return r.valueMem + r.structMem }

// checkMemory returns a failure when n more bytes of values would exceed the run's
// memory.
func (r *Run) checkMemory(n int) *Failure {
	if !r.within(journal.MemoryShare, r.memory()+int64(n), r.limits.MemoryBytes) {
		return &Failure{Code: fault.MemoryLimit, Msg: "the run's values would exceed " + sizeText(r.limits.MemoryBytes) +
			"; pass files, or raise limits.memory_limit_mb" + r.treeText()}
	}
	return nil
}

// checkOpen returns a failure when opening the scopes would exceed the run's memory.
func (r *Run) checkOpen(graphs ...int32) *Failure {
	total := r.memory()
	for _, g := range graphs {
		if g != plan.None {
			total += graphBytes(&r.plan.Graphs[g])
		}
	}
	if r.within(journal.MemoryShare, total, r.limits.MemoryBytes) {
		return nil
	}
	return &Failure{Code: fault.MemoryLimit, Msg: fmt.Sprintf(
		"%d open iterations and branches, with their values, would exceed %s; lower maxConcurrency, pass files, or raise limits.memory_limit_mb%s",
		len(r.scopes)+len(graphs), sizeText(r.limits.MemoryBytes), r.treeText())}
}

// graphBytes is the size of a scope of the graph when it opens.
func graphBytes(g *plan.Graph) int64 { return scopeBytes + int64(g.N)*stepBytes }

// structBytes is the size of a scope without its composites.
func (s *scope) structBytes() int64 {
	if s.parent == nil {
		return 0
	}
	n := graphBytes(s.g)
	for _, e := range s.errs {
		n += e.bytes()
	}
	for _, j := range s.jobs {
		n += j.bytes()
	}
	return n
}

func (e stepError) bytes() int64 { return errorBytes + int64(len(e.msg)) }

// structBytes is the size of a composite without its scopes.
func (c *composite) structBytes() int64 {
	return compositeBytes + int64(len(c.branches))*branchBytes + c.loop.structBytes()
}

func (l *loopState) structBytes() int64 {
	if l == nil {
		return 0
	}
	return (l.have-l.from)*itemBytes + int64(len(l.outs))*outBytes
}

// recountStructs adds up the sizes of scopes and composites.
func (r *Run) recountStructs() (total int64) {
	r.eachScope(func(s *scope) {
		total += s.structBytes()
		for _, c := range s.comps {
			total += c.structBytes()
		}
	})
	return total
}

// eachValue visits every reference to a value; the value may be nil.
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
				fn(c.loop.acc)
				for _, v := range c.loop.outs {
					fn(v)
				}
			}
		}
	})
}

// minDecoded is how many bytes of decoded values a run may hold, however small its
// memory limit is.
const minDecoded = 4 << 20

// forgetDecoded drops the decoded form of values after many were decoded. A decoded
// list of small numbers takes twelve times the memory of its text, and the memory
// limit does not count it. So the decoded values are limited to a share of the run's
// memory.
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
