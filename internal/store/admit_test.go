// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// One refusal refuses every group with events that follow, directly or not, so that a batch
// need not begin anew for each.
func TestRefuseGroup(t *testing.T) {
	member := func(group, run string, first uint64) Transition {
		return Transition{Key: Key{"acme", run}, Group: group, First: first, Last: first}
	}
	other := member("g1", "p", 9)
	other.Account = "rival"
	for _, c := range []struct {
		name  string
		batch []Transition
		i     int
		again bool
		want  string // - is without a verdict, x refused itself, * for the group
	}{
		{"alone", []Transition{member("g1", "a", 2)}, 0, false, "x"},
		{"the first", []Transition{member("g1", "a", 2), member("g1", "p", 2)}, 0, false, "x*"},
		{"the last", []Transition{member("g1", "a", 2), member("g2", "b", 2), member("g1", "p", 2)}, 2, true, "*-x"},
		{"without a group", []Transition{member("g1", "p", 2), member("", "p", 3)}, 0, false, "x-"},
		{"of another account", []Transition{member("g1", "p", 2), other}, 0, false, "x-"},
		{"what follows", []Transition{member("g1", "p", 2), member("g2", "b", 2), member("g2", "p", 3)}, 0, false, "x**"},
		{"what follows that", []Transition{
			member("g3", "q", 1), member("g1", "p", 2), member("g2", "p", 3), member("g2", "q", 2), member("g4", "b", 1), member("g4", "q", 3),
		}, 1, false, "-x****"},
		{"what comes before it", []Transition{
			member("g3", "q", 2), member("g2", "q", 1), member("g1", "p", 2), member("g2", "p", 3), member("g4", "p", 1), member("g4", "q", 3),
		}, 2, true, "-*x***"},
	} {
		verdicts := make([]Verdict, len(c.batch))
		verdicts[c.i] = Refuse(fault.StaleEpoch, "its own")
		if again := RefuseGroup(c.batch, verdicts, c.i); again != c.again {
			t.Errorf("%s: again = %v", c.name, again)
		}
		got := ""
		for i, v := range verdicts {
			switch {
			case v.Err == nil:
				got += "-"
			case v.Group:
				got += "*"
				if want := fmt.Sprintf("run %s: another transition of its group was refused: its own", c.batch[i].Run); fault.Message(v.Err) != want {
					t.Errorf("%s: message %q, want %q", c.name, fault.Message(v.Err), want)
				}
			default:
				got += "x"
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
