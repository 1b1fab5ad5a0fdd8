// SPDX-License-Identifier: Apache-2.0

// Package feed delivers the events of runs to callers that watch them, and the changes of
// accounts to those that follow them.
//
// The engine publishes what has become durable. A watcher first reads the run's journal
// from its position, then follows what is published, without gap or duplicate (I14).
// The package decides how far a slow watcher may fall behind before it has to read the
// journal again. It never blocks the engine, never shows anything that is not durable,
// and never decides what a caller may see.
package feed
