// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// A set contains what was added and not removed, whether few or many, in the root scope
// and in inner ones.
func TestSet(t *testing.T) {
	type request = Request[struct{}]
	r := rand.New(rand.NewPCG(1, 2))
	var s Set[struct{}]
	want := map[journal.Ref]*request{}
	var removed *request
	most := 0
	for step := range 20_000 {
		grow := step/500%2 == 0
		ref := journal.Ref{Step: r.Int32N(100)}
		if r.IntN(3) == 0 {
			ref.Path = journal.Path([]byte{byte(r.IntN(3))})
		}
		have := want[ref]
		if got := s.Get(ref); got != have {
			t.Fatalf("at %d: the request of %v is %v, want %v", step, ref, got, have)
		}
		switch {
		case have == nil && (grow || r.IntN(20) == 0):
			req := &request{Ref: ref}
			s.add(req)
			want[ref] = req
		case have != nil && (!grow || r.IntN(3) == 0):
			s.Remove(have)
			delete(want, ref)
			removed = have
		case removed != nil:
			s.Remove(removed) // not in the set, although its step may have another request
		}
		most = max(most, s.Len())
		if s.Len() != len(want) {
			t.Fatalf("at %d: %d requests, want %d", step, s.Len(), len(want))
		}
	}
	seen := 0
	s.Each(func(req *request) {
		seen++
		if want[req.Ref] != req {
			t.Errorf("%v is in the set and should not be", req.Ref)
		}
	})
	if seen != len(want) || most < 50 {
		t.Errorf("saw %d requests, want %d; at most there were %d", seen, len(want), most)
	}
	for _, req := range want {
		s.Remove(req)
	}
	if s.Len() != 0 || s.indexed && s.root != nil {
		t.Errorf("%d requests are left, wide %t", s.Len(), s.indexed)
	}
}

// Property test over random requests, releases and withdrawals: no limit has more in
// use than slots, the granted requests hold exactly the slots in use, nothing waits
// beside a free slot, each account is served in order, and at the end nothing is left.
func TestArbiter(t *testing.T) {
	type request = Request[int]
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		a := New[int](1 + r.IntN(6))
		limits := []*Route[int]{
			a.Route(&Target{Action: "", Provider: "", Slots: 0, ProviderSlots: 0}, false),
			a.Route(&Target{Action: "resize", Provider: "", Slots: 2, ProviderSlots: 0}, false),
			a.Route(&Target{Action: "ask", Provider: "model", Slots: 3, ProviderSlots: 2}, false),
			a.Route(&Target{Action: "draw", Provider: "model", Slots: 0, ProviderSlots: 2}, false),
		}
		runs := map[string]*Set[int]{"a": {}, "b": {}, "c": {}}
		var waiting, holding []*request
		next := 0
		drop := func(list []*request, i int) []*request { return append(list[:i:i], list[i+1:]...) }
		take := func() {
			for a.Granted() {
				a.EachGranted(func(req *request) {
					for i, w := range waiting {
						if w == req {
							waiting = drop(waiting, i)
							holding = append(holding, req)
							return
						}
					}
					if !req.Withdrawn() {
						t.Fatalf("request %d was granted twice", req.Holder)
					}
				})
			}
			for _, h := range holding {
				for _, w := range waiting {
					if h.Key == w.Key && h.Ref.Path == w.Ref.Path && w.Holder < h.Holder {
						t.Fatalf("request %d was granted before %d of its account", h.Holder, w.Holder)
					}
				}
			}
			inQueue := 0
			for _, u := range a.Usage() {
				if u.InUse > u.Slots {
					t.Fatalf("%d of %d slots in use: %s %s", u.InUse, u.Slots, u.Of, u.Name)
				}
				inQueue += u.Waiting
			}
			if inQueue != len(waiting) {
				t.Fatalf("%d requests are said to wait, and %d do", inQueue, len(waiting))
			}
			if a.InUse() != len(holding) {
				t.Fatalf("the engine's limit has %d in use, %d requests hold it", a.InUse(), len(holding))
			}
			for _, w := range waiting {
				if w.waitingAt == nil || int(w.waitingAt.limit.used.Load()) < w.waitingAt.limit.slots {
					t.Fatalf("request %d waits beside a free slot", w.Holder)
				}
			}
		}
		for range 300 {
			switch n := r.IntN(10); {
			case n < 5:
				which, account := r.IntN(len(limits)), string(rune('a'+r.IntN(3)))
				// The path stands for the action: order is kept among requests for one
				// action.
				req := &request{Key: store.Key{Account: account}, Ref: journal.Ref{Path: journal.Path([]byte{byte(which)}), Step: int32(next)}, Holder: next}
				next++
				waiting = append(waiting, req)
				a.Request(runs[account], req, limits[which])
			case n < 9 && len(holding) > 0:
				i := r.IntN(len(holding))
				req := holding[i]
				holding = drop(holding, i)
				runs[req.Key.Account].Remove(req)
				a.Withdraw(req)
				a.Withdraw(req) // the second call does nothing
			case n == 9 && len(waiting) > 0:
				i := r.IntN(len(waiting))
				req := waiting[i]
				waiting = drop(waiting, i)
				runs[req.Key.Account].Remove(req)
				a.Withdraw(req)
			}
			take()
		}
		for _, run := range runs {
			a.WithdrawAll(run, func(*request) bool { return false })
		}
		waiting, holding = nil, nil
		a.EachGranted(func(req *request) {
			if !req.Withdrawn() {
				t.Fatalf("request %d was granted after the end", req.Holder)
			}
		})
		if left := a.Usage(); len(left) != 0 {
			t.Fatalf("at the end slots are in use: %+v", left)
		}
	}
}

// A request that reaches a full limit is reported with the reason, once for each limit.
func TestBlockedOncePerReason(t *testing.T) {
	type request = Request[string]
	a := New[string](1)
	var run Set[string]
	first, second := &request{Ref: journal.Ref{Step: 1}}, &request{Ref: journal.Ref{Step: 2}, Holder: "second"}
	one := a.Route(&Target{Action: "resize", Provider: "", Slots: 1, ProviderSlots: 0}, false)
	a.Request(&run, first, one)
	a.Request(&run, second, one)
	third := &request{Ref: journal.Ref{Step: 3}}
	a.Request(&run, third, a.Route(&Target{Action: "", Provider: "", Slots: 0, ProviderSlots: 0}, false))
	var told []string
	look := func() {
		a.EachBlocked(func(req *request, reason string) {
			if req == second {
				told = append(told, reason)
			}
		})
	}
	look()
	look()
	a.Withdraw(first) // second passes the action's limit and reaches the engine's, whose slot third gets
	look()
	want := []string{`waits for one of the 1 slots of action "resize"`, "waits for one of the engine's 1 slots"}
	if len(told) != 2 || told[0] != want[0] || told[1] != want[1] {
		t.Errorf("reported %q, want %q", told, want)
	}
}

// A request that passes a limit and comes to another one between two looks is reported
// once, at the limit where it waits.
func TestBlockedOnceBetweenLooks(t *testing.T) {
	type request = Request[string]
	a := New[string](1)
	var run Set[string]
	one := a.Route(&Target{Action: "resize", Provider: "", Slots: 1, ProviderSlots: 0}, false)
	first, second, third := &request{Ref: journal.Ref{Step: 1}}, &request{Ref: journal.Ref{Step: 2}}, &request{Ref: journal.Ref{Step: 3}}
	a.Request(&run, first, one)
	a.Request(&run, third, a.Route(&Target{Action: "", Provider: "", Slots: 0, ProviderSlots: 0}, false))
	a.EachBlocked(func(*request, string) {})
	a.Request(&run, second, one)
	a.Withdraw(first)
	var reported []string
	for range 2 {
		a.EachBlocked(func(req *request, reason string) {
			if req == second {
				reported = append(reported, reason)
			}
		})
	}
	if len(reported) != 1 || reported[0] != "waits for one of the engine's 1 slots" {
		t.Errorf("reported %q", reported)
	}
}

// What waits is counted until it is granted a slot or withdrawn, also after the queues were
// forgotten, while other goroutines ask.
func TestUsageCountsWhatWaits(t *testing.T) {
	a := New[int](1)
	limits := a.Route(&Target{Action: "resize", Provider: "", Slots: 2, ProviderSlots: 0}, false)
	var run Set[int]
	reqs := make([]*Request[int], 4)
	for i := range reqs {
		reqs[i] = &Request[int]{Key: store.Key{Account: "a"}, Ref: journal.Ref{Step: int32(i)}}
		a.Request(&run, reqs[i], limits)
	}
	want := func(what string, want ...Usage) {
		t.Helper()
		var got []Usage
		done := make(chan struct{})
		go func() { // as the race detector sees it
			defer close(done)
			got = a.Usage()
		}()
		a.Route(&Target{Action: "another", Provider: "", Slots: 2, ProviderSlots: 0}, false)
		<-done
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	want("four requests", Usage{Of: "action", Name: "resize", Slots: 2, InUse: 2, Waiting: 2}, Usage{Of: "engine", Name: "", Slots: 1, InUse: 1, Waiting: 1})
	run.Remove(reqs[3])
	a.Withdraw(reqs[3])
	want("after one has gone", Usage{Of: "action", Name: "resize", Slots: 2, InUse: 2, Waiting: 1}, Usage{Of: "engine", Name: "", Slots: 1, InUse: 1, Waiting: 1})
	run.Remove(reqs[0])
	a.Withdraw(reqs[0])
	want("after one has ended", Usage{Of: "action", Name: "resize", Slots: 2, InUse: 2, Waiting: 0}, Usage{Of: "engine", Name: "", Slots: 1, InUse: 1, Waiting: 1})
	a.ForgetWaiting()
	a.WithdrawAll(&run, func(*Request[int]) bool { return false })
	want("at the end")
}

// While an arbiter is paused nothing is granted: neither a free slot, nor one that is given
// back. Then those that waited before come first, and attempts that were counted meanwhile have
// their slots.
func TestPause(t *testing.T) {
	a := New[int](2)
	var run Set[int]
	limits := a.Route(&Target{Action: "resize", Provider: "", Slots: 0, ProviderSlots: 0}, false)
	var reqs []*Request[int]
	request := func(step int32) {
		req := &Request[int]{Key: store.Key{Account: "acme"}, Ref: journal.Ref{Step: step}}
		reqs = append(reqs, req)
		a.Request(&run, req, limits)
	}
	granted := func() (steps []int32) {
		a.EachGranted(func(req *Request[int]) { steps = append(steps, req.Ref.Step) })
		return steps
	}
	want := func(what string, want ...int32) {
		t.Helper()
		if got := granted(); !slices.Equal(got, want) {
			t.Errorf("%s: %v are granted, want %v", what, got, want)
		}
	}
	for step := range int32(3) {
		request(step)
	}
	want("two slots", 0, 1)
	a.Pause()
	for _, i := range []int{0, 1} {
		run.Remove(reqs[i])
		a.Withdraw(reqs[i])
	}
	for step := range int32(3) {
		request(3 + step)
	}
	run.Remove(reqs[3])
	a.Withdraw(reqs[3])
	counted := &Request[int]{Key: store.Key{Account: "acme"}, Ref: journal.Ref{Step: 9}}
	a.Hold(&run, counted, limits, false)
	want("paused")
	a.Resume()
	want("one of two slots is held", 2)
	run.Remove(reqs[2])
	a.Withdraw(reqs[2])
	want("the first of those that came meanwhile and have not gone", 4)
	if n := a.InUse(); n != 2 {
		t.Errorf("%d slots are in use, want 2", n)
	}
}
