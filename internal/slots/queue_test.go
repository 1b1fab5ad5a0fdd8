// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// held is how many requests and groups a queue keeps.
func (q *queue[H]) held() (n int) {
	for _, a := range q.accounts {
		n += a.only.reqs.Len() + len(a.listed) + len(a.groups)
		for _, g := range a.groups {
			n += g.reqs.Len()
		}
	}
	return n
}

// Requests that are withdrawn while they wait, for a day perhaps, are forgotten; those that remain
// keep their order.
func TestWithdrawnWhileWaiting(t *testing.T) {
	for _, r := range []*Rule{{Name: "one", Concurrency: 1}, {Name: "one", Rate: Rate{N: 1, Period: hour, Burst: 1}}} {
		dice := rand.New(rand.NewPCG(1, 2))
		d := newDesk(t, 100, Policy{})
		doc := &Rule{Name: "doc", Concurrency: 5}
		target := func(i int) Target {
			return Target{Account: fmt.Sprint("a", i%3), Action: "x", Keys: []Key{{Rule: doc, Text: fmt.Sprint(i % 50)}, {Rule: r, Text: "k"}}}
		}
		first := d.request(target(0), Demand{})
		d.after(hour)
		d.want("the first", first)
		var cancelled, kept []int
		end := func(i int) {
			n := cancelled[i]
			cancelled[i] = cancelled[len(cancelled)-1]
			cancelled = cancelled[:len(cancelled)-1]
			d.end(n, nil)
		}
		for i := range 5_000 {
			n := d.request(target(i), Demand{})
			if i%500 == 7 {
				kept = append(kept, n)
				continue
			}
			if cancelled = append(cancelled, n); len(cancelled) > 20 {
				end(dice.IntN(len(cancelled)))
			}
		}
		for len(cancelled) > 0 {
			end(0)
		}
		one := d.a.keys[keyName{"limit", "one", "k"}]
		var q *queue[int]
		if one.limit != nil {
			q = &one.limit.queue
		} else {
			q = &one.throttle.queue
		}
		if n := q.held(); n > 200 {
			t.Errorf("%+v: %d wait, and %d are kept", r, len(kept), n)
		}
		d.end(first, nil)
		last := map[string]int{}
		for range kept {
			d.after(hour)
			for _, n := range d.granted() {
				account := d.reqs[n].Key.Account
				if n < last[account] {
					t.Errorf("%d of account %s comes after %d", n, account, last[account])
				}
				last[account] = n
				d.end(n, nil)
			}
		}
		d.granted()
		if len(d.reqs) != 0 {
			t.Errorf("%d requests have not begun", len(d.reqs))
		}
	}
}
