// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/retention"
)

// A Fault is one kind of thing that goes wrong.
type Fault uint8

// The faults.
const (
	Killed          Fault = iota // a process is gone, its disk is not
	PowerCut                     // all processes and what was not synced are gone
	KilledInCall                 // a process is gone in the middle of a call to its store
	CommitRefused                // the disk is full for a moment
	ReplyLost                    // a commit was written and its answer was not heard (F16)
	SyncFailed                   // a commit was written and its sync failed
	SlowSync                     // a commit takes long, and others arrive meanwhile
	ReadFailed                   // the store answers a read with an error
	TakenOver                    // another process owns the store, the old one goes on
	HandedBack                   // a process is stopped in order, its attempts are given up
	ClockForward                 // the wall clock jumps ahead (F12)
	ClockBack                    // … back
	ClockFrozen                  // … stands still
	ClockLeap                    // … has a second too many or too few
	AttemptFailed                // an action fails
	AttemptLost                  // a worker is gone, its attempt is never reported
	ReportDelayed                // a report is held back
	ReportDoubled                // … arrives twice
	ReportLate                   // … arrives although its attempt was cancelled
	Reordered                    // messages arrive in another order
	ActionHolds                  // an action goes on after its attempt has ended
	FileFailed                   // a file cannot be read for a moment
	ReaderCut                    // a subscriber loses its connection
	ReaderStalled                // … or stops reading
	AnswerLost                   // a user does not hear the answer and asks again
	Panicked                     // a run's own code panics in the engine
	ProcessPoisoned              // a run kills whatever loads it
	ActionHangs                  // an action ends when it is told to, and not before
	numFaults
)

var faultNames = [numFaults]string{
	"killed", "power-cut", "killed-in-call", "commit-refused", "reply-lost", "sync-failed", "slow-sync", "read-failed",
	"taken-over", "handed-back", "clock-forward", "clock-back", "clock-frozen", "clock-leap", "attempt-failed",
	"attempt-lost", "report-delayed", "report-doubled", "report-late", "reordered", "action-holds", "file-failed",
	"reader-cut", "reader-stalled", "answer-lost", "panicked", "process-poisoned", "action-hangs",
}

func (f Fault) String() string { return faultNames[f] }

// most is how often a fault happens at most, in 10,000 occasions. What an
// occasion is depends on the fault: a step of the schedule, a commit, a report.
var most = [numFaults]int{
	Killed: 500, PowerCut: 300, KilledInCall: 200, CommitRefused: 600, ReplyLost: 600, SyncFailed: 200, SlowSync: 4000, ReadFailed: 300,
	TakenOver: 150, HandedBack: 200, ClockForward: 300, ClockBack: 300, ClockFrozen: 300, ClockLeap: 300,
	AttemptFailed: 4000, AttemptLost: 1500, ReportDelayed: 4000, ReportDoubled: 5000, ReportLate: 5000, Reordered: 5000,
	ActionHolds: 1000, FileFailed: 2000, ReaderCut: 1500, ReaderStalled: 500, AnswerLost: 3000, Panicked: 100, ProcessPoisoned: 40,
	ActionHangs: 500,
}

// A faultProfile is how a schedule's world behaves: each seed draws its own, so that
// some worlds know one disaster well and others all of them a little.
type faultProfile struct {
	rate  [numFaults]int // in 10,000
	steps int            // of phase 1
	runs  int            // at most

	// What happens in one step, by weight.
	work, start, user, pass, read, sweep int

	batch   int // messages handed in at once, at most
	hasty   int // in 10,000: a commit is put off for the next step's sake
	longest int64
	config  engine.Config
}

func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

// draw makes a fault profile.
func draw(dice *rand.Rand) faultProfile {
	wt := faultProfile{
		steps: 60 + dice.IntN(300), runs: 2 + dice.IntN(6),
		work: 15 + dice.IntN(40), start: 2 + dice.IntN(8), user: dice.IntN(8), pass: 2 + dice.IntN(8),
		read: dice.IntN(6), sweep: dice.IntN(2),
		batch: 1 + dice.IntN(4), hasty: dice.IntN(6000),
		longest: pick(dice, int64(50_000), 2_000_000, 60_000_000, 3_600_000_000),
	}
	wild := 1 + dice.IntN(3)     // in 4: how much of all that can go wrong does
	for f := range ActionHangs { // which came later: see hangs
		if dice.IntN(4) < wild {
			wt.rate[f] = 1 + dice.IntN(most[f])
		}
	}
	wt.config = engine.Config{
		MaxLoaded:     pick(dice, 1, 2, 3, 1000),
		SuspendAfter:  pick(dice, time.Second, time.Minute, 10*time.Minute),
		Concurrency:   pick(dice, 1, 2, 5, 1024, 1024),
		MaxBatchBytes: pick(dice, 400, 4<<10, 2<<20, 2<<20),
		CompactBytes:  pick(dice, int64(1), 2<<10, 32<<20),
		CompactCheck:  pick(dice, 1, 512, 1<<20),
		Retention:     retention.Policy{Runs: pick(dice, time.Second, time.Hour, 7*24*time.Hour)},
	}
	return wt
}

// hangs draws how often actions hang, from the seed alone: the worlds in which none
// does are those that the seeds had before there was this fault.
func hangs(seed uint64) int {
	dice := rand.New(rand.NewPCG(seed, 0x68616e67))
	if dice.IntN(4) > 0 {
		return 0
	}
	return 1 + dice.IntN(most[ActionHangs])
}

// restless says, from the seed alone like turns, that processes are stopped in order
// and killed by turns, again and again, while attempts take long: each attempt is
// handed back or lost many times.
func restless(seed uint64) bool { return seed%17 == 9 || seed%17 == 14 }

// delving says, from the seed alone like turns, that users retry runs from steps
// inside of others, and that they do so often.
func delving(seed uint64) bool { return seed%17 == 10 }

// turns is how many events a turn has at most, 0 = as many as elsewhere, from the
// seed alone: none of the seeds that were kept before there was this is among them.
func turns(seed uint64) int {
	switch seed % 11 {
	case 2:
		return 1
	case 8:
		return 2 + int(seed/11%8)
	}
	return 0
}

// ahead is how many runs a batch has to have to be committed before what waited for
// the last one goes out, 0 = more than there are, from the seed alone like turns.
func ahead(seed uint64) int {
	switch seed % 13 {
	case 3:
		return 1
	case 9:
		return 2
	case 11:
		return 3
	}
	return 0
}
