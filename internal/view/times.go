// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// MaxTimed is how many step instances Times takes.
const MaxTimed = 500_000

// Times remember when step instances ended, for the critical path: the chain of
// steps of which each waited for the one before, so that the run would have
// been shorter had any of them been.
type Times struct {
	ends   map[journal.Ref]int64
	inside map[journal.Ref][]journal.Path // scopes that an instance opened
	known  map[journal.Path]bool
	Full   bool // there were more, and the rest was not taken
}

func newTimes() *Times {
	return &Times{ends: map[journal.Ref]int64{}, inside: map[journal.Ref][]journal.Path{}, known: map[journal.Path]bool{}}
}

func (t *Times) add(ev *journal.Event, status string) {
	switch status {
	case "completed", "failed", "timed_out", "skipped": // what was passed over may have been waited for
	case "invalidated":
		delete(t.ends, ev.Ref())
		return
	default:
		return
	}
	if len(t.ends) >= MaxTimed {
		t.Full = true
		return
	}
	t.ends[journal.Ref{Path: journal.Path(strings.Clone(string(ev.Path))), Step: ev.Step}] = ev.At
}

// forget drops what ended in graphs that run anew.
func (t *Times) forget(p *plan.Plan, inside map[int32]bool) {
	for ref := range t.ends {
		if inside[p.Steps[ref.Step].Graph] {
			delete(t.ends, ref)
		}
	}
}

// Ended is when a step instance ended, UTC µs.
func (t *Times) Ended(ref journal.Ref) (at int64, ok bool) {
	at, ok = t.ends[ref]
	return at, ok
}

// Scopes are those that a step instance opened and in which steps ended. Index must
// have been called.
func (t *Times) Scopes(ref journal.Ref) []journal.Path { return t.inside[ref] }

// Index finds the scopes that each instance opened.
func (t *Times) Index(p *plan.Plan) {
	for ref := range t.ends {
		if ref.Path == "" || t.known[ref.Path] {
			continue
		}
		t.known[ref.Path] = true
		if owner, ok := journal.Owner(p, ref.Path); ok {
			t.inside[owner] = append(t.inside[owner], ref.Path)
		}
	}
}
