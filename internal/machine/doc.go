// SPDX-License-Identifier: Apache-2.0

// Package machine decides what a run does next.
//
// A Run is the durable state of one execution of a plan: the fold of its journal.
// Decide takes one Input and emits the Events that follow from it. It applies each
// event as it emits it, so that deciding and replaying cannot differ. Owed lists the
// Commands that a Run still needs carried out:
//
//	input -> Decide -> events -> (caller commits) -> commands -> (caller acts)
//
// The package does no I/O and uses no clock and no randomness: time is part of the
// input, and jitter is a hash. The same inputs in the same order give the same journal
// on every machine. Crash recovery, replay and the simulator depend on that. The
// package decides for one run at a time; the engine's arbiter decides about slots,
// quotas and fairness.
package machine
