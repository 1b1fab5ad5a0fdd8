// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	"github.com/roux-engine/roux/internal/journal"
)

// DeltaBytes is how much text a joined delta holds, unless one delta alone is larger.
const DeltaBytes = 4 << 10

// A Coalescer joins the deltas of a step for a reader who wants fewer frames: those that
// follow one another without another event between them, up to 4 KiB.
//
// Each delta is already what an action has streamed in up to 100 ms (package worker). A
// reader who catches up gets minutes of a slow text in one frame; for one who has caught up
// a delta is flushed at once, because waiting would only delay it.
//
// A joined frame has the number and the time of its last event, so that a reader resumes
// after it as after any event and misses nothing and gets nothing twice. Its payload has the
// deltaIndex of the last delta and, in firstDeltaIndex, that of the first; every frame that
// a Coalescer returns has both. For that reason it never joins across an event of another
// step: then an event in between would have a lower number than the frame.
type Coalescer struct {
	held  journal.Envelope
	step  journal.Ref
	try   uint32
	text  strings.Builder
	first int64
	any   bool
}

// Add takes the next event of a run, with its public form, and returns the frames to send,
// in order.
func (c *Coalescer) Add(ev *journal.Event, env journal.Envelope) (frames []journal.Envelope) {
	if ev.Kind != journal.EvNodeDelta {
		return append(c.Flush(), env)
	}
	if c.any && (ev.Step != c.step.Step || ev.Path != c.step.Path || ev.Attempt != c.try || c.text.Len()+len(ev.Text) > DeltaBytes) {
		frames = c.Flush()
	}
	parent := env.Correlation
	if c.any {
		parent = c.held.Correlation // what caused the first
	} else {
		c.any, c.first, c.try = true, ev.DeltaIndex(), ev.Attempt
		c.step = journal.Ref{Path: journal.Path(strings.Clone(string(ev.Path))), Step: ev.Step}
	}
	c.held, c.held.Correlation = env, parent
	c.text.WriteString(ev.Text)
	return frames
}

// Holds reports whether a frame is held.
func (c *Coalescer) Holds() bool { return c.any }

// Flush returns the frame that is held, if there is one.
func (c *Coalescer) Flush() []journal.Envelope {
	if !c.any {
		return nil
	}
	out := c.held
	out.Payload = make(map[string]any, len(c.held.Payload)+1)
	for name, value := range c.held.Payload {
		out.Payload[name] = value
	}
	out.Payload["text"], out.Payload["firstDeltaIndex"] = c.text.String(), c.first
	*c = Coalescer{}
	return []journal.Envelope{out}
}
