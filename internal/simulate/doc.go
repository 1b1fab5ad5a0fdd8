// SPDX-License-Identifier: Apache-2.0

// Package simulate is a deterministic simulation of the engine under faults.
//
// A World is one schedule: the real machine and the real engine over a simulated
// clock, store, workers, users and readers, in one goroutine, all decided by one seed.
// It asserts the invariants of design section 14 after every transition. It decides
// which faults occur, when they occur, and what must hold in spite of them. It never
// decides what a run does: it contains no second machine and no second engine.
package simulate
