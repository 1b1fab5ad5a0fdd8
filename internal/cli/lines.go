// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// eventLine is one event in one line without control codes.
func (a *app) eventLine(p *plan.Plan, ev *journal.Event) string {
	at := utc(ev.At).Format("15:04:05.000")
	if a.times == timeISO {
		at = stamp(ev.At)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%6d  %s  %-18s", ev.Seq, at, ev.Name())
	if ev.Step >= 0 {
		b.WriteString("  " + journal.StepPath(p, ev.Ref()))
	}
	if text := eventText(p, ev); text != "" {
		b.WriteString("  " + oneLine(text))
	}
	return strings.TrimRight(b.String(), " ")
}

// eventText says what an event adds to its name.
func eventText(p *plan.Plan, ev *journal.Event) string {
	switch ev.Kind {
	case journal.EvRunStarted:
		return ""
	case journal.EvRunStatus:
		return fmt.Sprintf("%s → %s", ev.Previous(), ev.Status())
	case journal.EvRunEnding:
		return "ending; the run will be " + ev.Verdict().String()
	case journal.EvRunCompleted:
		if ev.HasFailures() {
			return "with failures that were handled"
		}
		return ""
	case journal.EvRunFailed, journal.EvRunCancelled, journal.EvRunExpired:
		return join(": ", string(ev.Code), ev.Text)
	case journal.EvRunRecovered:
		return count(int(ev.Interrupted()), "attempt") + " interrupted"
	case journal.EvRunSignalled:
		return ev.Text
	case journal.EvRunRetried:
		return join(" ", fmt.Sprintf("generation %d", ev.Generation()), from(ev.Text))
	case journal.EvRunLimits:
		return limitsText(ev.Data)
	case journal.EvNodeBlocked:
		return ev.Text
	case journal.EvNodeStarted:
		if ev.Attempt > 1 {
			return fmt.Sprintf("try %d", ev.Attempt)
		}
	case journal.EvNodeOpened:
		return openedText(p, ev)
	case journal.EvNodeItems:
		return fmt.Sprintf("items from %d", ev.From())
	case journal.EvNodeIteration:
		return fmt.Sprintf("[%d]", ev.Item())
	case journal.EvNodeProgress:
		return join(" ", fmt.Sprintf("%d %%", ev.Percent()), ev.Text)
	case journal.EvNodeLog:
		return join(": ", string(ev.Code), ev.Text)
	case journal.EvNodeDelta:
		return ev.Text
	case journal.EvNodeWaiting:
		return waitingText(ev.Text, ev.Due())
	case journal.EvNodeRetried:
		return fmt.Sprintf("%s: %s; again in %s", ev.Code, ev.Text, took(ev.Delay()))
	case journal.EvNodeLost:
		return fmt.Sprintf("try %d was lost", ev.Attempt)
	case journal.EvNodeFallback:
		return fmt.Sprintf("%s: %s; the fallback runs", ev.Code, ev.Text)
	case journal.EvNodeCompleted:
		return join("  ", took(time.Duration(ev.Micros())*time.Microsecond), credits(ev.Cost()), brief(ev.Data))
	case journal.EvNodeFailed:
		text := fmt.Sprintf("%s: %s", ev.Code, ev.Text)
		if ev.Handled() {
			text += " (handled)"
		}
		return text
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		return join(": ", ev.Reason().String(), string(ev.Code), ev.Text)
	case journal.EvNodeInvalidated:
		return "was " + ev.Before().String()
	case journal.EvNodeCompensated:
		if !ev.Undone() {
			return fmt.Sprintf("failed: %s: %s", ev.Code, ev.Text)
		}
	case journal.EvNodeCompensating:
		return "compensating"
	case journal.EvNodeAborting:
		return join(": ", "ends early", string(ev.Code), ev.Text)
	case journal.EvContract, journal.EvRunContract:
		return join(": ", ev.Text, string(ev.Data))
	}
	return ""
}

func openedText(p *plan.Plan, ev *journal.Event) string {
	switch p.Steps[ev.Step].Kind {
	case plan.Condition:
		return sideText(ev.Side())
	case plan.Parallel:
		return fmt.Sprintf("%d branches", ev.Branches())
	case plan.Loop:
		if ev.Items() < 0 {
			return "items of a file"
		}
		return count(int(ev.Items()), "item")
	}
	return ""
}

// branchText is the side of a condition that was taken.
func sideText(side journal.Side) string {
	switch side {
	case journal.ThenSide:
		return "→ then"
	case journal.ElseSide:
		return "→ else"
	}
	return "→ nothing"
}

func waitingText(signal string, due int64) string {
	var parts []string
	if signal != "" {
		parts = append(parts, fmt.Sprintf("for signal %q", signal))
	}
	if due > 0 {
		parts = append(parts, "until "+stamp(due))
	}
	return strings.Join(parts, ", ")
}

func from(step string) string {
	if step == "" {
		return ""
	}
	return "from " + step
}

func credits(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d cr", n)
}

// join joins what is not empty.
func join(sep string, parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, sep)
}

// limitsText are the limits that a run has from an event on.
func limitsText(data []byte) string {
	var l plan.Limits
	if json.Unmarshal(data, &l) != nil {
		return ""
	}
	text := fmt.Sprintf("at most %d steps, %d items of a loop, %d MiB", l.TotalSteps, l.LoopItems, l.MemoryBytes>>20)
	if l.ExpressionCost > 0 {
		text += fmt.Sprintf(", %d for an expression", l.ExpressionCost)
	}
	return text
}
