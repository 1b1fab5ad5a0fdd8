// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// A book is what the checker knows of an account: the sum of its durable entries, added
// up by rules of its own. It is compared with the account as stored, and with what the
// journals of its runs say (I11).
type book struct {
	account string
	seq     uint64
	at      int64
	lots    []*bookLot
	keys    map[string]bool
	runs    map[string]*bookRun
	usages  usages
	// unordered is true for entries of a batch of which another one may have been
	// refused: they were decided as if that one had been recorded, and may have left
	// lots to it that burn earlier. After a failed sync it stays so until a crash has shown what
	// is on the disk.
	unordered bool
}

type bookLot struct {
	id      string
	terms   ledger.Terms
	voided  bool
	granted int64
	in      [6]int64 // by ledger.Bucket
}

// A bookRun is what the entries of a run come to.
type bookRun struct{ held, paid int64 }

// book returns the book of an account.
func (c *checker) book(account string) *book {
	b := c.books[account]
	if b == nil {
		b = &book{account: account, keys: map[string]bool{}, runs: map[string]*bookRun{}}
		c.books[account] = b
	}
	return b
}

func (b *book) run(id string) *bookRun {
	r := b.runs[id]
	if r == nil {
		r = new(bookRun)
		b.runs[id] = r
	}
	return r
}

func (b *book) lot(id string) *bookLot {
	for _, l := range b.lots {
		if l.id == id {
			return l
		}
	}
	return nil
}

// audit adds the entries that have become durable, and compares the runs of a batch
// with them: what is durable of a run and what is durable of its credits are one commit.
func (c *checker) audit(keys ...store.Key) {
	if c.w.bank == nil {
		return
	}
	for _, account := range accounts {
		b := c.book(account)
		entries, err := c.w.mem.Entries(c.w.ctx(), account, b.seq, math.MaxInt32)
		if err != nil {
			return // the disk has failed; checkSurvived comes later
		}
		for _, e := range entries {
			err := b.add(e)
			if err == nil {
				err = b.usages.count(e, c.w.bank.budgets())
			}
			if err != nil {
				c.w.fail("I11: account %s, entry %d, %s %s: %v", account, b.seq, e.Kind, e.Key, err)
			}
		}
		b.unordered = b.unordered && len(c.unsynced) > 0
		if len(entries) > 0 {
			c.compare(b)
		}
	}
	for _, key := range keys {
		t := c.runs[key]
		if t == nil {
			continue
		}
		held, settled := t.journal.Credits()
		if t.tree.self != nil {
			held = 0 // its root holds its share
		}
		if r := c.book(key.Account).run(key.Run); r.held != held || r.paid != settled {
			c.w.fail("I11: run %s holds %d and has settled %d by its journal, %d and %d by the ledger", key.Run, held, settled, r.held, r.paid)
		}
	}
}

// add adds an entry.
func (b *book) add(e *ledger.Entry) error {
	b.seq++
	if b.keys[e.Key] {
		return fmt.Errorf("there is an entry under its key")
	}
	b.keys[e.Key] = true
	if e.Kind != ledger.Expire && e.At < b.at {
		return fmt.Errorf("it is dated before an earlier one")
	}
	b.at = max(b.at, e.At)
	switch e.Kind {
	case ledger.Grant:
		b.lots = append(b.lots, &bookLot{id: e.Parts[0].Lot, terms: *e.Terms, granted: e.Amount()})
	case ledger.Reserve, ledger.Extend:
		if err := b.checkOrder(e); err != nil && !b.unordered {
			return err
		}
	}
	from, to := e.Kind.Postings()
	for _, p := range e.Parts {
		l := b.lot(p.Lot)
		switch {
		case l == nil:
			return fmt.Errorf("there is no lot %s", p.Lot)
		case e.Kind == ledger.Expire && (l.terms.Expires == 0 || l.terms.Expires > e.At):
			return fmt.Errorf("lot %s has not ended", p.Lot)
		}
		if from != ledger.Issued {
			if l.in[from] -= p.Amount; l.in[from] < 0 {
				return fmt.Errorf("lot %s has less than it moves", p.Lot)
			}
		}
		l.in[to] += p.Amount
		l.voided = l.voided || e.Kind == ledger.Void
	}
	switch n, r := e.Amount(), b.run(e.Run); e.Kind {
	case ledger.Reserve, ledger.Extend:
		r.held += n
	case ledger.Settle:
		r.held, r.paid = r.held-n, r.paid+n
	case ledger.Release:
		r.held -= n
	}
	return nil
}

// checkOrder asserts that a hold takes the lots that burn first.
func (b *book) checkOrder(e *ledger.Entry) error {
	var live []*bookLot
	for _, l := range b.lots {
		if l.terms.Effective <= e.At && (l.terms.Expires == 0 || e.At < l.terms.Expires) && !l.voided && l.in[ledger.Free] > 0 {
			live = append(live, l)
		}
	}
	slices.SortStableFunc(live, func(x, y *bookLot) int {
		never := func(t int64) int64 {
			if t == 0 {
				return math.MaxInt64
			}
			return t
		}
		return cmp.Or(cmp.Compare(x.terms.Priority, y.terms.Priority), cmp.Compare(never(x.terms.Expires), never(y.terms.Expires)))
	})
	for i, p := range e.Parts {
		switch {
		case i >= len(live) || live[i].id != p.Lot:
			return fmt.Errorf("part %d is of lot %s, and another one burns before it", i, p.Lot)
		case i < len(e.Parts)-1 && p.Amount != live[i].in[ledger.Free]:
			return fmt.Errorf("it leaves %d credits of lot %s and takes some of the next", live[i].in[ledger.Free]-p.Amount, p.Lot)
		}
	}
	return nil
}

// compare compares a book with the account as stored.
func (c *checker) compare(b *book) {
	a, err := c.w.mem.Account(c.w.ctx(), b.account, math.MaxInt64)
	if err != nil {
		return
	}
	for _, l := range b.lots {
		sum := int64(0)
		for _, n := range l.in {
			sum += n
		}
		lot, _ := a.Lot(l.id)
		stored := [...]int64{0, lot.Free, lot.Held, lot.Spent, lot.Expired, lot.Voided}
		if sum != l.granted || stored != l.in {
			c.w.fail("I11: lot %s of %d credits has %v by its entries and %v as stored", l.id, l.granted, l.in, stored)
		}
	}
}

// checkSettled asserts at the end that nothing is held.
func (c *checker) checkSettled() {
	if c.w.bank == nil {
		return
	}
	for _, t := range c.all {
		c.audit(t.key)
	}
	for account, b := range c.books {
		for _, l := range b.lots {
			if l.in[ledger.Held] != 0 {
				c.w.fail("I11: every run has ended, and %d credits of lot %s of %s are held", l.in[ledger.Held], l.id, account)
			}
		}
	}
}
