// SPDX-License-Identifier: Apache-2.0

// Package machine decides what a run does next.
//
// A Run is the durable state of one execution of a plan: the fold of its
// journal. Decide takes one Input and emits the Events that follow from it,
// applying each as it is emitted, so that decision and fold cannot diverge;
// Owed lists the Commands that a Run still needs carried out:
//
//	input -> Decide -> events -> (caller commits) -> commands -> (caller acts)
//
// The package does no I/O and knows no clock and no randomness: time arrives
// in inputs, jitter is a hash. The same inputs in the same order give the same
// journal on every machine, which is what makes crash recovery, replay and the
// simulator possible. It never decides across runs: slots, quotas and fairness
// are the engine's arbiter.
package machine

import (
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// InputKind is what arrives at a run.
type InputKind uint8

// The inputs. Each may come twice, late, in any order.
const (
	InStart      InputKind = iota + 1 // Input.Start
	InGranted                         // Ref: the arbiter grants an attempt
	InHeld                            // Ref, Text: the arbiter holds it back, reason in Text
	InResult                          // Ref, Fence, Outcome, …
	InProgress                        // Ref, Fence, Progress
	InTimer                           // time is At: whatever is due fires
	InSignal                          // Name, Data
	InItems                           // Ref, From, Items, More
	InWorkerLost                      // Ref and Fence, or All: attempts whose worker is gone
	InContinue                        // go on with what is already decided
	InCancel                          // Text: reason
	InRetry                           // Name: "" = what failed, else the step to start from
	InEdit                            // Data: JSON object of input fields to replace
)

// An Input is one thing that happened outside. At is required in all of them.
type Input struct {
	Kind  InputKind
	At    int64 // UTC µs, never decreasing over the inputs of a run
	Ref   journal.Ref
	Fence journal.Fence

	Start *journal.Start

	// InResult.
	Outcome   Outcome
	Output    []byte // canonical JSON, at most 1 MiB
	InputHash []byte // SHA-256 of the rendered input, 32 bytes; nil when not rendered
	Cost      int64  // credits of a success
	Err       *Failure
	Source    journal.Source

	Progress Progress // InProgress

	From  int64    // InItems: index of the first
	Items [][]byte // InItems: JSON values
	More  bool     // InItems: others follow
	Total int64    // InItems: how many there are in all, where they were counted; 0 = not known
	All   bool     // InWorkerLost: every open attempt, after a restart

	Name string
	Text string
	Data []byte
	// Limits are those that a retry raises; a field that is zero stays. nil = none.
	Limits *plan.Limits
}

// Outcome is what an attempt reports.
type Outcome uint8

// The outcomes.
const (
	Success Outcome = iota + 1
	Failed
	Preview // a partial result in Output; the attempt goes on (X79)
)

// A Failure is why an attempt failed.
type Failure struct {
	Code         fault.Code
	Msg          string
	RetryAfterMS int64 // lower bound for the next try; 0 = none
	// Phase ("input" or "output") and Violations are set when a contract was
	// violated (X172).
	Phase      string
	Violations []string
}

// Progress is what a running attempt tells people.
type Progress struct {
	Kind     ProgressKind
	Fraction float64 // ProgressFraction: 0..1
	Level    string  // ProgressLog
	Text     string
}

// ProgressKind tells deltas, logs and fractions apart.
type ProgressKind uint8

// The kinds of progress.
const (
	ProgressFraction ProgressKind = iota
	ProgressLog
	ProgressDelta
)

// CommandKind is what must be done in the world.
type CommandKind uint8

// The commands. All are idempotent: recovery carries out again what is owed.
const (
	// CmdAcquire asks the arbiter for an attempt: answer InGranted or InHeld.
	CmdAcquire CommandKind = iota + 1
	// CmdDispatch hands the attempt Fence to a worker; see Run.Task.
	CmdDispatch
	// CmdCancelTask tells whoever carries out the attempt Fence to stop.
	CmdCancelTask
	// CmdNeedItems asks for items From.. (at most N) of the file File: answer InItems.
	CmdNeedItems
	// CmdCollect asks for the outputs of the N iterations of a finished loop as one
	// list in a file, because together they exceed the inline limit: answer InResult
	// with the reference to it (jsonx.Large) as Output.
	CmdCollect
	// CmdContinue asks for InContinue: the last Decide stopped at its limit.
	CmdContinue
)

// A Command is one of them.
type Command struct {
	Kind  CommandKind
	Ref   journal.Ref
	Fence journal.Fence
	From  int64
	N     int64
	File  string
}

// The limits of one Decide: past either it owes CmdContinue.
const (
	MaxEvents = 1_000
	MaxBytes  = 1 << 20
)

// A Turn is what one Decide yields. The caller owns it and may reuse it: the
// slices are appended to after being cut to zero length.
type Turn struct {
	Events   []journal.Event
	Commands []Command
	// Limit is after how many events a Decide stops and owes CmdContinue, for
	// those who want smaller turns. Default MaxEvents.
	Limit int
	// Err refuses a user's input (InCancel, InRetry, InEdit, InSignal, InStart)
	// and says why; nothing was emitted then. Late or repeated inputs of
	// machines are not errors: they yield no events.
	Err error
}
