// SPDX-License-Identifier: Apache-2.0

// Package crashes decides which runs may be what crashes the process (I16).
//
// A History is what survives the process: when it crashed, when it was stopped cleanly, and
// which run was being loaded by itself. After repeated crashes the runs that were active
// are suspects, which the engine loads one at a time; one that takes the process down again
// and again without recording anything is to be quarantined.
//
// The package reads and writes nothing, and knows no clock.
package crashes

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// Note is the name of the note of the store that holds the history.
const Note = "engine.history"

const (
	suspectAllAfter = 5          // crashes after which runs without open work are suspect too
	window          = 60_000_000 // µs within which crashes make runs suspect
	limit           = 2          // crashes within the window that make runs suspect
	maxDeaths       = 3
	reason          = "the process died %d times while only this run was being loaded, and the run recorded nothing between"
)

// A History is what must survive the process so that a run that kills it can be found. It
// is stored each time before the step that may crash.
type History struct {
	Running    bool    `json:"running"`           // false after a clean stop
	Clock      int64   `json:"clock,omitempty"`   // UTC µs when this was written
	CleanFrom  int64   `json:"began,omitempty"`   // UTC µs; since then, until CleanUntil, no process crashed
	CleanUntil int64   `json:"stopped,omitempty"` // UTC µs of the last clean stop; -1 = unknown
	Crashes    []int64 `json:"crashes,omitempty"` // detected at start, UTC µs
	Isolated   *Death  `json:"alone,omitempty"`   // the run being loaded by itself
	Deaths     []Death `json:"deaths,omitempty"`
}

// A Death is a run that was being loaded by itself when the process crashed.
type Death struct {
	Account string `json:"account"`
	Run     string `json:"run"`
	Last    uint64 `json:"last"` // its last event at that time
	N       int    `json:"n"`    // crashes with no new event in between
}

// Key names the run.
func (d *Death) Key() store.Key { return store.Key{Account: d.Account, Run: d.Run} }

// Read decodes a note; nil = there is none. The history is empty if there is an error.
func Read(note []byte) (h History, err error) {
	if note == nil {
		return h, nil
	}
	if err := json.Unmarshal(note, &h); err != nil {
		return History{}, err
	}
	if !h.Running && h.CleanUntil == 0 {
		h.CleanUntil = h.Clock // written by an earlier release, which did not store it
	}
	return h, nil
}

// Begin records that a process begins, and that the last one crashed if it was not stopped.
func (h *History) Begin(now int64) {
	if h.Running {
		h.Crashes = append(h.Crashes, now)
	}
	h.Crashes = slices.DeleteFunc(h.Crashes, func(at int64) bool { return now-at > window })
	h.Isolated, h.Running = nil, true
}

// Stop records a clean stop: no process has crashed since `since`, or, if that is not known,
// since is 0.
func (h *History) Stop(since, now int64) {
	h.Running, h.Isolated = false, nil
	h.CleanFrom, h.CleanUntil = since, now
	if since == 0 {
		h.CleanUntil = -1
	}
}

// Clean reports whether the process that was running at a time was stopped cleanly.
func (h *History) Clean(at int64) bool { return h.CleanFrom <= at && at <= h.CleanUntil }

// Isolate notes that a run is being loaded by itself.
func (h *History) Isolate(key store.Key) { h.Isolated = &Death{Account: key.Account, Run: key.Run} }

// Suspect reports whether a run may be what crashes the process, and must be loaded by
// itself: there were several crashes, it was active around the first of them and had work in
// flight. If loading those runs by themselves does not help, every run that was active then is
// suspect, because folding its events may already crash. Therefore events are decoded here but
// not folded.
//
// running is how many attempts such a run may have had under way, at least.
func (h *History) Suspect(saved *store.Saved) (suspect bool, running int) {
	if saved.Err != nil || len(h.Crashes) < limit {
		return false, 0
	}
	last, busy := saved.Head.Updated, saved.StateLast > 0
	open := map[journal.Ref]bool{} // true = with an attempt
	err := journal.EachEvent(saved.Tail, func(ev *journal.Event) error {
		last = max(last, ev.At)
		switch ev.Kind {
		case journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeStarted, journal.EvNodeRetried, journal.EvNodeLost:
			open[ev.Ref()] = ev.Kind == journal.EvNodeStarted
		case journal.EvNodeSubmitted:
			job, err := ev.Job()
			open[ev.Ref()] = err == nil && job.Provider == journal.Workers // other jobs are counted by their records
		case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled, journal.EvNodeInvalidated:
			delete(open, ev.Ref())
		}
		return nil
	})
	if last < h.Crashes[0]-window {
		return false, 0
	}
	if busy {
		running = 1 // what its state says is not known
	}
	for _, attempt := range open {
		if attempt {
			running++
		}
	}
	return err != nil || busy || len(open) > 0 || len(h.Crashes) >= suspectAllAfter, running
}

// Blame counts a crash against a run that was being loaded by itself. It returns why the
// run is to be quarantined, once there are too many.
func (h *History) Blame(saved *store.Saved) string {
	key := saved.Head.Key
	death := Death{Account: key.Account, Run: key.Run, Last: saved.Last, N: 1}
	if i := slices.IndexFunc(h.Deaths, func(d Death) bool { return d.Key() == key }); i >= 0 {
		if h.Deaths[i].Last == death.Last {
			death.N = h.Deaths[i].N + 1
		}
		h.Deaths = slices.Delete(h.Deaths, i, i+1)
	}
	if death.N < maxDeaths {
		h.Deaths = append(h.Deaths, death)
		return ""
	}
	return fmt.Sprintf(reason, death.N)
}
