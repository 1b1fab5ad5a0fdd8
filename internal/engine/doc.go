// SPDX-License-Identifier: Apache-2.0

// Package engine runs the machine: it feeds inputs to runs, makes what follows
// durable, and only then carries out what is owed.
//
//	inputs -> core.handle -> batch -> store.Commit -> core.pipeline.committed -> answers, frames, tasks
//
// It decides what crosses runs: which transitions share a commit (pipeline), which runs
// are in memory (residency), in what order runs are recovered and which of them is
// quarantined because it harms the others (recovery), and which attempts are handed out
// (attempts, with package slots). It never decides what a run does next, which is the
// machine's part, interprets no value, and renders no expression in its loop.
//
// The core is single-threaded and knows no goroutine, clock or socket: time arrives in
// handle, and what must be done in the world leaves as effects. The driver around it,
// Engine, owns the clock, the inbox, one committer and the workers. A test can therefore
// drive two whole engines over one memory store from one seed.
//
// State runs ahead of the disk: while one batch is being committed, the next one is
// built. When nothing could be built meanwhile, the loop commits by itself and carries
// out the one attempt that follows (handover). A large batch that was built during a
// commit is committed before what the last commit releases is carried out, because the
// disk has work then in the meantime.
//
// Every answer, frame, task and read waits for the batch that holds what it saw (I1). A
// failed commit drops every run in memory and loads them again.
package engine
