// SPDX-License-Identifier: Apache-2.0

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
