// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/ledger"
)

// A bank gives the accounts of a world credits, in lots that begin, end and are voided
// while runs use them. It has random numbers of its own, so that worlds whose accounts
// do not pay are the same with and without it.
type bank struct {
	dice   *rand.Rand
	grants int
	day    int64 // what an account may spend in a day; 0 = there are no budgets
	rich   bool  // phase 2: whatever waits for credits gets them
}

// accounts are those of all runs.
var accounts = [...]string{"ann", "bob"}

// paying returns the bank of a world whose accounts pay, or nil. Like maxTurn it depends
// on the seed alone.
func paying(seed uint64) *bank {
	if seed%5 != 1 {
		return nil
	}
	b := &bank{dice: rand.New(rand.NewPCG(seed, 0x62616e6b))}
	if seed%3 == 1 {
		b.day = pick(b.dice, int64(15), 40, 150)
	}
	return b
}

// rules are those of every account.
func (b *bank) rules(string) engine.AccountRules {
	return engine.AccountRules{Unmetered: b == nil, MaxCredits: 400, Budgets: b.budgets()}
}

// limit draws the most that a run may pay; 0 = what its account says.
func (b *bank) limit() int64 {
	if b == nil {
		return 0
	}
	return pick(b.dice, int64(0), 0, 5, 20, 60)
}

// bankAction grants a lot, or voids one.
func (p *process) bankAction() {
	b := p.w.bank
	if b == nil || p.dead {
		return
	}
	p.w.changePrices()
	if b.dice.IntN(5) > 0 {
		return
	}
	account := accounts[b.dice.IntN(len(accounts))]
	if b.grants > 0 && b.dice.IntN(6) == 0 {
		lot := fmt.Sprint("lot ", b.dice.IntN(b.grants))
		m, err := p.stage.VoidLot(account, lot)
		r := &request{m: m, kind: requestVoid, entry: "void/" + lot}
		r.key.Account = account
		p.send(r, err)
		return
	}
	terms := ledger.Terms{Source: pick(b.dice, ledger.Paid, ledger.Promotional), Priority: int32(b.dice.IntN(3))}
	if b.dice.IntN(3) == 0 {
		terms.Effective = p.stage.Now() + b.dice.Int64N(2*p.w.faults.longest)
	}
	if b.dice.IntN(3) == 0 {
		terms.Expires = max(terms.Effective, p.stage.Now()) + 1 + b.dice.Int64N(4*p.w.faults.longest)
	}
	p.grant(account, pick(b.dice, int64(3), 10, 40, 200), terms)
}

func (p *process) grant(account string, n int64, terms ledger.Terms) {
	b := p.w.bank
	key := fmt.Sprint("lot ", b.grants)
	b.grants++
	m, err := p.stage.Grant(engine.GrantRequest{Account: account, Key: key, Amount: n, Terms: terms})
	r := &request{m: m, kind: requestGrant, entry: "grant/" + key}
	r.key.Account = account
	p.send(r, err)
}

// endPoverty gives every account enough for all its runs, in one of two worlds; in the
// other one runs wait for credits until their ttl.
func (p *process) endPoverty() (moved bool) {
	b := p.w.bank
	if b == nil || b.rich || b.dice.IntN(2) == 0 {
		return false
	}
	b.rich = true
	for _, account := range accounts {
		p.grant(account, 1_000_000, ledger.Terms{Source: ledger.Paid})
	}
	return true
}

// changesPrices reports whether the prices of a world that pays change. Like maxTurn it
// depends on the seed alone.
func changesPrices(seed uint64) bool { return seed%4 == 3 }

// A priceList is the actions of a world, at the prices of the moment. Those of a run are
// pinned when it, or the root of its tree, is started (I12).
type priceList struct{ w *World }

// Find implements catalogue.Finder.
func (l priceList) Find(name, version string) *action.Action {
	c := l.w.c
	if n := l.w.prices; n > 0 {
		return c.Prices[n-1].Find(name, version)
	}
	return c.Actions.Find(name, version)
}

// changePrices draws other prices.
func (w *World) changePrices() {
	if n := len(w.c.Prices); n > 0 && changesPrices(w.seed) && w.bank.dice.IntN(12) == 0 {
		w.prices = w.bank.dice.IntN(n + 1)
		w.tracef("prices %d", w.prices)
	}
}

// drawnPrices are those to which the prices of drawn recipes change: the one list is
// dearer, the other cheaper, and each has an action that costs nothing.
var drawnPrices = []catalogue.Finder{
	drawnAt(map[string]string{"work": "5", "undo": "0.25", "slotted": "1.1", "provided": "", "alone": "0.75"}),
	drawnAt(map[string]string{"work": "0.5", "undo": "", "slotted": "0.000002", "provided": "0.3"}),
}

// drawnAt returns the drawn actions at these prices.
func drawnAt(prices map[string]string) catalogue.Finder {
	var list []*action.Action
	for _, name := range drawnActions.Names() {
		a := *drawnActions.Find(name, "")
		if price, ok := prices[name]; ok {
			a.Cost, a.Price = 0, price
		}
		list = append(list, &a)
	}
	return catalogue.New(list...)
}
