// SPDX-License-Identifier: Apache-2.0

package list

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type element struct{ age Link[element] }

// A list is in the order in which its elements were put to its back.
func TestList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var q List[element]
	q.Init()
	elements := make([]element, 8)
	for i := range elements {
		elements[i].age.Of = &elements[i]
	}
	var want []*element
	for range 2_000 {
		l := &elements[r.IntN(len(elements))]
		want = slices.DeleteFunc(want, func(o *element) bool { return o == l })
		if r.IntN(3) == 0 {
			q.Remove(&l.age)
		} else {
			q.ToBack(&l.age)
			want = append(want, l)
		}
		var got []*element
		for l := q.Front(); l != nil && len(got) <= len(elements); l = q.After(&l.age) {
			got = append(got, l)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d elements in another order than the %d that are there", len(got), len(want))
		}
	}
}
