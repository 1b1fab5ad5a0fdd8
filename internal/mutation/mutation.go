// SPDX-License-Identifier: Apache-2.0

// Package mutation removes single checks ("guards") from the engine, to prove that the
// tests notice when one is missing. A process removes one guard.
//
//	ROUX_MUTATION=fence go run -tags mutation ./sim -duration 60s
//
// Without the build tag each guard is a constant that is false, and the compiler drops
// the code that depends on it: a guard costs nothing extra, and no setting can remove
// one. With the tag it is a variable that the environment sets. `roux version` and
// `roux doctor` then report the removed guard. No release build uses the tag.
//
// The package decides nothing and must contain nothing else. The condition that
// removes a guard is in the code that the guard protects.
package mutation

// Tag is the build tag that makes guards removable. Variable is the environment
// variable that names the guard to remove.
const (
	Tag      = "mutation"
	Variable = "ROUX_MUTATION"
)

// A Guard is a check that can be removed.
type Guard struct {
	Name    string // the value of Variable
	Removed bool   // in this process
	Keeps   string // what the guard ensures, for people
}

// Guards lists all guards.
func Guards() []Guard {
	return []Guard{
		{"fence", Fence, "machine: a result is taken only from the live attempt (I3)"},
		{"duplicate", Duplicate, "machine: a step that has settled takes no second result (I3)"},
		{"generation", Generation, "machine: results of an older generation change nothing (I7)"},
		{"fanin", FanIn, "machine: a step begins when the last of those it waits for has settled (I5)"},
		{"terminal", Terminal, "machine: a run that has ended takes nothing but a retry (I7)"},
		{"cancel", Cancel, "machine: a cancel that comes too late is refused (I8)"},
		{"timer", Timer, "machine: a timer whose cause has gone does not fire (I9)"},
		{"window", Window, "machine: a loop works on at most maxConcurrency items at once (X59)"},
		{"dependents", Dependents, "machine: a step that waits for what a retry resets is reset with it (X119)"},
		{"reopen", Reopen, "machine: a step begins anew, instead of being reopened, when a retry also resets a step that it depends on (I5)"},
		{"rebind", Rebind, "machine: a name that is bound again has the later value (R41)"},
		{"losses", Losses, "machine: an attempt that was handed back counts as no loss (F45)"},
		{"effectkey", EffectKey, "machine: after a failure whose outcome is unknown the effect key stays (I4)"},
		{"charge", Charge, "machine: an attempt is charged if it completes its step, and only then (I12)"},
		{"reserve", Reserve, "engine: what is held for a run is recorded with its start (I11)"},
		{"settle", Settle, "machine: a run settles what it owes, and no more (I11)"},
		{"lotorder", LotOrder, "ledger: lots are used by priority, end and age (I11)"},
		{"expiry", Expiry, "ledger: a lot that has ended is not used (I11)"},
		{"pause", Pause, "machine: no attempt begins while the run is paused"},
		{"admission", Admission, "engine: an account has at most as many live runs as its limit says (X206)"},
		{"childend", ChildEnd, "engine: the end of a child run and what its parent makes of it are one commit (F44)"},
		{"childcancel", ChildCancel, "machine: the child run of a step that is cancelled is cancelled (I8)"},
		{"slice", Slice, "machine: what a run gives to a child run it does not use itself (I11)"},
		{"group", Group, "store: transitions of one group are written all or none (X62)"},
		{"pin", Pin, "program: child runs have what was found when the root of their tree was started (R28)"},
		{"inherit", Inherit, "machine: a child run is handed what its text reads of its parent (X38)"},
		{"isolate", Isolate, "machine: a child run is handed nothing else (R24)"},
		{"depth", Depth, "machine: child runs nest at most as deep as the limits say (X61)"},
		{"mergeorder", MergeOrder, "machine: values are merged in the order of their edges (X65)"},
		{"cleanup", Cleanup, "workspace: the directory of a run that has ended is removed (X235)"},
		{"foreign", Foreign, "workspace: no directory is removed but those of runs that have ended (R25)"},
		{"feed", Feed, "store: a head that is written is a change in the feed of its account (I14)"},
		{"jobend", JobEnd, "machine: the store keeps no external job for which no step waits (X128)"},
		{"jobcancel", JobCancel, "machine: a service is told of a job for which no step waits any more (X131)"},
		{"jobexpiry", JobExpiry, "machine: a job expires when its time has come, and not before (X127)"},
		{"earlydelivery", EarlyDelivery, "jobs: a webhook that comes before its job is known waits for it (F14)"},
		{"jobslot", JobSlot, "engine: a job holds the slots of its action until it ends (I22)"},
		{"keyslot", KeySlot, "engine: as many attempts run at once as a limit says for their key (I22)"},
		{"gate", Gate, "machine: a result without the verdicts that its step demands is refused (A30)"},
		{"cache", Cache, "resultcache: an attempt uses results of its own account only (I17)"},
		{"lease", Lease, "lease: the result of a worker that has lost its task does not count (F07)"},
		{"adopt", Adopt, "lease: after a start every task stays where it is for one full lease"},
		{"schedule", Schedule, "scheduler: an occurrence that was started before a crash is not started again (I13)"},
		{"trigger", Trigger, "inbound: a delivery that comes again starts no other run (I13)"},
		{"commitfirst", CommitFirst, "engine: commands and answers of a transition leave the engine after its commit (I1)"},
		{"reload", Reload, "engine: a run that has changed since its batch was encoded stays in memory (I2)"},
		{"handback", HandBack, "engine: attempts that an orderly stop gave up are handed back, not lost (F45)"},
		{"fsync", Fsync, "store: an answered commit is synced, in memory and in SQLite (I1, I21)"},
	}
}

// Removed lists the guards that are removed in this process. It is empty in a normal
// build.
func Removed() (names []string) {
	for _, g := range Guards() {
		if g.Removed {
			names = append(names, g.Name)
		}
	}
	return names
}
