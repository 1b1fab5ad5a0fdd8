// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"runtime"
	"sync"
)

// A Job is something to do that may take any time and may block.
type Job interface{ Do() }

// An Executor carries out jobs. None waits for another to end, however long it takes,
// as if each had a goroutine of its own; but jobs that return at once share one,
// which costs far less. Jobs begin in the order in which they came.
//
// The rule: as long as jobs are waiting, one goroutine at least is on its way to
// the next of them and not inside a job. Whoever takes a job while nobody else is
// on the way sends another one first. When the job blocks, that one takes over;
// when the job returns at once, its own goroutine goes on, and the other finds
// less to do, or nothing.
type Executor struct {
	mu    sync.Mutex
	jobs  []Job
	head  int // of jobs
	ready int // goroutines that are not inside a job
}

// yieldInterval is after how many jobs that return at once a goroutine lets others go
// first: whoever takes the results should not have to wait for the last of a
// thousand jobs, or the processors take turns where they could work side by side.
const yieldInterval = 32

// enough goroutines on their way need no other: jobs that blocked leave one
// behind each, which goes when it comes back.
const enough = 4

// Add gives the executor more to do.
func (c *Executor) Add(jobs ...Job) {
	if len(jobs) == 0 {
		return
	}
	c.mu.Lock()
	if c.head > len(c.jobs)/2 {
		n := copy(c.jobs, c.jobs[c.head:])
		clear(c.jobs[n:])
		c.jobs, c.head = c.jobs[:n], 0
	}
	c.jobs = append(c.jobs, jobs...)
	c.sendLocked()
	c.mu.Unlock()
}

// sendLocked keeps the rule.
func (c *Executor) sendLocked() {
	if c.ready == 0 && c.head < len(c.jobs) {
		c.ready++
		go c.work()
	}
}

func (c *Executor) work() {
	c.mu.Lock()
	for n := 1; c.head < len(c.jobs); n++ {
		j := c.jobs[c.head]
		c.jobs[c.head] = nil
		c.head++
		c.ready--
		c.sendLocked()
		c.mu.Unlock()
		j.Do() // which may end this goroutine: another one is on its way where jobs wait
		c.mu.Lock()
		c.ready++
		if c.ready > enough {
			break
		}
		if n%yieldInterval == 0 {
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
	}
	c.ready--
	c.mu.Unlock()
}
