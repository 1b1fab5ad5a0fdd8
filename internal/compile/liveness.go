// SPDX-License-Identifier: Apache-2.0

package compile

import "github.com/roux-engine/roux/internal/plan"

// markLive marks the steps whose output may still be read after they have settled; a run
// drops all other outputs. A missing mark would lose data, so it marks a step in case of
// doubt.
func (c *compiler) markLive() {
	for i := range c.p.Steps {
		st := &c.p.Steps[i]
		st.Keep = c.outputRead[int32(i)] || c.p.OfSteps && st.Graph == 0
		if st.Slot != plan.None {
			f := c.frameOf(st.Graph)
			// Without outputs the result is every binding of the root (R41).
			st.Keep = st.Keep || c.slotRead[graphSlot{f, st.Slot}] || f == 0 && c.resultHasBindings()
		}
	}
	for g := range c.p.Graphs {
		gr := &c.p.Graphs[g]
		if gr.Out == plan.None || c.p.Steps[gr.Out].Kind == plan.Fail || gr.Role == plan.Compensation || gr.Role == plan.Root && (len(c.p.Outputs) > 0 || c.p.OutputSchema == nil) {
			continue
		}
		// The output of an inner scope becomes that of its owner when the scope ends,
		// which may be after the step that produced it. In the root, the output of the
		// last step is the source of a result without outputs (outputSchema).
		c.p.Steps[gr.Out].Keep = true
	}
}

// resultHasBindings reports whether the result of a run may have what the steps bind.
func (c *compiler) resultHasBindings() bool { return len(c.p.Outputs) == 0 && !c.p.OfSteps }
