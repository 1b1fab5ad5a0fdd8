// SPDX-License-Identifier: Apache-2.0

package engine

// A link is a run's place in a list.
type link struct {
	l          *loadedRun
	prev, next *link
}

// A runList is a list of runs in some order of age, oldest first. It is not a
// map because everything that chooses among runs must choose alike for one seed.
type runList struct{ head link }

func (q *runList) init() { q.head.prev, q.head.next = &q.head, &q.head }

func (q *runList) remove(k *link) {
	if k.next != nil {
		k.prev.next, k.next.prev = k.next, k.prev
		k.prev, k.next = nil, nil
	}
}

func (q *runList) toBack(k *link) {
	q.remove(k)
	k.prev, k.next = q.head.prev, &q.head
	k.prev.next, q.head.prev = k, k
}

// front is the oldest run, nil when there is none.
func (q *runList) front() *loadedRun {
	if q.head.next == &q.head {
		return nil
	}
	return q.head.next.l
}

// after is the run that follows l in the list, nil at its end.
func (q *runList) after(k *link) *loadedRun {
	if k.next == &q.head {
		return nil
	}
	return k.next.l
}
