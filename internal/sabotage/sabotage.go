// SPDX-License-Identifier: Apache-2.0

// Package sabotage removes guards, one a build tag, so that the tests that
// should notice can be seen to notice.
//
//	go run -tags sabotage_fence ./sim -duration 60s
//
// Each constant is false in every build that does not ask for its tag by name;
// the compiler then drops the code behind it, so a guard costs what it cost
// before. A build with a tag is broken on purpose: `roux version` and `roux
// doctor` say so, and .ci/run refuses to build with one.
//
// It decides nothing, and nothing else may be put here: a guard is removed where
// it stands.
package sabotage

// A Guard is one that can be removed.
type Guard struct {
	Tag     string // of the build that is without it
	Removed bool   // in this build
	Keeps   string // what it sees to, for people
}

// Guards lists them all. One is missing: that a charge is in the transition of
// the result it pays for (I12) comes with the ledger.
func Guards() []Guard {
	return []Guard{
		{"sabotage_fence", Fence, "machine: a result is taken only from the live attempt (I3)"},
		{"sabotage_duplicate", Duplicate, "machine: a step that has settled takes no second result (I3)"},
		{"sabotage_generation", Generation, "machine: results of an older generation change nothing (I7)"},
		{"sabotage_fanin", FanIn, "machine: a step begins when the last of those it waits for has settled (I5)"},
		{"sabotage_terminal", Terminal, "machine: a run that has ended takes nothing but a retry (I7)"},
		{"sabotage_cancel", Cancel, "machine: a cancel that comes too late is refused (I8)"},
		{"sabotage_timer", Timer, "machine: a timer whose cause has gone does not fire (I9)"},
		{"sabotage_window", Window, "machine: a loop works on at most maxConcurrency items at once (X59)"},
		{"sabotage_dependents", Dependents, "machine: a step that waits for what a retry resets is reset with it (X119)"},
		{"sabotage_reopen", Reopen, "machine: a step does not go on in the middle when one that it waits for runs again (I5)"},
		{"sabotage_rebind", Rebind, "machine: a name that is bound again has the later value (R41)"},
		{"sabotage_losses", Losses, "machine: an attempt that was handed back counts as no loss (F45)"},
		{"sabotage_commitfirst", CommitFirst, "engine: what a transition asks for leaves after its commit (I1)"},
		{"sabotage_reload", Reload, "engine: a run that has changed since its batch was sealed stays in memory (I2)"},
		{"sabotage_handback", HandBack, "engine: attempts that an orderly stop gave up are handed back, not lost (F45)"},
		{"sabotage_fsync", Fsync, "store: an answered commit is synced, in memory and in SQLite (I1, I21)"},
	}
}

// Removed lists the tags of this build: none, unless it was made to fail.
func Removed() (tags []string) {
	for _, g := range Guards() {
		if g.Removed {
			tags = append(tags, g.Tag)
		}
	}
	return tags
}
