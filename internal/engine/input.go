// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/purse"
	"github.com/roux-engine/roux/internal/slots"
	"github.com/roux-engine/roux/internal/store"
)

type inputKind uint8

const (
	inRun        inputKind = iota // m, for the run of key
	inStart                       // m.Start and start: a new run
	inRelease                     // releases the run of key from quarantine
	inSoftDelete                  // hides the run of key from its user
	inCredits                     // moves credits of the account of key
	inBarrier                     // answered when everything handled so far is durable
	inFreed                       // the action of attempt m.Fence has returned late
	inSettle                      // settle: how the job of attempt m.Fence has ended
	inLook                        // calls look from the loop
)

// An input is one thing that arrives at the core. It belongs to the core from handle
// until its answer is sent.
type input struct {
	kind inputKind
	// holding is true when the attempt's action is still running although its result is
	// known: its slot stays taken until inFreed.
	holding bool
	held    bool  // that has been noted; the report may be handled again
	again   bool  // it is decided again if the store refuses it for a lack of credits
	tries   int32 // how often it was, because entries of its account were refused

	key     store.Key
	loaded  *loadedRun // of key, if the sender knew it; it may have been dropped
	m       machine.Input
	start   *runStart
	credits *purse.Change // inCredits
	settle  *settlement   // inSettle
	look    func(*core)   // inLook
	tokens  int64         // that the attempt has used, of its result; 0 = not known
	// reply receives the answer; its capacity is 1. It is nil for reports of workers.
	reply chan answer
	out   answer // sent to reply once it is durable
}

// subject names what the input is about: a run, or an entry of an account.
func (in *input) subject() store.Key {
	if in.kind == inCredits {
		return store.Key{Account: in.key.Account, Run: in.credits.Key()}
	}
	return in.key
}

// task returns the id of the attempt that a result is for.
func (in *input) task() taskID { return taskID{Key: in.key, Ref: in.m.Ref, Fence: in.m.Fence} }

// runStart is what the first transition of a run carries besides events.
type runStart struct {
	prog    *program.Program
	recipe  string
	version string
	labels  string // see store.Head.Labels
	idem    *store.Idempotency
	limited bool // the account has a limit of live runs
}

// An answer is what a request returns.
type answer struct {
	run      string
	existing bool              // the idempotency key had already started this run
	status   journal.RunStatus // of a run that was started, after its first turn
	err      error
}

// sendAnswer sends the answer, at most once.
func (in *input) sendAnswer() {
	if in.reply != nil {
		in.reply <- in.out
		in.reply = nil
	}
}

// A taskID identifies an attempt that was handed out.
type taskID = slots.ID

// An effect is something to do in the world, now that its cause is durable.
type effect struct {
	kind       machine.CommandKind
	id         taskID
	attempt    *inFlight     // CmdDispatch, CmdCancelTask
	task       *machine.Task // CmdDispatch: that of attempt
	prog       *program.Program
	from       int64 // CmdNeedItems
	n          int64
	file       string
	definition *machine.Definition // CmdResolve
}
