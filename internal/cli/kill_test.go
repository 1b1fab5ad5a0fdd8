// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// longWork has every kind of place to be killed in: a sequence, a loop, a
// parallel step, a retry's wait, and steps that only compute.
const longWork = `name: long-work
steps:
  - id: one
    action: {name: effect, parameters: {n: 1, ms: 12}}
  - id: many
    loop:
      over: "[1, 2, 3, 4, 5, 6, 7, 8]"
      as: n
      maxConcurrency: 3
      steps:
        - id: each
          action: {name: effect, parameters: {n: "{{ n }}", ms: 8}}
        - id: double
          transform: {expression: steps.each.output.n * 2}
  - id: both
    parallel:
      branches:
        - - {id: left, action: {name: effect, parameters: {n: 10, ms: 15}}}
        - - {id: again, action: {name: flaky}, retryPolicy: {maxAttempts: 9, initialDelay: 20ms}}
  - id: last
    action: {name: effect, parameters: {n: 3, ms: 12}}
outputs:
  last: steps.last.output.n
`

// undo fails at its last step, so that three steps are compensated.
const undo = `name: undo
steps:
  - id: a
    action: {name: effect, parameters: {n: 1}}
    compensate: {action: {name: effect, parameters: {n: -1, ms: 30}}}
  - id: b
    action: {name: effect, parameters: {n: 2}}
    compensate: {action: {name: effect, parameters: {n: -2, ms: 30}}}
  - id: c
    action: {name: effect, parameters: {n: 3}}
    compensate: {action: {name: effect, parameters: {n: -3, ms: 30}}}
  - id: d
    action: {name: broken}
`

// TestI1_I3_Kill9 kills the real binary at random moments of run and resume until the
// run has ended. No step whose result was recorded before a kill may have run again
// after it, and the journal must verify (F02, F16).
func TestI1_I3_Kill9(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 8
	}
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for done := 0; done < kills; {
		dir, env := dataEnv(t)
		effects := strings.TrimPrefix(env[1], "EFFECTS=")
		p := start(t, env, "run", write(t, "work.yaml", longWork))
		p.until("run.started")
		code := -1
		// A step that is lost three times fails INTERRUPTED: two kills a run.
		for kill := 0; code == -1; kill++ {
			if kill < 2 {
				select {
				case <-time.After(time.Duration(rng.IntN(180_000)) * time.Microsecond):
					p.signal(os.Kill)
					done++
				case <-p.done:
				}
			}
			if code = p.wait(); code == -1 {
				checkRecorded(t, env, effects)
				p = start(t, env, "resume")
			}
		}
		if code != fault.ExitOK {
			t.Fatalf("exit code %d in %s\n%s", code, dir, p.said())
		}
		if r := object[replayed](t, env, "replay", "@last"); !r.Same || r.Status != "completed" {
			t.Fatalf("%s: %s, differences %v", dir, r.Status, r.Differences)
		}
		checkRecorded(t, env, effects)
	}
	t.Logf("%d kills", kills)
}

// TestKill9WhileCompensating kills the process during compensations: each is recorded
// once, in reverse order, and the run still fails with its original error.
func TestKill9WhileCompensating(t *testing.T) {
	_, env := dataEnv(t)
	effects := strings.TrimPrefix(env[1], "EFFECTS=")
	p := start(t, env, "run", write(t, "undo.yaml", undo))
	p.until("node.compensated")
	p.signal(os.Kill)
	p.wait()
	before := len(readEffects(t, effects))
	_, talk, code := roux(t, env, "resume")
	if code != fault.ExitFailed || !strings.Contains(talk, "STEP_FAILED: it is broken") {
		t.Fatalf("resume: exit %d\n%s", code, talk)
	}
	var order []string
	for _, ev := range eventsOf(t, env, "node.compensated") {
		order = append(order, ev.Payload.Step)
	}
	if got := strings.Join(order, " "); got != "c b a" {
		t.Errorf("compensated %q, want c b a", got)
	}
	checkRecorded(t, env, effects)
	if after := readEffects(t, effects); len(after) < 6 || before < 4 {
		t.Errorf("%d effects before the kill, %d at the end: the kill came at another moment", before, len(after))
	}
	if r := object[replayed](t, env, "replay", "@last"); !r.Same || r.Status != "failed" {
		t.Errorf("replay: %s, %v", r.Status, r.Differences)
	}
}

type eventLineJSON struct {
	EventID uint64 `json:"eventId"`
	Type    string `json:"type"`
	Payload struct {
		Step    string `json:"step"`
		Kind    string `json:"kind"`
		Attempt int    `json:"attempt"`
	} `json:"payload"`
}

func eventsOf(t *testing.T, env []string, kind string) []eventLineJSON {
	t.Helper()
	return object[[]eventLineJSON](t, env, "events", "@last", "--type", kind)
}

func readEffects(t *testing.T, path string) (lines []effectLine) {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var l effectLine
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v in %q", filepath.Base(path), err, scan.Text())
		}
		lines = append(lines, l)
	}
	return lines
}

// checkRecorded compares the journal with what the effects left: every step is
// recorded once; of its attempts only the last one was recorded, so nothing ran
// after its record; and all of them carried one effect key (I4).
func checkRecorded(t *testing.T, env []string, effects string) {
	t.Helper()
	recorded := map[string]int{}
	for _, ev := range eventsOf(t, env, "node.completed") {
		if ev.Payload.Kind != "action" {
			continue
		}
		if _, twice := recorded[ev.Payload.Step]; twice {
			t.Errorf("%s was recorded twice", ev.Payload.Step)
		}
		recorded[ev.Payload.Step] = ev.Payload.Attempt
	}
	keys := map[string]string{}
	for _, e := range readEffects(t, effects) {
		if last, ok := recorded[e.Step]; ok && e.Attempt > last {
			t.Errorf("%s ran again (try %d) after try %d was recorded", e.Step, e.Attempt, last)
		}
		if key, ok := keys[e.Step]; ok && key != e.Key {
			t.Errorf("%s ran under two effect keys: %s and %s", e.Step, key, e.Key)
		}
		keys[e.Step] = e.Key
	}
}
