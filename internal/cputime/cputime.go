// SPDX-License-Identifier: Apache-2.0

// Package cputime tells how much processor time this process has used, user and
// system together. It is what the cost of work is judged by where the wall clock
// would also count what other processes do: by the bound on a media child, and by
// tests. It never decides what is too much.
package cputime

import "time"

// Used is the processor time that this process has used since it began, by all
// its threads; 0 where the system does not tell.
func Used() time.Duration { return used() }

// Of is the least processor time of tries calls of fn, in which nothing else of
// this process should be at work. The least is the cost of the work itself: a
// collection of garbage, or a cold cache, can only add to it.
func Of(tries int, fn func()) time.Duration {
	least := time.Duration(1<<63 - 1)
	for range tries {
		began := Used()
		fn()
		least = min(least, Used()-began)
	}
	return least
}
