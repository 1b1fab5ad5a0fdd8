// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"maps"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// A ruleRun is a recipe and the lines that play it, in the form of scenarios.
type ruleRun struct {
	recipe string
	lines  []string
}

// childRuns are the runs of ruleRuns that have child runs, or are one.
var childRuns = map[string]ruleRun{
	"child": {`
steps:
  - {id: a, retryPolicy: {maxAttempts: 2, initialDelay: 1s}, recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}}}
  - {id: b, action: {name: work}}
`, []string{`start`, `child a status=failed code=SERVICE_UNAVAILABLE msg=down steps=2`, `after 2s`, `more a resource=steps n=4`, `child a outputs={"k":1} steps=18`, `finish b`}},
	"child paid": {`
steps:
  - {id: a, recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}}}
`, []string{`start estimated=5 reserved=5 most=9`, `child a outputs={"k":1} used=4.5 steps=1`}},
	"below": {`
steps:
  - {id: a, action: {name: work}}
  - {id: b, transform: {expression: "1"}}
  - {id: c, action: {name: work}}
`, []string{`start estimated=4 reserved=2 most=5 share={"credits":2,"steps":1,"memory":100000}`, `finish a`, `finish c`}},
	"goes on": {`
steps:
  - {id: a, retryPolicy: {maxAttempts: 2, initialDelay: 1s}, recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}, resume: true}}
`, []string{`start`, `child a status=failed code=SERVICE_UNAVAILABLE msg=down steps=2`, `after 2s`, `child a outputs={"k":1} steps=3`}},
	"pinned": {`
steps:
  - {id: a, recipe: {ref: "{{ input.kind }}"}}
`, []string{`start input={"kind":"x"}`, `pin x version=1.0.0`, `child a outputs={"k":1} steps=1`}},
	"resumed": {`
steps:
  - {id: a, action: {name: work}}
`, []string{`start estimated=4 reserved=2 most=9 share={"credits":4,"steps":3,"memory":60000}`, `fail a code=FILE_INVALID msg=bad`,
		`resume attempt=2 share={"credits":3,"steps":5,"memory":60000}`, `finish a`}},
}

func extensionOf(j *editedJournal, res journal.Resource) *seenEvent {
	for n := 1; ; n++ {
		if ev := j.at(journal.EvRunExtended, "", n); ev.Resource() == res {
			return ev
		}
	}
}

// childRules are the cases of ruleCases about child runs (checker_child.go, checkShare).
var childRules = map[string]ruleCase{
	"a run ends before its child run": {"child", func(j *editedJournal) {
		j.add(j.find(journal.EvChildStarted, "a", 1), seenEvent{Event: journal.Event{Kind: journal.EvRunCompleted, Step: -1}})
	}, "I6: event 5 ends the run while 1 of its child runs go on"},
	"a root run gets a share": {"child", func(j *editedJournal) {
		j.add(j.find(journal.EvNodeQueued, "a", 1), seenEvent{Event: journal.Event{Kind: journal.EvRunExtended, Step: -1, Flag: uint8(journal.StepsShare), N: 1}})
	}, "X60: event 3 adds 1 to the share of a run"},
	"a child run gets nothing": {"below", func(j *editedJournal) { extensionOf(j, journal.StepsShare).N = 0 },
		"adds 0 to the share of a run"},
	"a child run starts with less than nothing": {"child", func(j *editedJournal) { j.at(journal.EvChildStarted, "a", 1).Data = []byte(`{"steps":-1}`) },
		`X60: event 4 starts a child run of a step that has none, or with the share {"steps":-1}`},
	"a child run starts with no share": {"child", func(j *editedJournal) { j.at(journal.EvChildStarted, "a", 1).Data = []byte(`{`) },
		`X60: event 4 starts a child run of a step that has none, or with the share {`},
	"an action starts a child run": {"child", func(j *editedJournal) {
		ev := j.at(journal.EvNodeStarted, "b", 1)
		ev.Kind, ev.Text, ev.Data = journal.EvChildStarted, "run_2", []byte(`{}`)
	}, "starts a child run of a step that has none"},
	"a child run starts twice": {"child", func(j *editedJournal) { i := j.find(journal.EvChildStarted, "a", 1); j.add(i, j.events[i]) },
		"I3: event 5 starts child run"},
	"a child run is started again": {"child", func(j *editedJournal) {
		j.at(journal.EvChildStarted, "a", 2).Text = j.at(journal.EvChildStarted, "a", 1).Text
	}, "and the step runs one or has run it"},
	"a child run has no id": {"child", func(j *editedJournal) { j.at(journal.EvChildStarted, "a", 1).Text = "" },
		`I3: event 4 starts child run "", and`},
	"the child run of another attempt gets more": {"child", func(j *editedJournal) { j.at(journal.EvChildExtended, "a", 1).Attempt-- },
		"is about attempt 1, whose child run has ended or was never started"},
	"a child run ends twice": {"child", func(j *editedJournal) { i := j.find(journal.EvChildEnded, "a", 1); j.add(i, j.events[i]) },
		"is about attempt 1, whose child run has ended or was never started"},
	"a child run costs more than its share": {"child paid", func(j *editedJournal) { j.at(journal.EvChildEnded, "a", 1).N = 5_000_001 },
		"charges 5.000001 credits for a child run, its share is 5"},
	"a child run gives credits": {"child paid", func(j *editedJournal) { j.at(journal.EvChildEnded, "a", 1).N = -1 },
		"I11: event 6 charges"},
	"a child run began more steps than its share": {"child", func(j *editedJournal) { j.at(journal.EvChildEnded, "a", 2).M = 21 },
		"says that a child run began 21 steps, its share is 20"},
	"a child run began less than no step": {"child", func(j *editedJournal) { j.at(journal.EvChildEnded, "a", 1).M = -1 },
		"says that a child run began -1 steps, its share is 16"},
	"a child run ends in the middle": {"child", func(j *editedJournal) { j.at(journal.EvChildEnded, "a", 1).Flag = uint8(journal.RunRunning) },
		"ends a child run as running"},
	"a step is tried again while its child run goes on": {"child", func(j *editedJournal) { j.drop(j.find(journal.EvChildEnded, "a", 1)) },
		"is node.retried, and the child run of attempt 1 goes on"},
	"a step completes while its child run goes on": {"child", func(j *editedJournal) { j.drop(j.find(journal.EvChildEnded, "a", 2)) },
		"is node.completed, and the child run of attempt 2 goes on"},
	"a child run is lost": {"child", func(j *editedJournal) { j.at(journal.EvNodeRetried, "a", 1).Kind = journal.EvNodeLost },
		"loses a child run, which has a journal of its own"},
	"a child run goes on that the step has not run": {"goes on", func(j *editedJournal) { j.at(journal.EvChildStarted, "a", 2).Text = "run_other" },
		`goes on with child run "run_other", which the step has not run or which does not go on`},
	"a name is pinned twice": {"pinned", func(j *editedJournal) {
		i := j.find(journal.EvRunPinned, "", 1)
		j.add(i+1, j.events[i])
	}, `R28: event 7 pins "x", which is pinned, or the run is no root`},
	"a pin lacks what it is": {"pinned", func(j *editedJournal) { j.at(journal.EvRunPinned, "", 1).Text = "y" },
		`R28: event 5 pins what it does not have: no recipe "y" is in`},
	"a run goes on in the middle": {"resumed", func(j *editedJournal) {
		ev := j.events[j.find(journal.EvRunResumed, "", 1)]
		ev.Attempt++
		j.add(j.find(journal.EvNodeQueued, "a", 2), ev)
	}, "goes on in the middle of generation 2"},
	"a run goes on as an attempt before": {"resumed", func(j *editedJournal) { j.at(journal.EvRunResumed, "", 1).Attempt = 1 },
		"of a child run that was attempt"},
	"a run that goes on is charged again": {"resumed", func(j *editedJournal) { j.at(journal.EvRunResumed, "", 1).Data = []byte(`{`) },
		"I11: event"},
	"a child run reserves credits": {"below", func(j *editedJournal) {
		j.add(0, seenEvent{Event: journal.Event{Kind: journal.EvCreditsReserved, Step: -1, N: 1}})
	}, "I11: event 2 moves credits of a child run"},
	"a child run settles": {"below", func(j *editedJournal) {
		j.add(0, seenEvent{Event: journal.Event{Kind: journal.EvCreditsSettled, Step: -1}})
	}, "I11: event 2 moves credits of a child run"},
	"a child run gets more credits than it may use": {"below", func(j *editedJournal) { extensionOf(j, journal.CreditsShare).N = 4 },
		"adds 4 credits to 2; the run may use"},
}

func init() {
	maps.Copy(ruleRuns, childRuns)
	maps.Copy(ruleCases, childRules)
}

// A step's history has no output of a child run that completed after the step had given
// it up.
func TestHistoryDropsLateOutput(t *testing.T) {
	for _, retry := range []string{"2", "1"} {
		w := &fakeEngine{t: t, now: t0, auto: true}
		w.play("name: r\nsteps: [{id: a, timeout: 10s, retryPolicy: {maxAttempts: " + retry + ", initialDelay: 1s, retryableErrors: [timeout]}, " +
			"recipe: {inline: {name: below, steps: [{id: k, transform: {expression: '1'}}]}}}]\n")
		for _, line := range []string{`start`, `after 10s`, `child a outputs={"k":1}`} {
			w.line(line)
		}
		h := journal.NewHistory(w.prog.plan, 0)
		ended := false
		if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error {
			h.Add(ev)
			ended = ended || ev.Kind == journal.EvChildEnded && len(ev.Data) > 0
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		steps, _ := h.Steps()
		if a := steps["a"]; !ended || a.Output != nil || a.Error == nil {
			t.Errorf("%s attempts: child run completed %v, step %+v", retry, ended, a)
		}
	}
}
