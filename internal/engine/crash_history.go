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
	desperate = 5 // crashes after which also runs without open work are suspect

	historyNote   = "engine.history"
	crashWindow   = 60_000_000 // µs in which crashes make runs suspect
	crashLimit    = 2
	poisonLimit   = 3
	suspectPause  = 50_000    // µs between two suspects that hand out work
	suspectedFor  = 1_000_000 // µs for which the last suspect stays marked
	quarantineMsg = "the process died %d times while only this run was being loaded, and the run recorded nothing between"
)

// history is what outlives the process so that a run that kills it is found:
// it is kept in a note of the store, and written before what it warns of.
type history struct {
	Running bool    `json:"running"`           // false after a clean stop
	Clock   int64   `json:"clock,omitempty"`   // UTC µs when this was written
	Began   int64   `json:"began,omitempty"`   // UTC µs: no process died from then
	Stopped int64   `json:"stopped,omitempty"` // … to the last clean stop; -1 = nobody can tell
	Crashes []int64 `json:"crashes,omitempty"` // found at start, UTC µs
	Alone   *lone   `json:"alone,omitempty"`   // the run being loaded alone
	Deaths  []lone  `json:"deaths,omitempty"`
}

// lone is a run that was loaded alone while the process died.
type lone struct {
	Account string `json:"account"`
	Run     string `json:"run"`
	Last    uint64 `json:"last"` // its last event then
	N       int    `json:"n"`    // deaths with no new event between
}

func (c *core) saveHistory() error {
	c.history.Clock = c.now
	data, err := json.Marshal(&c.history)
	if err != nil {
		return fmt.Errorf("encode the engine's history: %w", err)
	}
	return c.cfg.Store.SetNote(c.ctx, c.epoch, historyNote, data)
}

// lookAtCrashes notes whether the last process died, and says whether runs must
// be loaded one at a time because it keeps dying.
func (c *core) lookAtCrashes() (careful bool, err error) {
	data, err := c.cfg.Store.Note(c.ctx, historyNote)
	if err != nil {
		return false, err
	}
	h := &c.history
	*h = history{}
	if data != nil {
		if err := json.Unmarshal(data, h); err != nil {
			c.cfg.Logger.Warn("the engine's history cannot be read; starting a new one", "err", err)
			*h = history{}
		}
	}
	if h.Clock > c.now {
		c.cfg.Logger.Warn("the clock was turned back; going on from the time of the last engine")
		c.now = h.Clock
	}
	if data != nil && !h.Running && h.Stopped == 0 {
		h.Stopped = h.Clock // an earlier release, which did not say it
	}
	c.now = max(c.now, h.Stopped+1) // what happens from now on is younger
	if !h.Running {
		c.since = h.Began
	}
	if h.Running {
		h.Crashes = append(h.Crashes, c.now)
		if h.Alone != nil {
			c.blame(*h.Alone)
		}
	}
	kept := h.Crashes[:0]
	for _, at := range h.Crashes {
		if c.now-at <= crashWindow {
			kept = append(kept, at)
		}
	}
	h.Crashes, h.Alone, h.Running = kept, nil, true
	c.suspectAt = c.now
	return len(kept) >= crashLimit, c.saveHistory()
}

// suspect says whether a run may be what kills the process: it was active around
// the first of the crashes, and it had work in hand. When loading those alone
// does not help, every run that was active then is suspect: its mere fold may
// be deadly. Events are decoded for this and not folded.
func (c *core) suspect(saved *store.Saved) bool {
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
	if last < c.history.Crashes[0]-crashWindow {
		return false
	}
	return err != nil || busy || len(open) > 0 || len(c.history.Crashes) >= desperate
}

// blame counts a death against the run that was being loaded alone, and sets it
// apart when it is one too many (I16).
func (c *core) blame(d lone) {
	key := store.Key{Account: d.Account, Run: d.Run}
	saved, err := c.cfg.Store.Load(c.ctx, key)
	if err != nil {
		return // settled, damaged or gone: it is handled where it is met
	}
	d.Last, d.N = saved.Last, 1
	h := &c.history
	for i, old := range h.Deaths {
		if old.Account != d.Account || old.Run != d.Run {
			continue
		}
		if old.Last == d.Last {
			d.N = old.N + 1
		}
		h.Deaths = append(h.Deaths[:i], h.Deaths[i+1:]...)
		break
	}
	if d.N < poisonLimit {
		h.Deaths = append(h.Deaths, d)
		return
	}
	if saved.Head.Quarantine == "" {
		c.quarantine(saved.Head, fmt.Sprintf(quarantineMsg, d.N))
	}
}

// nextSuspect loads the next suspect, alone: only when everything before it is
// durable, and after a mark that survives what it may do.
func (c *core) nextSuspect() {
	if c.now < c.suspectAt || c.flying != nil || !c.building.empty() {
		return
	}
	h := &c.history
	if len(c.suspects) == 0 {
		h.Alone, c.alone = nil, false
		if err := c.saveHistory(); fatal(err) {
			c.die(err, c.building)
		} else if err != nil {
			c.cfg.Logger.Warn("the engine's history could not be saved", "err", err)
		}
		return
	}
	key := c.suspects[0]
	h.Alone = &lone{Account: key.Account, Run: key.Run}
	if err := c.saveHistory(); fatal(err) {
		c.die(err, c.building) // while all that there is waits for its turn, no commit would find out
		return
	} else if err != nil {
		c.suspectAt = c.now + maxBackoff
		c.cfg.Logger.Warn("a suspect cannot be marked; loading it later", "run", key.Run, "err", err)
		return
	}
	c.alone = true
	c.suspectAt = c.now
	if c.runs[key] == nil {
		saved, err := c.cfg.Store.Load(c.ctx, key)
		if err == nil {
			err = c.owns()
		}
		switch {
		case fault.CodeOf(err) == fault.StaleEpoch:
			c.die(err, c.building)
			return
		case err == nil && saved.Head.Quarantine == "":
			err = c.enterSaved(saved)
		case fault.CodeOf(err) == fault.StoreCorrupt:
			c.quarantineStored(key, err.Error())
		}
		if passing(err) {
			c.suspectAt = c.now + maxBackoff
			c.cfg.Logger.Warn("a suspect cannot be read; loading it later", "run", key.Run, "err", err)
			return
		}
	}
	c.suspects = c.suspects[1:]
	if h, ok := c.inherited[key]; ok {
		h.suspect = false
		c.inherited[key] = h
	}
	if l := c.runs[key]; l != nil && running(l) > 0 {
		c.suspectAt = c.now + suspectPause
	}
	if len(c.suspects) == 0 {
		c.suspectAt = c.now + suspectedFor
	}
	c.enterNext()
}
