// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
)

// Cached names the result of an earlier attempt, of the same account, that an attempt has in
// place of one of its own.
type Cached struct {
	Key  string `json:"-"`    // what both attempts have in common, hashed
	Run  string `json:"run"`  // of the earlier attempt
	Step string `json:"step"` // its path, as StepPath has it
	At   int64  `json:"at"`   // when the result was made, UTC µs
}

// Event returns the event that records the use of the result by an attempt, without what all
// events have.
func (c *Cached) Event(attempt uint32) Event {
	data, err := json.Marshal(c)
	if err != nil {
		panic("journal: two texts and a number are no JSON: " + err.Error())
	}
	return Event{Kind: EvNodeCached, Attempt: attempt, Text: c.Key, Data: data}
}

// CachedFrom is the result that the attempt has (EvNodeCached).
func (e *Event) CachedFrom() (Cached, error) {
	c := Cached{Key: e.Text}
	if err := json.Unmarshal(e.Data, &c); err != nil {
		return Cached{}, fault.Wrap(fault.StoreCorrupt, err, "event %d names no earlier result: %v", e.Seq, err)
	}
	return c, nil
}
