// SPDX-License-Identifier: Apache-2.0

// Package admission decides which runs of an account may begin (X206).
//
// An account with a limit has at most that many live runs: runs that have not ended and
// are not queued, whatever they wait for. A run above the limit is queued, and queued runs
// are admitted first come, first served, as live ones end. The numbers are those of the
// run states in memory, which are ahead of the disk; each account is counted in the store
// once, before its first change.
//
// The package makes nothing durable, and never decides what a run does. The machine emits
// the events; a queue is found again after a crash by an index of the store.
package admission

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
	"github.com/roux-engine/roux/internal/store"
)

// Most is how many times the limit of live runs an account may have in runs that have not
// ended, queued ones included.
const Most = 10

// A Class is how a run counts against the limit of its account.
type Class uint8

// The classes.
const (
	None   Class = iota // it has ended, does not exist or was imported
	Live                // it has not ended; it may be suspended, paused or quarantined
	Queued              // it waits to be admitted
)

// ClassOf returns the class of a run by its head.
func ClassOf(h *store.Head) Class {
	switch {
	case !h.Counts():
		return None
	case h.Status == store.StatusQueued:
		return Queued
	}
	return Live
}

// ClassOfRun returns the class of a run in memory with so many events.
func ClassOfRun(events uint64, status journal.RunStatus) Class {
	switch {
	case events == 0 || status.Terminal():
		return None
	case status.String() == store.StatusQueued:
		return Queued
	}
	return Live
}

// A Host is the engine around the queues.
type Host interface {
	Now() int64 // UTC µs, never falls
	// Limit is how many live runs an account may have; 0 = any number.
	Limit(account string) int
	// Unended counts the runs of an account as stored.
	Unended(account string) (store.Unended, error)
	// Building is the number of the batch under construction, and Settled reports whether
	// the outcome of a batch is known.
	Building() uint64
	Settled(batch uint64) bool
	// Selects reports whether this engine carries a run on.
	Selects(key store.Key) bool
	// Admit lets a queued run begin. permanent means that the run cannot begin until
	// somebody does something about it.
	Admit(key store.Key) (permanent bool, err error)
	// Warn is told of an account that cannot be counted.
	Warn(account string, err error)
}

const (
	retryAfter = 1_000_000 // µs until a read that failed is tried again
	maxQueues  = 10_000    // accounts that are kept in memory between commits
)

// A queue is what is known of one account.
type queue struct {
	account string
	limit   int
	live    int
	counted bool   // live is known
	changed uint64 // the last batch with a change of a run's class
	// waiting are the queued runs in the order in which they are admitted, and places where
	// they are. Those in aside are queued and cannot be loaded.
	waiting []place
	places  map[string]place
	aside   map[string]bool
	ready   bool // in Queues.ready
}

// A place is that of a run in a queue.
type place struct {
	at  int64 // when the run was queued
	run string
}

func (p place) compare(other place) int {
	switch {
	case p.at < other.at:
		return -1
	case p.at > other.at:
		return 1
	}
	return strings.Compare(p.run, other.run)
}

// Queues are those of all accounts. They are for one goroutine at a time.
type Queues struct {
	host   Host
	byName map[string]*queue
	ready  []*queue     // may have room for a run that waits
	next   int64        // when Tick has something to do; 0 = never
	limits *atomic.Bool // they have changed
}

// New returns queues that are empty; the caller adds the runs that the store has.
func New(host Host) *Queues {
	return &Queues{host: host, byName: map[string]*queue{}, limits: new(atomic.Bool)}
}

// Reset forgets everything, because nobody knows what was written.
func (qs *Queues) Reset() { qs.byName, qs.ready, qs.next = map[string]*queue{}, nil, 0 }

// LimitsChanged makes the next Tick ask for the limits of accounts again. It may be called
// by any goroutine. An account that had no limit must not get one, because its runs were not
// counted.
func (qs *Queues) LimitsChanged() { qs.limits.Store(true) }

// Next is when Tick has something to do at the latest, UTC µs; 0 = never.
func (qs *Queues) Next() int64 { return qs.next }

func (qs *Queues) of(account string) *queue {
	q := qs.byName[account]
	if q == nil {
		q = &queue{account: account, limit: qs.host.Limit(account), places: map[string]place{}, aside: map[string]bool{}}
		qs.byName[account] = q
	}
	return q
}

// count reads how many live runs the account has. The store knows as long as no change of
// a class is on its way to it; until then every run is queued, so that these changes come
// to an end.
func (qs *Queues) count(q *queue) {
	if q.counted || !qs.countable(q) {
		return
	}
	n, err := qs.host.Unended(q.account)
	if err != nil {
		qs.host.Warn(q.account, err)
		qs.later(qs.host.Now() + retryAfter)
		return
	}
	q.live, q.counted = n.Live, true
}

// countable reports whether the account is counted or can be.
func (qs *Queues) countable(q *queue) bool {
	return q.counted || q.limit == 0 || qs.host.Settled(q.changed)
}

func (qs *Queues) later(at int64) {
	if qs.next == 0 || at < qs.next {
		qs.next = at
	}
}

// room reports whether the account may have another live run.
func (q *queue) room() bool {
	return q.limit == 0 || q.counted && q.live < q.limit || mutation.Admission
}

func (q *queue) queued() int { return len(q.waiting) + len(q.aside) }

// Full reports whether a run that begins now must be queued. A run never overtakes one
// that waits already.
func (qs *Queues) Full(account string) bool {
	q := qs.of(account)
	qs.count(q)
	return !q.room() || len(q.waiting) > 0 && !mutation.Admission
}

// Refuses returns why not even a queued run can be added, or nil.
func (qs *Queues) Refuses(account string) error {
	q := qs.of(account)
	qs.count(q)
	if q.limit == 0 || q.live+q.queued() < Most*q.limit {
		return nil
	}
	quota := &fault.Quota{Name: "live_runs", Used: int64(q.live + q.queued()), Limit: int64(Most * q.limit)}
	return &fault.Error{Code: fault.QuotaExceeded, RetryAfterMS: retryAfter / 1000, Quota: quota, Msg: fmt.Sprintf(
		"account %s has %d live runs of at most %d, and %d are queued, which is all that may wait (limitSource account): "+
			"try again when a run of the account has ended, or cancel some", q.account, q.live, q.limit, q.queued())}
}

// Add makes a queued run wait for its turn. A run that waits already keeps its place.
func (qs *Queues) Add(key store.Key, at int64) {
	q := qs.of(key.Account)
	p := place{at, key.Run}
	if q.places[key.Run] == p {
		return
	}
	q.remove(key.Run)
	i, _ := slices.BinarySearchFunc(q.waiting, p, place.compare)
	q.waiting, q.places[key.Run] = slices.Insert(q.waiting, i, p), p
	qs.wake(q)
}

// Moved records that a run has changed its class. A run that is queued is added besides.
func (qs *Queues) Moved(key store.Key, from, to Class) {
	q := qs.of(key.Account)
	qs.count(q)
	q.changed = qs.host.Building()
	if from == Live {
		q.live--
	}
	if to == Live {
		q.live++
	}
	if from == Queued {
		q.remove(key.Run)
	}
	qs.wake(q)
}

// Recount makes an account be counted again, because what the store has of a run is not
// what it was sent.
func (qs *Queues) Recount(account string) {
	q := qs.of(account)
	q.counted, q.changed = false, qs.host.Building()
	qs.wake(q)
}

// remove takes a run out of the queue.
func (q *queue) remove(run string) {
	delete(q.aside, run)
	p, ok := q.places[run]
	if !ok {
		return
	}
	delete(q.places, run)
	if i, _ := slices.BinarySearchFunc(q.waiting, p, place.compare); i == 0 {
		q.waiting = q.waiting[1:] // the usual case, which does not move the others
	} else {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// wake looks at a queue again if runs wait in it.
func (qs *Queues) wake(q *queue) {
	if !q.ready && len(q.waiting) > 0 && (q.room() || !q.counted) {
		q.ready = true
		qs.ready = append(qs.ready, q)
	}
}

// Due reports whether Serve has something to do. It has not while an account must be
// counted and a change is on its way to the store.
func (qs *Queues) Due() bool { return len(qs.ready) > 0 && qs.countable(qs.ready[0]) }

// Serve admits the next run of an account that has room, and reports whether to call it
// again. Accounts take turns.
func (qs *Queues) Serve() bool {
	if !qs.Due() {
		return false
	}
	q := qs.ready[0]
	qs.ready[0], qs.ready = nil, qs.ready[1:]
	q.ready = false
	qs.count(q)
	i := slices.IndexFunc(q.waiting, func(p place) bool { return qs.host.Selects(store.Key{Account: q.account, Run: p.run}) })
	if i < 0 || !q.room() {
		return len(qs.ready) > 0
	}
	p := q.waiting[i]
	permanent, err := qs.host.Admit(store.Key{Account: q.account, Run: p.run})
	if err != nil && !permanent {
		qs.later(qs.host.Now() + retryAfter)
		return len(qs.ready) > 0
	}
	q.remove(p.run)
	if err != nil { // it still counts, and no longer keeps others from beginning
		q.aside[p.run] = true
	}
	qs.wake(q)
	return len(qs.ready) > 0
}

// Tick looks again at the accounts that could not be counted, and at those of which a run
// could not be read.
func (qs *Queues) Tick() {
	if qs.limits.Swap(false) {
		for name, q := range qs.byName {
			q.limit = qs.host.Limit(name)
		}
		for _, name := range qs.names() {
			qs.wake(qs.byName[name])
		}
	}
	if qs.next == 0 || qs.host.Now() < qs.next {
		return
	}
	qs.next = 0
	for _, name := range qs.names() {
		qs.wake(qs.byName[name])
	}
}

// names returns the accounts with runs that wait, in an order that is the same in every
// process.
func (qs *Queues) names() (names []string) {
	for name, q := range qs.byName {
		if len(q.waiting) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Trim bounds the number of accounts in memory. One without runs is counted again when
// it has some.
func (qs *Queues) Trim() {
	if len(qs.byName) <= maxQueues {
		return
	}
	for name, q := range qs.byName {
		if q.live == 0 && q.queued() == 0 && qs.host.Settled(q.changed) {
			delete(qs.byName, name)
		}
	}
}
