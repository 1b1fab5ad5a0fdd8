// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Redacted replaces a text that --redact removes.
const Redacted = "[redacted]"

// Redact returns an event without the texts that passed through the run. It keeps what
// the state depends on: kinds, numbers, the form of values, names of signals.
func Redact(ev *journal.Event) (*journal.Event, error) {
	out := *ev
	switch ev.Kind {
	case journal.EvRunPinned:
		return ev, nil // names of recipes and plans, as in the start
	case journal.EvRunSignalled, journal.EvNodeWaiting, journal.EvRunRetried, journal.EvNodeOpened, journal.EvContract,
		journal.EvRunContract, journal.EvNodeBlocked, journal.EvRunCompleted, journal.EvChildStarted,
		journal.EvModerationPassed, journal.EvModerationFlagged, journal.EvNodeCached:
		// Text is a name from the recipe or from Roux.
	default:
		if ev.Text != "" {
			out.Text = Redacted
		}
	}
	if len(ev.Data) == 0 {
		return &out, nil
	}
	var err error
	if ev.Kind == journal.EvRunStarted {
		out.Data, err = redactedStart(ev.Data)
	} else {
		var v any
		if v, err = jsonx.Decode(ev.Data, jsonx.Limits{Bytes: len(ev.Data) + 1, Depth: journal.InlineLimits.Depth}); err == nil {
			out.Data, err = jsonx.Canonical(hide(v))
		}
	}
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "event %d holds a value that cannot be read: %v", ev.Seq, err)
	}
	return &out, nil
}

// redactedStart hides the user's input and keeps what the state depends on.
func redactedStart(data []byte) ([]byte, error) {
	var st journal.Start
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, err
	}
	for k, v := range st.Parameters {
		st.Parameters[k] = hide(v)
	}
	if len(st.Inherited) > 0 {
		v, err := jsonx.Decode(st.Inherited, journal.InlineLimits)
		if err != nil {
			return nil, err
		}
		if st.Inherited, err = jsonx.Canonical(hide(v)); err != nil {
			return nil, err
		}
	}
	for k := range st.Labels {
		st.Labels[k] = Redacted
	}
	for i := range st.Files {
		st.Files[i].Name, st.Files[i].Extended = Redacted, nil
	}
	if st.Correlation != st.Run {
		st.Correlation = Redacted
	}
	return json.Marshal(st)
}

// hide replaces every text in a value.
func hide(v any) any {
	switch v := v.(type) {
	case string:
		return Redacted
	case []any:
		for i := range v {
			v[i] = hide(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = hide(v[k])
		}
	}
	return v
}
