// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The list of runs is in the order in which they were put to its back.
func TestRunList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var q runList
	q.init()
	runs := make([]loadedRun, 8)
	for i := range runs {
		runs[i].age.l = &runs[i]
	}
	var want []*loadedRun
	for range 2_000 {
		l := &runs[r.IntN(len(runs))]
		want = slices.DeleteFunc(want, func(o *loadedRun) bool { return o == l })
		if r.IntN(3) == 0 {
			q.remove(&l.age)
		} else {
			q.toBack(&l.age)
			want = append(want, l)
		}
		var got []*loadedRun
		for l := q.front(); l != nil && len(got) <= len(runs); l = q.after(&l.age) {
			got = append(got, l)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d runs in another order than the %d that are there", len(got), len(want))
		}
	}
}
