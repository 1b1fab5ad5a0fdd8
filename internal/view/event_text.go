// SPDX-License-Identifier: Apache-2.0

package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// EventText is the text that is shown after an event's name.
func EventText(p *plan.Plan, ev *journal.Event) string {
	switch ev.Kind {
	case journal.EvRunStarted:
		return strippedText(ev.Data)
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
		return Join(": ", string(ev.Code), ev.Text)
	case journal.EvRunRecovered:
		return Count(int(ev.Interrupted()), "attempt") + " interrupted"
	case journal.EvRunSignalled, journal.EvRunPaused, journal.EvRunUnpaused:
		return ev.Text
	case journal.EvRunRetried:
		return Join(" ", fmt.Sprintf("generation %d", ev.Generation()), from(ev.Text))
	case journal.EvRunLimits:
		return limitsText(ev.Data)
	case journal.EvCreditsReserved:
		return fmt.Sprintf("%s for an estimate of %d", ledger.Credits(ev.Credits()), ev.Expected())
	case journal.EvCreditsExtended:
		return ledger.Credits(ev.Credits()) + " more"
	case journal.EvCreditsSettled:
		return fmt.Sprintf("%s paid, %d released", ledger.Credits(ev.Credits()), ev.Released())
	case journal.EvNodeBlocked:
		return ev.Text
	case journal.EvNodeStarted:
		return tryText(ev.Attempt)
	case journal.EvRunExtended, journal.EvChildExtended:
		return extendedText(ev)
	case journal.EvChildStarted, journal.EvRunResumed:
		return startedChildText(p, ev)
	case journal.EvRunPinned:
		return pinnedText(ev)
	case journal.EvChildEnded:
		return endedChildText(ev)
	case journal.EvNodeOpened:
		return openedText(p, ev)
	case journal.EvNodeItems, journal.EvNodeIteration, journal.EvNodeRound:
		return loopText(ev)
	case journal.EvNodeProgress:
		return Join(" ", fmt.Sprintf("%d %%", ev.Percent()), ev.Text)
	case journal.EvNodeLog:
		return Join(": ", string(ev.Code), ev.Text)
	case journal.EvNodeDelta:
		return ev.Text
	case journal.EvNodeWaiting:
		return waitingText(ev.Text, ev.Due())
	case journal.EvNodeSubmitted:
		return Join(", ", jobText(ev), waitingText("", jobDue(ev)))
	case journal.EvNodeRetried:
		return unknownText(ev, fmt.Sprintf("%s: %s; again in %s", ev.Code, ev.Text, Took(ev.Delay())))
	case journal.EvNodeLost:
		return fmt.Sprintf("try %d was lost", ev.Attempt)
	case journal.EvNodeFallback:
		return unknownText(ev, fmt.Sprintf("%s: %s; the fallback runs", ev.Code, ev.Text))
	case journal.EvNodeCompleted:
		return completedText(ev)
	case journal.EvNodeCached:
		return cachedText(ev)
	case journal.EvNodeCharged:
		if !ev.Charged() {
			return Credits(ev.Amount()) + ", not charged"
		}
		return Credits(ev.Amount())
	case journal.EvNodeFailed:
		text := unknownText(ev, fmt.Sprintf("%s: %s", ev.Code, ev.Text))
		if ev.Handled() {
			text += " (handled)"
		}
		return text
	case journal.EvNodeSkipped, journal.EvNodeCancelled:
		return Join(": ", ev.Reason().String(), string(ev.Code), ev.Text)
	case journal.EvNodeInvalidated:
		return "was " + ev.Before().String()
	case journal.EvNodeCompensated:
		if !ev.CompensationOK() {
			return fmt.Sprintf("failed: %s: %s", ev.Code, ev.Text)
		}
	case journal.EvNodeCompensating:
		return "compensating"
	case journal.EvNodeAborting:
		return Join(": ", "ends early", string(ev.Code), ev.Text)
	case journal.EvModerationPassed, journal.EvModerationFlagged:
		v := ev.ModerationVerdict()
		by := Join(" ", v.Decision, "by "+strings.Join(v.By, ", "))
		if v.Review {
			by += ", waits for a reviewer"
		}
		return Join(": ", v.Phase, strings.Join(v.Categories, ", "), v.Reason, by)
	case journal.EvContract, journal.EvRunContract:
		return Join(": ", ev.Text, string(ev.Data))
	}
	return ""
}

func completedText(ev *journal.Event) string {
	text := Join("  ", Took(time.Duration(ev.Micros())*time.Microsecond), Credits(ledger.Whole(ev.Cost())), Brief(ev.Data))
	if ev.Cached() {
		text = Join("  ", "cached", text)
	}
	return text
}

// cachedText names the earlier result that an attempt has.
func cachedText(ev *journal.Event) string {
	from, err := ev.CachedFrom()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("the result of %s in run %s, made at %s, key %s", from.Step, from.Run, Stamp(from.At), Cut(from.Key, 12))
}

// tryText names an attempt after the first.
func tryText(attempt uint32) string {
	if attempt < 2 {
		return ""
	}
	return fmt.Sprintf("try %d", attempt)
}

// loopText describes how a loop goes on: what it has read, which iteration opens, or what it has decided
// between two of them.
func loopText(ev *journal.Event) string {
	switch ev.Kind {
	case journal.EvNodeItems:
		return fmt.Sprintf("items from %d", ev.From())
	case journal.EvNodeIteration:
		return fmt.Sprintf("[%d]", ev.Item())
	}
	text, value, last := "", "", ""
	if ev.Item() >= 0 {
		text = fmt.Sprintf("[%d] has ended", ev.Item())
	}
	if len(ev.Data) > 0 {
		value = "accumulated " + Cut(OneLine(string(ev.Data)), 80)
	}
	if ev.Last() {
		last = "no further iteration"
	}
	return Join(", ", text, value, last)
}

// openedText describes the side, branches or items that a step opened.
func openedText(p *plan.Plan, ev *journal.Event) string {
	switch p.Steps[ev.Step].Kind {
	case plan.Condition:
		return sideText(ev.Side())
	case plan.Parallel:
		return fmt.Sprintf("%d branches", ev.Branches())
	case plan.Loop:
		switch st := &p.Steps[ev.Step]; {
		case st.Conditional():
			return fmt.Sprintf("at most %s", Count(int(st.Rounds.Max), "iteration"))
		case ev.Items() < 0:
			return "items of a file"
		}
		return Count(int(ev.Items()), "item")
	}
	return ""
}

// sideText is the side of a condition that was taken.
func sideText(side journal.Side) string {
	switch side {
	case journal.ThenSide:
		return "→ then"
	case journal.ElseSide:
		return "→ else"
	}
	return "→ nothing"
}

// jobText names the external job that a step waits for.
func jobText(ev *journal.Event) string {
	job, err := ev.Job()
	if err != nil {
		return "for a job"
	}
	if _, ok := job.Asked(); ok {
		return "for a person, " + job.ID
	}
	return fmt.Sprintf("for job %s of %s", job.ID, job.Provider)
}

// A Job is an external job that a step waits for.
type Job struct {
	Provider, ID string
	Since        int64 // UTC µs
	Person       bool  // it is a request for a person
}

func waitedJob(ev *journal.Event) *Job {
	job, err := ev.Job()
	if err != nil {
		return nil
	}
	_, person := job.Asked()
	return &Job{strings.Clone(job.Provider), strings.Clone(job.ID), ev.At, person}
}

// WaitsFor says what a waiting step waits for; "" = a time.
func (s *Step) WaitsFor() string {
	switch {
	case s.Status != "waiting":
		return ""
	case s.Job == nil && s.Note != "":
		return "the signal " + s.Note
	case s.Job == nil:
		return ""
	case s.Job.Person:
		return "a person since " + Stamp(s.Job.Since)
	}
	return fmt.Sprintf("job %s of %s since %s", s.Job.ID, s.Job.Provider, Stamp(s.Job.Since))
}

// jobDue is until when a step waits for its external job at most; 0 = until the run ends.
func jobDue(ev *journal.Event) int64 {
	if job, err := ev.Job(); err == nil {
		if asked, ok := job.Asked(); ok {
			return asked.Due
		}
	}
	return ev.Due()
}

// waitingText describes what a step waits for.
func waitingText(signal string, due int64) string {
	var parts []string
	if signal != "" {
		parts = append(parts, fmt.Sprintf("for signal %q", signal))
	}
	if due > 0 {
		parts = append(parts, "until "+UTC(due).Format(time.RFC3339)) // without milliseconds, because a card is narrow
	}
	return strings.Join(parts, ", ")
}

func from(step string) string {
	if step == "" {
		return ""
	}
	return "from " + step
}

// limitsText describes the limits that a run has from an event on.
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

// undoneText describes how a compensation ended.
func undoneText(ev *journal.Event) string {
	if ev.CompensationOK() {
		return "compensated"
	}
	return fmt.Sprintf("compensation failed: %s: %s", ev.Code, ev.Text)
}

// reasonText explains a reason of R4.
func reasonText(reason string) string {
	switch reason {
	case journal.ByCondition.String():
		return "its condition was false"
	case journal.BranchNotTaken.String():
		return "it is on the side that was not taken"
	case journal.ParentFailure.String():
		return "something it depends on failed"
	case journal.BranchLost.String():
		return "another branch decided first"
	case journal.ByOnError.String():
		return "it failed, and its onError says skip"
	case journal.RunEnded.String():
		return "the run ended before its turn"
	case journal.ByCancel.String():
		return "the run was cancelled or expired"
	}
	return reason
}

// failedStatus distinguishes a timeout from other failures. timed_out is a display
// status and not one of R4.
func failedStatus(code fault.Code) string {
	if fault.CauseOf(code) == fault.CauseTimeout {
		return "timed_out"
	}
	return "failed"
}

// unknownText adds to the text of a failure that the effect of the attempt may have happened, where
// its code does not say so.
func unknownText(ev *journal.Event, text string) string {
	if ev.Unknown {
		return text + "; its outcome is unknown"
	}
	return text
}

// strippedText says where something was removed from the input of a run before it began.
func strippedText(start []byte) string {
	if !bytes.Contains(start, []byte(`"stripped":`)) {
		return ""
	}
	st, err := journal.DecodeStart(start)
	if err != nil || st.Stripped == nil {
		return ""
	}
	shown := st.Stripped.Fields[:min(len(st.Stripped.Fields), 5)]
	text := "removed what a shell would expand from input" + strings.Join(shown, " input")
	if more := st.Stripped.Count - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return OneLine(text)
}
