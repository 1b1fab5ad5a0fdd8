// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"runtime"
	"sync"
)

// A Job is a piece of work that may take any time and may block.
type Job interface{ Do() }

// An Executor carries out jobs. No job waits for another one to end, as if each had its
// own goroutine; but jobs that return at once share a goroutine, which costs far less.
// Jobs start in the order in which they were added.
//
// The invariant: while jobs are waiting, at least one goroutine is ready, that is, not
// inside a job. A goroutine that takes a job while no other one is ready starts another
// one first. If the job blocks, the other goroutine continues with the waiting jobs; if
// the job returns at once, its own goroutine continues, and the other one finds fewer
// jobs or none.
type Executor struct {
	mu    sync.Mutex
	jobs  []Job
	head  int // of jobs
	ready int // goroutines that are not inside a job
}

// yieldInterval is the number of jobs after which a goroutine yields the processor.
// Without it the consumer of the results would wait for the last of a thousand short
// jobs, and processors would take turns instead of working in parallel.
const yieldInterval = 32

// maxReady bounds the ready goroutines. Each job that blocked has led to one more
// goroutine; those above the bound exit when their job returns.
const maxReady = 4

// Add adds jobs.
func (e *Executor) Add(jobs ...Job) {
	if len(jobs) == 0 {
		return
	}
	e.mu.Lock()
	if e.head > len(e.jobs)/2 {
		n := copy(e.jobs, e.jobs[e.head:])
		clear(e.jobs[n:])
		e.jobs, e.head = e.jobs[:n], 0
	}
	e.jobs = append(e.jobs, jobs...)
	e.startLocked()
	e.mu.Unlock()
}

// startLocked starts a goroutine if the invariant requires one.
func (e *Executor) startLocked() {
	if e.ready == 0 && e.head < len(e.jobs) {
		e.ready++
		go e.work()
	}
}

func (e *Executor) work() {
	e.mu.Lock()
	for n := 1; e.head < len(e.jobs); n++ {
		j := e.jobs[e.head]
		e.jobs[e.head] = nil
		e.head++
		e.ready--
		e.startLocked()
		e.mu.Unlock()
		j.Do() // may end this goroutine; then another one is ready if jobs wait
		e.mu.Lock()
		e.ready++
		if e.ready > maxReady {
			break
		}
		if n%yieldInterval == 0 {
			e.mu.Unlock()
			runtime.Gosched()
			e.mu.Lock()
		}
	}
	e.ready--
	e.mu.Unlock()
}
