// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// nested is a Source of recipes with steps that run other recipes.
type nested struct{}

func (nested) Case(n uint64) (*Case, error) { return Drawn{}.Case(7*n + 2) }

// TestX60_F44_BrokenTreesAreNoticed: each way in which the journals of a tree can disagree
// is reported.
func TestX60_F44_BrokenTreesAreNoticed(t *testing.T) {
	for want, spoil := range map[string]func(c *checker, parent, child *runRecord, l *link){
		"": func(*checker, *runRecord, *runRecord, *link) {},
		"F44: child run": func(_ *checker, parent, _ *runRecord, l *link) { // a child that nobody has started
			l.key.Run = "another"
			l.end = new(journal.Event)
		},
		"X62: child run": func(_ *checker, _, child *runRecord, _ *link) { // a child that says it is of another attempt
			place := *child.tree.self
			place.Attempt++
			child.tree.self = &place
		},
		"X61: child run": func(_ *checker, _, child *runRecord, _ *link) {
			place := *child.tree.self
			place.MaxDepth = 0
			child.tree.self = &place
		},
		"X60: child run": func(_ *checker, _, child *runRecord, l *link) {
			if l.end != nil {
				l.end.M = l.share.Steps + 1
			} else {
				child.tree.share.Steps++
			}
		},
		"X60: run": func(_ *checker, parent, _ *runRecord, _ *link) {
			parent.tree.links = append(parent.tree.links, &link{key: parent.key, share: journal.Share{Memory: 1 << 60}})
		},
		"is not durable": func(_ *checker, parent, _ *runRecord, l *link) {
			open := *l
			open.key.Run, open.end = "another", nil
			parent.tree.links = append(parent.tree.links, &open)
		},
		"goes on": func(c *checker, _, _ *runRecord, l *link) {
			l.end = nil
			c.checkFamilies()
		},
	} {
		pl := NewPlayer(Options{Source: nested{}, noFaults: true, spoil: func(w *World) {
			for _, child := range w.checker.all {
				if child.tree.self == nil {
					continue
				}
				parent := w.checker.runs[keyOfParent(child)]
				for _, l := range parent.tree.links {
					if l.key == child.key {
						spoil(&w.checker, parent, child, l)
						w.checker.changed = append(w.checker.changed, parent, child)
						w.checker.checkTrees()
						return
					}
				}
			}
		}})
		found := false
		for seed := uint64(0); seed < 128 && !found; seed++ {
			res, err := pl.Play(seed)
			if err != nil {
				t.Fatal(err)
			}
			found = res.Err != nil && strings.Contains(res.Err.Error(), want)
		}
		if found != (want != "") {
			t.Errorf("%q was reported: %v", want, found)
		}
	}
}
