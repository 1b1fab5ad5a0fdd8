// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
)

// unknownRuns are the runs of ruleRuns in which the outcome of an attempt is unknown.
var unknownRuns = map[string]ruleRun{
	"unknown": {`
order: none
steps:
  - {id: a, action: {name: work}, retryPolicy: {maxAttempts: 9, initialDelay: 1s}}
  - {id: b, action: {name: once}, retryPolicy: {maxAttempts: 9, initialDelay: 1s}}
`, []string{`start`, `fail a code=SERVICE_UNAVAILABLE msg=reset unknown=true`, `fail b code=SERVICE_UNAVAILABLE msg=down`, `after 2s`,
		`fail a code=RATE_LIMITED msg=slower`, `after 9s`, `finish a`, `finish b`}},
}

// unknownRules are the cases of ruleCases about unknown outcomes (I4).
var unknownRules = map[string]ruleCase{
	"a key changes after a connection broke": {"unknown", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 2).key = "other" },
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"a key changes after an attempt that was turned away": {"unknown", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 3).key = "other" },
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"who is turned away knows": {"unknown", func(j *editedJournal) { j.at(journal.EvNodeRetried, "a", 2).Unknown = false },
		"I4: a: an attempt that failed with RATE_LIMITED says nothing about the ones before it"},
	"an attempt does not say that it may repeat": {"unknown", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 2).Unknown = false },
		"I4: a: attempt 2 does not say that an effect with its key may have happened"},
	"once more": {"unknown", func(j *editedJournal) {
		j.at(journal.EvNodeRetried, "b", 1).Unknown = true
		again := j.at(journal.EvNodeStarted, "b", 2)
		again.Unknown, again.key = true, j.at(journal.EvNodeStarted, "b", 1).key
	}, "X90: b: the action may be attempted only once"},
	"a success is unknown": {"unknown", func(j *editedJournal) { j.at(journal.EvNodeCompleted, "a", 1).Unknown = true },
		"(node.completed) has no outcome that could be unknown"},
	"a failure without an attempt is unknown": {"unknown", func(j *editedJournal) {
		ev := j.at(journal.EvNodeRetried, "a", 1)
		ev.Unknown, ev.Attempt, ev.Code = true, 0, fault.StepFailed
	}, "has no outcome that could be unknown"},
}

func init() {
	maps.Copy(ruleRuns, unknownRuns)
	maps.Copy(ruleCases, unknownRules)
}
