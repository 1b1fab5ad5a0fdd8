// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/view"
)

// eventLine formats an event as one line without control codes.
func (a *app) eventLine(p *plan.Plan, ev *journal.Event) string {
	at := view.UTC(ev.At).Format("15:04:05.000")
	if a.times == timeISO {
		at = view.Stamp(ev.At)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%6d  %s  %-18s", ev.Seq, at, ev.Name())
	if ev.Step >= 0 {
		b.WriteString("  " + journal.StepPath(p, ev.Ref()))
	}
	if text := view.EventText(p, ev); text != "" {
		b.WriteString("  " + view.OneLine(text))
	}
	return strings.TrimRight(b.String(), " ")
}
