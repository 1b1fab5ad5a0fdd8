// SPDX-License-Identifier: Apache-2.0

package engine

// A link is a run's node in a list.
type link struct {
	l          *loadedRun
	prev, next *link
}

// A runList is a list of runs by age, oldest first. It is not a map because choices
// among runs must be the same for the same seed.
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

// front returns the oldest run, or nil if there is none.
func (q *runList) front() *loadedRun {
	if q.head.next == &q.head {
		return nil
	}
	return q.head.next.l
}

// after returns the run that follows entry in the list, or nil at its end.
func (q *runList) after(entry *link) *loadedRun {
	if entry.next == &q.head {
		return nil
	}
	return entry.next.l
}
