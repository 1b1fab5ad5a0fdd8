// SPDX-License-Identifier: Apache-2.0

package schedule

// A State is how far a schedule has come.
type State struct {
	// After is the time of the last occurrence that was decided about, UTC µs.
	After int64 `json:"after"`
	// Queue are occurrences that are to be started, in this order.
	Queue []Occurrence `json:"queue,omitempty"`
}

// A Reason says why occurrences started no run.
type Reason string

// The reasons.
const (
	Missed     Reason = "missed"     // no server ran, and the policy does not make up for it
	Active     Reason = "active"     // the run before it was active
	Superseded Reason = "superseded" // a newer occurrence cancels the run before it
	QueueFull  Reason = "queue_full"
	Paused     Reason = "paused" // it waited when the schedule was paused
)

// Skipped are occurrences that follow each other and start no run.
type Skipped struct {
	First, Last Occurrence
	Count       int
	// More is true if there were others before them, which are not counted.
	More   bool
	Reason Reason
}

// Step decides about all occurrences of the schedule with an id that are due at a time: those
// that are to be started are appended to the queue, and the others are returned.
func (t *Table) Step(id string, s *State, now int64) (skipped []Skipped) {
	jitter := t.spec.Jitter.Microseconds()
	due, n, more := t.between(s.After, now-jitter, MaxQueue)
	// Those of the last moments may still wait for their delay.
	after := s.After
	if len(due) > 0 {
		after = due[len(due)-1].At
	}
	for o, ok := t.Next(max(after, now-jitter)); ok && t.Due(id, o) <= now; o, ok = t.Next(o.At) {
		due, n = append(due, o), n+1
	}
	if n == 0 {
		return nil
	}
	first, ok := t.Next(s.After)
	if more || !ok {
		first = due[0]
	}
	s.After = due[len(due)-1].At
	keep := t.keep(due, now)
	if dropped := n - len(keep); dropped > 0 {
		last := due[len(due)-1]
		if len(keep) < len(due) {
			last = due[len(due)-len(keep)-1]
		}
		skipped = append(skipped, Skipped{First: first, Last: last, Count: dropped, More: more, Reason: Missed})
	}
	room := MaxQueue - len(s.Queue)
	if over := keep[min(room, len(keep)):]; len(over) > 0 {
		skipped = append(skipped, Skipped{First: over[0], Last: over[len(over)-1], Count: len(over), Reason: QueueFull})
	}
	s.Queue = append(s.Queue, keep[:min(room, len(keep))]...)
	return skipped
}

// keep returns which of the occurrences that are due start runs: the end of the list.
func (t *Table) keep(due []Occurrence, now int64) []Occurrence {
	late := 0 // how many of them were missed: those at the beginning
	for late < len(due) && now-due[late].At-t.spec.Jitter.Microseconds() > Grace.Microseconds() {
		late++
	}
	switch {
	case t.spec.CatchUp == CatchUpNone:
		return due[late:]
	case t.spec.CatchUp == CatchUpAll:
		return due[max(0, min(late, len(due)-t.spec.CatchUpMax)):]
	case late > 0:
		return due[len(due)-1:]
	}
	return due
}

// NextDue returns when Step has something to decide about next. ok is false if that is never.
func (t *Table) NextDue(id string, s *State) (due int64, ok bool) {
	o, ok := t.Next(s.After)
	if !ok {
		return 0, false
	}
	return t.Due(id, o), true
}

// A Verdict is what is done with the first occurrence of a queue.
type Verdict uint8

// The verdicts.
const (
	Start  Verdict = iota // a run
	Skip                  // the occurrence
	Wait                  // for the end of the run before
	Cancel                // the run before, and wait for its end
)

// First decides about the first occurrence of a queue. active says whether the run before it
// has not ended.
func (s *State) First(policy Overlap, active bool) (Verdict, Reason) {
	switch {
	case policy == OverlapAllow || !active:
		return Start, ""
	case policy == OverlapQueue:
		return Wait, ""
	case policy == OverlapSkip:
		return Skip, Active
	case len(s.Queue) > 1:
		return Skip, Superseded
	}
	return Cancel, ""
}
