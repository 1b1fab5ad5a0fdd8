// SPDX-License-Identifier: Apache-2.0

package slots

import "testing"

// A breaker opens when enough attempts of a service have failed, lets one try the service after
// a time, and closes when that succeeds.
func TestBreaker(t *testing.T) {
	policy := Policy{Share: 0.5, Min: 4, Window: 10 * second, Open: 30 * second}
	d := newDesk(t, 100, policy)
	tg := Target{Account: "a", Action: "x", Service: "main"}
	run := func(n int, failed bool) {
		d.t.Helper()
		for range n {
			n := d.request(tg, Demand{})
			d.want("closed", n)
			d.end(n, &Outcome{Failed: failed})
		}
	}
	run(5, false)
	run(4, true) // 4 of 9
	d.after(11 * second)
	run(2, true) // the others are too old
	run(1, false)
	run(2, true) // 4 of 5
	first, second1 := d.request(tg, Demand{}), d.request(Target{Account: "a", Action: "y", Service: "main"}, Demand{})
	d.request(Target{Account: "b", Action: "y", Service: "other"}, Demand{})
	d.want("only another service", second1+1)
	d.wantReason(first, `provider "main" fails: 4 of the last 5 attempts; it is tried again at 1972-`)
	d.after(30*second - 1)
	d.want("open")
	d.after(1)
	d.want("a probe", first)
	d.wantReason(second1, "one attempt tries it now")
	d.after(minute)
	d.want("no second probe")
	d.end(first, &Outcome{Failed: true})
	d.want("open again")
	d.after(30 * second)
	d.want("the second probe", second1)
	third := d.request(tg, Demand{})
	d.end(second1, nil) // it was cancelled: nothing is known
	d.want("the third probe", third)
	fourth := d.request(tg, Demand{})
	d.end(third, &Outcome{Unused: true, Uncounted: true})
	d.want("nothing was called: the fourth probe", fourth)
	more := d.request(tg, Demand{})
	d.want("it runs")
	d.end(fourth, &Outcome{})
	d.want("closed", more)
	run(3, true)
}

// Retries of a service begin as its first attempts have earned them, or as often as the floor
// says; first attempts are not held up by them.
func TestRetryBudget(t *testing.T) {
	d := newDesk(t, 1000, Policy{Retries: 0.2, Floor: Rate{N: 1, Period: second, Burst: 2}})
	tg := Target{Account: "a", Action: "x", Service: "main"}
	for range 10 {
		d.want("a first attempt", d.request(tg, Demand{}))
	}
	var retries []int
	for range 6 {
		retries = append(retries, d.request(tg, Demand{Retry: true}))
	}
	d.want("a fifth of ten", retries[:2]...)
	d.wantReason(retries[2], "as many retries as it may have")
	d.want("a first attempt", d.request(tg, Demand{}))
	d.after(second)
	d.want("the floor", retries[2])
	d.after(2 * second)
	d.want("the floor", retries[3:5]...)
	for range 3 {
		d.want("a first attempt", d.request(tg, Demand{}))
	}
	fifth := d.request(tg, Demand{})
	d.want("it earns one at once", fifth, retries[5])
}
