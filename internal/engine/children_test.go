// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A plan with steps that run other recipes is refused as a whole, also where the step is
// in a branch that would not be taken: the machine does not run them yet.
func TestChildRunsAreRefused(t *testing.T) {
	e := openEngine(t, memory.New(memory.Options{}), Config{})
	for name, src := range map[string]string{
		"registered": "name: n\nsteps:\n  - {id: a, recipe: {ref: other@1}}\n",
		"inline":     "name: n\nsteps:\n  - {id: a, recipe: {inline: {name: other, steps: [{transform: {expression: '1'}}]}}}\n",
		"not taken":  "name: n\nsteps:\n  - {id: c, condition: {expression: input.no == 1, then: [{id: a, recipe: {ref: other}}]}}\n",
	} {
		p := planOf(t, src)
		_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "n"})
		if fault.CodeOf(err) != fault.NotAvailable {
			t.Errorf("%s: %v, want %s", name, err, fault.NotAvailable)
		}
		data, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		stored, err := plan.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newPrograms(1).load(t.Context(), onePlan{data: data}, stored.Key()); fault.CodeOf(err) != fault.NotAvailable {
			t.Errorf("%s, stored: %v, want %s", name, err, fault.NotAvailable)
		}
	}
}

// onePlan is a store with one plan.
type onePlan struct {
	*memory.Store
	data []byte
}

func (s onePlan) Plan(context.Context, string) ([]byte, error) { return s.data, nil }
