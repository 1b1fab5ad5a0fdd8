// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

type jobFunc func()

func (f jobFunc) Do() { f() }

// No job waits for another to return: each of these waits for all of them.
func TestExecutorJobsMayBlock(t *testing.T) {
	var c Executor
	const n = 500
	var inside, done sync.WaitGroup
	inside.Add(n)
	done.Add(n)
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i] = jobFunc(func() {
			inside.Done()
			inside.Wait()
			done.Done()
		})
	}
	c.Add(jobs[:n/2]...)
	c.Add(jobs[n/2:]...)
	done.Wait()
}

// Jobs that return at once are done by a few goroutines, and all of them exit.
func TestExecutorSharesGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Executor
		var done, most atomic.Int64
		before := runtime.NumGoroutine()
		jobs := make([]Job, 10_000)
		for i := range jobs {
			jobs[i] = jobFunc(func() {
				done.Add(1)
				// Without a lock, because a job that waits for another one may have its own
				// goroutine.
				for now := int64(runtime.NumGoroutine() - before); ; {
					was := most.Load()
					if now <= was || most.CompareAndSwap(was, now) {
						return
					}
				}
			})
		}
		c.Add(jobs...)
		synctest.Wait()
		if done.Load() != int64(len(jobs)) {
			t.Errorf("%d of %d jobs were done", done.Load(), len(jobs))
		}
		// How many there are at once is up to the scheduler, and more under the race detector.
		if most.Load() > int64(len(jobs)/10) {
			t.Errorf("%d goroutines for jobs that return at once", most.Load())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ready != 0 || c.head != len(c.jobs) {
			t.Errorf("at rest: %d goroutines on their way, %d jobs waiting", c.ready, len(c.jobs)-c.head)
		}
	})
}

// A job that ends its goroutine does not affect other jobs.
func TestExecutorSurvivesGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Executor
		var done atomic.Int64
		for i := range 300 {
			c.Add(jobFunc(func() {
				done.Add(1)
				if i%3 == 0 {
					runtime.Goexit()
				}
			}))
		}
		synctest.Wait()
		if done.Load() != 300 {
			t.Errorf("%d of 300 jobs were done", done.Load())
		}
	})
}
