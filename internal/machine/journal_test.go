// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
)

// goldenRuns are the runs whose journals are frozen. Together they contain every kind
// of event. Their recipes and lines have the form of scenarios.
var goldenRuns = map[string]struct {
	recipe string
	lines  []string
}{
	"everything": {
		recipe: `
name: everything
steps:
  - {id: a, action: {name: work, parameters: {n: "{{ input.n }}"}}, outputBinding: made, timeout: 10s, retryPolicy: {maxAttempts: 3, initialDelay: 1s}, compensate: {action: {name: undo}}}
  - id: c
    condition: {expression: "input.n > 1", then: [{id: t, transform: {expression: "made"}}], else: [{id: e, fail: {}}]}
  - id: p
    parallel:
      waitFor: any
      branches:
        - [{id: w, wait: {signal: go}}]
        - [{id: b, action: {name: work}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: work}}}}]
  - {id: l, loop: {over: "files[0]", maxConcurrency: 2, failureStrategy: ignore, steps: [{id: x, action: {name: work, parameters: {i: "{{ item }}"}}}]}, outputBinding: all}
  - {id: d, wait: {duration: 1h}}
  - {id: z, action: {name: work}, total_timeout: 1m}
`,
		lines: []string{
			`start input={"n":2} file=ab`, `progress a fraction=0.5`, `progress a log=hello`, `progress a delta=x`, `preview a output=1`,
			`lost a`, `fail a code=SERVICE_UNAVAILABLE msg=down`, `finish a attempt=1`, `after 2s`, `finish a output={"k":[1,2]}`, `finish a`,
			`fail p[1].b code=FILE_INVALID msg=bad`, `signal other data=1`, `finish p[1].b.fallback.f output=7`,
			`items l from=0 list=[1,{"x":2},3] more=true`, `finish l[0].x`, `fail l[1].x code=OUTPUT_CONTRACT_VIOLATION phase=output`,
			`finish l[2].x`, `items l from=3 list=[] more=false`, `after 1h`, `after 1m`, `finish a.compensation.a-undo`,
			`retry`, `finish a output=3`, `signal go data={"by":"ann"}`, `finish p[1].b`, `cancel`, `finish a.compensation.a-undo`,
		},
	},
	"generations": {
		recipe: `
name: generations
order: none
failure_policy: drain
outputSchema: {type: object, required: [missing]}
steps:
  - {id: a, action: {name: work, parameters: {v: "{{ input.v }}"}}}
  - {id: l, total_timeout: 1h, loop: {over: "[1, 2]", maxConcurrency: 2, failureStrategy: continue, steps: [{id: x, action: {name: work}}]}}
  - {id: o, action: {name: once}, on_parent_failure: skip, dependsOn: [a]}
`,
		lines: []string{
			`manual`, `start input={"v":1}`, `hold a reason=slots`, `grant a`, `grant l[0].x`, `grant l[1].x`, `finish l[0].x`,
			`fail l[1].x code=FILE_INVALID msg=bad`, `fail a code=FILE_INVALID msg=bad`, `retry`, `grant a`, `grant l[1].x`, `finish a`,
			`grant o`, `lost o`, `finish l[1].x`, `edit {"v":2}`, `grant a`, `finish a`, `grant o`, `finish o`, `retry from=l`, `after 2h`,
		},
	},
	"nested": {
		recipe: `
name: nested
steps:
  - id: outer
    loop:
      over: "['a', 'b']"
      as: row
      steps:
        - {id: t, transform: {expression: "row + row"}, outputBinding: twice}
        - {id: inner, loop: {over: "[1, 2]", as: col, maxConcurrency: 2, steps: [{id: x, action: {name: work, parameters: {text: "{{ row }}{{ col }}{{ twice }}"}}}]}}
    outputBinding: all
outputs: {all: all, n: size(all)}
`,
		lines: []string{`start`, `finish outer[0].inner[1].x output=2`, `finish outer[0].inner[0].x output=1`, `restart`, `finish outer[1].inner[0].x output=3`, `finish outer[1].inner[1].x output=4`},
	},
	// Features of later releases: files with inspection results, waits whose length is
	// an expression, references to large values.
	"hands": {
		recipe: `
name: hands
steps:
  - {id: nap, action: {name: sleep, parameters: {duration: "{{ input.pause }}"}}}
  - {id: rest, wait: {until: "input.until"}}
  - {id: read, action: {name: work, parameters: {pages: "{{ files[0].extended.pageCount }}"}}, outputBinding: doc}
  - {id: long, when: "doc.text.size > 1000", transform: {expression: "{'t': doc.text, 'n': doc.text.size}"}}
  - {id: each, loop: {over: doc.list, maxConcurrency: 2, steps: [{id: x, action: {name: work, parameters: {v: "{{ item }}"}}, onError: {strategy: skip}}]}, outputBinding: all}
outputs: {text: doc.text, n: steps.long.output.n, all: all}
`,
		lines: []string{
			`start input={"pause":"PT30M","until":"2026-01-01T02:00:00Z"} file=ab extended={"pageCount":3}`, `after 30m`, `restart`, `after 2h`,
			`finish read output={"list":{"$roux":"ref","bytes":2000000,"hash":"sha256_dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","size":3,"type":"list"},"text":{"$roux":"ref","bytes":3000000,"hash":"sha256_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":3000000,"type":"string"}}`, `restart`,
			`items each from=0 list=[1,{"$roux":"ref","bytes":3000000,"hash":"sha256_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":3000000,"type":"string"},3] more=false`, `finish each[0].x output=1`,
			`fail each[1].x code=FILE_INVALID msg=bad`, `finish each[2].x output={"t":{"$roux":"ref","bytes":3000000,"hash":"sha256_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":3000000,"type":"string"}}`,
		},
	},
	"limits": {
		recipe: `
name: limits
limits: {max_total_steps: 3, max_loop_items: 3}
steps:
  - {id: l, loop: {over: input.list, steps: [{id: b, action: {name: work}}]}}
`,
		lines: []string{`start input={"list":[1,2,3]}`, `finish l[0].b`, `finish l[1].b`, `retry steps=5`, `restart`, `lost all`, `finish l[2].b`,
			`edit {"list":[1,2,3,4]}`, `retry items=9 steps=20 memory=1000000000`, `restart`, `finish l[0].b`, `finish l[1].b`, `finish l[2].b`, `finish l[3].b`},
	},
	"prices": {
		recipe: `
name: prices
order: none
steps:
  - {id: a, action: {name: priced}, retryPolicy: {maxAttempts: 2, initialDelay: 1s}, compensate: {action: {name: priced}}}
  - {id: each, dependsOn: [a], loop: {over: '[1, 2]', steps: [{id: x, action: {name: priced}}, {id: y, action: {name: work}}]}}
`,
		lines: []string{`start`, `fail a price=0.3 code=SERVICE_UNAVAILABLE msg=down`, `after 2s`, `finish a price=0.25`, `finish each[0].x price=9`, `restart`,
			`finish each[0].y`, `finish each[1].x price=0`, `fail each[1].y code=FILE_INVALID msg=bad`, `finish a.compensation.a-undo price=0.4`, `retry`,
			`finish a price=0.000001`, `finish each[0].x price=0.4`, `finish each[0].y`, `finish each[1].x price=0.4`, `finish each[1].y`},
	},
	"jobs": {
		recipe: `
name: jobs
order: none
steps:
  - {id: a, action: {name: priced}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}}
  - {id: l, loop: {over: '[1, 2]', maxConcurrency: 2, steps: [{id: x, action: {name: work}, onError: {strategy: skip}}]}}
  - {id: b, action: {name: work}, dependsOn: [a], total_timeout: 1h}
`,
		lines: []string{`start`, `submit a job=a1 handle={"url":"https://x.test/a1"} ttl=10m`, `submit l[0].x job=x0`, `restart`, `progress a delta=d`,
			`preview a output=1 by=poll`, `after 10m`, `after 2s`, `submit a job=a2`, `fail a code=PROVIDER_ERROR by=webhook`, `finish l[0].x by=poll output=5`,
			`after 2s`, `submit a job=a3`, `finish a by=webhook price=0.3`, `finish a by=poll`, `submit b job=b1`, `submit l[1].x job=x1`, `after 1h`,
			`restart`, `retry`, `submit b job=b2`, `cancel`},
	},
	"handed-on": {
		recipe: `
name: handed-on
order: none
steps:
  - {id: a, action: {name: priced}, moderation: both, retryPolicy: {maxAttempts: 2, initialDelay: 1s}}
  - {id: b, action: {name: work}}
`,
		lines: []string{`start`, `submit a provider=@workers job=t1 inputVerdict=passed`, `submit b provider=@workers job=t2 ttl=1h`, `submit a job=a1 task=t1 handle={"n":1} ttl=10m`, `restart`,
			`after 10m`, `after 2s`, `submit a provider=@workers job=t1 inputVerdict=passed`, `submit a job=a1 task=t1`, `submit b job=b1 task=t2`, `finish a by=webhook price=0.3 outputVerdict=passed`, `finish b by=poll`},
	},
	"cached": {
		recipe: `
name: cached
order: none
steps:
  - {id: a, action: {name: priced}, retryPolicy: {maxAttempts: 2, initialDelay: 1s}, cache: {price: "0.1", ttl: 1h}}
  - {id: each, dependsOn: [a], loop: {over: '[1, 2, 1]', maxConcurrency: 2, steps: [{id: x, action: {name: work, parameters: {i: "{{ item }}"}}, cache: {key: input.edition}}]}}
`,
		lines: []string{`start input={"edition":"A5"} estimated=1 reserved=1 most=9 available=9`, `fail a code=SERVICE_UNAVAILABLE msg=down`, `after 2s`, `finish a cached=run_9 output={"n":1}`,
			`finish each[0].x`, `finish each[1].x cached=run_9`, `restart`, `finish each[2].x cached=run_1 output=1`, `retry from=a`, `finish a cached=run_1`, `finish each[0].x`,
			`fail each[1].x code=FILE_INVALID msg=bad`},
	},
	"rounds": {
		recipe: `
name: rounds
steps:
  - {id: base, transform: {expression: "1"}, outputBinding: from}
  - id: sum
    loop:
      over: '[1, 2, 3, 4]'
      until: total > 1000
      failureStrategy: continue
      accumulate: {as: total, initial: "{{ from }}", expression: total + x.output}
      steps: [{id: x, action: {name: work, parameters: {before: "{{ total }}"}}}]
    continue_on_error: true
  - {id: asks, loop: {while: "n == null || n < 2", maxIterations: 5, accumulate: {as: n, expression: "n == null ? 0 : n + 1"}, steps: [{id: t, transform: {expression: "[n, index]"}}, {id: y, action: {name: work}}]}}
  - {id: large, loop: {until: 'false', maxIterations: 2, accumulate: {as: last, expression: z.output}, steps: [{id: z, action: {name: work}}, {id: v, action: {name: work}}]}}
`,
		lines: []string{`start`, `finish sum[0].x output=10`, `fail sum[1].x code=FILE_INVALID msg=bad`, `finish sum[2].x output=2000`, `finish asks[0].y`, `restart`, `finish asks[1].y`,
			`finish asks[2].y`, `finish large[0].z size=20`, `finish large[0].v`, `finish large[1].z size=30`, `finish large[1].v`, `retry`,
			`retry from=asks`, `finish asks[0].y`, `cancel`, `retry`, `finish asks[1].y`, `finish asks[2].y`, `finish large[0].z`, `finish large[0].v`, `finish large[1].z`, `finish large[1].v`},
	},
	"credits": {
		recipe: `
name: credits
order: none
steps:
  - {id: a, action: {name: priced}, retryPolicy: {maxAttempts: 2, initialDelay: 1s}}
  - {id: b, action: {name: work}, dependsOn: [a]}
  - {id: c, action: {name: work}, dependsOn: [b]}
  - {id: d, action: {name: work}, dependsOn: [c], onError: {strategy: skip}}
`,
		lines: []string{`start estimated=1 reserved=1 most=5 available=1`, `fail a price=0.2 code=SERVICE_UNAVAILABLE msg=down`, `after 2s`, `finish a`,
			`grant b available=0`, `restart`, `grant b available=9`, `lost b`, `grant b`, `finish b`, `restart`, `fail c code=FILE_INVALID msg=bad`,
			`retry available=1`, `retry available=9`, `finish c`, `after 1s`},
	},
	"paused": {
		recipe: `
name: paused
steps:
  - {id: a, action: {name: work}, compensate: {action: {name: undo}}}
  - {id: b, action: {name: work}}
  - {id: w, wait: {duration: 1h}}
  - {id: c, action: {name: work}}
`,
		lines: []string{`manual`, `start`, `pause reason="too expensive"`, `pause`, `grant a`, `unpause`, `grant a`, `pause`, `finish a`, `grant b`, `restart`, `unpause`,
			`grant b`, `finish b`, `pause`, `after 1h`, `restart`, `cancel`, `grant a.compensation.a-undo`, `finish a.compensation.a-undo`},
	},
	"children": {
		recipe: `
name: children
order: none
steps:
  - id: a
    recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "input.n"}, outputBinding: made}]}, inputs: {n: "{{ input.n }}"}, outputs: [{path: made, as: m}]}
    outputBinding: got
    timeout: 10s
    retryPolicy: {maxAttempts: 3, initialDelay: 1s, retryableErrors: [timeout, provider_error]}
    compensate: {action: {name: undo}}
  - {id: each, dependsOn: [a], loop: {over: "[1, 2]", maxConcurrency: 2, steps: [{id: x, recipe: {inline: {name: item, steps: [{id: k, transform: {expression: "1"}}]}}}]}}
`,
		lines: []string{`start input={"n":2} estimated=8 reserved=8 most=40`, `child a status=failed code=SERVICE_UNAVAILABLE msg=down failed=k used=1.5 steps=3`, `after 2s`,
			`more a resource=credits n=9`, `more a resource=steps n=8`, `more a resource=memory n=100`, `restart`, `after 10s`, `child a outputs={"made":9} used=2 steps=1`,
			`after 3s`, `restart`, `child a outputs={"made":1} used=2.25 steps=20`, `child each[0].x outputs={} used=0.5 steps=1`, `restart`,
			`child each[1].x status=failed code=FILE_INVALID msg=bad used=0 steps=1`, `finish a.compensation.a-undo`, `retry`, `child a outputs={"made":2} steps=1`, `cancel`,
			`child each[0].x status=cancelled`, `child each[1].x status=cancelled`, `finish a.compensation.a-undo`},
	},
	"estimated": {
		recipe: `
name: estimated
creditEstimation: {strategy: calculated, formula: "10 + read.pages * 5", maxCredits: 200}
steps:
  - {id: a, action: {name: work}, outputBinding: read}
  - {id: b, dependsOn: [a], action: {name: work}}
`,
		lines: []string{`start estimated=200 reserved=200 most=200 policy=no_refund`, `finish a output={"pages":4}`, `restart`, `fail b code=FILE_INVALID msg=bad`},
	},
	"child": {
		recipe: `
name: child
order: none
steps:
  - {id: t, transform: {expression: "input.text"}}
  - {id: a, dependsOn: [t], action: {name: work}, outputBinding: made}
  - {id: below, dependsOn: [a], recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}}}
  - {id: b, dependsOn: [below], action: {name: work}}
`,
		lines: []string{`start input={"text":"abc"} estimated=3 reserved=2 most=20 share={"credits":2,"steps":1,"memory":6000}`, `finish a size=3000`, `restart`,
			`more below resource=steps n=9`, `more below resource=credits n=5`, `restart`, `child below outputs={"k":1} used=3 steps=7`, `finish b`},
	},
	"resumed": {
		recipe: `
name: resumed
order: none
steps:
  - {id: a, action: {name: work}}
  - {id: b, dependsOn: [a], action: {name: work}}
  - {id: below, dependsOn: [b], recipe: {inline: {name: below, steps: [{id: k, transform: {expression: "1"}}]}, resume: true}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}}
`,
		lines: []string{`start estimated=3 reserved=2 most=40 share={"credits":4,"steps":9,"memory":60000}`, `finish a`, `restart`, `fail b code=FILE_INVALID msg=bad`, `restart`,
			`resume attempt=2 share={"credits":5,"steps":9,"memory":60000}`, `restart`, `finish b`, `child below status=failed code=SERVICE_UNAVAILABLE msg=down used=1.5 steps=2`,
			`restart`, `after 2s`, `restart`, `child below status=failed code=FILE_INVALID msg=bad used=0.25 steps=1`, `restart`,
			`resume attempt=1 generation=2 share={"credits":6,"steps":20,"memory":60000}`, `restart`, `child below outputs={"k":1} used=0.5 steps=1`},
	},
	"pinned": {
		recipe: `
name: pinned
order: none
steps:
  - {id: a, action: {name: work}, outputBinding: made}
  - {id: b, dependsOn: [a], recipe: {ref: "{{ made.kind }}@1"}}
  - {id: c, dependsOn: [b], recipe: {definition: made.text}}
`,
		lines: []string{`start`, `finish a output={"kind":"x","text":"steps:"}`, `pin x@1 version=1.0.0`, `restart`, `child b outputs={"k":1} steps=2`,
			`pin @sha256:56501c6b552835bbb9549d8c02d18eb1466c10bcf55ac9232f9de2763e5f1055 version=0.0.0`, `restart`, `child c outputs={"k":2} steps=2`},
	},
	"moderation": {
		recipe: `
name: moderation
order: none
failure_policy: drain
steps:
  - {id: a, action: {name: work}, moderation: both}
  - {id: b, action: {name: priced}, moderation: {phase: output, by: [words], stream: hold}}
  - {id: c, action: {name: work}, moderation: input}
  - {id: d, action: {name: work}, moderation: both}
  - {id: e, action: {name: work}, moderation: {phase: both, review: {by: [ann], timeout: 8h}}}
  - {id: f, action: {name: work}, moderation: {phase: input, review: {}}}
`,
		lines: []string{`start`, `progress a delta=x`, `progress a delta=y outputVerdict=passed`, `preview a inputVerdict=passed`, `finish a inputVerdict=passed outputVerdict=passed`,
			`finish b outputVerdict=violence price=0.2`, `submit c inputVerdict=passed job=j1`, `restart`, `finish c by=poll`, `finish d outputVerdict=passed`,
			`submit e inputVerdict=passed outputVerdict=violence review=output job=r1`, `submit f inputVerdict=violence review=input job=r2`, `restart`,
			`finish e outputVerdict=passed decision=edited output=7`, `finish f inputVerdict=passed decision=approved`},
	},
	"unknown": {
		recipe: `
name: unknown
order: none
failure_policy: drain
steps:
  - {id: a, action: {name: priced}, timeout: 10s, retryPolicy: {maxAttempts: 5, initialDelay: 1s}}
  - {id: b, action: {name: once}, retryPolicy: {maxAttempts: 3, initialDelay: 1s}, onError: {strategy: skip}}
  - {id: each, loop: {over: '[1, 2]', failureStrategy: continue, steps: [{id: x, action: {name: work}, onError: {strategy: fallback, fallbackStep: {id: f, action: {name: work}}}}]}}
`,
		lines: []string{`start`, `fail a code=SERVICE_UNAVAILABLE msg=reset unknown=true price=0.1`, `fail b code=SERVICE_UNAVAILABLE msg=reset unknown=true`, `after 2s`, `restart`,
			`fail a code=SERVICE_UNAVAILABLE msg=refused`, `after 4s`, `fail a code=PROVIDER_ERROR msg=no`, `fail each[0].x code=SERVICE_UNAVAILABLE msg=reset unknown=true`, `restart`,
			`fail each[0].x.fallback.f unknown=true`, `lost each[1].x`, `fail each[1].x code=RATE_LIMITED msg=slower`, `finish each[1].x.fallback.f`, `after 1m`,
			`fail a code=SERVICE_UNAVAILABLE msg=reset unknown=true`, `after 1m`, `fail a msg=why unknown=true`, `retry`, `finish a`, `finish each[0].x`},
	},
	"waves": {
		recipe: `
name: waves
scheduling: waves
order: none
ttl: 1h
result_rule: leaves
failure_policy: drain
steps:
  - {id: a, action: {name: work}}
  - {id: b, when: "false", action: {name: work}}
  - {id: c, action: {name: work}, dependsOn: [b]}
  - {id: d, wait: {signal: go, timeout: 30m}, dependsOn: [a], continue_on_error: true}
  - {id: e, action: {name: work}, dependsOn: [d]}
`,
		lines: []string{`start`, `finish a`, `finish c`, `restart`, `lost all`, `after 30m`, `restart`, `lost all`, `after 30m`},
	},
}

// The golden journals: the plan, the journal, the state that the journal folds to, and
// the public form of the events. -rewrite writes files that are absent and never
// changes one: every later release must read what this release wrote (F46, I23).
func TestF46_GoldenJournals(t *testing.T) {
	for name, story := range goldenRuns {
		t.Run(name, func(t *testing.T) {
			base := filepath.Join("testdata", "journals", name)
			if _, err := os.Stat(base + ".bin"); os.IsNotExist(err) && *rewrite {
				freeze(t, base, story.recipe, story.lines)
			}
			prog := Prepare(mustPlan(t, base+".plan.json"))
			frames := mustRead(t, base+".bin")
			run := NewRun(prog)
			var public bytes.Buffer
			enc := json.NewEncoder(&public)
			if err := journal.EachEvent(frames, func(ev *journal.Event) error {
				if err := enc.Encode(journal.Render(prog.plan, "run_1", ev)); err != nil {
					return err
				}
				return run.Apply(ev)
			}); err != nil {
				t.Fatal(err)
			}
			checkPublic(t, public.Bytes(), mustRead(t, base+".jsonl"))
			if got, want := describe(run), string(mustRead(t, base+".state.txt")); got != want {
				t.Errorf("the journal folds to another state than when it was written; got\n%s", got)
			}
			if !run.status.Terminal() {
				t.Errorf("the run is %s after its last event", run.status)
			}
		})
	}
}

// checkPublic compares the public form of events with that of the release which froze them:
// fields are only added.
func checkPublic(t *testing.T, got, want []byte) {
	t.Helper()
	now, then := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	if len(now) != len(then) {
		t.Fatalf("%d events are shown, want %d", len(now), len(then))
	}
	for i := range then[:len(then)-1] {
		var a, b any
		if err := errors.Join(json.Unmarshal(now[i], &a), json.Unmarshal(then[i], &b)); err != nil {
			t.Fatal(err)
		}
		if !includes(a, b) {
			t.Errorf("the public form of an event has lost something; got\n%s\nwant\n%s", now[i], then[i])
		}
	}
}

// includes reports whether value has everything that old has: in objects of the envelope
// fields may have been added.
func includes(value, old any) bool {
	was, ok := old.(map[string]any)
	if !ok {
		return reflect.DeepEqual(value, old)
	}
	is, ok := value.(map[string]any)
	for name := range was {
		ok = ok && includes(is[name], was[name])
	}
	return ok
}

// TestF46_GoldenSnapshots: the snapshot after each event of a golden journal has the
// same bytes as when the journal was frozen, as long as the snapshot format keeps its
// number (I2). Stores hold snapshots of earlier releases.
func TestF46_GoldenSnapshots(t *testing.T) {
	for name := range goldenRuns {
		base := filepath.Join("testdata", "journals", name)
		prog := Prepare(mustPlan(t, base+".plan.json"))
		run := NewRun(prog)
		frames := mustRead(t, base+".bin")
		got := fmt.Sprintf("format %d\n", SnapshotFormat)
		if err := journal.EachEvent(frames, func(ev *journal.Event) error {
			if err := run.Apply(ev); err != nil {
				return err
			}
			state := run.Snapshot(nil)
			got += fmt.Sprintf("%d %d %.8x\n", ev.Seq, len(state), sha256.Sum256(state))
			back, err := Restore(prog, state)
			if err != nil {
				return err
			}
			if again := back.Snapshot(nil); !bytes.Equal(again, state) {
				t.Errorf("%s: restored after event %d it is written in another way", name, ev.Seq)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		file := base + ".snapshots.txt"
		if _, err := os.Stat(file); os.IsNotExist(err) && *rewrite {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := string(mustRead(t, file)); got != want {
			t.Errorf("%s: snapshots (event, bytes, hash) are others than when they were frozen:\n%s", name, got)
		}
	}
}

// TestF46_GoldenJournalsHoldEveryKind: the meaning of a kind of event that no golden
// journal contains could change unnoticed.
func TestF46_GoldenJournalsHoldEveryKind(t *testing.T) {
	held := map[journal.EventKind]bool{}
	for name := range goldenRuns {
		events, err := decodeAll(mustRead(t, filepath.Join("testdata", "journals", name+".bin")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			held[events[i].Kind] = true
		}
	}
	for _, kind := range journal.Kinds() {
		if !held[kind] {
			t.Errorf("no frozen journal holds kind %d (%s)", kind, kind.Name())
		}
	}
}

func freeze(t *testing.T, base, recipe string, lines []string) {
	t.Helper()
	w := &fakeEngine{t: t, now: t0, auto: true}
	w.play(recipe)
	for _, line := range lines {
		w.line(line)
	}
	if err := os.MkdirAll(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	stored, err := w.prog.plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var public bytes.Buffer
	enc := json.NewEncoder(&public)
	if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error { return enc.Encode(journal.Render(w.prog.plan, "run_1", ev)) }); err != nil {
		t.Fatal(err)
	}
	for ext, data := range map[string][]byte{".plan.json": stored, ".bin": w.led.frames, ".jsonl": public.Bytes(), ".state.txt": []byte(describe(w.run))} {
		if err := os.WriteFile(base+ext, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// describe writes a run's state in a form that does not depend on its representation.
func describe(r *Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s generation=%d used=%s failures=%v code=%s message=%q events=%d\n", r.status, r.gen, r.used, r.failures, r.code, r.message, r.last)
	if r.limits != r.plan.Limits {
		l := r.limits
		fmt.Fprintf(&b, "limits {TotalSteps:%d LoopItems:%d ScopeDepth:%d MemoryBytes:%d}\n", l.TotalSteps, l.LoopItems, l.ScopeDepth, l.MemoryBytes)
		if l.ExpressionCost > 0 {
			fmt.Fprintf(&b, "expressions cost at most %d\n", l.ExpressionCost)
		}
	}
	if r.belowSteps > 0 || r.start.Child != nil {
		fmt.Fprintf(&b, "child runs began %d steps; the run has the share %+v and gives %+v\n", r.belowSteps, r.share, r.given)
	}
	for _, s := range r.sortedScopes() {
		for i := range s.steps {
			st := &s.steps[i]
			fmt.Fprintf(&b, "%s %s reason=%q", journal.StepPath(r.plan, s.ref(int32(i))), st.status, st.reason)
			if s.step(r.plan, int32(i)).Kind == plan.Action {
				fmt.Fprintf(&b, " attempt=%d key=%s", st.attempt, r.effectKey(s, int32(i))[:8])
			}
			if out := s.outs[int32(i)]; out != nil {
				fmt.Fprintf(&b, " output=%s", out.raw)
			}
			if se, ok := s.errs[int32(i)]; ok {
				fmt.Fprintf(&b, " error=%s", se.code)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func mustPlan(t *testing.T, file string) *plan.Plan {
	t.Helper()
	p, err := plan.Decode(mustRead(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
