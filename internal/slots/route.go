// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Target is what limits an attempt has to pass depend on.
type Target struct {
	Action        string
	Slots         int    // of the action; 0 = no bound
	Provider      string // of the action; "" = none
	ProviderSlots int    // 0 = no bound
	// Service is what the attempt calls, for pauses, breakers and retries; "" = nothing.
	Service string
	Account string
	Keys    []Key // of the rules that apply, in one order for all attempts
}

// A Key is what a rule is applied to.
type Key struct {
	Rule *Rule
	Text string
	// Pauses is true if a service that asks an attempt to wait makes all attempts of the key
	// wait, see Rule.
	Pauses bool
}

// A Route is the limits and the throttles that attempts with one target pass. The engine's own
// limit is always the last.
type Route[H any] struct {
	limits    []*Limit[H]
	throttles []*Throttle[H]
	pauses    []bool // which of the throttles attempts pause that are asked to wait
	keys      []Key
	parts     []*keyed[H]
	target    routeKey
	requests  int // that have not been withdrawn
}

// Bounded reports whether an external job matters to limits: there are others than the engine's.
func (r *Route[H]) Bounded() bool { return len(r.limits) > 1 || len(r.keys) > 0 }

// Throttled reports whether it matters to the route how an attempt ends.
func (r *Route[H]) Throttled() bool { return len(r.throttles) > 0 }

// Service is that of the target.
func (r *Route[H]) Service() string { return r.target.service }

// Keys are those of the target.
func (r *Route[H]) Keys() []Key { return r.keys }

// Lasting reports whether the route stays valid. Others are forgotten when no request has them.
func (r *Route[H]) Lasting() bool { return !r.target.passing() }

// A routeKey tells routes apart.
type routeKey struct {
	action, provider, service, account string
	keys                               string // the rules and their keys, joined
	retry                              bool
}

func (k *routeKey) passing() bool { return k.service != "" || k.keys != "" }

// MaxKeys is how many limits and throttles of keys there are at most; further keys of a rule share
// one. The pauses of services are not bounded by it, because an account must not wait for another's:
// there are as many as accounts and services that they call.
const MaxKeys = 10_000

// A keyName names a limit or a throttle of a rule and a key, or of a service.
type keyName struct {
	of, name, key string
}

// keyed is what there is of a rule and a key, or of a service.
type keyed[H any] struct {
	limit    *Limit[H]    // nil = the rule has no concurrency
	throttle *Throttle[H] // nil = the rule has nothing else
	routes   int
}

// Route returns the route of a target. retry is true for a step that has failed before.
func (a *Arbiter[H]) Route(t *Target, retry bool) *Route[H] {
	key := routeKey{action: t.Action, provider: t.Provider}
	if t.Service != "" {
		key.service, key.account, key.retry = t.Service, t.Account, retry
	}
	if len(t.Keys) > 0 {
		var b strings.Builder
		for _, k := range t.Keys {
			fmt.Fprintf(&b, "%s\x00%d\x00%s%t", k.Rule.Name, len(k.Text), k.Text, k.Pauses)
		}
		key.keys = b.String()
	}
	if r := a.routes[key]; r != nil {
		return r
	}
	if key.passing() {
		a.sweep()
	}
	r := &Route[H]{target: key, keys: slices.Clone(t.Keys)}
	if t.Slots > 0 {
		r.limits = append(r.limits, a.named("action", t.Action, t.Slots))
	}
	if t.ProviderSlots > 0 && t.Provider != "" {
		r.limits = append(r.limits, a.named("provider", t.Provider, t.ProviderSlots))
	}
	if t.Service != "" {
		a.addService(r, t, retry)
	}
	for _, k := range t.Keys {
		one := a.keyed(r, keyName{"limit", k.Rule.Name, k.Text}, func(one *keyed[H], shared bool) {
			text := k.Text
			if shared {
				text = ""
			}
			if k.Rule.Concurrency > 0 {
				one.limit = newLimit[H]("limit", k.Rule.Name, "", k.Rule.Concurrency)
				one.limit.key, one.limit.rule = text, k.Rule
				one.limit.reason = fmt.Sprintf("waits for one of the %d slots of limit %q for %q", k.Rule.Concurrency, k.Rule.Name, text)
				if shared {
					one.limit.reason = fmt.Sprintf("waits for one of the %d slots of limit %q, which has too many keys to tell them apart", k.Rule.Concurrency, k.Rule.Name)
				}
			}
			if k.Rule.timed() {
				one.throttle = newThrottle[H](k.Rule, text, a.began, a.now)
				one.throttle.sharing = shared
			}
		})
		if one.limit != nil {
			r.limits = append(r.limits, one.limit)
		}
		if one.throttle != nil {
			r.throttles = append(r.throttles, one.throttle)
			r.pauses = append(r.pauses, k.Pauses && !one.throttle.sharing)
		}
	}
	r.limits = append(r.limits, a.engine)
	a.mu.Lock()
	a.routes[key] = r
	a.mu.Unlock()
	return r
}

// addService adds the throttles of a service.
func (a *Arbiter[H]) addService(r *Route[H], t *Target, retry bool) {
	policy := a.policy(t.Service)
	guard := a.keyed(r, keyName{"service", t.Service, ""}, func(one *keyed[H], _ bool) {
		one.throttle = newServiceThrottle[H]("provider", t.Service, "")
		if policy.Min > 0 {
			one.throttle.breaker = &breaker{Policy: policy}
		}
		if policy.Floor.N > 0 {
			one.throttle.budget = newRetryBudget(&policy, a.began)
		}
	})
	pause := a.keyed(r, keyName{"pause", t.Service, t.Account}, func(one *keyed[H], _ bool) {
		one.throttle = newServiceThrottle[H]("pause", t.Service, t.Account)
	})
	r.throttles = append(r.throttles, guard.throttle, pause.throttle)
	r.pauses = append(r.pauses, false, true)
	if retry && guard.throttle.budget != nil {
		retries := a.keyed(r, keyName{"retries", t.Service, ""}, func(one *keyed[H], _ bool) {
			one.throttle = newServiceThrottle[H]("retries", t.Service, "")
			one.throttle.retries = guard.throttle.budget
		})
		r.throttles = append(r.throttles, retries.throttle)
		r.pauses = append(r.pauses, false)
		guard.throttle.spender = retries.throttle
	}
}

// named returns the limit of an action or a provider, which is never forgotten.
func (a *Arbiter[H]) named(of, name string, n int) *Limit[H] {
	limits := a.actions
	if of == "provider" {
		limits = a.providers
	}
	l := limits[name]
	if l == nil {
		l = newLimit[H](of, name, fmt.Sprintf("waits for one of the %d slots of %s %q", n, of, name), n)
		a.mu.Lock()
		limits[name] = l
		a.mu.Unlock()
	}
	return l
}

// keyed returns what there is of a key, for a route. build makes it when it is new; with shared
// it is that of all keys beyond MaxKeys.
func (a *Arbiter[H]) keyed(r *Route[H], name keyName, build func(one *keyed[H], shared bool)) *keyed[H] {
	one := a.keys[name]
	shared := one == nil && len(a.keys) >= MaxKeys && name.of == "limit"
	if shared {
		name.of, name.key = name.of+" (others)", ""
		one = a.keys[name]
	}
	if one == nil {
		one = &keyed[H]{}
		build(one, shared)
		a.mu.Lock()
		a.keys[name] = one
		a.mu.Unlock()
	}
	one.routes++
	r.parts = append(r.parts, one)
	return one
}

// sweep forgets what no request has and what would be the same if it were made again. It looks at
// everything, when that has doubled since the last time, and at the bound once a second.
func (a *Arbiter[H]) sweep() {
	if full := len(a.keys) >= MaxKeys; full && a.now < a.sweptAt+second || !full && len(a.routes)+len(a.keys) < a.sweepAt {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, r := range a.routes {
		if r.requests > 0 || !key.passing() {
			continue
		}
		delete(a.routes, key)
		for _, one := range r.parts {
			one.routes--
		}
	}
	for name, one := range a.keys {
		if t := one.throttle; one.routes == 0 && (t == nil || t.calm(a.now)) {
			delete(a.keys, name)
		}
	}
	a.sweepAt, a.sweptAt = max(64, 2*(len(a.routes)+len(a.keys))), a.now
}

// each calls fn for all limits except the engine's, and for all throttles, in one order.
func (a *Arbiter[H]) each(fn func(*queue[H])) {
	for _, limits := range []map[string]*Limit[H]{a.actions, a.providers} {
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			fn(&limits[name].queue)
		}
	}
	names := map[string]*keyed[H]{}
	for name, one := range a.keys {
		names[name.of+"\x00"+name.name+"\x00"+name.key] = one
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if one := names[name]; one.limit != nil {
			fn(&one.limit.queue)
		}
		if one := names[name]; one.throttle != nil {
			fn(&one.throttle.queue)
		}
	}
}
