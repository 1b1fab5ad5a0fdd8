// SPDX-License-Identifier: Apache-2.0

package lease

import "slices"

// A queue has the pending tasks of one action, by account, and the workers that wait for one.
// Accounts take turns.
type queue struct {
	accounts []string // those with tasks, the next one first
	tasks    map[string][]*task
	waiters  []*waiter
	waiting  int // tasks that are not dropped
}

// A waiter is a worker that waits for a task of one or several queues.
type waiter struct {
	account string // "" = any
	ready   chan struct{}
	woken   bool // ready is closed
}

func newQueue() *queue { return &queue{tasks: map[string][]*task{}} }

// push adds a task that waits since a time in UTC µs, and wakes the worker that has waited longest for
// one.
func (q *queue) push(t *task, since int64) {
	account := t.job.Account
	t.since = since
	q.waiting++
	if len(q.tasks[account]) == 0 {
		q.accounts = append(q.accounts, account)
	}
	q.tasks[account] = append(q.tasks[account], t)
	q.wake()
}

// wake wakes the worker that has waited longest, if there is a task for it.
func (q *queue) wake() {
	for _, w := range q.waiters {
		if !w.woken && (w.account == "" && len(q.accounts) > 0 || len(q.tasks[w.account]) > 0) {
			w.woken = true
			close(w.ready)
			return
		}
	}
}

// pop removes the next task of an account, or with "" of the account whose turn it is; nil = there
// is none.
func (q *queue) pop(account string) *task {
	for {
		from := account
		if from == "" && len(q.accounts) > 0 {
			from = q.accounts[0]
		}
		list := q.tasks[from]
		if len(list) == 0 {
			return nil
		}
		t := list[0]
		list[0] = nil
		q.rotate(from, list[1:])
		if !t.dropped {
			q.forget(t)
			return t
		}
	}
}

// forget makes a task count as none that waits.
func (q *queue) forget(t *task) {
	if t.since != 0 {
		t.since = 0
		q.waiting--
	}
}

// oldest returns since when the first tasks of the accounts wait; 0 = there are none. It removes those
// in front of them that were dropped.
func (q *queue) oldest() (since int64) {
	for account, list := range q.tasks {
		for len(list) > 0 && list[0].dropped {
			list[0] = nil
			list = list[1:]
		}
		if len(list) == 0 {
			q.leaveLine(account)
			continue
		}
		q.tasks[account] = list
		if since == 0 || list[0].since < since {
			since = list[0].since
		}
	}
	return since
}

// rotate sets the tasks of an account, which goes to the end of the line.
func (q *queue) rotate(account string, list []*task) {
	q.leaveLine(account)
	if len(list) > 0 {
		q.tasks[account] = list
		q.accounts = append(q.accounts, account)
	}
}

// leaveLine removes an account, which has no tasks or goes to the end of the line.
func (q *queue) leaveLine(account string) {
	delete(q.tasks, account)
	if i := slices.Index(q.accounts, account); i >= 0 {
		q.accounts = slices.Delete(q.accounts, i, i+1)
	}
}

// remove removes a worker from those that wait.
func (q *queue) remove(w *waiter) {
	q.waiters = slices.DeleteFunc(q.waiters, func(one *waiter) bool { return one == w })
}
