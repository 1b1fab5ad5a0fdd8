// SPDX-License-Identifier: Apache-2.0

package view

import (
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// MaxTimed is how many step instances Times records.
const MaxTimed = 500_000

// Times records when step instances ended, for the critical path: the chain of steps
// in which each waited for the one before, so that shortening any of them would have
// shortened the run.
type Times struct {
	ends   map[journal.Ref]int64
	inside map[journal.Ref][]journal.Path // scopes that an instance opened
	known  map[journal.Path]bool
	Full   bool // there were more instances than MaxTimed
}

func newTimes() *Times {
	return &Times{ends: map[journal.Ref]int64{}, inside: map[journal.Ref][]journal.Path{}, known: map[journal.Path]bool{}}
}

func (t *Times) add(ev *journal.Event, status string) {
	switch status {
	case "completed", "failed", "timed_out", "skipped": // a step may have waited for a skipped one
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

// forget removes the instances in graphs that run again.
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

// Scopes are the scopes that a step instance opened and in which steps ended. Index
// must have been called.
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
