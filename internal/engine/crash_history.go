// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

const (
	suspectAllAfter = 5 // crashes after which runs without open work are suspect too

	historyNote      = "engine.history"
	crashWindow      = 60_000_000 // µs within which crashes make runs suspect
	crashLimit       = 2
	maxDeaths        = 3
	suspectPause     = 50_000    // µs between two suspects that have work to do
	lastSuspectPause = 1_000_000 // µs that the last suspect stays marked
	crashReason      = "the process died %d times while only this run was being loaded, and the run recorded nothing between"
)

// history is what must survive the process so that a run that kills it can be found. It
// is stored in a note of the store, each time before the step that may crash.
type history struct {
	Running    bool          `json:"running"`           // false after a clean stop
	Clock      int64         `json:"clock,omitempty"`   // UTC µs when this was written
	CleanFrom  int64         `json:"began,omitempty"`   // UTC µs; since then, until CleanUntil, no process crashed
	CleanUntil int64         `json:"stopped,omitempty"` // UTC µs of the last clean stop; -1 = unknown
	Crashes    []int64       `json:"crashes,omitempty"` // detected at start, UTC µs
	Isolated   *isolatedRun  `json:"alone,omitempty"`   // the run being loaded by itself
	Deaths     []isolatedRun `json:"deaths,omitempty"`
}

// An isolatedRun is a run that was being loaded by itself when the process crashed.
type isolatedRun struct {
	Account string `json:"account"`
	Run     string `json:"run"`
	Last    uint64 `json:"last"` // its last event at that time
	N       int    `json:"n"`    // crashes with no new event in between
}

func (r *recovery) saveHistory() error {
	r.history.Clock = r.c.now
	data, err := json.Marshal(&r.history)
	if err != nil {
		return fmt.Errorf("encode the engine's history: %w", err)
	}
	return r.c.cfg.Store.SetNote(r.c.ctx, r.c.epoch, historyNote, data)
}

// checkHistory records whether the last process crashed. It returns isolate = true if
// runs must be loaded one at a time because the process has crashed repeatedly.
func (r *recovery) checkHistory() (isolate bool, err error) {
	data, err := r.c.cfg.Store.Note(r.c.ctx, historyNote)
	if err != nil {
		return false, err
	}
	h := &r.history
	*h = history{}
	if data != nil {
		if err := json.Unmarshal(data, h); err != nil {
			r.c.cfg.Logger.Warn("the engine's history cannot be read; starting a new one", "err", err)
			*h = history{}
		}
	}
	if h.Clock > r.c.now {
		r.c.cfg.Logger.Warn("the clock was turned back; continuing from the time of the last engine")
		r.c.now = h.Clock
	}
	if data != nil && !h.Running && h.CleanUntil == 0 {
		h.CleanUntil = h.Clock // written by an earlier release, which did not store it
	}
	r.c.now = max(r.c.now, h.CleanUntil+1) // all later events get a later time
	if !h.Running {
		r.cleanSince = h.CleanFrom
	}
	if h.Running {
		h.Crashes = append(h.Crashes, r.c.now)
		if h.Isolated != nil {
			r.blame(*h.Isolated)
		}
	}
	kept := h.Crashes[:0]
	for _, at := range h.Crashes {
		if r.c.now-at <= crashWindow {
			kept = append(kept, at)
		}
	}
	h.Crashes, h.Isolated, h.Running = kept, nil, true
	r.nextSuspectAt = r.c.now
	return len(kept) >= crashLimit, r.saveHistory()
}

// suspect reports whether a run may be what crashes the process: it was active around
// the first of the crashes and had work in flight. If loading those runs by themselves
// does not help, every run that was active then is suspect, because folding its events
// may already crash. Therefore events are decoded here but not folded.
func (r *recovery) suspect(saved *store.Saved) bool {
	if saved.Err != nil {
		return false
	}
	last, busy := saved.Head.Updated, saved.StateLast > 0
	open := map[journal.Ref]struct{}{}
	err := journal.EachEvent(saved.Tail, func(ev *journal.Event) error {
		last = max(last, ev.At)
		switch ev.Kind {
		case journal.EvNodeQueued, journal.EvNodeBlocked, journal.EvNodeStarted, journal.EvNodeRetried, journal.EvNodeLost:
			open[ev.Ref()] = struct{}{}
		case journal.EvNodeCompleted, journal.EvNodeFailed, journal.EvNodeSkipped, journal.EvNodeCancelled, journal.EvNodeInvalidated:
			delete(open, ev.Ref())
		}
		return nil
	})
	if last < r.history.Crashes[0]-crashWindow {
		return false
	}
	return err != nil || busy || len(open) > 0 || len(r.history.Crashes) >= suspectAllAfter
}

// blame counts a crash against the run that was being loaded by itself, and quarantines
// it after too many (I16).
func (r *recovery) blame(death isolatedRun) {
	key := store.Key{Account: death.Account, Run: death.Run}
	saved, err := r.c.cfg.Store.Load(r.c.ctx, key)
	if err != nil {
		return // settled, damaged or removed: handled when it is loaded
	}
	death.Last, death.N = saved.Last, 1
	h := &r.history
	for i, old := range h.Deaths {
		if old.Account != death.Account || old.Run != death.Run {
			continue
		}
		if old.Last == death.Last {
			death.N = old.N + 1
		}
		h.Deaths = append(h.Deaths[:i], h.Deaths[i+1:]...)
		break
	}
	if death.N < maxDeaths {
		h.Deaths = append(h.Deaths, death)
		return
	}
	if saved.Head.Quarantine == "" {
		r.quarantine(saved.Head, fmt.Sprintf(crashReason, death.N))
	}
}

// nextSuspect loads the next suspect by itself: only when everything before it is
// durable, and after a mark that survives a crash.
func (r *recovery) nextSuspect() {
	if r.c.now < r.nextSuspectAt || r.c.pipeline.committing != nil {
		return
	}
	if b := r.c.pipeline.building; !b.empty() {
		b.urgent = true // the suspect is due, and progress alone would be committed later
		return
	}
	h := &r.history
	if len(r.suspects) == 0 {
		h.Isolated, r.suspectMarked = nil, false
		if err := r.saveHistory(); fatal(err) {
			r.fail(err, r.c.pipeline.building)
		} else if err != nil {
			r.c.cfg.Logger.Warn("the engine's history could not be saved", "err", err)
		}
		return
	}
	key := r.suspects[0]
	h.Isolated = &isolatedRun{Account: key.Account, Run: key.Run}
	if err := r.saveHistory(); fatal(err) {
		r.fail(err, r.c.pipeline.building) // when only suspects are left, no commit would detect the failure
		return
	} else if err != nil {
		r.nextSuspectAt = r.c.now + maxBackoff
		r.c.cfg.Logger.Warn("a suspect cannot be marked; loading it later", "run", key.Run, "err", err)
		return
	}
	r.suspectMarked = true
	r.nextSuspectAt = r.c.now
	if r.c.residency.runs[key] == nil {
		saved, err := r.c.cfg.Store.Load(r.c.ctx, key)
		if err == nil {
			err = r.checkOwnership()
		}
		switch {
		case fault.CodeOf(err) == fault.StaleEpoch:
			r.fail(err, r.c.pipeline.building)
			return
		case err == nil && saved.Head.Quarantine == "":
			err = r.loadSaved(saved)
		case fault.CodeOf(err) == fault.StoreCorrupt:
			r.quarantineStored(key, err.Error())
		}
		if transient(err) {
			r.nextSuspectAt = r.c.now + maxBackoff
			r.c.cfg.Logger.Warn("a suspect cannot be read; loading it later", "run", key.Run, "err", err)
			return
		}
	}
	r.suspects = r.suspects[1:]
	if h, ok := r.inherited[key]; ok {
		h.suspect = false
		r.inherited[key] = h
	}
	if l := r.c.residency.runs[key]; l != nil && runningAttempts(l) > 0 {
		r.nextSuspectAt = r.c.now + suspectPause
	}
	if len(r.suspects) == 0 {
		r.nextSuspectAt = r.c.now + lastSuspectPause
	}
	r.recoverNext()
}
