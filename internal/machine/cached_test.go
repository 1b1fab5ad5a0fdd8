// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"time"

	"github.com/roux-engine/roux/internal/journal"
)

// cacheRules are the cases of ruleCases about earlier results (I12).
var cacheRules = map[string]ruleCase{
	"an earlier result completes nothing": {"cached", func(j *editedJournal) { j.drop(j.find(journal.EvNodeCompleted, "a", 1)) },
		"I12: event 6 charges a step that event 7 does not complete"},
	"an earlier result is that of another step": {"cached", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeCached, "a", 1), j.find(journal.EvNodeStarted, "b", 1))
	}, "I12: event 6 completes a step with an earlier result that no event names"},
	"a step completes with an earlier result of its own": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCompleted, "a", 1).Flag = 0 },
		"I12: event 5 has an earlier result for a step that event 7 does not complete with it"},
	"an earlier result costs what a call costs": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCharged, "a", 1).N = 400_000 },
		"step a, node.charged: I12: it is charged 0.4 credits, its price is 0.1"},
	"an earlier result has the cost of an action": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCompleted, "b", 1).N = 1 },
		"does not complete with it"},
	"a step may not use an earlier result": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCached, "b", 1).Step++ },
		"has an earlier result for a step that may not use one"},
	"an earlier result is not named": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCached, "b", 1).Text = "" },
		"names no earlier result"},
	"an earlier result is that of no attempt": {"cached", func(j *editedJournal) { j.at(journal.EvNodeCached, "b", 1).Data = []byte(`[]`) },
		"names no earlier result"},
	"a step that waits has an earlier result": {"cached", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeStarted, "b", 1), j.find(journal.EvNodeCompleted, "b", 1))
	}, "X76"},
}

func init() {
	maps.Copy(ruleCases, cacheRules)
	ruleRuns["cached"] = cachedRun
}

var cachedRun = ruleRun{`
steps:
  - {id: a, action: {name: priced}, cache: {price: "0.1"}}
  - {id: b, action: {name: work}, cache: true}
  - {id: c, action: {name: work}}
`, []string{`start`, `finish a cached=run_9`, `finish b cached=run_9`, `finish c`}}

// printCache prints for which earlier results an attempt asks.
func (w *fakeEngine) printCache(c Command) {
	t := w.run.Task(c.Ref, c.Fence)
	if t == nil {
		return
	}
	k, key, fail := t.Cache()
	switch {
	case fail != nil:
		fmt.Fprintf(&w.out, " cache: %s %s", fail.Code, fail.Msg)
	case k != nil:
		fmt.Fprintf(&w.out, " cache=%s key=%s", time.Duration(k.TTLMS)*time.Millisecond, key)
	}
}
