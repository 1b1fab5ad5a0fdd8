// SPDX-License-Identifier: Apache-2.0

// Package engine runs the machine: it feeds inputs to runs, makes what follows
// durable, and only then carries out what is owed.
//
//	inputs -> core.handle -> batch -> store.Commit -> core.committed -> answers, frames, tasks
//
// It decides what crosses runs: which step gets a slot (the arbiter), which
// transitions share a commit, which runs stay in memory, in what order runs are
// recovered, and which run is set apart because it harms the others. It never
// decides what a run does next (machine), interprets no value and renders no
// expression in its loop.
//
// The core is single-threaded and knows no goroutine, clock or socket: time
// arrives in handle, what must be done in the world leaves through effects. The
// driver around it owns the clock, the inbox, one committer and the workers. So
// a test can drive two whole engines over one memory store from one seed.
//
// State runs ahead of the disk: while one batch is being committed the next is
// built, unless nothing could be built meanwhile: then the loop commits by itself,
// and carries out the one attempt that follows while another goroutine stands by.
// What was built may be committed before what the last commit lets out is carried
// out, if it is large: the disk has work then while that is done.
// Every answer, frame, task and read waits for the batch that holds what
// it saw (I1). A failed commit drops every run in memory and loads again.
package engine
