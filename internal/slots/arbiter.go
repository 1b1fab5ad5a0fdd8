// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"slices"
	"sync"

	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/mutation"
)

// An Arbiter grants requests in the order that the package comment describes. Make one
// with New.
type Arbiter[H any] struct {
	granted   []*Request[H] // have passed all limits since the last EachGranted
	blocked   []*Request[H] // wait, and EachBlocked has not been called since
	engine    *Limit[H]
	paused    bool          // see Pause
	deferred  []*Request[H] // since Pause, in the order of their requests
	reserved  bool          // see Reserve
	late      []*Request[H] // since Reserve, in the order of their requests
	mu        sync.Mutex    // of the keys of the maps: Usage reads them in other goroutines
	actions   map[string]*Limit[H]
	providers map[string]*Limit[H]
	routes    map[routeKey]*Route[H]
	keys      map[keyName]*keyed[H]
	policy    func(service string) Policy

	now, began int64
	arrivals   uint64
	alarms     []alarm[H]  // a heap
	marked     []*queue[H] // to be served by drain
	draining   bool
	sweepAt    int // how many routes and keys there are when sweep looks at them
	sweptAt    int64
}

// An alarm is a time at which Advance has to look at a throttle. It is stale if that has another
// one.
type alarm[H any] struct {
	at  int64
	seq uint64
	of  *Throttle[H]
}

func earlierAlarm[H any](x, y *alarm[H]) bool { return x.at < y.at || x.at == y.at && x.seq < y.seq }

// New returns an arbiter for an engine that runs at most n attempts at once.
func New[H any](n int) *Arbiter[H] {
	return &Arbiter[H]{
		engine:    newLimit[H]("engine", "", fmt.Sprintf("waits for one of the engine's %d slots", n), n),
		actions:   map[string]*Limit[H]{},
		providers: map[string]*Limit[H]{},
		routes:    map[routeKey]*Route[H]{},
		keys:      map[keyName]*keyed[H]{},
		policy:    func(string) Policy { return DefaultPolicy },
		sweepAt:   64,
	}
}

// Begin sets the time at which the process has begun, in µs, and what is to be done when
// services fail (nil = DefaultPolicy). It is called before there are requests.
func (a *Arbiter[H]) Begin(now int64, policy func(service string) Policy) {
	a.now, a.began = now, now
	if policy != nil {
		a.policy = policy
	}
}

// Advance sets the time, in µs, and lets begin what can begin since then.
func (a *Arbiter[H]) Advance(now int64) {
	if now <= a.now {
		return
	}
	a.now = now
	for len(a.alarms) > 0 && a.alarms[0].at <= now {
		var due alarm[H]
		due, a.alarms = heap.Pop(a.alarms, earlierAlarm[H])
		if due.of.alarm == due.at {
			due.of.alarm = 0
			a.mark(&due.of.queue)
		}
	}
	a.drain()
}

// Next returns when Advance has to be called at the latest; 0 = not before something happens.
func (a *Arbiter[H]) Next() int64 {
	for len(a.alarms) > 0 {
		if top := &a.alarms[0]; !a.paused && top.of.alarm == top.at && top.of.waiting.Load() > 0 {
			return top.at
		}
		var stale alarm[H]
		if stale, a.alarms = heap.Pop(a.alarms, earlierAlarm[H]); stale.of.alarm == stale.at {
			stale.of.alarm = 0
		}
	}
	return 0
}

// Request adds req to the run's set and passes it through the limits that have free
// slots. The set must have no other request of that step instance.
func (a *Arbiter[H]) Request(run *Set[H], req *Request[H], route *Route[H]) {
	a.follow(req, route)
	run.add(req)
	if a.reserved && route.Bounded() {
		a.late = append(a.late, req)
		return
	}
	a.enter(req, 0)
	a.drain()
}

func (a *Arbiter[H]) follow(req *Request[H], route *Route[H]) {
	a.arrivals++
	req.route, req.arrival = route, a.arrivals
	route.requests++
}

// Hold adds the request of an attempt that has already been handed out. It passes every
// limit, even one that then has more attempts than slots; a request that WithdrawAll has
// kept holds them already. The set must have no other request of that step instance. With
// job it is an external job, which holds no slot of the engine.
func (a *Arbiter[H]) Hold(run *Set[H], req *Request[H], route *Route[H], job bool) {
	a.Count(req, route, job)
	run.add(req)
}

// Count is Hold for an attempt of a run that is not in memory.
func (a *Arbiter[H]) Count(req *Request[H], route *Route[H], job bool) {
	if req.route != nil {
		return
	}
	a.follow(req, route)
	req.hold(job)
	for _, l := range req.limits() {
		l.hold(req)
	}
}

// hold makes a request one of an attempt that has been handed out. With job it is an external job.
func (r *Request[H]) hold(job bool) {
	r.parted = job
	r.passed = int32(len(r.limits()))
	if n := len(r.route.throttles); n > 0 {
		r.claims = make([]claim, n)
	}
}

// Again lets the request of an attempt that was counted by Hold, and is lost, stand for the next one of
// its step, and reports whether it does. It keeps its slots, because a service may still do what the lost
// attempt has asked of it, and the next one asks for the same. If there are fewer slots by now, or the time
// has not come, it waits like every other one.
func (a *Arbiter[H]) Again(req *Request[H]) bool {
	if req.withdrawn || req.InFlight || req.parted || req.Fence == (journal.Fence{}) {
		return false
	}
	req.Fence, req.claims = journal.Fence{}, nil
	if slices.ContainsFunc(req.limits(), func(l *Limit[H]) bool { return int(l.used.Load()) > l.slots }) {
		a.release(req)
		a.enter(req, 0)
	} else {
		a.advance(req)
	}
	a.drain()
	return true
}

// Part gives back the engine's slot of an attempt that no worker of this process carries out
// any more, and reports whether its result still matters to limits. The service has taken the job:
// an attempt that tries it has succeeded, because the job may take days.
func (a *Arbiter[H]) Part(req *Request[H]) bool {
	if mutation.JobSlot {
		a.Withdraw(req)
		return false
	}
	if !req.parted && int(req.passed) == len(req.limits()) {
		req.parted = true
		req.passed--
		a.engine.release(req)
		a.mark(&a.engine.queue)
		for i := range req.claims {
			if t, c := req.route.throttles[i], &req.claims[i]; c.probe {
				t.breaker.result(a.now, false, true)
				c.probe = false
				a.mark(&t.queue)
			}
		}
		a.drain()
	}
	return req.route.Bounded()
}

// enter passes req through the route's throttles from number i on, without taking anything there,
// and then through its limits.
func (a *Arbiter[H]) enter(req *Request[H], i int) {
	if a.paused {
		a.deferred = append(a.deferred, req)
		return
	}
	for _, t := range req.route.throttles[i:] {
		if t.next != nil || t.others(req) {
			a.waitAt(t, req)
			return
		}
		if why, _ := t.check(a.now, req); why != mayBegin {
			a.waitAt(t, req)
			return
		}
	}
	a.advance(req)
}

// advance passes req through its next limits until one is full. Then it has to be let begin by
// its throttles.
func (a *Arbiter[H]) advance(req *Request[H]) {
	if a.paused {
		a.deferred = append(a.deferred, req)
		return
	}
	for limits := req.limits(); int(req.passed) < len(limits); {
		l := limits[req.passed]
		if l.full() {
			l.push(req, req.rank(l.rule))
			a.blocked = append(a.blocked, req)
			return
		}
		l.acquire(req)
	}
	throttles := req.route.throttles
	for _, t := range throttles {
		if why, _ := t.check(a.now, req); why != mayBegin {
			a.release(req)
			a.waitAt(t, req)
			return
		}
	}
	if len(throttles) > 0 {
		req.claims = make([]claim, len(throttles))
		for i, t := range throttles {
			t.take(a.now, req, &req.claims[i])
			t.lastServed = req.Key.Account
			if t.spender != nil && !req.retry() {
				a.mark(&t.spender.queue)
			}
		}
		a.arrived(req)
	}
	a.granted = append(a.granted, req)
}

// waitAt has req wait at a throttle.
func (a *Arbiter[H]) waitAt(t *Throttle[H], req *Request[H]) {
	a.arrived(req)
	t.push(req, req.rank(t.rule))
	a.blocked = append(a.blocked, req)
	a.mark(&t.queue)
}

// arrived records that req is no longer on its way from the throttle that let it out.
func (a *Arbiter[H]) arrived(req *Request[H]) {
	if req.transit == nil {
		return
	}
	if q := req.transit.at; q.arrived(req) {
		a.mark(q)
	}
}

// release gives back the slots that req holds.
func (a *Arbiter[H]) release(req *Request[H]) {
	for _, l := range req.limits()[:req.passed] {
		l.release(req)
		a.mark(&l.queue)
	}
	req.passed = 0
}

// Withdraw ends a request because its attempt has ended or its step no longer wants
// one. Its slots go to waiting requests. If the attempt never started, what it has taken at its
// throttles is given back.
func (a *Arbiter[H]) Withdraw(req *Request[H]) {
	if req.withdrawn {
		return
	}
	if req.withdrawn = true; req.route == nil {
		return // it has not asked for anything
	}
	if req.waitingAt != nil {
		req.waitingAt.withdraw()
	}
	a.arrived(req)
	a.release(req)
	for i, t := range req.route.throttles {
		if req.claims == nil {
			break
		}
		if c := &req.claims[i]; c.taken {
			if req.Fence.Attempt == 0 {
				t.giveBack(c)
			}
			t.end(c)
			a.mark(&t.queue)
		}
	}
	req.route.requests--
	a.drain()
}

// Settle tells the throttles of an attempt how it has ended, before Withdraw. Only the first
// outcome counts.
func (a *Arbiter[H]) Settle(req *Request[H], o *Outcome) {
	if req.withdrawn || req.settled || req.claims == nil {
		return
	}
	req.settled = true
	for i, t := range req.route.throttles {
		t.settle(a.now, &req.claims[i], o, req.route.pauses[i])
		a.mark(&t.queue)
	}
	a.drain()
}

// Report is Settle for an attempt that has no request, because it matters to its service only.
func (a *Arbiter[H]) Report(route *Route[H], o *Outcome) {
	for i, t := range route.throttles {
		t.settle(a.now, new(claim), o, route.pauses[i])
		a.mark(&t.queue)
	}
	a.drain()
}

// Spend tells the throttles of an attempt what it has cost, in millionths of a credit.
func (a *Arbiter[H]) Spend(req *Request[H], credits int64) {
	if req.withdrawn || req.claims == nil {
		return
	}
	for _, t := range req.route.throttles {
		t.spend(a.now, credits)
	}
}

// WithdrawAll ends the requests of a run, in the order of their step instances, and empties
// its set. Those for which keep returns true hold their slots until they are withdrawn.
func (a *Arbiter[H]) WithdrawAll(run *Set[H], keep func(*Request[H]) bool) {
	all := make([]*Request[H], 0, run.Len())
	run.Each(func(req *Request[H]) {
		if !keep(req) {
			all = append(all, req)
		}
	})
	*run = Set[H]{}
	slices.SortFunc(all, func(x, y *Request[H]) int { return x.Ref.Compare(y.Ref) })
	for _, req := range all {
		a.Withdraw(req)
	}
}

// Pause makes all requests wait until Resume, because attempts that have slots are not
// counted at the moment.
func (a *Arbiter[H]) Pause() { a.paused = true }

// Resume grants the free slots to those that waited before, and then to those that have
// requested one since Pause.
func (a *Arbiter[H]) Resume() {
	if !a.paused {
		return
	}
	deferred := a.deferred
	a.paused, a.deferred = false, nil
	a.mark(&a.engine.queue)
	a.each(a.mark)
	a.drain()
	for _, req := range deferred {
		switch {
		case req.withdrawn:
		case req.passed == 0:
			a.enter(req, 0)
		default:
			a.advance(req)
		}
	}
	a.drain()
}

// Reserve has requests that pass limits wait, as long as there may be attempts that Hold has not counted
// yet and whose slots they must not get. What Again is called for does not wait.
func (a *Arbiter[H]) Reserve() { a.reserved = true }

// Unreserve ends what Reserve has begun.
func (a *Arbiter[H]) Unreserve() {
	late := a.late
	a.reserved, a.late = false, nil
	for _, req := range late {
		if !req.withdrawn {
			a.enter(req, 0)
		}
	}
	a.drain()
}

// ForgetWaiting forgets the requests that wait or have not been reported by EachGranted,
// because all of them will be withdrawn: their slots are not passed on among them.
func (a *Arbiter[H]) ForgetWaiting() {
	a.granted, a.blocked, a.deferred, a.paused = nil, nil, nil, false
	a.late, a.reserved = nil, false
	a.engine.forgetWaiting()
	a.each((*queue[H]).forgetWaiting)
}

// mark has drain serve a queue.
func (a *Arbiter[H]) mark(q *queue[H]) {
	if !q.marked && q.next != nil {
		q.marked = true
		a.marked = append(a.marked, q)
	}
}

// drain serves the marked queues until nothing more follows. It is not entered again by what it
// serves, so that its depth does not depend on how much waits.
func (a *Arbiter[H]) drain() {
	if a.draining || len(a.marked) == 0 {
		return
	}
	a.draining = true
	for i := 0; i < len(a.marked); i++ {
		q := a.marked[i]
		if q.marked = false; q.limit != nil {
			a.serve(q.limit)
		} else {
			a.serveThrottle(q.throttle)
		}
	}
	clear(a.marked)
	a.marked, a.draining = a.marked[:0], false
}

// serve grants the limit's free slots to the requests in its queue.
func (a *Arbiter[H]) serve(l *Limit[H]) {
	for !a.paused && int(l.used.Load()) < l.slots {
		req, g := l.first()
		if req == nil {
			return
		}
		l.take(g)
		l.acquire(req)
		a.advance(req)
	}
}

// serveThrottle lets those out that may begin, and sees to it that Advance looks at the others.
func (a *Arbiter[H]) serveThrottle(t *Throttle[H]) {
	for !a.paused {
		req, g := t.first()
		if req == nil {
			t.until.Store(0)
			return
		}
		if why, at := t.check(a.now, req); why != mayBegin {
			t.until.Store(at)
			if at != 0 && (t.alarm == 0 || at < t.alarm) {
				t.alarm = at
				a.arrivals++
				a.alarms = heap.Push(a.alarms, alarm[H]{at, a.arrivals, t}, earlierAlarm[H])
			}
			return
		}
		t.queue.take(g)
		a.enter(req, slices.Index(req.route.throttles, t)+1)
	}
}

// Granted reports whether EachGranted has requests to report.
func (a *Arbiter[H]) Granted() bool { return len(a.granted) > 0 }

// EachGranted calls fn for every request that has passed all its limits since the last
// call, including those withdrawn meanwhile.
func (a *Arbiter[H]) EachGranted(fn func(*Request[H])) {
	granted := a.granted
	a.granted = nil
	for _, req := range granted {
		fn(req)
	}
	if a.granted == nil {
		clear(granted)
		a.granted = granted[:0]
	}
}

// maxReports bounds how often EachBlocked reports a request: one that waits for time may come to
// the same places again and again.
const maxReports = 8

// EachBlocked calls fn for every request that waits at a limit which has not been
// reported for it yet, with the reason.
func (a *Arbiter[H]) EachBlocked(fn func(req *Request[H], reason string)) {
	blocked := a.blocked
	for _, req := range blocked {
		if at := req.waitingAt; !req.withdrawn && at != nil && at != req.reported && req.reports < maxReports {
			req.reported = at // a request that has passed a limit since the last call is in blocked twice
			req.reports++
			fn(req, a.reason(req))
		}
	}
	clear(blocked)
	a.blocked = blocked[:0]
}

// reason says why a request waits where it waits.
func (a *Arbiter[H]) reason(req *Request[H]) string {
	at := req.waitingAt
	if at.limit != nil {
		return at.limit.reason
	}
	why, _ := at.throttle.check(a.now, req)
	return at.throttle.text(why)
}

// InUse returns how many of the engine's slots are held.
func (a *Arbiter[H]) InUse() int { return int(a.engine.used.Load()) }
