// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// An attempt that tries a service whose breaker is open may submit a job. The service has answered:
// the breaker closes, and nothing of the attempt is kept that no limit needs.
func TestProbeThatSubmitsAJob(t *testing.T) {
	for _, keys := range [][]Key{nil, {{Rule: &Rule{Name: "jobs", Concurrency: 9}, Text: "k"}}} {
		d := newDesk(t, 100, Policy{Share: 0.5, Min: 2, Window: 10 * second, Open: 30 * second})
		table := Table[int]{Arbiter: d.a, orphans: map[ID]*Request[int]{}, overdue: map[ID]*Request[int]{}, counted: map[held[int]]int{}}
		tg := Target{Account: "a", Action: "x", Service: "main", Keys: keys}
		for range 2 {
			n := d.request(tg, Demand{})
			d.want("closed", n)
			d.end(n, &Outcome{Failed: true})
		}
		probe, next := d.request(tg, Demand{}), d.request(tg, Demand{})
		d.after(30 * second)
		d.want("a probe", probe)
		table.Park(&d.set, d.reqs[probe].ID())
		d.want("the service has taken the job", next)
		table.End(&d.set, d.reqs[next])
		if req := d.set.Get(d.reqs[probe].Ref); req != nil {
			table.End(&d.set, req)
			table.Free(req.ID(), true)
		}
		d.after(day)
		d.a.sweepAt = 0
		d.a.sweep()
		if n := len(d.a.routes) + len(d.a.keys); n != 0 {
			t.Errorf("%d routes and keys are kept for nothing", n)
		}
	}
}

// I22: an action that is told to stop may have submitted a job, for which its step waits: the job holds
// the slots until it ends.
func TestI22_StoppedAttemptSubmits(t *testing.T) {
	d := newDesk(t, 100, Policy{Share: 0.5, Min: 2, Window: 10 * second, Open: 30 * second})
	table := NewTable(100, func(*Request[int]) {})
	table.Arbiter = d.a
	one := Target{Account: "a", Action: "x", Keys: []Key{{Rule: &Rule{Name: "jobs", Concurrency: 1}, Text: "k"}}}
	first, next := d.request(one, Demand{}), d.request(one, Demand{})
	d.want("the only slot", first)
	id := d.reqs[first].ID()
	table.Launch(&d.set, id)
	table.Stop(&d.set, id)
	table.Park(&d.set, id)
	table.Free(id, false) // its action has returned
	d.want("the job holds it")
	table.End(&d.set, d.set.Get(id.Ref))
	d.want("its end is not durable")
	table.Free(id, true)
	d.want("it has ended", next)
	if orphans, overdue := table.Away(); orphans+overdue != 0 || d.a.InUse() != 1 {
		t.Errorf("%d orphans, %d overdue, %d slots in use", orphans, overdue, d.a.InUse())
	}
}

// I22: an external job whose run leaves memory holds its slots as one of a number, if no limit knows
// its holders, and is found again whatever it calls by then.
func TestI22_CountedJobs(t *testing.T) {
	for _, tt := range []struct {
		name    string
		slots   int
		keys    []Key
		counted bool
	}{
		{"many slots", maxHolders + 1, nil, true},
		{"a limit with holders", maxHolders, nil, false},
		{"a limit of the configuration", maxHolders + 1, []Key{{Rule: &Rule{Name: "r", Rate: Rate{N: 9, Period: second}}, Text: "k"}}, false},
		{"only the engine's slots", 0, nil, false},
	} {
		a := newDesk(t, 100, Policy{Share: 0.5, Min: 2, Window: 10 * second, Open: 30 * second}).a
		table := NewTable(100, func(*Request[int]) {})
		table.Arbiter = a
		to := Target{Account: "a", Action: "x", Slots: tt.slots, Service: "main", Keys: tt.keys}
		id := ID{Ref: journal.Ref{Step: 1}, Fence: journal.Fence{Attempt: 1}}
		id.Key.Run = "r"
		var set Set[int]
		table.Hold(&set, id, a.Route(&to, false), true, true)
		table.Rest(&set)
		table.Unload(&set)
		want := 0
		if tt.counted {
			want = 1
		}
		if got := len(table.counted); got != want || len(table.orphans) != 1-want {
			t.Errorf("%s: %d counted, %d with requests", tt.name, got, len(table.orphans))
		}
		used := func() (n int) {
			for _, u := range a.Usage() {
				if u.Of == "action" {
					n += u.InUse
				}
			}
			return n
		}
		held := min(tt.slots, 1)
		if got := used(); got != held {
			t.Errorf("%s: %d slots are held, want %d", tt.name, got, held)
		}
		to.Service = "other"
		table.Hold(&set, id, a.Route(&to, true), true, true)
		if got := used(); got != held || set.Len() != 1 {
			t.Errorf("%s: %d slots are held of a run in memory, want %d", tt.name, got, held)
		}
		table.End(&set, set.Get(id.Ref))
		table.Free(id, true)
		if away, overdue := table.Away(); used() != 0 || away+overdue != 0 {
			t.Errorf("%s: at the end %d slots are held, %d away, %d overdue", tt.name, used(), away, overdue)
		}
	}
}
