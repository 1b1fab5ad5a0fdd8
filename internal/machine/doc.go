// SPDX-License-Identifier: Apache-2.0

// Package machine decides what a run does next.
//
// A Run is the durable state of one execution of a plan: the fold of its
// journal. Decide takes one Input and emits the Events that follow from it,
// applying each as it is emitted, so that decision and fold cannot diverge;
// Owed lists the Commands that a Run still needs carried out:
//
//	input -> Decide -> events -> (caller commits) -> commands -> (caller acts)
//
// The package does no I/O and knows no clock and no randomness: time arrives
// in inputs, jitter is a hash. The same inputs in the same order give the same
// journal on every machine, which is what makes crash recovery, replay and the
// simulator possible. It never decides across runs: slots, quotas and fairness
// are the engine's arbiter.
package machine
