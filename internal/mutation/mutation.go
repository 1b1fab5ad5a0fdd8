// SPDX-License-Identifier: Apache-2.0

// Package mutation removes guards, one a process, so that the tests that should notice
// can be seen to notice.
//
//	ROUX_MUTATION=fence go run -tags mutation ./sim -duration 60s
//
// Without that build tag each guard is a constant that is false, and the compiler drops
// the code behind it: a guard costs what it cost before, and no setting removes one.
// With the tag it is a variable that the environment sets. `roux version` and `roux
// doctor` say so when one is removed, and nothing that builds what ships names the tag.
//
// It decides nothing, and nothing else may be put here: a guard is removed where it
// stands.
package mutation

// Tag is the build tag without which every guard stands, and Variable names the guard
// that a process of such a build is without.
const (
	Tag      = "mutation"
	Variable = "ROUX_MUTATION"
)

// A Guard is one that can be removed.
type Guard struct {
	Name    string // in Variable
	Removed bool   // in this process
	Keeps   string // what it sees to, for people
}

// Guards lists them all. One is missing: that a charge is in the transition of
// the result it pays for (I12) comes with the ledger.
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
		{"reopen", Reopen, "machine: a step does not go on in the middle when one that it waits for runs again (I5)"},
		{"rebind", Rebind, "machine: a name that is bound again has the later value (R41)"},
		{"losses", Losses, "machine: an attempt that was handed back counts as no loss (F45)"},
		{"commitfirst", CommitFirst, "engine: what a transition asks for leaves after its commit (I1)"},
		{"reload", Reload, "engine: a run that has changed since its batch was encoded stays in memory (I2)"},
		{"handback", HandBack, "engine: attempts that an orderly stop gave up are handed back, not lost (F45)"},
		{"fsync", Fsync, "store: an answered commit is synced, in memory and in SQLite (I1, I21)"},
	}
}

// Removed lists the guards that this process is without: none, unless its build was
// made to be broken.
func Removed() (names []string) {
	for _, g := range Guards() {
		if g.Removed {
			names = append(names, g.Name)
		}
	}
	return names
}
