// SPDX-License-Identifier: Apache-2.0

package journal

import "encoding/json"

// The phases of moderation and of contracts (X168, X172).
const (
	InputPhase  = "input"
	OutputPhase = "output"
)

// A Verdict is what moderators have said of the input or the output of an attempt.
type Verdict struct {
	Phase   string `json:"-"` // the text of its event
	Flagged bool   `json:"-"` // the kind of its event
	// By are the moderators that have passed it, or the one that has flagged it.
	By         []string `json:"by,omitempty"`
	Categories []string `json:"categories,omitempty"` // what it was flagged for
	Reason     string   `json:"reason,omitempty"`
	// Decision is what a reviewer has done with what was flagged: approved or edited.
	Decision string `json:"decision,omitempty"`
	// Review says that people decide on what was flagged.
	Review bool `json:"-"` // the flag of its event
}

// The bounds of a verdict as an event has it.
const (
	maxVerdictNames  = 32
	maxVerdictName   = 100
	maxVerdictReason = 500
)

// Event returns the event that records a verdict on an attempt.
func (v *Verdict) Event(attempt uint32) Event {
	kind := EvModerationPassed
	if v.Flagged {
		kind = EvModerationFlagged
	}
	out := Verdict{By: shortNames(v.By), Categories: shortNames(v.Categories), Reason: v.Reason, Decision: validPrefix(v.Decision, maxVerdictName)}
	if len(out.Reason) > maxVerdictReason {
		out.Reason = validPrefix(out.Reason, maxVerdictReason)
	}
	data, err := json.Marshal(out)
	if err != nil {
		data = []byte("{}") // not possible: all of it is text
	}
	ev := Event{Kind: kind, Attempt: attempt, Text: v.Phase, Data: data}
	if v.Flagged && v.Review {
		ev.Flag = 1
	}
	return ev
}

func shortNames(names []string) []string {
	out := make([]string, 0, min(len(names), maxVerdictNames))
	for _, name := range names[:min(len(names), maxVerdictNames)] {
		out = append(out, validPrefix(name, maxVerdictName))
	}
	return out
}

// validPrefix returns at most n bytes of a text, whole characters only.
func validPrefix(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xC0 == 0x80 {
		n--
	}
	return text[:n]
}

// ModerationVerdict is the verdict that an event records (EvModerationPassed,
// EvModerationFlagged).
func (e *Event) ModerationVerdict() Verdict {
	var v Verdict
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &v) != nil {
		v = Verdict{}
	}
	v.Phase, v.Flagged = e.Text, e.Kind == EvModerationFlagged
	v.Review = v.Flagged && e.Flag&1 != 0
	return v
}
