// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"container/heap"
	"container/list"
	"context"
	"math"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
)

// A FairLimit bounds how many requests are carried out at once. Others wait, and of those the
// account comes first whose last request has begun the longest ago: one that asks for less than
// its share hardly waits, however much others ask for. It is safe for concurrent use.
type FairLimit struct {
	most    int // at once
	waiting int // of an account
	all     int // that wait
	longest time.Duration

	mu       sync.Mutex
	free     int
	queued   int
	begun    uint64 // requests so far
	accounts map[string]*accountLoad
	line     line // accounts with requests that wait
}

// An accountLoad is what an account has asked for.
type accountLoad struct {
	name    string
	running int
	last    uint64    // number of the request that began last
	waiting list.List // of *waiter, the oldest first
	place   int       // in the line; -1 = nothing waits
}

// A line is a heap of accounts; see container/heap.
type line []*accountLoad

func (l line) Len() int           { return len(l) }
func (l line) Less(i, j int) bool { return l[i].last < l[j].last }
func (l line) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

// Push implements heap.Interface.
func (l *line) Push(x any) {
	a := x.(*accountLoad)
	a.place = len(*l)
	*l = append(*l, a)
}

// Pop implements heap.Interface.
func (l *line) Pop() any {
	last := len(*l) - 1
	a := (*l)[last]
	(*l)[last], *l, a.place = nil, (*l)[:last], -1
	return a
}

// A waiter is a request that waits.
type waiter struct {
	begins chan struct{} // closed when it is carried out
}

// Bounds of the requests that wait.
const (
	maxWaiting    = 256
	maxAllWaiting = 4096
	longestWait   = 10 * time.Second
	// maxRemembered is how many accounts are remembered that ask for nothing now.
	maxRemembered = 4096
)

// NewFairLimit returns a limit of that many requests at once.
func NewFairLimit(most int) *FairLimit {
	return &FairLimit{most: most, waiting: maxWaiting, all: maxAllWaiting, longest: longestWait, free: most, accounts: map[string]*accountLoad{}}
}

// NewPatientLimit returns a limit for what is bounded elsewhere, such as connections: however
// many wait, none is refused before it has waited for long.
func NewPatientLimit(most int, longest time.Duration) *FairLimit {
	f := NewFairLimit(most)
	f.waiting, f.all, f.longest = math.MaxInt, math.MaxInt, longest
	return f
}

// Running returns how many requests are carried out.
func (f *FairLimit) Running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most - f.free
}

// Acquire waits until a request of the account may be carried out. Call release once when it
// has been. A request that would wait in vain is refused at once.
func (f *FairLimit) Acquire(ctx context.Context, account string) (release func(), err error) {
	f.mu.Lock()
	a := f.accounts[account]
	if a == nil {
		a = &accountLoad{name: account, place: -1}
		f.accounts[account] = a
	}
	if f.free > 0 { // then nothing waits
		f.begin(a)
		f.mu.Unlock()
		return func() { f.release(a) }, nil
	}
	if f.queued >= f.all || a.waiting.Len() >= f.waiting {
		f.settle(a)
		f.mu.Unlock()
		return nil, overloaded()
	}
	w := &waiter{begins: make(chan struct{})}
	e := a.waiting.PushBack(w)
	f.queued++
	f.settle(a)
	f.mu.Unlock()
	timer := time.NewTimer(f.longest)
	defer timer.Stop()
	select {
	case <-w.begins:
		return func() { f.release(a) }, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = overloaded()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-w.begins: // meanwhile
		f.end(a)
	default:
		a.waiting.Remove(e)
		f.queued--
		f.settle(a)
	}
	return nil, err
}

func overloaded() error {
	return &fault.Error{Code: fault.Overloaded, Msg: "more requests wait than the server can carry out soon; nothing was changed", RetryAfterMS: 1000}
}

func (f *FairLimit) begin(a *accountLoad) {
	f.free--
	f.begun++
	a.running++
	a.last = f.begun
}

func (f *FairLimit) release(a *accountLoad) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(a)
}

// end takes back a begin, and begins the next request that waits. The caller holds mu.
func (f *FairLimit) end(a *accountLoad) {
	f.free++
	a.running--
	f.settle(a)
	if len(f.line) == 0 {
		return
	}
	next := f.line[0]
	w := next.waiting.Remove(next.waiting.Front()).(*waiter)
	f.queued--
	f.begin(next)
	f.settle(next)
	close(w.begins)
}

// settle puts an account where it belongs after a change. The caller holds mu.
func (f *FairLimit) settle(a *accountLoad) {
	switch waits := a.waiting.Len() > 0; {
	case waits && a.place < 0:
		heap.Push(&f.line, a)
	case waits:
		heap.Fix(&f.line, a.place)
	case a.place >= 0:
		heap.Remove(&f.line, a.place)
	}
	// While nothing waits, the order does not matter.
	if a.running == 0 && a.waiting.Len() == 0 && (f.queued == 0 || len(f.accounts) > maxRemembered) {
		delete(f.accounts, a.name)
	}
}
