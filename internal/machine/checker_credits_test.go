// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"

	"github.com/roux-engine/roux/internal/journal"
)

// creditRules are the cases of ruleCases about charges and credits (I11, I12).
var creditRules = map[string]ruleCase{
	"a step is charged and does not complete": {"priced", func(j *editedJournal) { j.drop(j.find(journal.EvNodeCompleted, "a", 1)) },
		"I12: event 9 charges a step that event 10 does not complete"},
	"an attempt is charged that was not handed out": {"priced", func(j *editedJournal) { j.at(journal.EvNodeCharged, "a", 1).Attempt++ },
		"step a, node.charged: I12: attempt 2 is charged, attempt 1 was handed out"},
	"an attempt is charged twice": {"priced", func(j *editedJournal) {
		j.add(j.find(journal.EvNodeCharged, "a", 1), *j.at(journal.EvNodeCharged, "a", 1))
	},
		"step a, node.charged: I12: attempt 1 is charged twice"},
	"a charge is above the price": {"priced", func(j *editedJournal) { j.at(journal.EvNodeCharged, "a", 2).N = 400_001 },
		"step a, node.charged: I12: it is charged 0.400001 credits, its price is 0.4"},

	"a step uses more than is held": {"paid", func(j *editedJournal) { j.at(journal.EvNodeCompleted, "b", 1).N = 4 },
		"step b, node.completed: I11: the run has used 4.3 credits, 0 are settled and 3 held"},
	"a run settles and goes on": {"paid", func(j *editedJournal) {
		j.move(j.find(journal.EvCreditsSettled, "", 1), j.find(journal.EvNodeFailed, "c", 1))
	},
		"does not end it"},
	"a run ends with a hold": {"paid", func(j *editedJournal) { j.drop(j.find(journal.EvCreditsSettled, "", 1)) },
		"ends the run while it holds 5 credits"},
	"a run without terms holds credits": {"priced", func(j *editedJournal) {
		j.add(0, seenEvent{Event: journal.Event{Kind: journal.EvCreditsReserved, Step: -1, N: 1}})
	}, "I11: event 2 holds credits for a run that costs nothing"},
	"a run without terms is estimated": {"priced", func(j *editedJournal) {
		j.add(0, seenEvent{Event: journal.Event{Kind: journal.EvCreditsEstimated, Step: -1, M: 1}})
	}, "R15: event 2 estimates 1 credits after 0"},
	"a new estimate is the old one": {"paid", func(j *editedJournal) {
		ev := j.events[1]
		ev.Kind, ev.N = journal.EvCreditsEstimated, 0
		j.add(1, ev)
	}, "R15: event 3 estimates"},
	"credits are reserved twice": {"paid", func(j *editedJournal) { j.add(1, j.events[1]) },
		"I11: event 3 reserves credits, and 3 are held"},
	"more is held than the run may pay": {"paid", func(j *editedJournal) { j.at(journal.EvCreditsReserved, "", 1).N = 7 },
		"I11: event 2 holds 7 credits more; 0 are settled and 0 held of at most 6"},
	"a settlement leaves credits over": {"paid", func(j *editedJournal) { j.at(journal.EvCreditsSettled, "", 1).M-- },
		"settles 3 and releases 1 of 5 credits"},
	"a settlement of another amount": {"paid", func(j *editedJournal) {
		ev := j.at(journal.EvCreditsSettled, "", 1)
		ev.N, ev.M = ev.N+1, ev.M-1
	}, "settles 4 credits; the run owes 3, has paid 0 before and holds 5"},
	"a later generation pays twice": {"paid", func(j *editedJournal) {
		ev := j.at(journal.EvCreditsSettled, "", 2)
		ev.N, ev.M = ev.N+1, ev.M-1
	}, "the run owes 4, has paid 3 before"},
}

func init() { maps.Copy(ruleCases, creditRules) }
