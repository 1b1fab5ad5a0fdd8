// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store"
)

// A finding is one that is expected.
type finding struct {
	run         string
	entry       uint64
	found, want string
}

// A change is one of the books of a tree, and what is to be found then: that, and nothing
// else.
type change struct {
	name   string
	change func(c *copied) []finding
}

// inTree is what is found of a run of a tree whose root pays by an entry.
func (c *copied) inTree(run string, entry uint64, found, want string) []finding {
	return []finding{{run, entry, found, want}}
}

// corrupt is what is found of a run of a tree whose journal contradicts itself.
func (c *copied) corrupt(run string, entry uint64, found string) []finding {
	return []finding{{run, entry, found, "a journal that can be read and follows the rules of charges"}}
}

// elsewhere is what is found of a child run of the tree that goes on, if it says that it
// belongs elsewhere.
func (c *copied) elsewhere(recipe string) []finding {
	return c.inTree(c.run(recipe, 0).Run, c.reserved(), "it says of itself that it is another run", "the child run that event 5 of run "+c.run("open", 0).Run+" starts")
}

// settled is the number of the entry by which a generation of the tree that has ended pays.
func (c *copied) settled(generation int) uint64 {
	_, n := c.entry(c.run("ended", 0).Run, ledger.Settle, generation-1)
	return n
}

// reserved is the number of the entry by which the tree that goes on reserves.
func (c *copied) reserved() uint64 {
	_, n := c.entry(c.run("open", 0).Run, ledger.Reserve, 0)
	return n
}

// drop takes an entry away.
func (c *copied) drop(n uint64) { c.entries = slices.Delete(c.entries, int(n-1), int(n)) }

// byJournals are changes of what a run says of another one.
var byJournals = []change{
	{"cost that the parent records", func(c *copied) []finding {
		root, child := c.run("ended", 0).Run, c.run("middle", 0).Run
		ev := c.event(root, journal.EvChildEnded, 0)
		ev.N--
		return c.inTree(child, 8, fmt.Sprintf("event %d of run %s is charged 14.999999 credits for it", ev.Seq, root), "15, as its journal says")
	}},
	{"cost of a child run is more than its share", func(c *copied) []finding {
		parent := c.run("middle", 0).Run
		c.event(parent, journal.EvChildEnded, 0).N++
		return c.corrupt(parent, 8, "5.000001 credits for a child run, its share is 5")
	}},
	{"what a step of a child run cost", func(c *copied) []finding {
		child := c.run("deepest", 0)
		c.event(child.Run, journal.EvNodeCompleted, 0).N = 4
		child.Used = 4
		return c.inTree(child.Run, 8, "of run "+c.run("middle", 0).Run+" is charged 5 credits for it", "4, as its journal says")
	}},
	{"cost of a child run of the second generation", func(c *copied) []finding {
		child := c.run("last", 0)
		c.event(child.Run, journal.EvNodeCompleted, 0).N = 1
		child.Used = 1
		return c.inTree(child.Run, c.settled(2), "is charged 5 credits for it", "1, as its journal says")
	}},
	{"credits that a child run begins with", func(c *copied) []finding {
		c.restart(c.run("middle", 0).Run, func(st *journal.Start) { st.Child.Share.Credits++ })
		return c.inTree(c.run("middle", 0).Run, 8, "it begins with 4 credits", "3, as event 10 of run "+c.run("ended", 0).Run+" says")
	}},
	{"credits that were added, in an ended child run", func(c *copied) []finding {
		c.event(c.run("middle", 0).Run, journal.EvRunExtended, 0).N++
		return c.inTree(c.run("middle", 0).Run, 8, "it has been given 16 credits", "15, as the journal of run "+c.run("ended", 0).Run+" says")
	}},
	{"credits that were added, in a child run that goes on", func(c *copied) []finding {
		c.event(c.run("long", 0).Run, journal.EvRunExtended, 0).N++
		return c.inTree(c.run("long", 0).Run, c.reserved(), "it has been given 11 credits", "10, as the journal of run "+c.run("open", 0).Run+" says")
	}},
	{"credits that were added, in the parent", func(c *copied) []finding {
		c.event(c.run("open", 0).Run, journal.EvChildExtended, 0).N--
		return c.inTree(c.run("long", 0).Run, c.reserved(), "it has been given 10 credits", "9, as the journal of run "+c.run("open", 0).Run+" says")
	}},
	{"end of a child run", func(c *copied) []finding {
		events := c.events[c.run("deepest", 0).Run]
		events[len(events)-1].Kind = journal.EvRunCancelled
		return c.inTree(c.run("deepest", 0).Run, 8, "it is cancelled", "completed, as event 15 of run "+c.run("middle", 0).Run+" says")
	}},
	{"end that the parent records", func(c *copied) []finding {
		ev := c.event(c.run("ended", 0).Run, journal.EvChildEnded, 1)
		ev.Flag = uint8(journal.RunCancelled)
		return c.inTree(c.run("middle", 1).Run, 8, "it is failed", fmt.Sprintf("cancelled, as event %d of run %s says", ev.Seq, c.run("ended", 0).Run))
	}},
	{"last transition of a child run is lost", func(c *copied) []finding {
		c.lose(c.run("deepest", 0), 3)
		return c.inTree(c.run("deepest", 0).Run, 8, "its journal has no end", "completed, as event 15 of run "+c.run("middle", 0).Run+" says")
	}},
	{"event in the middle is lost", func(c *copied) []finding {
		child := c.run("middle", 0).Run
		c.events[child] = slices.Delete(c.events[child], 4, 5)
		return c.corrupt(child, 8, "event 5 is missing, the journal goes on with 6")
	}},
	{"child run used more than its share", func(c *copied) []finding {
		c.event(c.run("middle", 0).Run, journal.EvNodeCompleted, 0).N = 100
		return c.corrupt(c.run("middle", 0).Run, 8, "has used 100 credits, 0 are settled and 5 held")
	}},
}

// byPlaces are changes of which runs there are, and of where they say that they belong.
var byPlaces = []change{
	{"child run is missing", func(c *copied) []finding {
		child := c.run("deepest", 0).Run
		c.remove(child)
		return c.inTree(child, 8, "it is not there", "a child run, which event 12 of run "+c.run("middle", 0).Run+" starts")
	}},
	{"child run with others below it is missing", func(c *copied) []finding {
		child := c.run("middle", 0).Run
		c.remove(child)
		return c.inTree(child, 8, "it is not there", "a child run, which event 10 of run "+c.run("ended", 0).Run+" starts")
	}},
	{"child run that goes on is missing", func(c *copied) []finding {
		child := c.run("long", 0).Run
		c.remove(child)
		return c.inTree(child, c.reserved(), "it is not there", "of run "+c.run("open", 0).Run+" starts")
	}},
	{"child run that cost nothing is missing", func(c *copied) []finding {
		child := c.run("gratis", 0).Run
		c.remove(child)
		return c.inTree(child, c.settled(2), "it is not there", "of run "+c.run("ended", 0).Run+" starts")
	}},
	{"child run that could not be started", func(c *copied) []finding {
		c.remove(c.run("gratis", 0).Run)
		c.event(c.run("ended", 0).Run, journal.EvChildEnded, 3).Flag = uint8(journal.RunFailed)
		return nil
	}},
	{"child run that no event starts", func(c *copied) []finding {
		root, child := c.run("open", 0), *c.run("short", 0)
		child.Run += "X"
		c.heads, c.events[child.Run] = append(c.heads, &child), c.events[c.run("short", 0).Run]
		slices.SortFunc(c.heads, func(a, b *store.Head) int { return strings.Compare(a.Run, b.Run) })
		return []finding{{child.Run, 0, "it is a child run of run " + root.Run, "one that the journal of its parent starts"}}
	}},
	{"child run without a place", func(c *copied) []finding {
		c.restart(c.run("short", 0).Run, func(st *journal.Start) { st.Child, st.Credits = nil, nil })
		return c.elsewhere("short")
	}},
	{"parent", func(c *copied) []finding {
		c.restart(c.run("short", 0).Run, func(st *journal.Start) { st.Child.Parent = "run_other" })
		return c.elsewhere("short")
	}},
	{"root", func(c *copied) []finding {
		c.restart(c.run("deepest", 0).Run, func(st *journal.Start) { st.Child.Root = st.Child.Parent })
		return c.inTree(c.run("deepest", 0).Run, 8, "it says of itself that it is another run", "the child run that event 12 of run "+c.run("middle", 0).Run+" starts")
	}},
	{"step", func(c *copied) []finding {
		c.restart(c.run("short", 0).Run, func(st *journal.Start) { st.Child.Step++ })
		return c.elsewhere("short")
	}},
	{"attempt", func(c *copied) []finding {
		c.restart(c.run("short", 0).Run, func(st *journal.Start) { st.Child.Attempt++ })
		return c.elsewhere("short")
	}},
	{"account", func(c *copied) []finding {
		c.restart(c.run("short", 0).Run, func(st *journal.Start) { st.Account = "free" })
		return c.elsewhere("short")
	}},
	{"last transition of a root that goes on is lost", func(c *copied) []finding {
		root, short, long, n := c.run("open", 0), c.run("short", 0).Run, c.run("long", 0).Run, c.reserved()
		c.lose(root, len(c.events[root.Run])-int(c.event(root.Run, journal.EvChildEnded, 0).Seq)+1)
		return append(c.inTree(short, n, "it is completed and costs 5 credits", "a run that goes on: the journal of run "+root.Run+" has no end of it after event 5"),
			finding{long, 0, "it is a child run of run " + root.Run, "one that the journal of its parent starts"})
	}},
	{"parent has not been told of an end", func(c *copied) []finding {
		root, long := c.run("open", 0), c.run("long", 0).Run
		c.run("short", 0).Owes = true
		c.lose(root, len(c.events[root.Run])-int(c.event(root.Run, journal.EvChildEnded, 0).Seq)+1)
		return []finding{{long, 0, "it is a child run of run " + root.Run, "one that the journal of its parent starts"}}
	}},
}

// byEntries are changes of the ledger, and of roots.
var byEntries = []change{
	{"last transition of a root that has ended is lost", func(c *copied) []finding {
		root, n := c.run("ended", 0), c.settled(2)
		c.lose(root, 2)
		return []finding{{root.Run, n, "settle 5", "no entry: the run's journal has no such event"}}
	}},
	{"second generation of a root is lost", func(c *copied) []finding {
		root, last, gratis := c.run("ended", 0), c.run("last", 0).Run, c.run("gratis", 0).Run
		events := c.events[root.Run]
		c.events[root.Run] = events[:c.event(root.Run, journal.EvRunRetried, 0).Seq-1]
		root.Status, root.Used = "failed", 35
		return []finding{{root.Run, 10, "reserve 5", "no entry: the run's journal has no such event"},
			{last, 0, "it is a child run of run " + root.Run, "one that the journal of its parent starts"},
			{gratis, 0, "it is a child run of run " + root.Run, "one that the journal of its parent starts"}}
	}},
	{"amount of an extension", func(c *copied) []finding {
		root := c.run("ended", 0).Run
		e, n := c.entry(root, ledger.Extend, 1)
		e.Parts[0].Amount++
		e, _ = c.entry(root, ledger.Release, 0)
		e.Parts[0].Amount++
		return []finding{{root, n, "extend 5", "extend 4, as event 14 says"}}
	}},
	{"extension is missing", func(c *copied) []finding {
		root := c.run("ended", 0).Run
		_, n := c.entry(root, ledger.Extend, 1)
		c.drop(n)
		e, _ := c.entry(root, ledger.Settle, 0) // so that the ledger fits
		e.Parts[0].Amount--
		c.drop(8)
		return []finding{{root, n, "extend 5", "extend 4, as event 14 says"}}
	}},
	{"release is missing", func(c *copied) []finding {
		root := c.run("ended", 0).Run
		_, n := c.entry(root, ledger.Release, 0)
		c.drop(n)
		return []finding{{root, n - 1, "it is the last entry of its reservation", fmt.Sprintf("another one: release 3, as event %d says", c.event(root, journal.EvCreditsSettled, 0).Seq)}}
	}},
	{"entries of a generation are missing", func(c *copied) []finding {
		root := c.run("ended", 0).Run
		c.drop(11)
		c.drop(10)
		extends := c.events[root][:0:0] // the second generation has nothing to reserve when it begins
		for _, ev := range c.events[root] {
			if ev.Kind == journal.EvCreditsExtended {
				extends = append(extends, ev)
			}
		}
		return []finding{{root, 0, "generation 2 has no reservation", fmt.Sprintf("entry reserve/%s.2, as event %d says", root, extends[len(extends)-1].Seq)}}
	}},
	{"entry too many", func(c *copied) []finding {
		root := c.run("open", 0).Run
		first, n := c.entry(root, ledger.Reserve, 0)
		c.entries = append(c.entries, &ledger.Entry{Key: ledger.EventKey(ledger.Extend, first.Hold, 11), Kind: ledger.Extend, At: first.At, Hold: first.Hold, Run: root, Parts: []ledger.Part{{Lot: "first", Amount: 2}}})
		return []finding{{root, n + 1, "extend 2", "no entry: the run's journal has no such event"}}
	}},
	{"entry of a child run", func(c *copied) []finding {
		child := c.run("short", 0).Run
		last := c.entries[len(c.entries)-1]
		c.entries = append(c.entries, &ledger.Entry{Key: "reserve/" + child + ".1", Kind: ledger.Reserve, At: last.At, Hold: child + ".1", Run: child, Parts: []ledger.Part{{Lot: "first", Amount: 5}}})
		return []finding{{child, uint64(len(c.entries)), "reserve 5", "no entry: the run's journal has no such event"}}
	}},
	{"entry that names a child run", func(c *copied) []finding {
		e, n := c.entry(c.run("ended", 0).Run, ledger.Extend, 0)
		e.Run = c.run("middle", 0).Run
		return []finding{{e.Run, n, "it is an entry of run " + e.Run, "run " + c.run("ended", 0).Run + ", whose reservation it names"}}
	}},
	{"reservation without a run", func(c *copied) []finding {
		last := c.entries[len(c.entries)-1]
		c.entries = append(c.entries, &ledger.Entry{Key: "reserve/x", Kind: ledger.Reserve, At: last.At, Hold: "x", Run: last.Run, Parts: []ledger.Part{{Lot: "first", Amount: 5}}})
		return []finding{{last.Run, uint64(len(c.entries)), "reservation x", "named after a run and its generation"}}
	}},
	{"tree that holds credits is gone", func(c *copied) []finding {
		root := c.run("open", 0).Run
		n := c.reserved()
		c.remove(c.run("long", 0).Run)
		c.remove(c.run("short", 0).Run)
		c.remove(root)
		return []finding{{root, n, "25 credits are held for run " + root, "nothing held for a run that was deleted"}}
	}},
	{"tree that has paid was deleted, its child runs not yet", func(c *copied) []finding {
		c.remove(c.run("ended", 0).Run)
		return nil
	}},
	{"what the list says that a child run used", func(c *copied) []finding {
		c.run("deepest", 0).Used++
		return []finding{{c.run("deepest", 0).Run, 0, "the list of runs says that it used 6 credits", "5, the sum of what its steps cost"}}
	}},
	{"what the list says of a child run that goes on", func(c *copied) []finding {
		h := c.run("long", 0)
		h.Status, h.Ended = "completed", 1
		return []finding{{h.Run, 0, "the list of runs says that it is completed", "a run that goes on: its journal has no end"}}
	}},
	{"row of a child run", func(c *copied) []finding {
		c.run("deepest", 0).Damage = "its row is damaged"
		return []finding{{c.run("deepest", 0).Run, 0, "its row is damaged", "a row that can be read"}}
	}},
	{"plan of a root", func(c *copied) []finding {
		root := c.run("ended", 0)
		was := root.PlanHash
		root.PlanHash = c.run("open", 0).PlanHash
		says := "its row names plan " + plan.HashOf(root.PlanHash) + ", and its first event plan " + plan.HashOf(was)
		return []finding{{root.Run, 2, says, "a journal that can be read"}, {root.Run, 10, says, "a journal that can be read"}}
	}},
}

// Changes of trees that no account pays for.
var byUnpaid = []change{
	{"what a child run cost", func(c *copied) []finding {
		child := c.run("deepest", 0)
		c.event(child.Run, journal.EvNodeCompleted, 0).N = 1
		child.Used = 1
		return []finding{{child.Run, 0, "of run " + c.run("middle", 0).Run + " is charged 5 credits for it", "1, as its journal says"}}
	}},
	{"what the list says that a child run used", func(c *copied) []finding {
		c.run("middle", 1).Used--
		return []finding{{c.run("middle", 1).Run, 0, "the list of runs says that it used 14 credits", "15, the sum of what its steps cost"}}
	}},
	{"journal of the root", func(c *copied) []finding {
		root := c.run("ended", 0).Run
		c.events[root] = slices.Delete(c.events[root], 2, 3)
		return []finding{{root, 0, "event 3 is missing", "a journal that can be read"}}
	}},
}

// Each change of the books of a tree is found, with the run and the figures, and nothing
// else is.
func TestI11_ReconcileOfChangedTrees(t *testing.T) {
	eachStore(t, func(t *testing.T, st store.Store) {
		for _, group := range []struct {
			account string
			changes []change
		}{{"acme", byJournals}, {"acme", byPlaces}, {"acme", byEntries}, {"free", byUnpaid}} {
			for _, tt := range group.changes {
				c := copyOf(t, st, group.account)
				want := tt.change(c)
				got := c.prove().Findings
				for _, w := range want {
					i := slices.IndexFunc(got, func(f reconcile.Finding) bool {
						return f.Run == w.run && f.Entry == w.entry && strings.Contains(f.Found, w.found) && strings.Contains(f.Want, w.want)
					})
					if i < 0 {
						t.Errorf("%s: there is no finding %+v in\n%+v", tt.name, w, got)
						continue
					}
					got = slices.Delete(got, i, i+1)
				}
				if len(got) > 0 {
					t.Errorf("%s: %+v is found, too", tt.name, got)
				}
			}
		}
	})
}

// A tree that was adopted from another data directory has no entries here.
func TestReconcileOfAdoptedTrees(t *testing.T) {
	eachStore(t, func(t *testing.T, st store.Store) {
		c := copyOf(t, st, "acme")
		c.entries = c.entries[:1]
		if r := c.prove(); len(r.Findings) > 0 || r.Elsewhere != 2 || r.Children != 8 {
			t.Errorf("%+v", r)
		}
	})
}
