// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/store"
)

// A fakeEngine is a host with a store that says what a test wants.
type fakeEngine struct {
	qs       *Queues
	limit    int
	stored   store.Unended
	readErr  error
	counts   int
	now      int64
	settled  uint64 // the last batch whose outcome is known
	admitted []string
	broken   map[string]bool // by run: whether it can never be admitted
	others   string          // the run that another engine carries on
}

func newQueues(limit int) *fakeEngine {
	e := &fakeEngine{limit: limit, broken: map[string]bool{}}
	e.qs = New(e)
	return e
}

func (e *fakeEngine) Now() int64                { return e.now }
func (e *fakeEngine) Limit(string) int          { return e.limit }
func (e *fakeEngine) Building() uint64          { return e.settled + 1 }
func (e *fakeEngine) Settled(batch uint64) bool { return batch <= e.settled }
func (e *fakeEngine) Selects(k store.Key) bool  { return k.Run != e.others }
func (e *fakeEngine) Warn(string, error)        {}

func (e *fakeEngine) Unended(string) (store.Unended, error) {
	e.counts++
	return e.stored, e.readErr
}

func (e *fakeEngine) Admit(key store.Key) (bool, error) {
	if permanent, ok := e.broken[key.Run]; ok {
		return permanent, errors.New("it cannot be loaded")
	}
	e.admitted = append(e.admitted, key.Run)
	e.qs.Moved(key, Queued, Live)
	return false, nil
}

func (e *fakeEngine) serve() []string {
	e.admitted = nil
	for e.qs.Serve() {
	}
	return e.admitted
}

func key(run string) store.Key { return store.Key{Account: "acme", Run: run} }

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v are admitted, want %v", what, got, want)
	}
}

// Runs are admitted in the order in which they were queued, whatever the order in which
// they were found, and only as many as there is room for (X206).
func TestX206_FirstComeFirstServed(t *testing.T) {
	e := newQueues(3)
	e.stored.Live = 1
	for i, at := range []int64{30, 10, 20, 10} {
		e.qs.Add(key(fmt.Sprint("r", i)), at)
	}
	e.qs.Add(key("r0"), 30) // known already
	want(t, "two places", e.serve(), "r1", "r3")
	want(t, "none", e.serve())
	e.qs.Moved(key("x"), Live, None)
	if !e.qs.Full("acme") {
		t.Error("a start overtakes a run that waits")
	}
	want(t, "one place", e.serve(), "r2")
	e.qs.Moved(key("r1"), Live, None)
	want(t, "the last", e.serve(), "r0")
	e.qs.Moved(key("r2"), Live, None)
	if e.qs.Full("acme") || e.counts != 1 {
		t.Errorf("full %v after %d counts", e.qs.Full("acme"), e.counts)
	}
}

// While an account cannot be counted its runs are queued, and it is counted when no
// change of it is on its way to the store (X206).
func TestX206_UncountedAccountsAreFull(t *testing.T) {
	e := newQueues(2)
	e.readErr = errors.New("down")
	if !e.qs.Full("acme") {
		t.Error("an account that was not counted has room")
	}
	e.qs.Moved(key("old"), Live, None) // not stored yet
	e.qs.Moved(key("a"), None, Queued)
	e.qs.Add(key("a"), 1)
	e.readErr, e.stored = nil, store.Unended{Live: 1}
	want(t, "before the commit", e.serve())
	e.settled++
	e.stored.Live, e.stored.Queued = 0, 1
	want(t, "after the commit", e.serve(), "a")
	e.qs.Recount("acme")
	if e.qs.Due() || !e.qs.Full("acme") {
		t.Error("an account that must be counted again has room")
	}
	e.settled++
	e.stored = store.Unended{Live: 1}
	if e.qs.Full("acme") {
		t.Error("the account is full after it was counted again")
	}
}

// A run that can never be admitted stands aside; one that cannot be read is tried again
// in its place; one that belongs to another engine is left to it (X206).
func TestX206_RunsThatCannotBegin(t *testing.T) {
	e := newQueues(1)
	for i := range 4 {
		e.qs.Add(key(fmt.Sprint("r", i)), int64(i))
	}
	e.broken["r0"], e.others = true, "r1"
	want(t, "past the broken", e.serve(), "r2")
	e.broken["r3"] = false
	e.qs.Moved(key("r2"), Live, None)
	want(t, "unreadable", e.serve())
	delete(e.broken, "r3")
	e.now = e.qs.Next()
	e.qs.Tick()
	want(t, "later", e.serve(), "r3")
	delete(e.broken, "r0")
	e.qs.Add(key("r0"), 9) // released
	e.qs.Moved(key("r3"), Live, None)
	want(t, "after its release", e.serve(), "r0")
}

// Accounts without runs do not stay in memory when there are many.
func TestX206_AccountsAreForgotten(t *testing.T) {
	e := newQueues(1)
	for i := range maxQueues + 2 {
		k := store.Key{Account: fmt.Sprint("a", i), Run: "r"}
		e.qs.Moved(k, None, Live)
		if i > 0 {
			e.qs.Moved(k, Live, None)
		}
	}
	e.qs.Trim()
	if n := len(e.qs.byName); n != maxQueues+2 {
		t.Errorf("%d accounts are left although their changes are not stored", n)
	}
	e.settled++
	e.qs.Trim()
	if n := len(e.qs.byName); n != 1 {
		t.Errorf("%d accounts are left", n)
	}
}

// A limit that is raised admits those that wait, with the next tick, and one that is lowered
// keeps others from beginning.
func TestX206_LimitsChange(t *testing.T) {
	e := newQueues(1)
	for i := range 4 {
		key := store.Key{Account: "a", Run: fmt.Sprint("r", i)}
		if !e.qs.Full("a") {
			e.qs.Moved(key, None, Live)
			continue
		}
		e.qs.Moved(key, None, Queued)
		e.qs.Add(key, int64(i))
	}
	e.settled = 9
	if got := e.serve(); len(got) != 0 {
		t.Fatalf("%v begin above the limit", got)
	}
	e.limit = 3
	e.qs.LimitsChanged()
	e.qs.Tick()
	if got := e.serve(); !slices.Equal(got, []string{"r1", "r2"}) {
		t.Errorf("%v begin after the limit was raised", got)
	}
	e.limit = 1
	e.qs.LimitsChanged()
	e.qs.Tick()
	e.qs.Moved(store.Key{Account: "a", Run: "r0"}, Live, None)
	if got := e.serve(); len(got) != 0 || !e.qs.Full("a") {
		t.Errorf("%v begin after it was lowered", got)
	}
}
