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

func (q *runList) remove(entry *link) {
	if entry.next != nil {
		entry.prev.next, entry.next.prev = entry.next, entry.prev
		entry.prev, entry.next = nil, nil
	}
}

func (q *runList) toBack(entry *link) {
	q.remove(entry)
	entry.prev, entry.next = q.head.prev, &q.head
	entry.prev.next, q.head.prev = entry, entry
}

// front is the oldest run, nil when there is none.
func (q *runList) front() *loadedRun {
	if q.head.next == &q.head {
		return nil
	}
	return q.head.next.l
}

// after is the run that follows l in the list, nil at its end.
func (q *runList) after(entry *link) *loadedRun {
	if entry.next == &q.head {
		return nil
	}
	return entry.next.l
}
