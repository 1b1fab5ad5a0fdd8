// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

// A follower is a reader of the changes of an account that reads after every commit.
type follower struct {
	last    uint64                  // number of the last change
	at      int64                   // its time
	entries uint64                  // of the account that it was told of
	runs    map[string]store.Change // the last change of each run
}

// followFeeds reads what has changed in all accounts. It asserts that changes are numbered
// without a gap, that each entry is one of them in its order, and that what is told of a
// run last is what its head says (I14).
func (c *checker) followFeeds() {
	for _, account := range accounts {
		f := c.followers[account]
		if f == nil {
			f = &follower{runs: map[string]store.Change{}}
			c.followers[account] = f
		}
		changes, err := c.w.mem.Changes(c.w.ctx(), account, f.last, math.MaxInt32)
		switch fault.CodeOf(err) {
		case "":
		case fault.CursorExpired, fault.InputInvalid:
			c.w.fail("I14: a reader of account %s after change %d is answered %v", account, f.last, err)
		default:
			return // the disk has failed; checkSurvived comes later
		}
		changed := map[string]bool{}
		for i := range changes {
			c.follow(account, f, &changes[i])
			if run := changes[i].Run; run != "" {
				changed[run] = true
			}
		}
		for run := range changed {
			c.checkTold(store.Key{Account: account, Run: run})
		}
	}
}

// follow takes a change into account.
func (c *checker) follow(account string, f *follower, ch *store.Change) {
	if ch.N != f.last+1 || ch.At < f.at {
		c.w.fail("I14: account %s: change %d at %d comes after change %d at %d", account, ch.N, ch.At, f.last, f.at)
	}
	f.last, f.at = ch.N, ch.At
	switch {
	case ch.Run != "":
		f.runs[ch.Run] = *ch
	case ch.Entry != 0:
		f.entries++
		list, err := c.w.mem.Entries(c.w.ctx(), account, f.entries-1, 1)
		if err == nil && (len(list) == 0 || ch.Entry != f.entries || list[0].Key != ch.Key || list[0].Kind != ch.Kind) {
			c.w.fail("I14: account %s: change %d is of entry %d, %s %s, and not of entry %d", account, ch.N, ch.Entry, ch.Kind, ch.Key, f.entries)
		}
	}
}

// checkTold asserts that the head of a run is what the feed says of it.
func (c *checker) checkTold(key store.Key) {
	head, err := c.w.mem.Head(c.w.ctx(), key)
	ch := c.followers[key.Account].runs[key.Run]
	switch code := fault.CodeOf(err); {
	case code == fault.RunNotFound && ch.Deleted:
	case code == fault.RunNotFound:
		c.w.fail("I14: run %s is not stored, and the feed has it as %q", key.Run, ch.Status)
	case err != nil: // the disk has failed
	case ch.Deleted || ch.Status != head.Status || ch.Code != head.Code || ch.Ended != head.Ended || ch.Quarantined != (head.Quarantine != "") || ch.Root != head.Root:
		c.w.fail("I14: run %s has the head %+v, and the feed has %+v of it", key.Run, head, ch)
	}
}

// checkFeeds asserts at the end that the feeds have said everything.
func (c *checker) checkFeeds() {
	c.followFeeds()
	for _, t := range c.all {
		if t.deleted && t.tree.self != nil {
			continue // its root was removed with all runs below it
		}
		if t.journal.Last() > 0 {
			c.checkTold(t.key)
		}
	}
	for account, b := range c.books {
		if f := c.followers[account]; f != nil && f.entries != b.seq && c.w.bank != nil {
			c.w.fail("I14: account %s has %d entries, and its feed has %d", account, b.seq, f.entries)
		}
	}
}
