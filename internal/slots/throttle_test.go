// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A desk is an arbiter with requests that a test makes and ends.
type desk struct {
	t    *testing.T
	a    *Arbiter[int]
	set  Set[int]
	now  int64
	next int
	reqs map[int]*Request[int] // that have not ended
	done []int                 // granted, in order
}

func newDesk(t *testing.T, n int, policy Policy) *desk {
	d := &desk{t: t, a: New[int](n), now: 1_000 * day, reqs: map[int]*Request[int]{}}
	d.a.Begin(d.now, func(string) Policy { return policy })
	return d
}

// request makes a request and returns its number.
func (d *desk) request(target Target, demand Demand) int {
	d.next++
	req := &Request[int]{Key: store.Key{Account: target.Account, Run: "run"}, Ref: journal.Ref{Step: int32(d.next)}, Holder: d.next, Demand: &demand}
	d.reqs[d.next] = req
	d.a.Request(&d.set, req, d.a.Route(&target, demand.Retry))
	return d.next
}

// granted returns those that were granted since the last call, and starts their attempts.
func (d *desk) granted() (list []int) {
	for d.a.Granted() {
		d.a.EachGranted(func(req *Request[int]) {
			if !req.Withdrawn() {
				req.Fence.Attempt = 1
				list = append(list, req.Holder)
			}
		})
	}
	d.done = append(d.done, list...)
	return list
}

func (d *desk) end(n int, o *Outcome) {
	req := d.reqs[n]
	delete(d.reqs, n)
	if o != nil {
		d.a.Settle(req, o)
	}
	d.set.Remove(req)
	d.a.Withdraw(req)
}

// after lets time pass, with a look at each time that the arbiter asks for.
func (d *desk) after(us int64) {
	d.t.Helper()
	end := d.now + us
	for n := 0; ; n++ {
		if n == 100_000 {
			d.t.Fatal("the arbiter asks for the time again and again")
		}
		at := d.a.Next()
		if at == 0 || at > end {
			break
		}
		if at <= d.now {
			d.t.Fatalf("at %d it asks to be called at %d", d.now, at)
		}
		d.now = at
		d.a.Advance(d.now)
	}
	d.now = end
	d.a.Advance(d.now)
}

func (d *desk) want(what string, want ...int) {
	d.t.Helper()
	if got := d.granted(); !slices.Equal(got, want) {
		d.t.Errorf("%s: %v are granted, want %v", what, got, want)
	}
}

func (d *desk) wantReason(n int, want string) {
	d.t.Helper()
	s, ok := d.a.Standing(d.reqs[n])
	if !ok || !strings.Contains(s.Reason, want) {
		d.t.Errorf("request %d: %q (%t), want %q", n, s.Reason, ok, want)
	}
}

// Property test over random requests, outcomes and withdrawals with limits of keys: no key has
// more attempts than slots, no rate is exceeded over any window, nothing begins in a pause, nothing
// waits that could begin, and everything that was requested begins in the end.
func TestKeysRatesAndPauses(t *testing.T) {
	dice := rand.New(rand.NewPCG(5, 6))
	for round := range 150 {
		rules := []*Rule{
			{Name: "a-slots", Concurrency: 1 + dice.IntN(3)},
			{Name: "b-rate", Rate: Rate{N: 1 + dice.Int64N(20), Period: []int64{second, minute}[dice.IntN(2)], Burst: 1 + dice.Int64N(4)}},
			{Name: "c-both", Concurrency: 2, Rate: Rate{N: 5, Period: second, Burst: 2}, Pauses: true},
		}
		d := newDesk(t, 1+dice.IntN(8), Policy{})
		waiting, holding := map[int]Target{}, map[int]Target{}
		grants := map[string][]int64{} // rule and key → times
		pausedUntil := map[string]int64{}
		check := func() {
			t.Helper()
			for _, n := range d.granted() {
				tg := waiting[n]
				delete(waiting, n)
				holding[n] = tg
				if d.now < pausedUntil[tg.Service+"/"+tg.Account] {
					t.Fatalf("round %d: %d begins while its service asks to wait", round, n)
				}
				for _, k := range tg.Keys {
					grants[k.Rule.Name+k.Text] = append(grants[k.Rule.Name+k.Text], d.now)
				}
			}
			used := map[string]int{}
			for _, tg := range holding {
				for _, k := range tg.Keys {
					name := k.Rule.Name + k.Text
					if used[name]++; k.Rule.Concurrency > 0 && used[name] > k.Rule.Concurrency {
						t.Fatalf("round %d: %d attempts of %q, the limit is %d", round, used[name], name, k.Rule.Concurrency)
					}
				}
			}
			if d.a.InUse() != len(holding) {
				t.Fatalf("round %d: %d slots in use, %d attempts", round, d.a.InUse(), len(holding))
			}
			for n := range waiting {
				req := d.reqs[n]
				switch at := req.waitingAt; {
				case at == nil:
					t.Fatalf("round %d: %d neither waits nor begins", round, n)
				case at.limit != nil && int(at.limit.used.Load()) < at.limit.slots:
					t.Fatalf("round %d: %d waits beside a free slot", round, n)
				case at.throttle != nil:
					first, _ := at.first()
					if first == nil {
						continue // those that wait come after one that is on its way
					}
					if why, _ := at.throttle.check(d.now, first); why == mayBegin {
						t.Fatalf("round %d: %d waits at %s %s, which would let %d begin", round, n, at.of, at.name, first.Holder)
					}
				}
			}
		}
		draw := func() Target {
			tg := Target{Account: string(rune('a' + dice.IntN(3))), Action: []string{"x", "y"}[dice.IntN(2)]}
			if tg.Action == "x" {
				tg.Slots = 2
			}
			if dice.IntN(2) == 0 {
				tg.Service = "s"
			}
			for _, r := range rules {
				if dice.IntN(2) == 0 {
					tg.Keys = append(tg.Keys, Key{r, string(rune('p' + dice.IntN(2))), r.Pauses})
				}
			}
			return tg
		}
		pick := func(of map[int]Target) int {
			all := make([]int, 0, len(of))
			for n := range of {
				all = append(all, n)
			}
			slices.Sort(all)
			return all[dice.IntN(len(all))]
		}
		step := func(requests bool) {
			switch c := dice.IntN(10); {
			case c < 4 && requests:
				tg := draw()
				d.next++ // request will have this number
				d.next--
				waiting[d.next+1] = tg
				d.request(tg, Demand{})
			case c < 7 && len(holding) > 0:
				n := pick(holding)
				o := &Outcome{}
				if tg := holding[n]; dice.IntN(6) == 0 && requests {
					o.Unused, o.Pause = true, dice.Int64N(3*second)
					if tg.Service != "" {
						name := tg.Service + "/" + tg.Account
						pausedUntil[name] = max(pausedUntil[name], d.now+o.Pause)
					}
				}
				delete(holding, n)
				d.end(n, o)
			case c == 7 && len(waiting) > 0 && requests:
				n := pick(waiting)
				delete(waiting, n)
				d.end(n, nil)
			default:
				if at := d.a.Next(); at > d.now && dice.IntN(2) == 0 {
					d.now = at
				} else {
					d.now += dice.Int64N(second)
				}
				d.a.Advance(d.now)
			}
			check()
		}
		for range 300 {
			step(true)
		}
		for n := 0; len(waiting) > 0; n++ {
			if n == 20_000 {
				t.Fatalf("round %d: %d requests never begin", round, len(waiting))
			}
			step(false)
		}
		for _, r := range rules {
			if r.Rate.N == 0 {
				continue
			}
			for _, key := range []string{"p", "q"} {
				at := grants[r.Name+key]
				for i := range at {
					for j := i; j < len(at); j++ {
						if most := r.Rate.Burst*r.Rate.Period + r.Rate.N*(at[j]-at[i]); int64(j-i+1)*r.Rate.Period > most {
							t.Fatalf("round %d: %d attempts of %s %s in %d µs: the rate is %+v", round, j-i+1, r.Name, key, at[j]-at[i], r.Rate)
						}
					}
				}
			}
		}
		for n := range holding {
			d.end(n, nil)
		}
		if left := d.a.Usage(); len(left) != 0 {
			t.Fatalf("round %d: at the end: %+v", round, left)
		}
	}
}

// A bucket is empty when the process starts, then holds as many as may begin at once, and a step
// that waits begins at the time that it is said.
func TestRateBeginsEmpty(t *testing.T) {
	d := newDesk(t, 10, Policy{})
	r := &Rule{Name: "calls", Rate: Rate{N: 10, Period: second, Burst: 2}}
	tg := Target{Account: "acme", Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
	for range 4 {
		d.request(tg, Demand{})
	}
	d.want("at the start")
	d.wantReason(1, `limit "calls" for "k": 10 a second`)
	if at := d.a.Next(); at != d.now+100_000 {
		t.Errorf("it goes on in %d µs, want 100,000", at-d.now)
	}
	d.after(99_999)
	d.want("too early")
	d.after(1)
	d.want("after 100 ms", 1)
	d.after(200_000)
	d.want("after 300 ms", 2, 3)
	d.after(10 * second)
	d.want("the last", 4)
	for range 4 {
		d.request(tg, Demand{})
	}
	d.want("two at once", 5, 6)
}

// What a step has taken that then does not begin is given back, and a step that is withdrawn
// while it waits is left out.
func TestWithdrawnGivesBack(t *testing.T) {
	d := newDesk(t, 10, Policy{})
	r := &Rule{Name: "calls", Rate: Rate{N: 1, Period: hour, Burst: 1}}
	tg := Target{Account: "acme", Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
	d.after(2 * hour)
	for range 3 {
		d.request(tg, Demand{})
	}
	if !d.a.Granted() {
		t.Fatal("the first is not granted")
	}
	d.end(2, nil)
	d.end(1, nil) // it has not started
	d.want("the next one has its place", 3)
}

// Steps that wait for another limit do not keep a rate from those that could begin, however many
// they are, and they hold no slots while they wait for time.
func TestWaitingForTimeHoldsNothing(t *testing.T) {
	d := newDesk(t, 100, Policy{})
	r := &Rule{Name: "calls", Rate: Rate{N: 1, Period: second, Burst: 1}}
	slow := Target{Account: "acme", Action: "slow", Slots: 1, Keys: []Key{{Rule: r, Text: "k"}}}
	fast := Target{Account: "acme", Action: "fast", Keys: []Key{{Rule: r, Text: "k"}}}
	for range 50 {
		d.request(slow, Demand{})
	}
	last := d.request(fast, Demand{})
	d.after(second)
	d.want("one of slow", 1)
	if u := d.a.Usage(); len(u) != 3 || u[0].InUse != 1 || u[2].InUse != 1 {
		t.Errorf("in use: %+v", u)
	}
	d.after(second)
	d.want("fast, because slow has no slot", last)
	d.after(10 * second)
	d.want("slow has no slot")
	d.wantReason(2, `1 slots of action "slow"`)
	d.wantReason(3, `1 slots of action "slow"`) // it comes after that one
	d.end(1, nil)
	d.want("the next of slow", 2)

	d.after(second)
	late := d.request(slow, Demand{})
	d.end(2, nil)
	d.want("those that wait longer come first", 3)
	for n := 4; n <= 50; n++ {
		d.after(second)
		d.end(n-1, nil)
		d.want("in the order that they came", n)
	}
	d.after(second)
	d.end(50, nil)
	d.want("the last", late)

	closed := Target{Account: "acme", Action: "other", Slots: 1, Keys: []Key{{Rule: &Rule{Name: "never", Rate: Rate{N: 1, Period: hour, Burst: 1}}, Text: "k"}}}
	d.request(closed, Demand{})
	open := d.request(Target{Account: "acme", Action: "other", Slots: 1}, Demand{})
	d.want("the slot is not held by who waits an hour", open)
}

// Of the steps of an account that wait at a limit or a throttle, those with the higher priority
// come first, then those that came first; accounts take turns whatever their priorities.
func TestPriority(t *testing.T) {
	for _, r := range []*Rule{{Name: "one", Concurrency: 1}, {Name: "one", Rate: Rate{N: 1, Period: second, Burst: 1}}} {
		d := newDesk(t, 100, Policy{})
		tg := func(account string) Target {
			return Target{Account: account, Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
		}
		ranks := []float64{0, 1, 5, 1, 5}
		for _, rank := range ranks {
			d.request(tg("a"), Demand{Ranks: []float64{rank}})
		}
		d.request(tg("b"), Demand{Ranks: []float64{-9}})
		for n := 0; len(d.done) < 6 && n < 20; n++ {
			d.after(second)
			for _, n := range d.granted() {
				d.end(n, nil)
			}
		}
		want := []int{3, 6, 5, 2, 4, 1}
		if r.Concurrency > 0 {
			want = []int{1, 6, 3, 5, 2, 4} // the first found a free slot
		}
		if !slices.Equal(d.done, want) {
			t.Errorf("%+v: the order is %v, want %v", r, d.done, want)
		}
	}
}

// A service that asks to wait has all steps of the account wait that call it, for an hour at
// most, and those of other accounts only if a limit of theirs has the service in its key.
func TestPauseOfAKey(t *testing.T) {
	d := newDesk(t, 100, Policy{})
	shared := &Rule{Name: "shared", Concurrency: 50, Pauses: true}
	tg := func(account string, keys ...Key) Target {
		return Target{Account: account, Action: "x", Service: "main", Keys: keys}
	}
	d.request(tg("a", Key{shared, "main", true}), Demand{})
	d.want("the first", 1)
	d.end(1, &Outcome{Unused: true, Pause: 5 * second})
	d.request(tg("a"), Demand{})
	d.request(tg("b"), Demand{})
	d.request(tg("c", Key{shared, "main", true}), Demand{})
	d.want("another account without the limit", 3)
	d.wantReason(2, `provider "main" asked to wait until`)
	d.wantReason(4, `a provider in limit "shared" for "main" asked to wait until`)
	d.after(5*second - 1)
	d.want("before it is over")
	d.after(1)
	d.want("the pause is over", 2, 4)
	d.end(2, &Outcome{Unused: true, Pause: 1_000 * hour})
	d.request(tg("a"), Demand{})
	d.after(hour)
	d.want("bounded", 5)
}

// Tokens are estimated when an attempt begins, by what it declares or by what attempts have used,
// and corrected by what it has used.
func TestTokens(t *testing.T) {
	d := newDesk(t, 100, Policy{})
	r := &Rule{Name: "tokens", Tokens: 60_000}
	tg := Target{Account: "a", Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
	d.after(minute)
	for range 2 {
		d.request(tg, Demand{Tokens: 5_000})
	}
	d.request(tg, Demand{Tokens: 4_000})
	d.want("the tokens of ten seconds", 1, 2)
	d.end(1, &Outcome{Tokens: 100})
	d.want("what was not used goes to the next", 3)
	d.end(3, &Outcome{Tokens: 24_900}) // and so does not what was used beyond
	d.end(2, &Outcome{Tokens: 5_000})
	d.request(tg, Demand{Tokens: 5_000})
	d.after(25*second - 1)
	d.want("overdrawn by 20,000, and 5,000 are wanted")
	d.after(1)
	d.want("25 s later", 4)
	d.end(4, &Outcome{Unused: true})
	d.request(tg, Demand{}) // it is expected to need about what others have
	throttle := d.a.keys[keyName{"limit", "tokens", "k"}].throttle
	if tokens, _ := throttle.expected(d.reqs[5]); tokens < 2_000 || tokens > 10_000 {
		t.Errorf("expected to use %d tokens, others have used 100, 24,900 and 5,000", tokens)
	}
}

// A step that needs more than there is comes before those that came later and need less: it would
// never begin otherwise.
func TestNobodyOvertakes(t *testing.T) {
	d := newDesk(t, 100, Policy{})
	tg := Target{Account: "a", Action: "x", Keys: []Key{{Rule: &Rule{Name: "tokens", Tokens: 60_000}, Text: "k"}}}
	other := tg
	other.Account = "b"
	d.after(5 * second)
	large := d.request(tg, Demand{Tokens: 10_000})
	small := d.request(other, Demand{Tokens: 10})
	d.want("5,000 are there")
	d.after(6 * second)
	d.want("10,000 are there", large, small)
}

// What attempts cost is counted by UTC days. What attempts under way may cost is set aside, and
// given back when they have cost less.
func TestCreditsADay(t *testing.T) {
	d := newDesk(t, 100, Policy{})
	r := &Rule{Name: "spend", Credits: 10_000_000}
	tg := Target{Account: "a", Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
	d.now = 1_000*day + 23*hour
	d.a.Advance(d.now)
	for range 4 {
		d.request(tg, Demand{Credits: 4_000_000})
	}
	d.want("twice 4 of 10", 1, 2)
	d.wantReason(3, `limit "spend" for "k": 10 credits a day`)
	d.a.Spend(d.reqs[1], 1_000_000)
	d.end(1, &Outcome{})
	d.want("the first cost 1, and that is now expected", 3, 4)
	for n := 2; n <= 4; n++ {
		d.a.Spend(d.reqs[n], 3_000_000)
		d.end(n, &Outcome{})
	}
	d.request(tg, Demand{Credits: 4_000_000})
	d.after(hour - 1)
	d.want("10 are spent")
	d.after(1)
	d.want("the next day", 5)
	huge := Target{Account: "a", Action: "x", Keys: []Key{{Rule: &Rule{Name: "small", Credits: 1}, Text: "k"}}}
	d.request(huge, Demand{Credits: 99_000_000})
	d.want("one that may cost more than a day has begins alone", 6)
}

// Keys are forgotten when nothing has them and a new one would be the same. Beyond the most, further
// ones share one.
func TestKeysAreBounded(t *testing.T) {
	d := newDesk(t, 10*MaxKeys, Policy{})
	r := &Rule{Name: "doc", Concurrency: 1, Rate: Rate{N: 10, Period: second, Burst: 1}}
	tg := func(i int) Target {
		return Target{Account: "a", Action: "x", Keys: []Key{{Rule: r, Text: fmt.Sprint(i)}}}
	}
	d.after(second)
	for i := range 3 * MaxKeys {
		n := d.request(tg(i), Demand{})
		d.want("alone", n)
		d.end(n, nil)
		d.after(second / 100)
	}
	if n := len(d.a.keys) + len(d.a.routes); n > 1_000 {
		t.Errorf("%d keys and routes are kept of 30,000, at most ten of them in use", n)
	}
	d.after(minute)
	var all []int
	for i := range MaxKeys + 20 {
		all = append(all, d.request(tg(i), Demand{}))
	}
	got := d.granted()
	if n := len(d.a.keys); n > MaxKeys+1 || len(got) < MaxKeys/2 || len(got) > MaxKeys+1 {
		t.Errorf("%d keys, %d of %d attempts begin at once", n, len(got), len(all))
	}
	d.wantReason(all[len(all)-1], "too many keys to tell them apart")
	noisy := Target{Account: "noisy", Action: "x", Service: "main"}
	n := d.request(noisy, Demand{})
	quiet := noisy
	quiet.Account = "quiet"
	d.want("a service", n)
	d.end(n, &Outcome{Unused: true, Pause: hour})
	n = d.request(quiet, Demand{})
	d.want("the pause of another account", n)
	d.end(n, nil)
	for _, n := range all {
		d.end(n, nil)
	}
	if left := d.a.Usage(); len(left) != 0 {
		t.Errorf("at the end: %+v", left)
	}
	d.after(hour)
	for i := range 2 {
		all[i] = d.request(tg(-1-i), Demand{})
	}
	d.want("new keys, when all of those before have gone", all[0], all[1])
}

// Attempts that are found again after a restart have their slots, also external jobs, and the
// rate's bucket is empty.
func TestI22_KeysAreRecounted(t *testing.T) {
	d := newDesk(t, 10, Policy{})
	r := &Rule{Name: "doc", Concurrency: 2, Rate: Rate{N: 1, Period: second, Burst: 1}}
	tg := Target{Account: "a", Action: "x", Keys: []Key{{Rule: r, Text: "k"}}}
	job := &Request[int]{Key: store.Key{Account: "a", Run: "away"}, Fence: journal.Fence{Gen: 1, Attempt: 1}}
	d.a.Count(job, d.a.Route(&tg, false), true)
	var run Set[int]
	held := &Request[int]{Key: store.Key{Account: "a", Run: "here"}, Fence: journal.Fence{Gen: 1, Attempt: 1}}
	d.a.Hold(&run, held, d.a.Route(&tg, false), false)
	d.request(tg, Demand{})
	d.after(minute)
	d.want("both slots are held")
	s, _ := d.a.Standing(d.reqs[1])
	if want := []Place{{Run: "away"}, {Run: "here"}}; !slices.Equal(s.Holders, want) || s.Slots != 2 || s.InUse != 2 {
		t.Errorf("it stands %+v, want the holders %+v", s, want)
	}
	if d.a.InUse() != 1 {
		t.Errorf("%d slots of the engine are held, a job holds none", d.a.InUse())
	}
	d.a.Withdraw(job)
	d.want("the job has ended", 1)
}

// Where a step stands is counted among those of its account.
func TestStanding(t *testing.T) {
	d := newDesk(t, 1, Policy{})
	for _, account := range []string{"a", "a", "b", "a", "a"} {
		d.request(Target{Account: account}, Demand{})
	}
	d.want("one", 1)
	d.end(4, nil)
	s, ok := d.a.Standing(d.reqs[5])
	if !ok || s.Ahead != 1 || s.Accounts != 2 || s.Until != 0 || s.Slots != 1 || len(s.Holders) != 1 {
		t.Errorf("%+v, %t", s, ok)
	}
	if _, ok := d.a.Standing(d.reqs[1]); ok {
		t.Error("one that runs waits")
	}
}
