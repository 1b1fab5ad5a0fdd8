// SPDX-License-Identifier: Apache-2.0

package journal

import "fmt"

// A Change is a cell of the table of transitions of a step instance, or of the run;
// for the run From and To are numbers of a RunStatus.
type Change struct {
	Event    EventKind
	From, To Status
}

func (c Change) String() string {
	ev := Event{Kind: c.Event}
	if c.Event < EvNodeReady || c.Event == EvRunResumed {
		return fmt.Sprintf("%s (%d): %s → %s", ev.Name(), c.Event, RunStatus(c.From), RunStatus(c.To))
	}
	return fmt.Sprintf("%s (%d): %s → %s", ev.Name(), c.Event, c.From, c.To)
}

// changes is that table, by event: from which statuses the event may occur, and the
// status afterwards. The listed events change the state of a run; an event from any
// other status is a fault (X76). The checker of every test and simulation applies the
// table to journals, and the simulator must reach every cell (Hits). So the table has
// no cell too few and none too many.
var changes = [...]struct {
	event EventKind
	to    Status // same = the status stays
	from  []Status
}{
	{EvNodeReady, same, []Status{Pending, Invalidated}},
	{EvNodeQueued, Queued, []Status{Pending, Invalidated, Retrying}},
	{EvNodeBlocked, Blocked, []Status{Queued, Blocked}},
	{EvNodeStarted, Running, []Status{Queued, Blocked}},
	{EvNodeOpened, Running, []Status{Pending, Invalidated}},
	{EvNodeItems, same, []Status{Running}},
	{EvNodeIteration, same, []Status{Running}},
	{EvNodeRound, same, []Status{Running}},
	{EvNodeProgress, same, []Status{Running, Waiting}},
	{EvNodeLog, same, []Status{Running, Waiting}},
	{EvNodeDelta, same, []Status{Running, Waiting}},
	{EvNodePreview, same, []Status{Running, Waiting}},
	{EvNodeWaiting, Waiting, []Status{Pending, Invalidated}},
	{EvNodeRetried, Retrying, []Status{Running, Waiting}},
	{EvNodeLost, Queued, []Status{Running}},
	// A step that waits for its next try does not time out: either that try comes
	// before total_timeout, or there is none.
	{EvNodeFallback, Running, []Status{Pending, Invalidated, Blocked, Queued, Running, Waiting}},
	{EvNodeAborting, same, []Status{Running}},
	{EvNodeCharged, same, []Status{Running, Waiting}},
	{EvNodeCompleted, Completed, []Status{Pending, Invalidated, Running, Waiting}},
	{EvNodeFailed, StepFailed, []Status{Pending, Invalidated, Blocked, Queued, Running, Waiting}},
	{EvNodeSkipped, Skipped, []Status{Pending, Invalidated, Blocked, Queued, Running, Waiting}},
	{EvNodeCancelled, Cancelled, []Status{Pending, Invalidated, Blocked, Queued, Running, Waiting, Retrying}},
	{EvNodeInvalidated, Invalidated, []Status{Completed}},
	{EvNodeInvalidated, Pending, []Status{StepFailed, Skipped, Cancelled}},
	{EvNodeInvalidated, Running, []Status{StepFailed, Cancelled}}, // reopened, keeping its scopes
	{EvNodeIgnored, same, []Status{Pending, Invalidated, Blocked, Queued, Running, Waiting, Retrying, Completed, StepFailed, Skipped, Cancelled}},
	{EvContract, same, []Status{Running, Waiting}},
	{EvModerationPassed, same, []Status{Running, Waiting}},
	{EvModerationFlagged, same, []Status{Running, Waiting}},
	{EvChildStarted, Running, []Status{Queued}},
	{EvChildExtended, same, []Status{Running}},
	{EvChildEnded, same, []Status{Running}},
	{EvNodeSubmitted, Waiting, []Status{Running, Waiting}}, // it waits for a task of a remote worker
	{EvNodeCached, same, []Status{Running}},
	{EvNodeCompensating, same, []Status{Completed}},
	{EvNodeCompensated, same, []Status{Completed}},
}

// runChanges is the table of the run's own events (X77, X78).
var runChanges = [...]struct {
	event EventKind
	to    RunStatus
	from  []RunStatus
}{
	{EvRunStarted, RunDispatching, []RunStatus{RunPending}},
	{EvRunRetried, RunDispatching, []RunStatus{RunCompleted, RunFailed, RunCancelled, RunExpired}},
	{EvRunResumed, RunDispatching, []RunStatus{RunDispatching}},
	{EvRunLimits, RunDispatching, []RunStatus{RunDispatching}},
	{EvCreditsReserved, RunDispatching, []RunStatus{RunDispatching}},
	{EvRunPaused, RunQueued, []RunStatus{RunQueued}},
	{EvRunPaused, RunDispatching, []RunStatus{RunDispatching}},
	{EvRunPaused, RunRunning, []RunStatus{RunRunning}},
	{EvRunPaused, RunPreview, []RunStatus{RunPreview}},
	{EvRunUnpaused, RunQueued, []RunStatus{RunQueued}},
	{EvRunUnpaused, RunDispatching, []RunStatus{RunDispatching}},
	{EvRunUnpaused, RunRunning, []RunStatus{RunRunning}},
	{EvRunUnpaused, RunPreview, []RunStatus{RunPreview}},
	{EvRunStatus, RunQueued, []RunStatus{RunDispatching}},
	{EvRunStatus, RunDispatching, []RunStatus{RunQueued}},
	{EvRunStatus, RunRunning, []RunStatus{RunDispatching, RunPreview}},
	{EvRunStatus, RunPreview, []RunStatus{RunRunning}},
	{EvRunEnding, RunRunning, []RunStatus{RunQueued, RunDispatching, RunRunning, RunPreview}},
	{EvRunCompleted, RunCompleted, []RunStatus{RunDispatching, RunRunning, RunPreview}},
	{EvRunFailed, RunFailed, []RunStatus{RunDispatching, RunRunning, RunPreview}},
	// A run that is cancelled or expires is running until this event; its compensations
	// may give a preview.
	{EvRunCancelled, RunCancelled, []RunStatus{RunRunning, RunPreview}},
	{EvRunExpired, RunExpired, []RunStatus{RunRunning, RunPreview}},
}

// same means, in the table of changes, that the event leaves the status unchanged.
const same = Invalidated + 1

// Changes lists the cells of the table.
func Changes() (all []Change) {
	for _, row := range changes {
		for _, from := range row.from {
			to := row.to
			if to == same {
				to = from
			}
			all = append(all, Change{row.event, from, to})
		}
	}
	for _, row := range runChanges {
		for _, from := range row.from {
			all = append(all, Change{row.event, Status(from), Status(row.to)})
		}
	}
	return all
}

// eventKinds is one more than the largest event kind.
const eventKinds = int(EvRunPinned) + 1

// allowed is the table by index.
var allowed = func() (t [eventKinds][same][same]bool) {
	for _, c := range Changes() {
		t[c.Event][c.From][c.To] = true
	}
	return t
}()

// Hits counts how often each cell of the table occurred.
type Hits [eventKinds][same][same]uint64

// Of is how often a cell occurred.
func (h *Hits) Of(c Change) uint64 { return h[c.Event][c.From][c.To] }

// Add adds the counts of other.
func (h *Hits) Add(other *Hits) {
	for k := range other {
		for from := range other[k] {
			for to, n := range other[k][from] {
				h[k][from][to] += n
			}
		}
	}
}

// Missing lists the cells that never occurred.
func (h *Hits) Missing() (missing []Change) {
	for _, c := range Changes() {
		if h.Of(c) == 0 {
			missing = append(missing, c)
		}
	}
	return missing
}

// Met is how many of the cells occurred.
func (h *Hits) Met() (met, all int) {
	all = len(Changes())
	return all - len(h.Missing()), all
}

// Rarest describes the cell that occurred least, with its count.
func (h *Hits) Rarest() string {
	cells := Changes()
	least := cells[0]
	for _, c := range cells {
		if h.Of(c) < h.Of(least) {
			least = c
		}
	}
	return fmt.Sprintf("%s, %d times", least, h.Of(least))
}

// results is the status that an event of each kind gives its step; same = it stays.
var results = func() (t [eventKinds]Status) {
	for i := range t {
		t[i] = same
	}
	for _, row := range changes {
		t[row.event] = row.to
	}
	return t
}()

// StepStatus is the status that the event gives its step; ok is false if the status stays
// as it is.
func (e *Event) StepStatus() (status Status, ok bool) {
	if e.Kind == EvNodeInvalidated {
		switch {
		case e.Reopened():
			return Running, true
		case e.Before() == Completed:
			return Invalidated, true
		}
		return Pending, true
	}
	if !e.Kind.Known() || results[e.Kind] == same {
		return 0, false
	}
	return results[e.Kind], true
}
