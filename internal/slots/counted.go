// SPDX-License-Identifier: Apache-2.0

package slots

// External jobs of runs that are not in memory hold slots, and there may be millions of them. Most
// differ in nothing that matters here but in their limits: of these only a number is kept. An
// attempt that is counted so has no request, until its run comes into memory.

// held are the limits of an action and of its provider of which an attempt holds slots; nil = it has
// none.
type held[H any] [2]*Limit[H]

// countable returns the limits of which an external job holds slots. ok is false if more has to be
// known than the number of such jobs: a limit knows its holders, or a throttle what each has reserved.
func (r *Route[H]) countable() (of held[H], ok bool) {
	if len(r.keys) > 0 || len(r.limits)-1 > len(of) {
		return of, false
	}
	for i, l := range r.limits[:len(r.limits)-1] {
		if l.slots <= maxHolders {
			return of, false
		}
		of[i] = l
	}
	return of, len(r.limits) > 1
}

// Countable reports whether external jobs of the route may be counted by CountMany.
func (r *Route[H]) Countable() bool {
	_, ok := r.countable()
	return ok
}

// Rest ends the requests of the external jobs of a run that leaves memory as it is stored, as far as
// their number is enough.
func (t *Table[H]) Rest(set *Set[H]) {
	var resting []*Request[H]
	set.Each(func(req *Request[H]) {
		if req.parted && !req.InFlight && !req.settled && !req.withdrawn && req.route.Countable() {
			resting = append(resting, req)
		}
	})
	for _, req := range resting {
		set.Remove(req)
		of, _ := req.route.countable()
		t.counted[of]++
		req.route.requests--
	}
}

// CountMany counts n external jobs of runs that are not in memory. The route must be countable.
func (t *Table[H]) CountMany(r *Route[H], n int) {
	of, ok := r.countable()
	if !ok || n <= 0 {
		return
	}
	for _, l := range of {
		if l != nil {
			l.used.Add(int64(n))
		}
	}
	t.counted[of] += n
}

// resume returns a request for an external job that was only counted, or nil if none was.
func (t *Table[H]) resume(id ID, route *Route[H]) *Request[H] {
	of, ok := route.countable()
	if !ok || t.counted[of] == 0 {
		return nil
	}
	if t.counted[of]--; t.counted[of] == 0 {
		delete(t.counted, of)
	}
	req := &Request[H]{Key: id.Key, Ref: id.Ref, Fence: id.Fence}
	t.Arbiter.follow(req, route)
	req.hold(true)
	return req
}
