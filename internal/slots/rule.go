// SPDX-License-Identifier: Apache-2.0

package slots

import "math"

const (
	second = 1_000_000 // µs
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// MaxPause bounds how long a service may ask callers to wait, in µs.
const MaxPause = hour

// A Rule is a limit of the configuration. Every key that it is used with has slots, rates and
// sums of its own. Fields left zero limit nothing.
type Rule struct {
	Name        string
	Concurrency int   // attempts that run at once
	Rate        Rate  // attempts that begin
	Tokens      int64 // a minute
	Credits     int64 // a day (UTC), in millionths
	// Pauses is true if there are keys with Pauses.
	Pauses bool
}

// timed reports whether attempts pass a throttle because of the rule.
func (r *Rule) timed() bool {
	return r.Rate.N > 0 || r.Tokens > 0 || r.Credits > 0 || r.Pauses
}

// A Rate permits N attempts per Period, in µs, of which up to Burst may begin at once.
type Rate struct {
	N, Period, Burst int64
}

// A Policy is how failures of a service are handled. Fields left zero turn off what they are of.
type Policy struct {
	// The breaker opens for Open µs when at least Share of the attempts of the last Window µs
	// have failed, and at least Min of them.
	Share        float64
	Min          int
	Window, Open int64
	// Retries is how many retries may begin for each first attempt; Floor is what begins in
	// any case.
	Retries float64
	Floor   Rate
}

// DefaultPolicy applies to services without one of their own.
var DefaultPolicy = Policy{
	Share: 0.5, Min: 20, Window: 30 * second, Open: 30 * second,
	Retries: 0.2, Floor: Rate{N: 1, Period: second, Burst: 10},
}

// A bucket refills evenly. What is in it is counted in units of which one attempt, or one token,
// takes period and each µs adds n, so that nothing is rounded. It may be overdrawn.
type bucket struct {
	n, period, most int64
	level, at       int64
}

// maxPeriod and maxBurst keep the units of a bucket far from overflow.
const (
	maxPeriod = day
	maxBurst  = 1_000_000
)

// newBucket returns a bucket that was empty at a time.
func newBucket(r Rate, at int64) *bucket {
	b := &bucket{n: max(r.N, 1), period: min(max(r.Period, 1), maxPeriod), at: at}
	b.most = min(max(r.Burst, 1), maxBurst) * b.period
	return b
}

// tokenBucket is a bucket of tokens that refills within a minute and holds those of ten seconds:
// so any minute has at most a sixth more than its share, beside what estimates were wrong by.
func tokenBucket(perMinute, at int64) *bucket {
	b := &bucket{n: perMinute, period: minute, at: at}
	b.most = max(perMinute/6, 1) * b.period
	return b
}

func (b *bucket) refill(now int64) {
	if dt := now - b.at; dt > 0 {
		if dt > (b.most-b.level)/b.n {
			b.level = b.most
		} else {
			b.level += dt * b.n
		}
		b.at = now
	}
}

// lacks returns when n can be taken, at the earliest; 0 = now. More than the bucket can hold
// can be taken when it is full.
func (b *bucket) lacks(now, n int64) int64 {
	b.refill(now)
	need := min(b.cost(n), b.most) - b.level
	if need <= 0 {
		return 0
	}
	return now + (need+b.n-1)/b.n
}

func (b *bucket) take(n int64) { b.level = max(b.level-b.cost(n), -math.MaxInt64/4) }

func (b *bucket) give(n int64) { b.level = min(b.level+b.cost(n), b.most) }

// cost is what n take, in units.
func (b *bucket) cost(n int64) int64 { return min(n, math.MaxInt64/8/b.period) * b.period }

func (b *bucket) full(now int64) bool {
	b.refill(now)
	return b.level == b.most
}

// A daySum counts what attempts cost in a UTC day.
type daySum struct {
	most, spent, reserved int64 // millionths of a credit; reserved is what attempts under way may cost
	day                   int64
}

func (d *daySum) turn(now int64) {
	if today := now / day; today > d.day {
		d.day, d.spent = today, 0
	}
}

// lacks returns when an attempt that may cost n can begin; ok is false if that depends on
// attempts under way. An attempt that may cost more than is permitted begins alone.
func (d *daySum) lacks(now, n int64) (at int64, ok bool) {
	d.turn(now)
	n = min(n, d.most)
	switch {
	case d.spent+n > d.most:
		return (d.day + 1) * day, false
	case d.spent+d.reserved+n > d.most:
		return 0, false
	}
	return 0, true
}

// typical is a moving average, of about the last eight; 0 = there was none.
type typical int64

func (t *typical) add(n int64) {
	if *t == 0 {
		*t = typical(n)
	} else {
		*t += (typical(n) - *t) / 8
	}
}

// A breaker stops attempts of a service that fails.
type breaker struct {
	Policy
	parts  [windowParts]struct{ ok, failed int }
	part   int64 // number of the newest part of the window
	until  int64 // when it is tried again; 0 = the breaker is closed
	probes bool  // an attempt that tries it is under way
	failed int   // when it opened, of
	of     int
}

// windowParts is in how many parts a window slides.
const windowParts = 10

// slide forgets what is older than the window.
func (b *breaker) slide(now int64) {
	part := now / max(b.Window/windowParts, 1)
	for n := part - b.part; n > 0; n-- {
		if n > windowParts {
			n = windowParts
		}
		b.parts[(part-n+1)%windowParts] = struct{ ok, failed int }{}
	}
	b.part = max(b.part, part)
}

func (b *breaker) counts(now int64) (failed, all int) {
	b.slide(now)
	for _, p := range b.parts {
		failed, all = failed+p.failed, all+p.failed+p.ok
	}
	return failed, all
}

// result counts how an attempt has ended. probe is true for the one that tries the service.
func (b *breaker) result(now int64, failed, probe bool) {
	if b.Min == 0 {
		return
	}
	if b.until != 0 {
		switch {
		case !probe: // it began before
		case failed:
			b.until, b.probes = now+b.Open, false
		default:
			*b = breaker{Policy: b.Policy, part: b.part}
		}
		return
	}
	b.slide(now)
	p := &b.parts[b.part%windowParts]
	if !failed {
		p.ok++
		return
	}
	p.failed++
	if f, all := b.counts(now); f >= b.Min && float64(f) >= b.Share*float64(all) {
		b.until, b.failed, b.of = now+b.Open, f, all
	}
}

// A retryBudget permits as many retries as there are first attempts, times a share, and a few
// more. Retries are counted in millionths, so that a fifth of ten is two.
type retryBudget struct {
	floor  *bucket
	share  int64
	saved  int64 // what first attempts have earned
	earned int64 // when the last one did
}

const (
	oneRetry = 1_000_000
	maxSaved = 100 * oneRetry
)

func newRetryBudget(p *Policy, at int64) *retryBudget {
	return &retryBudget{share: int64(math.Round(p.Retries * oneRetry)), floor: newBucket(p.Floor, at)}
}

func (r *retryBudget) first(now int64) {
	r.saved, r.earned = min(r.saved+r.share, maxSaved), now
}

// lacks returns when a retry may begin; 0 = now.
func (r *retryBudget) lacks(now int64) int64 {
	if r.saved >= oneRetry {
		return 0
	}
	return r.floor.lacks(now, 1)
}

func (r *retryBudget) take() {
	if r.saved >= oneRetry {
		r.saved -= oneRetry
	} else {
		r.floor.take(1)
	}
}

func (r *retryBudget) give() { r.saved = min(r.saved+oneRetry, maxSaved) }
