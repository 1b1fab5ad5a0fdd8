// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// A Throttle decides when attempts begin, of those that have the same key of a rule, or the same
// service: by rates and sums, and by what the service has said and how it fares. Those that wait
// at it hold no slots.
type Throttle[H any] struct {
	queue[H]
	rule *Rule // nil = of a service

	paused  int64 // until when the service asks to wait
	rate    *bucket
	tokens  *bucket
	perCall typical // tokens
	credits *daySum
	price   typical // credits of an attempt
	breaker *breaker
	retries *retryBudget
	budget  *retryBudget // of retries, which first attempts that pass here add to
	spender *Throttle[H] // where retries wait for budget; nil = there have been none

	alarm   int64        // when Advance has to look at it; 0 = it has not to
	until   atomic.Int64 // until when nothing begins, as far as is known; read by Usage
	sharing bool         // it is that of all keys beyond the most
}

// A claim is what an attempt has taken at a throttle, or would take.
type claim struct {
	taken   bool
	probe   bool  // it tries a service whose breaker is open
	tokens  int64 // reserved
	credits int64
}

// unknownTokens is how many tokens an attempt is expected to take if nothing is known.
const unknownTokens = 1_000

func (t *Throttle[H]) expected(req *Request[H]) (tokens, credits int64) {
	if req.Demand != nil {
		tokens, credits = req.Tokens, req.Credits
	}
	if tokens == 0 {
		if tokens = int64(t.perCall); tokens == 0 {
			tokens = unknownTokens
		}
	}
	if t.price != 0 {
		credits = int64(t.price)
	}
	return tokens, credits
}

// The reasons why a throttle lets nothing begin.
type refusal uint8

const (
	mayBegin refusal = iota
	isPaused
	isOpen
	isProbed
	overRate
	overTokens
	overCredits
	overReserved
	overRetries
)

// check returns why an attempt may not begin, and when that changes; 0 = with another event.
func (t *Throttle[H]) check(now int64, req *Request[H]) (refusal, int64) {
	if now < t.paused {
		return isPaused, t.paused
	}
	if b := t.breaker; b != nil && b.until != 0 {
		switch {
		case now < b.until:
			return isOpen, b.until
		case b.probes:
			return isProbed, 0
		}
	}
	if t.retries != nil {
		if at := t.retries.lacks(now); at != 0 {
			return overRetries, at
		}
	}
	if t.rate != nil {
		if at := t.rate.lacks(now, 1); at != 0 {
			return overRate, at
		}
	}
	if t.tokens == nil && t.credits == nil {
		return mayBegin, 0
	}
	tokens, credits := t.expected(req)
	if t.tokens != nil {
		if at := t.tokens.lacks(now, tokens); at != 0 {
			return overTokens, at
		}
	}
	if t.credits != nil {
		if at, ok := t.credits.lacks(now, credits); !ok {
			if at != 0 {
				return overCredits, at
			}
			return overReserved, 0
		}
	}
	return mayBegin, 0
}

// take has an attempt begin.
func (t *Throttle[H]) take(now int64, req *Request[H], c *claim) {
	*c = claim{taken: true}
	if b := t.breaker; b != nil && b.until != 0 {
		b.probes, c.probe = true, true
	}
	if t.budget != nil && !req.retry() {
		t.budget.first(now)
	}
	if t.retries != nil {
		t.retries.take()
	}
	if t.rate != nil {
		t.rate.take(1)
	}
	tokens, credits := t.expected(req)
	if t.tokens != nil {
		t.tokens.take(tokens)
		c.tokens = tokens
	}
	if t.credits != nil {
		c.credits = min(credits, t.credits.most)
		t.credits.reserved += c.credits
	}
}

// giveBack takes back what an attempt has taken that has not begun.
func (t *Throttle[H]) giveBack(c *claim) {
	if !c.taken {
		return
	}
	if t.retries != nil {
		t.retries.give()
	}
	if t.rate != nil {
		t.rate.give(1)
	}
	if t.tokens != nil {
		t.tokens.give(c.tokens)
	}
	c.tokens = 0
}

// end ends a claim: what its attempt cost has been counted by then, if it is known.
func (t *Throttle[H]) end(c *claim) {
	if t.credits != nil {
		t.credits.reserved -= c.credits
	}
	if c.probe && t.breaker != nil {
		t.breaker.probes = false // it has ended without a result, unless result came first
	}
	*c = claim{}
}

// An Outcome is what is known of an attempt that has ended.
type Outcome struct {
	Failed bool  // because of its service: it could not be reached, failed, or took too long
	Unused bool  // the service has refused to do anything, or was not called
	Pause  int64 // µs for which the service asks to wait; 0 = it does not ask
	Tokens int64 // that it has used; 0 = not known
	// Uncounted is true if it says nothing about the service.
	Uncounted bool
}

// settle has an attempt end with an outcome. With pauses the throttle is paused if the service asks
// to wait.
func (t *Throttle[H]) settle(now int64, c *claim, o *Outcome, pauses bool) {
	if pauses && o.Pause > 0 {
		t.paused = max(t.paused, now+min(o.Pause, MaxPause))
	}
	if t.breaker != nil && !o.Uncounted {
		t.breaker.result(now, o.Failed, c.probe)
		c.probe = false
	}
	if t.tokens == nil {
		return
	}
	switch {
	case o.Tokens > 0:
		t.tokens.take(o.Tokens)
		t.perCall.add(o.Tokens)
	case !o.Unused:
		return // what was expected has to do
	}
	t.tokens.give(c.tokens)
	c.tokens = 0
}

// spend counts what an attempt cost.
func (t *Throttle[H]) spend(now, credits int64) {
	if t.credits != nil {
		t.credits.turn(now)
		t.credits.spent += credits
		t.price.add(credits)
	}
}

// calm reports whether the throttle may be forgotten: a new one would decide the same.
func (t *Throttle[H]) calm(now int64) bool {
	if t.waiting.Load() != 0 || now < t.paused || t.rate != nil && !t.rate.full(now) || t.tokens != nil && !t.tokens.full(now) {
		return false
	}
	if t.credits != nil {
		if t.credits.turn(now); t.credits.spent+t.credits.reserved != 0 {
			return false
		}
	}
	if b := t.breaker; b != nil && b.Min > 0 {
		if failed, _ := b.counts(now); b.until != 0 || failed > 0 {
			return false
		}
	}
	r := t.budget
	return r == nil || now-r.earned > minute && r.floor.full(now)
}

// about names the throttle in a sentence.
func (t *Throttle[H]) about() string {
	switch {
	case t.rule == nil:
		return "provider " + strconv.Quote(t.name)
	case t.sharing:
		return fmt.Sprintf("limit %q, which has too many keys to tell them apart,", t.name)
	}
	return fmt.Sprintf("limit %q for %q", t.name, t.key)
}

// text says why a request waits here. It has no time of a clock that changes with every request:
// the text is recorded once for each reason.
func (t *Throttle[H]) text(why refusal) string {
	switch why {
	case isPaused:
		who := t.about()
		if t.rule != nil {
			who = "a provider in " + who
		}
		return fmt.Sprintf("waits because %s asked to wait until %s", who, clockText(t.paused))
	case isOpen:
		return fmt.Sprintf("waits because %s fails: %d of the last %d attempts; it is tried again at %s", t.about(), t.breaker.failed, t.breaker.of, clockText(t.breaker.until))
	case isProbed:
		return fmt.Sprintf("waits because %s has failed: one attempt tries it now", t.about())
	case overRate:
		return fmt.Sprintf("waits for %s: %s", t.about(), rateText(t.rule.Rate))
	case overTokens:
		return fmt.Sprintf("waits for %s: %d tokens a minute", t.about(), t.rule.Tokens)
	case overCredits, overReserved:
		return fmt.Sprintf("waits for %s: %s credits a day", t.about(), creditText(t.rule.Credits))
	case overRetries:
		return fmt.Sprintf("waits because %s has as many retries as it may have for its first attempts", t.about())
	}
	return fmt.Sprintf("waits for %s: others came before", t.about())
}

func clockText(at int64) string {
	return time.UnixMicro(at + second - 1).UTC().Truncate(time.Second).Format(time.RFC3339)
}

func rateText(r Rate) string {
	for _, unit := range []struct {
		period int64
		name   string
	}{{second, "a second"}, {minute, "a minute"}, {hour, "an hour"}, {day, "a day"}} {
		if r.Period == unit.period {
			return fmt.Sprintf("%d %s", r.N, unit.name)
		}
	}
	return fmt.Sprintf("%d in %s", r.N, time.Duration(r.Period)*time.Microsecond)
}

func creditText(millionths int64) string {
	return strconv.FormatFloat(float64(millionths)/1e6, 'f', -1, 64)
}

// newThrottle returns the throttle of a rule and a key. A bucket is empty when the process
// starts, because it is not known what was taken before; began is that time.
func newThrottle[H any](r *Rule, key string, began, now int64) *Throttle[H] {
	t := &Throttle[H]{rule: r, queue: queue[H]{of: "limit", name: r.Name, key: key, accounts: map[string]*accountQueue[H]{}}}
	t.throttle = t
	if r.Rate.N > 0 {
		t.rate = newBucket(r.Rate, began)
	}
	if r.Tokens > 0 {
		t.tokens = tokenBucket(r.Tokens, began)
	}
	if r.Credits > 0 {
		t.credits = &daySum{most: r.Credits, day: now / day}
	}
	return t
}

// newServiceThrottle returns a throttle of a service.
func newServiceThrottle[H any](of, service, account string) *Throttle[H] {
	t := &Throttle[H]{queue: queue[H]{of: of, name: service, key: account, accounts: map[string]*accountQueue[H]{}}}
	t.throttle = t
	return t
}
