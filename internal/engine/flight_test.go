// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// The requests of a run are what was added and not removed, few or many, in its own
// scope and in inner ones.
func TestAsksOfARun(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var a requestSet
	want := map[journal.Ref]*slotRequest{}
	var gone *slotRequest
	most := 0
	for step := range 20_000 {
		grow := step/500%2 == 0
		ref := journal.Ref{Step: r.Int32N(100)}
		if r.IntN(3) == 0 {
			ref.Path = journal.Path([]byte{byte(r.IntN(3))})
		}
		have := want[ref]
		if got := a.get(ref); got != have {
			t.Fatalf("at %d: the ask of %v is %v, want %v", step, ref, got, have)
		}
		switch {
		case have == nil && (grow || r.IntN(20) == 0):
			k := &slotRequest{ref: ref}
			a.add(k)
			want[ref] = k
		case have != nil && (!grow || r.IntN(3) == 0):
			a.remove(have)
			delete(want, ref)
			gone = have
		case gone != nil:
			a.remove(gone) // it is not there, though its place may be taken
		}
		most = max(most, a.len())
		if a.len() != len(want) {
			t.Fatalf("at %d: %d requests, want %d", step, a.len(), len(want))
		}
	}
	seen := 0
	a.all(func(k *slotRequest) {
		seen++
		if want[k.ref] != k {
			t.Errorf("%v is among all and should not be", k.ref)
		}
	})
	if seen != len(want) || most < 50 {
		t.Errorf("saw %d requests, want %d; at most there were %d", seen, len(want), most)
	}
	for _, k := range want {
		a.remove(k)
	}
	if a.len() != 0 || a.wide && a.root != nil {
		t.Errorf("%d requests are left, wide %t", a.len(), a.wide)
	}
}
