// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/crashes"
	"github.com/roux-engine/roux/internal/store"
)

const (
	suspectPause     = 50_000    // µs between two suspects that have work to do
	lastSuspectPause = 1_000_000 // µs that the last suspect stays marked
)

// saveHistory makes the history durable: it must survive the process.
func (r *recovery) saveHistory() error {
	r.history.Clock = r.c.now
	data, err := json.Marshal(&r.history)
	if err != nil {
		return fmt.Errorf("encode the engine's history: %w", err)
	}
	return r.c.cfg.Store.SetNote(r.c.ctx, r.c.epoch, crashes.Note, data)
}

// checkHistory records whether the last process crashed.
func (r *recovery) checkHistory() error {
	note, err := r.c.cfg.Store.Note(r.c.ctx, crashes.Note)
	if err != nil {
		return err
	}
	h := &r.history
	if *h, err = crashes.Read(note); err != nil {
		r.c.cfg.Logger.Warn("the engine's history cannot be read; starting a new one", "err", err)
	}
	if h.Clock > r.c.now {
		r.c.cfg.Logger.Warn("the clock was turned back; continuing from the time of the last engine")
		r.c.now = h.Clock
	}
	r.c.now = max(r.c.now, h.CleanUntil+1) // all later events get a later time
	if !h.Running {
		r.cleanSince = h.CleanFrom
	} else if h.Isolated != nil {
		r.blame(h.Isolated.Key())
	}
	h.Begin(r.c.now)
	r.nextSuspectAt = r.c.now
	return r.saveHistory()
}

// blame counts a crash against the run that was being loaded by itself, and quarantines
// it after too many (I16).
func (r *recovery) blame(key store.Key) {
	saved, err := r.c.cfg.Store.Load(r.c.ctx, key)
	if err != nil {
		return // settled, damaged or removed: handled when it is loaded
	}
	if reason := r.history.Blame(saved); reason != "" && saved.Head.Quarantine == "" {
		r.quarantine(saved.Head, reason)
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
		if err := r.saveHistory(); store.Fatal(err) {
			r.fail(err, r.c.pipeline.building)
		} else if err != nil {
			r.c.cfg.Logger.Warn("the engine's history could not be saved", "err", err)
		}
		return
	}
	key := r.suspects[0]
	h.Isolate(key)
	if err := r.saveHistory(); store.Fatal(err) {
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
		case err == nil && r.inherited[store.Key{Account: key.Account, Run: saved.Head.Parent}].suspect:
			r.suspects = append(r.suspects[1:], key) // it needs its parent, which is loaded by itself before
			return
		case err == nil && saved.Head.Quarantine == "":
			err = r.loadSaved(saved)
		case fault.CodeOf(err) == fault.StoreCorrupt:
			r.quarantineStored(key, err.Error())
		}
		if store.Transient(err) {
			r.nextSuspectAt = r.c.now + maxBackoff
			r.c.cfg.Logger.Warn("a suspect cannot be read; loading it later", "run", key.Run, "err", err)
			return
		}
	}
	r.suspects = r.suspects[1:]
	if !slices.ContainsFunc(r.suspects, func(k store.Key) bool { return r.inherited[k].running > 0 }) {
		r.c.attempts.Arbiter.Unreserve()
	}
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

// reserve has those suspects come first that had attempts in flight: until they are loaded, no other
// step gets the slots of these.
func (r *recovery) reserve() {
	slices.SortStableFunc(r.suspects, func(x, y store.Key) int { return r.inherited[y].running - r.inherited[x].running })
	if len(r.suspects) > 0 && r.inherited[r.suspects[0]].running > 0 {
		r.c.attempts.Arbiter.Reserve()
	}
}
