// SPDX-License-Identifier: Apache-2.0

package compile

import "github.com/roux-engine/roux/internal/plan"

// markLive marks the steps whose output somebody may still read after they have
// settled; a run forgets all others. A mark too few would lose data, so
// whatever is in doubt is kept.
func (c *compiler) markLive() {
	for i := range c.p.Steps {
		st := &c.p.Steps[i]
		st.Keep = c.outputRead[int32(i)]
		if st.Slot != plan.None {
			f := c.frameOf(st.Graph)
			// Without outputs the result is every binding of the root (R41).
			st.Keep = st.Keep || c.slotRead[graphSlot{f, st.Slot}] || f == 0 && len(c.p.Outputs) == 0
		}
	}
	for g := range c.p.Graphs {
		gr := &c.p.Graphs[g]
		if gr.Out == plan.None || c.p.Steps[gr.Out].Kind == plan.Fail || gr.Role == plan.Compensation || gr.Role == plan.Root && (len(c.p.Outputs) > 0 || c.p.OutputSchema == nil) {
			continue
		}
		// The output of an inner scope becomes its owner's when the scope ends,
		// which may be after the step that gives it; that of the root's last
		// step is where a result without outputs gets the outputSchema's fields.
		c.p.Steps[gr.Out].Keep = true
	}
}
