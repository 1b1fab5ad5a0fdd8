// SPDX-License-Identifier: Apache-2.0

// Package program decides what a run runs.
//
// A Program is a plan that is ready to run. It says whether an input fits the recipe, what
// a run is expected to cost, which actions and recipes the plan's references stand for, and
// which action a step calls. What the references stand for is fixed when a root run starts
// ([Program.Pin]) and found again for every run below it ([Cache.Child]), whatever is
// registered then.
//
// The package makes nothing durable and knows no clock. It never decides what a run does
// next, nor whether an account can pay for it.
package program

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Program is a plan that is ready to run. Runs of one plan share it; it is safe for
// concurrent use, except for TailCapacity.
type Program struct {
	// TailCapacity is how many bytes of frames the last run had that ended without
	// being compacted before. The next run allocates as many at once. Only the loop of the
	// engine uses it.
	TailCapacity int

	machine *machine.Program
	key     string
	hash    string
	stored  []store.EncodedPlan
	input   atomic.Pointer[inputCheck]
	calls   []atomic.Pointer[Call]          // by step
	fixed   atomic.Pointer[estimate.Budget] // what a run costs, if that does not depend on its input
	// family are the programs of all plans that runs of a tree may execute, by key, if they
	// were given by a caller: they may not be stored yet.
	family atomic.Pointer[map[string]*Program]
	gated  bool // a step has a gate, or one of a child run
}

// New returns the program of a plan given by a caller, with those of the plans of its child
// runs.
func New(p *plan.Plan) (*Program, error) {
	prog, err := encode(p)
	if err != nil {
		return nil, err
	}
	if len(p.Children) == 0 {
		return prog, nil
	}
	family := map[string]*Program{prog.key: prog}
	for _, q := range familyOf(p) {
		if family[q.Key()] != nil {
			continue
		}
		made, err := encode(q)
		if err != nil {
			return nil, err
		}
		family[made.key] = made
		prog.stored = append(prog.stored, made.stored...)
	}
	for _, member := range family {
		member.family.Store(&family)
	}
	return prog, nil
}

// familyOf returns the plans of a plan's child runs, and of theirs.
func familyOf(p *plan.Plan) (all []*plan.Plan) {
	all = append(all, p.Embedded...)
	for i := range p.Registered {
		if q := p.Registered[i].Plan; q != nil {
			all = append(all, q)
			all = append(all, q.Embedded...)
		}
	}
	return all
}

// registers reports whether the program has the family of p, a plan with the same key.
func (p *Program) registers(given *plan.Plan) bool {
	if len(given.Children) == 0 {
		return true
	}
	return p.family.Load() != nil && slices.EqualFunc(p.Plan().Registered, given.Registered, func(a, b plan.Registered) bool {
		return a.Ref == b.Ref && a.Name == b.Name && a.Version == b.Version && (a.Plan == nil) == (b.Plan == nil) &&
			(a.Plan == nil || a.Plan.Key() == b.Plan.Key())
	})
}

func encode(p *plan.Plan) (*Program, error) {
	data, err := p.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode plan %s: %w", p.Hash(), err)
	}
	return assemble(p, p.Key(), data), nil
}

func assemble(p *plan.Plan, key string, encoded []byte) *Program {
	return &Program{
		machine: machine.Prepare(p), key: key, hash: plan.HashOf(key),
		stored: []store.EncodedPlan{{Key: key, Data: encoded}},
		calls:  make([]atomic.Pointer[Call], len(p.Steps)), gated: hasGates(p),
	}
}

// Machine returns what the machine executes.
func (p *Program) Machine() *machine.Program { return p.machine }

// Plan returns the plan.
func (p *Program) Plan() *plan.Plan { return p.machine.Plan() }

// Key returns the key under which the plan is stored.
func (p *Program) Key() string { return p.key }

// Hash returns the plan's hash.
func (p *Program) Hash() string { return p.hash }

// Stored returns what the transition that starts a run stores: the plan, and those of the
// child runs that it may start.
func (p *Program) Stored() []store.EncodedPlan { return p.stored }
