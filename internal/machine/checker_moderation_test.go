// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"

	"github.com/roux-engine/roux/internal/journal"
)

// gatedRuns are the runs of ruleRuns that have gates.
var gatedRuns = map[string]ruleRun{
	"gated": {`
order: none
steps:
  - {id: a, action: {name: work}, moderation: both}
  - {id: b, dependsOn: [a], action: {name: work}}
`, []string{`start`, `submit a inputVerdict=passed job=j1`, `finish a outputVerdict=passed`, `finish b`}},
	"reviewed": {`
order: none
steps:
  - {id: a, action: {name: work}, moderation: {phase: both, review: {}}}
  - {id: b, dependsOn: [a], action: {name: work}, moderation: output}
`, []string{`start`, `submit a inputVerdict=violence review=input job=j1`, `finish a inputVerdict=passed outputVerdict=passed decision=approved`, `finish b outputVerdict=passed`}},
}

// gateRules are the cases of ruleCases about gates (A30).
var gateRules = map[string]ruleCase{
	"a verdict on a step without a gate": {"gated", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 1).Step = 1 }, "A30: its step has no gate"},
	"a verdict on no phase":              {"gated", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 1).Text = "both" }, `A30: a verdict on the phase "both"`},
	"a verdict on another attempt":       {"gated", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 1).Attempt = 2 }, "A30: a verdict on attempt 2, attempt 1 was handed out"},
	"a job without the verdict on its input": {"gated", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 1).Kind = journal.EvModerationFlagged },
		"A30: the result of attempt 1 is recorded without the verdicts"},
	"a review that its step does not have": {"reviewed", func(j *editedJournal) {
		ev := j.at(journal.EvModerationPassed, "b", 1)
		ev.Kind, ev.Flag = journal.EvModerationFlagged, 1
	}, "A30: what was flagged waits for a review that its step does not have"},
	"an input that no reviewer has passed": {"reviewed", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 1).Text = "output" },
		"A30: the result of attempt 1 is recorded without the verdicts"},
	"an output without a verdict": {"gated", func(j *editedJournal) { j.at(journal.EvModerationPassed, "a", 2).Text = "input" },
		"A30: the result of attempt 1 is recorded without the verdicts"},
}

func init() {
	maps.Copy(ruleRuns, gatedRuns)
	maps.Copy(ruleCases, gateRules)
}
