// SPDX-License-Identifier: Apache-2.0

// Package feed hands the events of runs to the callers that watch them.
//
// The engine publishes what has become durable; a watcher reads a run's journal from
// where it stands and goes on with what is published, without gap or duplicate (I14).
// The package decides how far a slow watcher may fall behind before it has to read the
// journal again. It never makes the engine wait, never shows anything that is not
// durable, and never decides what a caller may see.
package feed
