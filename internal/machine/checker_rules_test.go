// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// ruleRuns are the runs whose journals the cases break. Each is as small as its rules
// allow.
var ruleRuns = map[string]ruleRun{
	"pair": {`
steps:
  - {id: a, action: {name: work}, outputBinding: made}
  - {id: b, dependsOn: [a], transform: {expression: made}}
  - {id: c, dependsOn: [b], action: {name: work}}
`, []string{`start`, `progress a delta=x`, `progress a delta=y`, `finish a output=1`, `finish c`, `retry from=a`, `finish a output=2`, `finish c`}},
	"twice": {`
steps:
  - {id: a, action: {name: work}, outputBinding: made}
  - {id: b, action: {name: work}, outputBinding: made}
`, []string{`start`, `finish a output=1`, `finish b output=2`, `retry from=b`, `finish b output=3`}},
	"free": {`
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}}
  - {id: t, transform: {expression: "1"}}
  - {id: p, parallel: {branches: [[{id: x, action: {name: work}}]]}}
`, []string{`start`, `fail a code=FILE_INVALID msg=bad`}},
	"times": {`
ttl: 1h
steps:
  - {id: a, wait: {duration: 30m}}
  - {id: b, wait: {signal: go, timeout: 10m}, continue_on_error: true}
  - {id: c, action: {name: work}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}}
`, []string{`start`, `after 30m`, `after 10m`, `fail c code=SERVICE_UNAVAILABLE msg=down`, `after 2s`, `after 1h`}},
	"lost": {`
steps:
  - {id: a, action: {name: work}}
`, []string{`start`, `lost a`, `lost a handedBack=stop`, `lost a`, `lost a`, `lost a`}},
	"cancelled": {`
steps:
  - {id: a, action: {name: work}}
`, []string{`start`, `cancel`, `after 1m`, `retry`, `finish a`}},
	"late": {`
steps:
  - {id: a, action: {name: work}, timeout: 10s, retryPolicy: {maxAttempts: 2, initialDelay: 1s, retryableErrors: [timeout]}}
`, []string{`start`, `after 10s`, `after 2s`, `finish a`}},
	"undone": {`
steps:
  - {id: a, action: {name: work}, timeout: 10s, compensate: {action: {name: undo}}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: work}}}}
  - {id: b, action: {name: work}}
`, []string{`start`, `after 10s`, `finish a.fallback.f`, `cancel`, `finish a.compensation.a-undo`, `retry`, `finish a`}},
	"waves": {`
scheduling: waves
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}}
  - {id: c, action: {name: work}, dependsOn: [a]}
`, []string{`start`, `finish a`, `finish b`, `finish c`}},
	"limits": {`
order: none
limits: {max_total_steps: 4}
steps:
  - {id: l, loop: {over: '[1, 2, 3]', steps: [{id: x, transform: {expression: item}}]}}
  - {id: z, transform: {expression: '0'}}
`, []string{`start`, `retry steps=9`}},
	"priced": {`
steps:
  - {id: a, action: {name: priced}, retryPolicy: {maxAttempts: 2, initialDelay: 1s}}
  - {id: b, action: {name: priced}}
`, []string{`start`, `fail a price=0.2 code=SERVICE_UNAVAILABLE msg=down`, `after 2s`, `finish a price=0.3`, `finish b price=0.4`}},
	"paid": {`
steps:
  - {id: a, action: {name: priced}}
  - {id: b, action: {name: work}}
  - {id: c, action: {name: work}}
`, []string{`start estimated=2 reserved=3 most=6`, `finish a price=0.3`, `finish b cost=2`, `fail c code=FILE_INVALID msg=bad`, `retry`, `finish c cost=1`}},
	"paused": {`
steps:
  - {id: a, action: {name: work}}
  - {id: b, action: {name: work}}
`, []string{`manual`, `start`, `pause`, `grant a`, `unpause`, `grant a`, `pause`, `finish a`, `unpause`, `grant b`, `finish b`}},
	"queued": {`
steps:
  - {id: a, action: {name: work}}
`, []string{`start queued=true`, `admit`, `finish a`}},
	"each": {`
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: each, dependsOn: [a], loop: {over: '[1, 2]', steps: [{id: x, action: {name: work}}]}}
`, []string{`start`, `finish a`, `lost each[0].x`, `finish each[0].x`, `fail each[1].x code=FILE_INVALID msg=bad`, `retry`, `cancel`, `retry from=a`, `finish a`}},
}

// A seenEvent is an event as the checker gets it, with the effect key of the attempt
// that the event starts.
type seenEvent struct {
	journal.Event
	key string
}

// An editedJournal is the journal of a run of ruleRuns, which a case changes.
type editedJournal struct {
	t      testing.TB
	plan   *plan.Plan
	events []seenEvent
}

func accountOf(t *testing.T, name string) *editedJournal {
	t.Helper()
	story := ruleRuns[name]
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play("name: " + name + story.recipe)
	for _, line := range story.lines {
		w.line(line)
	}
	if out := w.out.String(); strings.Contains(out, "refused") {
		t.Fatal(out)
	}
	events, err := decodeAll(w.led.frames)
	if err != nil {
		t.Fatal(err)
	}
	j := &editedJournal{t: t, plan: w.prog.plan}
	run := NewRun(w.prog)
	for _, ev := range events {
		again, key := ev, ""
		if err := run.Apply(&again); err != nil {
			t.Fatal(err)
		}
		if s, i := run.at(ev.Ref()); ev.Kind == journal.EvNodeStarted {
			key = run.effectKey(s, i)
		}
		j.events = append(j.events, seenEvent{ev, key})
	}
	return j
}

// check runs the checker over the journal.
func (j *editedJournal) check() error {
	w := journal.NewChecker(j.plan)
	for i := range j.events {
		ev := &j.events[i]
		if err := w.Check(&ev.Event); err != nil {
			return err
		}
		if err := w.CheckEffectKey(&ev.Event, w.Generation(), ev.key); err != nil {
			return err
		}
	}
	return nil
}

// find is the index of the nth event, from 1, of that kind and step; "" is the run.
func (j *editedJournal) find(kind journal.EventKind, step string, nth int) int {
	j.t.Helper()
	for i := range j.events {
		if ev := &j.events[i]; ev.Kind == kind && journal.StepPath(j.plan, ev.Ref()) == step {
			if nth--; nth == 0 {
				return i
			}
		}
	}
	j.t.Fatalf("no such event: kind %d, step %q", kind, step)
	return 0
}

func (j *editedJournal) at(kind journal.EventKind, step string, nth int) *seenEvent {
	return &j.events[j.find(kind, step, nth)]
}

// cut ends the journal after event i.
func (j *editedJournal) cut(i int) { j.events = j.events[:i+1] }

// drop removes an event.
func (j *editedJournal) drop(i int) { j.put(slices.Delete(j.events, i, i+1)) }

// add inserts an event after event i.
func (j *editedJournal) add(i int, ev seenEvent) { j.put(slices.Insert(j.events, i+1, ev)) }

// move moves the event at index from to index to.
func (j *editedJournal) move(from, to int) {
	ev := j.events[from]
	j.put(slices.Insert(slices.Delete(j.events, from, from+1), to, ev))
}

// put renumbers the events and makes their times ascend.
func (j *editedJournal) put(events []seenEvent) {
	j.events = events
	for i := range events {
		events[i].Seq = uint64(i + 1)
		if i > 0 {
			events[i].At = max(events[i].At, events[i-1].At)
		}
	}
}

// renumber adds to the numbers of the events from i on.
func (j *editedJournal) renumber(i, by int) {
	for ; i < len(j.events); i++ {
		j.events[i].Seq = uint64(int(j.events[i].Seq) + by)
	}
}

// earlier moves the events from i on back in time by us.
func (j *editedJournal) earlier(i int, us int64) {
	for ; i < len(j.events); i++ {
		j.events[i].At -= us
	}
}

// raise makes the retry of "limits" raise them to data.
func raise(data string) func(j *editedJournal) {
	return func(j *editedJournal) { j.at(journal.EvRunLimits, "", 1).Data = []byte(data) }
}

// A ruleCase breaks one rule by one change of a valid journal. The case cuts off later
// events where they would break another rule.
type ruleCase struct {
	run    string
	change func(j *editedJournal)
	want   string // of the error
}

var ruleCases = map[string]ruleCase{
	"a number is left out": {"pair", func(j *editedJournal) { j.renumber(4, 1) },
		"I14: event 6 follows event 4"},
	"a number stands twice": {"pair", func(j *editedJournal) { j.renumber(4, -1) },
		"I14: event 4 follows event 4"},
	"time falls": {"times", func(j *editedJournal) { j.events[len(j.events)-1].At-- },
		"I10: event 14 is older than the one before"},
	"a kind beyond the last": {"pair", func(j *editedJournal) {
		j.at(journal.EvNodeQueued, "a", 1).Kind = journal.Kinds()[len(journal.Kinds())-1] + 1
	},
		"I23: event 2 is of the unknown kind 56"},
	"a kind that no release has": {"pair", func(j *editedJournal) { i := j.find(journal.EvRunCompleted, "", 1); j.events[i].Kind = 99; j.cut(i) },
		"I23: event 12 is of the unknown kind 99"},
	"something happens after the end": {"pair", func(j *editedJournal) {
		j.add(j.find(journal.EvRunCompleted, "", 1), seenEvent{Event: journal.Event{Kind: journal.EvRunSignalled, Step: -1}})
	},
		"I7: the run is completed, and event 13 is run.signalled"},
	"a generation is left out": {"pair", func(j *editedJournal) { j.at(journal.EvRunRetried, "", 1).N = 3 },
		"I7: event 13 opens generation 3 after 1"},
	"a generation comes twice": {"pair", func(j *editedJournal) { i := j.find(journal.EvRunRetried, "", 1); j.events[i].N = 1; j.cut(i) },
		"I7: event 13 opens generation 1 after 1"},

	"limits are no JSON": {"limits", raise(`{"steps":9,"items":100000,"depth":32,"memory":268435456,"cost":""}`),
		`I2: event 14 holds no limits: "{\"steps\":9,`},
	"limits stay": {"limits", raise(`{"steps":4,"items":100000,"depth":32,"memory":268435456}`),
		"I7: event 14 raises no limit: {TotalSteps:4 LoopItems:100000 ScopeDepth:32 MemoryBytes:268435456 ExpressionCost:0 ChildDepth:0} after"},
	"fewer steps": {"limits", raise(`{"steps":2,"items":100001,"depth":32,"memory":268435456}`),
		"I7: event 14 raises no limit"},
	"fewer items": {"limits", raise(`{"steps":9,"items":99999,"depth":32,"memory":268435456}`),
		"I7: event 14 raises no limit"},
	"less memory": {"limits", raise(`{"steps":9,"items":100000,"depth":32,"memory":268435455}`),
		"I7: event 14 raises no limit"},
	"cheaper expressions": {"limits", raise(`{"steps":9,"items":100000,"depth":32,"memory":268435456,"cost":1}`),
		"I7: event 14 raises no limit"},
	"limits rise without a retry": {"limits", func(j *editedJournal) { j.move(j.find(journal.EvRunLimits, "", 1), 1) },
		"I7: event 2 changes the limits in the middle of generation 1"},

	"a status that was not": {"pair", func(j *editedJournal) { j.at(journal.EvRunStatus, "", 1).N = int64(journal.RunPreview) },
		"X80: event 3 says the run was preview, it was dispatching"},
	"another end than the verdict": {"cancelled", func(j *editedJournal) { j.at(journal.EvRunCancelled, "", 1).Kind = journal.EvRunFailed },
		"I8: the verdict was cancelled, and event 7 ends the run failed"},
	"two verdicts": {"cancelled", func(j *editedJournal) { i := j.find(journal.EvRunEnding, "", 1); j.add(i, j.events[i]) },
		"I8: event 6 fixes the verdict cancelled, which was cancelled"},
	"expired early": {"times", func(j *editedJournal) { j.earlier(j.find(journal.EvRunEnding, "", 1), 2402e6+1) },
		"I9: event 12 ends the run 1 µs before its ttl"},
	"expired early in generation 2": {"cancelled", func(j *editedJournal) {
		i := j.find(journal.EvNodeCompleted, "a", 1)
		j.events[i].Event = journal.Event{Kind: journal.EvRunEnding, Step: -1, Flag: uint8(journal.RunExpired), Seq: j.events[i].Seq, At: j.at(journal.EvRunRetried, "", 1).At + j.plan.TTLMS*1000 - 1}
		j.cut(i)
	}, "ends the run 1 µs before its ttl"},
	"two starts": {"pair", func(j *editedJournal) { j.add(0, j.events[0]) },
		"X77: event 2 makes a run that was dispatching dispatching"},
	"a preview before anything runs": {"pair", func(j *editedJournal) { j.at(journal.EvRunStatus, "", 1).Flag = uint8(journal.RunPreview) },
		"X77: event 3 makes a run that was dispatching preview"},
	"a cancel without its verdict": {"cancelled", func(j *editedJournal) { j.drop(j.find(journal.EvRunEnding, "", 1)) },
		"I8: event 6 ends the run cancelled, and nothing had fixed that verdict"},
	"an expiry without its verdict": {"times", func(j *editedJournal) { j.drop(j.find(journal.EvRunEnding, "", 1)) },
		"I8: event 13 ends the run expired, and nothing had fixed that verdict"},

	"a part of a stream is missing": {"pair", func(j *editedJournal) { j.drop(j.find(journal.EvNodeDelta, "a", 1)) },
		"I14: delta 1 follows 0 others"},
	"a part of a stream stands twice": {"pair", func(j *editedJournal) { i := j.find(journal.EvNodeDelta, "a", 1); j.add(i, j.events[i]) },
		"I14: delta 0 follows 1 others"},
	"an attempt twice": {"times", func(j *editedJournal) { i := j.find(journal.EvNodeStarted, "c", 2); j.events[i].Attempt = 1; j.cut(i) },
		"step c, node.started: I3: attempt 1 was handed out after attempt 1"},
	"a step settles before its loop opens, and again": {"limits", func(j *editedJournal) {
		i := j.find(journal.EvNodeOpened, "l", 1)
		j.add(i-1, *j.at(journal.EvNodeCompleted, "l[0].x", 1))
	}, "step l[0].x, node.completed: I3: it settled twice in generation 1"},

	"an attempt begins while the run is paused": {"paused", func(j *editedJournal) { j.drop(j.find(journal.EvRunUnpaused, "", 1)) },
		"step a, node.started: X76: attempt 1 begins while the run is paused"},
	"a step begins while the run is queued": {"queued", func(j *editedJournal) { j.drop(j.find(journal.EvRunStatus, "", 2)) },
		"step a, node.queued: X206: it begins while the run is queued"},
	"a run that has begun is queued": {"queued", func(j *editedJournal) {
		ev := *j.at(journal.EvRunStatus, "", 1)
		ev.N = int64(journal.RunRunning)
		j.add(j.find(journal.EvNodeStarted, "a", 1), ev)
	}, "X206: event 7 queues a run that has begun"},
	"a paused run is paused": {"paused", func(j *editedJournal) { i := j.find(journal.EvRunPaused, "", 1); j.add(i, j.events[i]) },
		"X76: event 4 pauses a paused run, or unpauses one that is not"},

	"a step begins before one that it waits for settles": {"pair", func(j *editedJournal) { j.move(j.find(journal.EvNodeQueued, "c", 1), 3) },
		"step c, node.queued: I5: it begins while b is pending"},
	"a step completes before one that it waits for settles": {"pair", func(j *editedJournal) { j.move(j.find(journal.EvNodeCompleted, "b", 1), 3) },
		"step b, node.completed: I5: it begins while a is queued"},
	"a reset step completes before one that it waits for settles": {"pair", func(j *editedJournal) {
		i := j.find(journal.EvNodeStarted, "a", 2)
		j.move(j.find(journal.EvNodeCompleted, "b", 2), i)
		j.cut(i)
	}, "step b, node.completed: I5: it begins while a is queued"},
	"a step is ready before one that it waits for settles": {"waves", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeReady, "c", 1), j.find(journal.EvNodeCompleted, "a", 1))
	},
		"step c, node.ready: I5: it begins while a is running"},
	"a loop opens before what it waits for settles": {"each", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeOpened, "each", 1), j.find(journal.EvNodeCompleted, "a", 1))
	},
		"step each, node.started: I5: it begins while a is running"},
	"a wait begins before what it waits for settles": {"times", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeWaiting, "b", 1), j.find(journal.EvNodeCompleted, "a", 1))
	},
		"step b, node.waiting: I5: it begins while a is waiting"},
	"an item is next after the verdict": {"each", func(j *editedJournal) {
		j.add(j.find(journal.EvRunEnding, "", 1), *j.at(journal.EvNodeIteration, "each", 2))
	},
		"step each, node.progress: X95: its scope has ended"},
	"a step begins before its wave": {"waves", func(j *editedJournal) {
		i := j.find(journal.EvNodeCompleted, "b", 1)
		j.move(j.find(journal.EvNodeQueued, "c", 1), i)
	},
		"step c, node.queued: X58: it begins while b of an earlier wave is running"},
	"a step begins after the failure that ends its scope": {"free", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeStarted, "b", 1), j.find(journal.EvNodeFailed, "a", 1))
	},
		"step b, node.started: X95: its scope has ended"},
	"a step completes after the failure that ends its scope": {"free", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeCompleted, "t", 1), j.find(journal.EvNodeFailed, "a", 1))
	},
		"step t, node.completed: X95: its scope has ended"},
	"a branch begins after a failure around it": {"free", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeStarted, "p[0].x", 1), j.find(journal.EvNodeFailed, "a", 1))
	},
		"step p[0].x, node.started: X95, I8: a scope around it has ended"},
	"a step begins after the verdict": {"cancelled", func(j *editedJournal) {
		j.move(j.find(journal.EvNodeStarted, "a", 1), j.find(journal.EvRunEnding, "", 1))
	},
		"step a, node.started: X95: its scope has ended"},
	"an item begins after the verdict": {"each", func(j *editedJournal) {
		i := j.find(journal.EvRunEnding, "", 1)
		j.move(j.find(journal.EvNodeStarted, "each[1].x", 2), i)
	}, "step each[1].x, node.started: X95, I8: a scope around it has ended"},

	"a wait ends early": {"times", func(j *editedJournal) {
		j.earlier(j.find(journal.EvNodeCompleted, "a", 1), 1)
		j.cut(j.find(journal.EvNodeCompleted, "a", 1))
	},
		"step a, node.completed: I9: its timer fired 1 µs early"},
	"a signal is given up early": {"times", func(j *editedJournal) { i := j.find(journal.EvNodeFailed, "b", 1); j.earlier(i, 1); j.cut(i) },
		"step b, node.timed_out: I9: its timer fired 1 µs early"},
	"the next try comes early": {"times", func(j *editedJournal) {
		i := j.find(journal.EvNodeQueued, "c", 2)
		j.events[i].At = j.at(journal.EvNodeRetried, "c", 1).N - 1
		j.cut(i)
	}, "step c, node.queued: I9: its timer fired 1 µs early"},

	"a reset in the middle": {"pair", func(j *editedJournal) {
		i := j.find(journal.EvNodeCompleted, "c", 1)
		j.add(i, *j.at(journal.EvNodeInvalidated, "c", 1))
		j.cut(i + 1)
	}, "step c, node.invalidated: X119: it is reset in the middle of generation 1"},
	"a reset from another status": {"each", func(j *editedJournal) {
		j.at(journal.EvNodeInvalidated, "each[1].x", 1).Flag = uint8(journal.Cancelled)
	},
		"step each[1].x, node.invalidated: X76: it is reset from cancelled, it was failed"},
	"a step is handed out that nobody queued": {"pair", func(j *editedJournal) { j.drop(j.find(journal.EvNodeQueued, "a", 1)) },
		"step a, node.started: X76: it was pending and became running"},
	"a report of a step that does not run": {"pair", func(j *editedJournal) {
		i := j.find(journal.EvNodeDelta, "a", 1)
		j.move(i, j.find(journal.EvNodeStarted, "a", 1))
	}, "step a, node.stream.delta: X76: it was queued and became queued"},
	"a completed step goes on": {"pair", func(j *editedJournal) {
		i := j.find(journal.EvNodeInvalidated, "a", 1)
		j.events[i].N = 1
		j.cut(i)
	}, "step a, node.invalidated: X76: it was completed and became running"},

	"a key changes after a crash": {"lost", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 2).key = "other" },
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"a key changes after a clean stop": {"lost", func(j *editedJournal) {
		i := j.find(journal.EvNodeStarted, "a", 3)
		j.events[i].key = "other"
		j.cut(i)
	},
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"a key changes after a timeout": {"late", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 2).key = "other" },
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"a key changes after a cancel": {"cancelled", func(j *editedJournal) { j.at(journal.EvNodeStarted, "a", 2).key = "other" },
		"I4: a: the outcome of the last attempt is unknown and its key has changed"},
	"a key changes in an item": {"each", func(j *editedJournal) { j.at(journal.EvNodeStarted, "each[0].x", 2).key = "other" },
		"I4: each[0].x: the outcome of the last attempt is unknown and its key has changed"},
	"a key of another step": {"pair", func(j *editedJournal) {
		j.at(journal.EvNodeStarted, "c", 1).key = j.at(journal.EvNodeStarted, "a", 1).key
	},
		"I4: c: a new effect has the key of an old one"},
	"an old key after a certain failure": {"times", func(j *editedJournal) {
		j.at(journal.EvNodeStarted, "c", 2).key = j.at(journal.EvNodeStarted, "c", 1).key
	},
		"I4: c: a new effect has the key of an old one"},
	"an old key after a completion": {"pair", func(j *editedJournal) {
		j.at(journal.EvNodeStarted, "a", 2).key = j.at(journal.EvNodeStarted, "a", 1).key
	},
		"I4: a: a new effect has the key of an old one"},
	"an old key after a compensation": {"undone", func(j *editedJournal) {
		j.at(journal.EvNodeStarted, "a", 2).key = j.at(journal.EvNodeStarted, "a", 1).key
	},
		"I4: a: a new effect has the key of an old one"},

	"what waits for a reset step is not reset": {"pair", func(j *editedJournal) {
		i := j.find(journal.EvNodeInvalidated, "c", 1)
		j.drop(i)
		j.cut(i)
	}, "event 15 opened generation 2: X119: b is reset, and c, which waits for it, stays completed"},
	"what owns a reset step is not reset": {"each", func(j *editedJournal) {
		i := j.find(journal.EvNodeInvalidated, "each", 1)
		j.drop(i)
		j.cut(i + 1)
	}, "opened generation 2: X119: each[1].x is reset, and each, which owns it, stays failed"},
	"a step goes on before what it waits for": {"each", func(j *editedJournal) {
		i := j.find(journal.EvNodeInvalidated, "each", 2)
		j.events[i].N = 1
		j.cut(i + 1)
	}, "opened generation 3: I5: each goes on in the middle while a, which it waits for, is invalidated"},

	"it goes on after a fourth crash": {"lost", func(j *editedJournal) {
		i := j.find(journal.EvNodeFailed, "a", 1)
		ev := &j.events[i]
		ev.Kind, ev.Code, ev.Text = journal.EvNodeLost, "", ""
		j.cut(i)
	}, "step a, node.retried: X90: attempt 5 is lost after 3 others, and it goes on"},
	"it is given up too early": {"lost", func(j *editedJournal) { j.at(journal.EvNodeLost, "a", 1).Flag = 1 },
		"step a, node.failed: X90: it is given up after 2 attempts that were lost to crashes"},

	"outputs are a list": {"pair", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 1).Data = []byte(`[1]`) },
		"R41: event 12 gives outputs that are no object: [1]"},
	"outputs are no JSON": {"pair", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 1).Data = []byte(`{"made":1`) },
		`R41: event 12 gives outputs that are no object: {"made":1`},
	"outputs hold another value": {"pair", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 1).Data = []byte(`{"made":2}`) },
		`R41: event 12 gives "made" as 2; a bound it last, to 1`},
	"outputs hold the value of another generation": {"pair", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 2).Data = []byte(`{"made":1}`) },
		`gives "made" as 1; a bound it last, to 2`},
	"outputs hold the value that was bound first": {"twice", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 2).Data = []byte(`{"made":1}`) },
		`gives "made" as 1; b bound it last, to 3`},
	"outputs lack a name": {"pair", func(j *editedJournal) { j.at(journal.EvRunCompleted, "", 1).Data = []byte(`{}`) },
		`gives "made" as null; a bound it last, to 1`},
}

// TestCheckerRules: the checker rejects a journal that breaks one of its rules, with
// the message of that rule, and accepts the journal without the change.
func TestCheckerRules(t *testing.T) {
	for name, c := range ruleCases {
		t.Run(name, func(t *testing.T) {
			j := accountOf(t, c.run)
			if err := j.check(); err != nil {
				t.Fatalf("the journal without the change: %v", err)
			}
			c.change(j)
			if err := j.check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("refused with %v, want %q", err, c.want)
			}
		})
	}
}

// A rule is a place in the code where the checker returns an error.
type rule struct {
	place string
	words *regexp.Regexp
}

var verb = regexp.MustCompile(`%[+.\d]*[a-z]`)

// rulesIn lists the calls that make an error in the files that match the pattern. A
// call that wraps an error (%w) only adds context and does not count.
func rulesIn(t *testing.T, pattern string) (rules []rule) {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		tree, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "Errorf" && f.Sel.Name != "New" {
				return true
			}
			place := files.Position(call.Pos()).String()
			first := slices.IndexFunc(call.Args, func(arg ast.Expr) bool { _, ok := arg.(*ast.BasicLit); return ok })
			if first < 0 {
				t.Fatalf("%s: the words of a refusal are not written where it is made", place)
			}
			text, err := strconv.Unquote(call.Args[first].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, "%w") {
				return true
			}
			var words strings.Builder
			rest := text
			for at := verb.FindStringIndex(rest); at != nil; at = verb.FindStringIndex(rest) {
				words.WriteString(regexp.QuoteMeta(rest[:at[0]]) + ".*")
				rest = rest[at[1]:]
			}
			words.WriteString(regexp.QuoteMeta(rest))
			rules = append(rules, rule{place, regexp.MustCompile(words.String())})
			return true
		})
	}
	return rules
}

// covered fails the test when an error, by the name of its case, matches no rule or
// several, and when a rule has no error.
func covered(t *testing.T, rules []rule, refusals map[string]error) {
	t.Helper()
	met := make([]int, len(rules))
	for name, err := range refusals {
		if err == nil {
			t.Errorf("%s: not refused", name)
			continue
		}
		var by []string
		for i, r := range rules {
			if r.words.MatchString(err.Error()) {
				met[i]++
				by = append(by, r.place)
			}
		}
		if len(by) != 1 {
			t.Errorf("%s: %v is a refusal of %q, want one place", name, err, by)
		}
	}
	for i, n := range met {
		if n == 0 {
			t.Errorf("%s: no case breaks this rule: %s", rules[i].place, rules[i].words)
		}
	}
}

// TestCheckerRulesHaveCases: for each place where the checker returns an error there
// is a journal that it rejects there.
func TestCheckerRulesHaveCases(t *testing.T) {
	rules := rulesIn(t, "../journal/checker*.go")
	if len(rules) < 30 {
		t.Fatalf("found %d rules, want 30 or more: the test does not see them", len(rules))
	}
	refusals := map[string]error{}
	for name, c := range ruleCases {
		j := accountOf(t, c.run)
		c.change(j)
		refusals[name] = j.check()
	}
	covered(t, rules, refusals)
}
