// SPDX-License-Identifier: Apache-2.0

// Package simulate rehearses disasters.
//
// A World is one schedule: the real machine and the real engine over a simulated
// clock, store, workers, users and readers, in one goroutine, all decided by one
// seed. It asserts the invariants of design section 14 after every transition.
// It decides what goes wrong and when, and what must hold all the same; it never
// decides what a run does: there is no second fold and no second engine here.
package simulate
