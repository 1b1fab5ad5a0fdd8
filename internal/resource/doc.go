// SPDX-License-Identifier: Apache-2.0

// Package resource folds a run's journal into the forms in which a service shows the run:
// an [Execution] in the words of recipes, a [Job] with its graph in the words of
// orchestration, the rows of [Tags], and the joined deltas of a [Coalescer]. A field of
// these types is spelled as in its source.
//
// A [Run] takes the events one after another, in constant time each, and may be asked
// between any two of them, so that a run as of event N is the fold of its first N events.
// It needs memory for the steps outside loops, for the iterations that are open, and for
// [MaxSteps] steps of other iterations. Events are masked before they are applied.
//
// The package decides nothing about a run, reads no store and knows no protocol: callers
// pass what the head of the run adds to its journal ([Facts]) and encode the result.
package resource
