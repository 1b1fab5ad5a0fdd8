// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"time"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/retention"
)

// A Fault is a kind of fault.
type Fault uint8

// The faults.
const (
	Killed          Fault = iota // a process dies; what it wrote stays
	PowerCut                     // all processes die, and what was not synced is lost
	KilledInCall                 // a process dies during a call to its store
	CommitRefused                // the disk is full for a moment
	ReplyLost                    // a commit was written and its answer is lost (F16)
	SyncFailed                   // a commit was written and its sync failed
	SlowSync                     // a commit takes long, and other inputs arrive meanwhile
	ReadFailed                   // the store answers a read with an error
	TakenOver                    // another process becomes the owner of the store, and the old one continues
	HandedBack                   // a process is stopped in order and gives up its attempts
	ClockForward                 // the wall clock jumps ahead (F12)
	ClockBack                    // … back
	ClockFrozen                  // … stops
	ClockLeap                    // … has a second too many or too few
	AttemptFailed                // an action fails
	AttemptLost                  // a worker dies, and its attempt is never reported
	ReportDelayed                // a report is delayed
	ReportDoubled                // … arrives twice
	ReportLate                   // … arrives although its attempt was cancelled
	Reordered                    // messages arrive in another order
	ActionHolds                  // an action continues after its attempt has ended
	FileFailed                   // a file cannot be read for a moment
	ReaderCut                    // a subscriber loses its connection
	ReaderStalled                // … or stops reading
	AnswerLost                   // a user does not receive the answer and repeats the request
	Panicked                     // a run's own code panics in the engine
	ProcessPoisoned              // a run kills every process that loads it
	ActionHangs                  // an action ends only when it is told to stop
	numFaults
)

var faultNames = [numFaults]string{
	"killed", "power-cut", "killed-in-call", "commit-refused", "reply-lost", "sync-failed", "slow-sync", "read-failed",
	"taken-over", "handed-back", "clock-forward", "clock-back", "clock-frozen", "clock-leap", "attempt-failed",
	"attempt-lost", "report-delayed", "report-doubled", "report-late", "reordered", "action-holds", "file-failed",
	"reader-cut", "reader-stalled", "answer-lost", "panicked", "process-poisoned", "action-hangs",
}

func (f Fault) String() string { return faultNames[f] }

// maxRate is the highest rate of each fault, per 10,000 occasions. What an occasion is
// depends on the fault: a step of the schedule, a commit, a report.
var maxRate = [numFaults]int{
	Killed: 500, PowerCut: 300, KilledInCall: 200, CommitRefused: 600, ReplyLost: 600, SyncFailed: 200, SlowSync: 4000, ReadFailed: 300,
	TakenOver: 150, HandedBack: 200, ClockForward: 300, ClockBack: 300, ClockFrozen: 300, ClockLeap: 300,
	AttemptFailed: 4000, AttemptLost: 1500, ReportDelayed: 4000, ReportDoubled: 5000, ReportLate: 5000, Reordered: 5000,
	ActionHolds: 1000, FileFailed: 2000, ReaderCut: 1500, ReaderStalled: 500, AnswerLost: 3000, Panicked: 100, ProcessPoisoned: 40,
	ActionHangs: 500,
}

// A faultProfile is how often each fault occurs in a schedule, and how the schedule is
// composed. Each seed draws its own, so that some worlds have many faults of one kind
// and others a few of each.
type faultProfile struct {
	rate  [numFaults]int // per 10,000 occasions
	steps int            // of phase 1
	runs  int            // at most

	// The weights of what happens in one step.
	work, start, user, pass, read, clean int

	batch       int // most messages handed in at once
	delayCommit int // per 10,000: a commit is delayed in favour of the next step
	longest     int64
	config      engine.Config
}

func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

// draw draws a fault profile.
func draw(dice *rand.Rand) faultProfile {
	fp := faultProfile{
		steps: 60 + dice.IntN(300), runs: 2 + dice.IntN(6),
		work: 15 + dice.IntN(40), start: 2 + dice.IntN(8), user: dice.IntN(8), pass: 2 + dice.IntN(8),
		read: dice.IntN(6), clean: dice.IntN(2),
		batch: 1 + dice.IntN(4), delayCommit: dice.IntN(6000),
		longest: pick(dice, int64(50_000), 2_000_000, 60_000_000, 3_600_000_000),
	}
	wild := 1 + dice.IntN(3)     // the share of the faults that occur in this world, in quarters
	for f := range ActionHangs { // later faults are drawn elsewhere: see hangRate
		if dice.IntN(4) < wild {
			fp.rate[f] = 1 + dice.IntN(maxRate[f])
		}
	}
	fp.config = engine.Config{
		MaxLoaded:     pick(dice, 1, 2, 3, 1000),
		SuspendAfter:  pick(dice, time.Second, time.Minute, 10*time.Minute),
		Concurrency:   pick(dice, 1, 2, 5, 1024, 1024),
		MaxBatchBytes: pick(dice, 400, 4<<10, 2<<20, 2<<20),
		CompactBytes:  pick(dice, int64(1), 2<<10, 32<<20),
		CompactCheck:  pick(dice, 1, 512, 1<<20),
		Retention:     retention.Policy{Runs: pick(dice, time.Second, time.Hour, 7*24*time.Hour)},
	}
	return fp
}

// hangRate draws how often actions hang. It depends on the seed alone, so that a seed
// that is older than this fault gives the same world as before if no action hangs in
// it.
func hangRate(seed uint64) int {
	dice := rand.New(rand.NewPCG(seed, 0x68616e67))
	if dice.IntN(4) > 0 {
		return 0
	}
	return 1 + dice.IntN(maxRate[ActionHangs])
}

// handsBackOften reports whether processes are stopped and killed alternately, again
// and again, while attempts take long, so that each attempt is handed back or lost
// many times. Like maxTurn it depends on the seed alone.
func handsBackOften(seed uint64) bool { return seed%17 == 9 || seed%17 == 14 }

// retriesInside reports whether users often retry from steps inside other steps. Like
// maxTurn it depends on the seed alone.
func retriesInside(seed uint64) bool { return seed%17 == 10 }

// maxTurn is the most events of a turn, 0 = the default. It depends on the seed alone,
// so that older kept seeds still give the worlds they were kept for.
func maxTurn(seed uint64) int {
	switch seed % 11 {
	case 2:
		return 1
	case 8:
		return 2 + int(seed/11%8)
	}
	return 0
}

// largeBatch is engine.Config.LargeBatch: how many runs a batch must have to be committed
// before what waited for the previous commit is released. 0 = the default of 64, which
// no world reaches. Like maxTurn it depends on the seed alone.
func largeBatch(seed uint64) int {
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
