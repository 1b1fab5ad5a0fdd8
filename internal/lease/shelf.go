// SPDX-License-Identifier: Apache-2.0

package lease

import "slices"

// A shelf has the tasks of an action that wait for a worker, by account, and the workers that wait
// for one. Accounts take turns.
type shelf struct {
	accounts []string // those with tasks, the next one first
	tasks    map[string][]*task
	waiting  []*waiting
}

// A waiting worker is told once that there is a task.
type waiting struct {
	account string // "" = any
	told    chan struct{}
	done    bool // it was told
}

func newShelf() *shelf { return &shelf{tasks: map[string][]*task{}} }

// add adds a task, and tells the worker that has waited longest for one.
func (s *shelf) add(w *task) {
	account := w.job.Account
	if len(s.tasks[account]) == 0 {
		s.accounts = append(s.accounts, account)
	}
	s.tasks[account] = append(s.tasks[account], w)
	s.tell()
}

// tell tells the worker that has waited longest, if there is a task for it.
func (s *shelf) tell() {
	for _, one := range s.waiting {
		if !one.done && (one.account == "" && len(s.accounts) > 0 || len(s.tasks[one.account]) > 0) {
			one.done = true
			close(one.told)
			return
		}
	}
}

// take takes the next task of an account, or of the account whose turn it is; nil = there is none.
func (s *shelf) take(account string) *task {
	for {
		from := account
		if from == "" && len(s.accounts) > 0 {
			from = s.accounts[0]
		}
		list := s.tasks[from]
		if len(list) == 0 {
			return nil
		}
		w := list[0]
		list[0] = nil
		s.put(from, list[1:])
		if !w.gone {
			return w
		}
	}
}

// put stores the tasks of an account, which goes to the end of the line.
func (s *shelf) put(account string, list []*task) {
	if i := slices.Index(s.accounts, account); i >= 0 {
		s.accounts = slices.Delete(s.accounts, i, i+1)
	}
	if len(list) == 0 {
		delete(s.tasks, account)
		return
	}
	s.tasks[account] = list
	s.accounts = append(s.accounts, account)
}

// leave removes a worker from those that wait.
func (s *shelf) leave(w *waiting) {
	s.waiting = slices.DeleteFunc(s.waiting, func(one *waiting) bool { return one == w })
}
