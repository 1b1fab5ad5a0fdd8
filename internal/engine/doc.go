// SPDX-License-Identifier: Apache-2.0

// Package engine runs the machine: it passes inputs to runs, makes what follows
// durable, and only then carries out the commands.
//
//	inputs -> core.handle -> batch -> store.Commit -> core.pipeline.committed -> answers, frames, tasks
//
// It decides what concerns more than one run: which transitions share a commit
// (pipeline), which runs are in memory (residency), in what order runs are recovered
// and which of them are quarantined because they harm the others (recovery), and which
// attempts are handed out (attempts, with package slots). It never decides what a run
// does next, which is the machine's part. It interprets no value, and its loop renders
// no expression.
//
// The core is single-threaded and uses no goroutine, clock or socket: time is passed to
// handle, and what must be done in the world leaves as effects. The driver around it,
// Engine, owns the clock, the inbox, one committer and the workers. A test can
// therefore drive two whole engines over one memory store from one seed.
//
// State runs ahead of the disk: while one batch is being committed, the next one is
// built. When only one run has something to commit, the loop commits on its own
// goroutine and carries out the one attempt that follows (handover). A large batch that
// was built during a commit is committed before the effects of the last commit are
// carried out, so that the disk is busy meanwhile.
//
// Every answer, frame, task and read waits for the batch that holds what it depends on
// (I1). After a failed commit every run in memory is dropped and loaded again.
package engine
