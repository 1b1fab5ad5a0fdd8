// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"slices"

	"github.com/roux-engine/roux/fault"
)

// EventKind is what happened. Its numbers are journal format: they are only added, and
// how a published kind is applied never changes; a new meaning is a new kind. Several
// kinds may share a public name ([EventKind.Name]).
type EventKind uint8

// The kinds. The comment names the fields in use besides Seq, At and Ref.
const (
	EvRunStarted   EventKind = 1  // Data: Start as JSON
	EvRunStatus    EventKind = 2  // Flag: new RunStatus; N: the previous one
	EvRunEnding    EventKind = 3  // the verdict is fixed: Flag RunStatus; Code, Text; N: first failed step or -1
	EvRunCompleted EventKind = 4  // Data: outputs; N: cost; Flag: 1 = has_failures, Text: failed steps by id, with commas
	EvRunFailed    EventKind = 5  // Code, Text; N: first failed step or -1; Flag: as above
	EvRunCancelled EventKind = 6  // Text: reason; Flag: as above
	EvRunExpired   EventKind = 7  // Text; Flag: as above
	EvRunRecovered EventKind = 8  // N: interrupted attempts
	EvRunSignalled EventKind = 9  // Text: name; Data: payload
	EvRunContract  EventKind = 11 // Text: phase; Data: JSON array of violations of outputSchema
	EvRunRetried   EventKind = 10 // N: new generation; Text: from step; Data: edited input fields
	EvRunLimits    EventKind = 12 // Data: the run's limits from here on, as JSON; after EvRunRetried

	// These move credits of the account; the entries are in the same commit.
	EvCreditsReserved EventKind = 13 // N: whole credits held for this generation; M: the estimate of what it runs
	EvCreditsExtended EventKind = 14 // N: whole credits added to what is held
	EvCreditsSettled  EventKind = 15 // N: whole credits that the generation pays; M: those released; just before its end

	EvRunPaused   EventKind = 16 // Text: reason; no attempt begins until EvRunUnpaused or the end
	EvRunUnpaused EventKind = 17 // Text: why, if no user asked for it

	EvRunExtended EventKind = 18 // of a child run: Flag Resource; N: added to its share

	EvCreditsEstimated EventKind = 19 // M: a new estimate in whole credits, because names in the formula have got values

	EvNodeReady        EventKind = 20 // dependencies settled, but its wave has not begun
	EvNodeQueued       EventKind = 21 // waits for an attempt
	EvNodeBlocked      EventKind = 22 // Text: reason; Flag 1 = the account has too few credits
	EvNodeStarted      EventKind = 23 // Attempt: an attempt was granted and will be dispatched; Unknown: one before it with the same effect key may have had its effect
	EvNodeOpened       EventKind = 24 // condition: Flag Taken; parallel: N branches; loop: N items or -1, Data inline list or Text file hash
	EvNodeItems        EventKind = 25 // loop: N from, M count, Data JSON array, Flag 1 = more follow
	EvNodeIteration    EventKind = 26 // loop: N index of the item whose scope opens
	EvNodeProgress     EventKind = 27 // N: parts per million; Text
	EvNodeLog          EventKind = 28 // Code: level; Text
	EvNodeDelta        EventKind = 29 // N: deltaIndex; Text
	EvNodePreview      EventKind = 30 // Data
	EvNodeWaiting      EventKind = 31 // N: due or 0; Text: signal
	EvNodeRetried      EventKind = 32 // Attempt: the one that failed; Code, Text; Unknown: its effect may have happened; N: due; M: delay in ms; Hash
	EvNodeLost         EventKind = 33 // Attempt: the one that was lost; queued again; Flag 1, Text: handed back by a clean stop, which does not count
	EvNodeFallback     EventKind = 34 // Attempt: the one that failed last; Code, Text: why; Unknown; the fallback scope opens; Hash
	EvNodeCompleted    EventKind = 35 // Data: output, or Flag 1 = the output of its inner scope, 2 = that of EvNodeCached; N: cost; M: duration in µs; Hash
	EvNodeFailed       EventKind = 36 // Code, Text; Unknown; Flag: 1 = handled; Attempt; M: duration in µs; Hash
	EvNodeSkipped      EventKind = 37 // Flag: Reason; ByOnError: Code, Text, Unknown, Attempt, Hash
	EvNodeCancelled    EventKind = 38 // Flag: Reason; Attempt, when one was dispatched; M: duration in µs
	EvNodeInvalidated  EventKind = 39 // Flag: Status before; N: 1 = reopened and keeps its scopes, 2 = its child run does not go on; M: event of the value that its name has again, 0 = none; part of a retry
	EvNodeIgnored      EventKind = 40 // Flag: Source; Attempt
	EvNodeCompensated  EventKind = 41 // Flag: 1 = failed; Code, Text
	EvContract         EventKind = 42 // Text: phase; Data: JSON array of violations; Attempt
	EvNodeCompensating EventKind = 43 // the step's compensation scope opens
	EvNodeAborting     EventKind = 44 // Code, Text: the composite ends early; its scopes are swept first; Flag 1 = a failed attempt, which may be retried
	EvNodeCharged      EventKind = 45 // Attempt; N: millionths of a credit that it cost; Flag 1 = recorded, not charged: it did not complete its step, or compensates one

	// A step that runs a recipe; the run that it starts is its attempt.
	EvChildStarted  EventKind = 46 // Attempt; Text: id of the child run; Data: its Share as JSON; Hash; Flag 1 = it has ended before and goes on
	EvChildExtended EventKind = 47 // Attempt; Flag Resource; N: added to its share
	EvChildEnded    EventKind = 48 // Attempt; Flag RunStatus; N: millionths of a credit that it costs; M: steps it began; Code, Text: why; Data: output

	EvNodeSubmitted EventKind = 49 // Attempt: it, or the remote worker that had its task, has given the work to an outside service and goes on as a Job; Text: id of the job; Data: provider and handle as JSON; N: when it expires; Hash

	// What moderators have said of an attempt of a step with a gate (X168).
	EvModerationPassed  EventKind = 50 // Attempt; Text: phase; Data: Verdict as JSON
	EvModerationFlagged EventKind = 52 // Attempt; Text: phase; Data: Verdict as JSON; Flag 1 = people decide
	EvRunResumed        EventKind = 53 // of a child run, after EvRunRetried: it goes on as another attempt of the step that started it: Attempt, M: generation of that step; Data: the run's Share as JSON; N: millionths of a credit that earlier attempts have paid for
	EvNodeCached        EventKind = 51 // Attempt: it has the result of an earlier one and calls nothing, and completes with the next events; Text: key of that result; Data: whose it is, as JSON

	EvNodeRound EventKind = 54 // loop with rounds: N iteration that was looked at, -1 = none; Data: what the loop has accumulated, if that has changed; Flag 1 = no further iteration opens

	EvRunPinned EventKind = 55 // of a root run: a step of its tree has an expression for which recipe it runs, and from here on what that gave stands for one; Text: what it gave; Data: Tree as JSON
)

// names maps kinds to their published names, the one enum of X178.
var names = [...]string{
	EvRunStarted:       "run.started",
	EvRunStatus:        "run.status.changed",
	EvRunEnding:        "run.status.changed",
	EvRunCompleted:     "run.completed",
	EvRunFailed:        "run.failed",
	EvRunCancelled:     "run.cancelled",
	EvRunExpired:       "run.timed_out",
	EvRunRecovered:     "run.recovered",
	EvRunSignalled:     "run.signalled",
	EvRunContract:      "contract.violated",
	EvRunRetried:       "run.retried",
	EvRunLimits:        "run.limits.raised",
	EvCreditsReserved:  "credits.reserved",
	EvCreditsExtended:  "credits.extended",
	EvCreditsSettled:   "credits.settled",
	EvRunPaused:        "run.paused",
	EvRunUnpaused:      "run.unpaused",
	EvRunExtended:      "run.extended",
	EvRunResumed:       "run.resumed",
	EvRunPinned:        "run.pinned",
	EvCreditsEstimated: "credits.estimated",
	EvNodeReady:        "node.ready",
	EvNodeQueued:       "node.queued",
	EvNodeBlocked:      "node.blocked",
	EvNodeStarted:      "node.started",
	EvNodeOpened:       "node.started",
	EvNodeItems:        "node.progress",
	EvNodeIteration:    "node.progress",
	EvNodeProgress:     "node.progress",
	EvNodeLog:          "node.log",
	EvNodeDelta:        "node.stream.delta",
	EvNodePreview:      "node.preview",
	EvNodeWaiting:      "node.waiting",
	EvNodeRetried:      "node.retried",
	EvNodeLost:         "node.retried",
	EvNodeFallback:     "node.retried",
	EvNodeCompleted:    "node.completed",
	EvNodeFailed:       "node.failed", // node.timed_out when the cause is a timeout
	EvNodeSkipped:      "node.skipped",
	EvNodeCancelled:    "node.cancelled",
	EvNodeInvalidated:  "node.invalidated",
	EvNodeIgnored:      "node.ignored",
	EvNodeCompensated:  "node.compensated",
	EvContract:         "contract.violated",
	EvNodeCompensating: "node.progress",
	EvNodeAborting:     "node.progress",
	EvNodeCharged:      "node.charged",
	EvChildStarted:     "run.child_started",
	EvChildExtended:    "run.child_extended",
	EvChildEnded:       "run.child_ended",
	EvNodeSubmitted:    "node.waiting",

	EvModerationPassed:  "moderation.passed",
	EvModerationFlagged: "moderation.flagged",
	EvNodeCached:        "node.cached",

	EvNodeRound: "node.progress",
}

// An Event is one thing that happened to a run. Path, Text and Data may share
// memory with the journal bytes they were decoded from.
type Event struct {
	Seq     uint64 // 1, 2, 3 … per run
	At      int64  // UTC µs; equal for all events of one Decide
	Kind    EventKind
	Flag    uint8
	Unknown bool  // an effect may have happened: see the kinds, and OutcomeUnknown
	Step    int32 // plan-wide index; -1 for events of the run
	Path    Path  // scope of the step
	Attempt uint32
	N, M    int64
	Code    fault.Code
	Text    string
	Data    []byte // JSON
	Hash    []byte // SHA-256 of the attempt's rendered input, 32 bytes
}

// Ref is the step instance the event is about.
func (e *Event) Ref() Ref { return Ref{Path: e.Path, Step: e.Step} }

// Name is the published name of the event's type (X175–X177).
func (e *Event) Name() string {
	if e.Kind == EvNodeFailed && fault.CauseOf(e.Code) == fault.CauseTimeout {
		return "node.timed_out"
	}
	return e.Kind.Name()
}

// Name is the published name of the kind. For some kinds the name of an event depends
// on its contents ([Event.Name]).
func (k EventKind) Name() string {
	if !k.Known() {
		return "unknown"
	}
	return names[k]
}

// Types lists the published names, each once, sorted.
func Types() []string {
	list := []string{"node.timed_out"}
	for _, name := range names {
		if name != "" {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// Known reports whether there is such a kind.
func (k EventKind) Known() bool { return int(k) < len(names) && names[k] != "" }

// Kinds lists the kinds of events.
func Kinds() (all []EventKind) {
	for k := range EventKind(len(names)) {
		if k.Known() {
			all = append(all, k)
		}
	}
	return all
}

// A Status is the status of a run or of a step, as stored.
type Status uint8

// The statuses of steps. The numbers are journal and snapshot format.
const (
	Pending Status = iota
	Blocked
	Queued
	Running
	Waiting
	Retrying
	Completed
	StepFailed
	Skipped
	Cancelled
	Invalidated
)

var statusNames = [...]string{"pending", "blocked", "queued", "running", "waiting", "retrying",
	"completed", "failed", "skipped", "cancelled", "invalidated"}

func (st Status) String() string { return statusNames[st] }

// Known reports whether there is such a status.
func (st Status) Known() bool { return int(st) < len(statusNames) }

// Begun reports whether the step has begun and has not settled.
func (st Status) Begun() bool { return st >= Blocked && st <= Retrying }

// Settled reports whether the status is final for its generation.
func (st Status) Settled() bool { return st >= Completed && st <= Cancelled }

// A RunStatus is the status of a run (R2).
type RunStatus uint8

// The run statuses. The numbers are journal and snapshot format.
const (
	RunPending RunStatus = iota
	RunQueued
	RunDispatching
	RunRunning
	RunPreview
	RunCompleted
	RunFailed
	RunCancelled
	RunExpired
)

var runStatusNames = [...]string{"pending", "queued", "dispatching", "running", "preview",
	"completed", "failed", "cancelled", "expired"}

func (s RunStatus) String() string { return runStatusNames[s] }

// Known reports whether there is such a status.
func (s RunStatus) Known() bool { return int(s) < len(runStatusNames) }

// Terminal reports whether the run has ended, in its generation.
func (s RunStatus) Terminal() bool { return s >= RunCompleted }

// A Reason is why a step was skipped or cancelled.
type Reason uint8

// The reasons (R4). The numbers are journal format.
const (
	ByCondition Reason = iota + 1
	BranchNotTaken
	ParentFailure
	BranchLost
	ByOnError
	RunEnded
	ByCancel // the run was cancelled or expired
)

var reasonNames = [...]string{"", "condition", "branch_not_taken", "parent_failure", "branch_lost",
	"on_error", "run_ended", "cancelled"}

func (r Reason) String() string { return reasonNames[r] }

// Source is where a result came from. The first late result of each source is recorded
// as node.ignored.
type Source uint8

// The sources.
const (
	FromWorker Source = iota
	FromWebhook
	FromPoll
	FromStream // late, it counts as one of FromPoll
)

// NotTaken reports whether the event is about a step on the side of a condition that
// was not taken. Such steps have no scope; the event is for readers and does not
// change the state.
func (e *Event) NotTaken() bool {
	return e.Kind == EvNodeSkipped && Reason(e.Flag) == BranchNotTaken
}

// Ends reports whether an event of the kind ends its run, until a retry opens another
// generation.
func (k EventKind) Ends() bool { return k >= EvRunCompleted && k <= EvRunExpired }

// EndStatus is the status of a run that an event of this kind ends; RunPending when
// the kind does not end a run.
func (k EventKind) EndStatus() RunStatus {
	switch k {
	case EvRunCompleted:
		return RunCompleted
	case EvRunFailed:
		return RunFailed
	case EvRunCancelled:
		return RunCancelled
	case EvRunExpired:
		return RunExpired
	}
	return RunPending
}
