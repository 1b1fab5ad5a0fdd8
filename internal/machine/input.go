// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
)

// InputKind is a kind of input of a run.
type InputKind uint8

// The inputs. Each may arrive twice, late, and in any order.
const (
	InStart      InputKind = iota + 1 // Input.Start
	InGranted                         // Ref: the arbiter grants an attempt
	InHeld                            // Ref, Text: the arbiter holds the attempt back; Text is the reason
	InResult                          // Ref, Fence, Outcome, …
	InProgress                        // Ref, Fence, Progress
	InTimer                           // fires the timers that are due at At
	InSignal                          // Name, Data
	InItems                           // Ref, Items, More
	InWorkerLost                      // Ref and Fence, or All: attempts whose worker is lost
	InContinue                        // continue with the worklist
	InCancel                          // Text: reason
	InRetry                           // Name: the step to start from; "" = the failed steps
	InEdit                            // Data: JSON object of the input fields to replace
	InPause                           // Text: reason; no attempt begins until InUnpause
	InUnpause
	InChildEnded    // Ref, Fence, End: the child run of an attempt has ended
	InChildExtended // Ref, Fence, Resource, N: a child run was given more
	InAdmit         // a queued run may begin
	InPinned        // Text, Tree: what an expression of a step in the tree of this root run has named was found
	InResume        // Fence, Child.Share: a child run that has not completed goes on as that attempt of its step
)

// An Input is one thing that happened outside the run. At is always required.
//
// Each attempt in flight holds one, so what is rare is behind a pointer and the small fields
// are next to each other.
type Input struct {
	Kind InputKind

	Outcome  Outcome          // InResult
	Source   journal.Source   // InResult
	Resource journal.Resource // InChildExtended
	More     bool             // InItems: more items follow
	All      bool             // InWorkerLost: every open attempt (after a restart)
	// Queued is true if the account has as many live runs as it may have (InStart,
	// InRetry, InEdit): the run begins with InAdmit.
	Queued bool

	At    int64 // UTC µs, never decreasing over the inputs of a run
	Ref   journal.Ref
	Fence journal.Fence

	Start *journal.Start
	// Available is how many credits the account of the run can give now (InStart,
	// InGranted, InRetry, InEdit, InChildExtended), if it pays for the run. A child run gets
	// them through its parent.
	Available int64
	Bound     *ledger.Bound // what limits Available; nil = the account
	// Room is what the limits of the runs above a child run leave for it beyond its share.
	Room journal.Share

	Child *ChildGrant   // InGranted, of a step that runs a recipe; InResume
	Tree  *journal.Tree // InPinned
	End   *ChildEnd     // InChildEnded
	N     int64         // InChildExtended

	// InResult.
	Job       *Submission // Submitted
	Output    []byte      // canonical JSON, at most 1 MiB
	InputHash []byte      // SHA-256 of the rendered input, 32 bytes; nil when not rendered
	Cost      int64       // whole credits, of a success
	// Price is what the attempt says it cost, of an action with a price; nil = what was
	// pinned. More than that is not charged.
	Price *ledger.Amount
	Err   *Failure
	// Cached is set if the output is that of an earlier attempt: the action was not called.
	Cached *journal.Cached

	Progress *Progress // InProgress

	// Moderation is what moderators have said of a result, of a step with a gate.
	Moderation *Moderation
	// Mark is remembered with a preview or a delta of an external job; nil = nothing is.
	Mark *journal.Mark

	Items *Items // InItems

	Name string
	Text string
	Data []byte
	// Limits are those that a retry raises; a field that is zero stays as it is. nil =
	// none.
	Limits *plan.Limits
}

// bound is what limits the credits that the account can give.
func (in *Input) bound() (b ledger.Bound) {
	if in.Bound != nil {
		b = *in.Bound
	}
	return b
}

// Items are some of the items that a loop runs over.
type Items struct {
	From  int64    // index of the first
	List  [][]byte // JSON values
	Total int64    // how many there are, if known; 0 = not known
}

// Outcome is what an attempt reported. The zero Outcome is that of a result which is known to
// be too late, and was not read.
type Outcome uint8

// The outcomes.
const (
	Success Outcome = iota + 1
	Failed
	Preview   // a partial result in Output; the attempt continues (X79)
	Submitted // the attempt continues as the external job Job (X128)
)

// A Submission is an external job that an attempt has submitted.
type Submission struct {
	journal.Job
	// Task is the id of the task of a remote worker that ends with the job: its step waits for the
	// job from then on. "" = the attempt has submitted the job itself.
	Task  string
	TTLMS int64 // after which it has expired (X127); 0 = DefaultJobTTL
}

// DefaultJobTTL is how long an external job may take unless it says otherwise, in ms
// (X127).
const DefaultJobTTL = 24 * 3_600_000

// Moderation is what moderators have said of what an attempt gets and gives (X168).
type Moderation struct {
	Verdicts []journal.Verdict // of a result, in the order of their phases
	// Shown says that a preview has passed.
	Shown bool
}

// A Failure is why an attempt failed.
type Failure struct {
	Code         fault.Code
	Msg          string
	RetryAfterMS int64 // the least delay before the next try; 0 = none
	// Unknown says that the effect of the attempt may have happened although it failed (I4).
	Unknown bool
	// Phase ("input" or "output") and Violations are set when a contract was
	// violated (X172).
	Phase      string
	Violations []string
}

// Progress is a report of a running attempt, for people.
type Progress struct {
	Kind     ProgressKind
	Fraction float64 // ProgressFraction: 0..1
	Level    string  // ProgressLog
	Text     string
	// Passed says that moderators have passed the text, of a step whose output they look at.
	Passed bool
}

// ProgressKind tells progress reports apart.
type ProgressKind uint8

// The kinds of progress.
const (
	ProgressFraction ProgressKind = iota
	ProgressLog
	ProgressDelta
)
