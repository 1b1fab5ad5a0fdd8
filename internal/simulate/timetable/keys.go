// SPDX-License-Identifier: Apache-2.0

package timetable

import (
	"fmt"
	"slices"
)

// notBefore is when a request with a key may start; 0 = at once.
func (b *book) notBefore(name string) int64 {
	if r := b.Requests[name]; r != nil {
		return r.NotBefore
	}
	return 0
}

// policy is what is done with an occurrence while a run is active.
func (b *book) policy(name string) string {
	if r := b.Requests[name]; r != nil {
		return r.IfActive
	}
	return b.When.Overlap
}

// takes judges a change of a key: every request that no longer waits has its run, or was refused,
// or gave way to a later one.
func (c *Checker) takes(b *book, next *entry) error {
	has := func(list []occurrence, name string) bool {
		return slices.ContainsFunc(list, func(o occurrence) bool { return o.Name == name })
	}
	var came *request
	for _, o := range next.Queue {
		r := next.Requests[o.Name]
		if r == nil {
			return fmt.Errorf("%s waits without a request", o.Name)
		}
		if !has(b.Queue, o.Name) {
			if came != nil {
				return fmt.Errorf("two requests came at once: %v, before %v", next.Queue, b.Queue)
			}
			came = r
			c.Requests++
		}
	}
	for _, o := range b.Queue {
		if has(next.Queue, o.Name) {
			continue
		}
		code, refused := b.refused[o.Name]
		refused = refused && !transient[code]
		active := b.last != "" && !c.runs.Ended(b.account, b.last)
		switch r := b.Requests[o.Name]; {
		case b.runs[o.Name] != "", refused, r.IfActive == "skip" && active:
		case came != nil && (came.IfActive == "cancelPrevious" && came.NotBefore == 0 || came.NotBefore > 0 && r.NotBefore > 0):
			c.Replaced++
		default:
			return fmt.Errorf("request %s no longer waits, and nothing has become of it", o.Name)
		}
	}
	return nil
}

// forgets judges that a key is forgotten.
func (c *Checker) forgets(b *book) error {
	if len(b.Queue) > 0 || b.last != "" && !c.runs.Ended(b.account, b.last) {
		return fmt.Errorf("%s is forgotten while %v wait and run %q may be active", b, b.Queue, b.last)
	}
	b.entry, b.last = entry{ID: b.ID, Key: b.Key}, "" // a user may retry that run later
	return nil
}
