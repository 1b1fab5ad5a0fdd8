// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/journal"
)

// TestHistory: the history of the golden journals, in full.
func TestHistory(t *testing.T) {
	for name := range goldenRuns {
		base := filepath.Join("testdata", "journals", name)
		h := journal.NewHistory(mustPlan(t, base+".plan.json"), 0)
		events, err := decodeAll(mustRead(t, base+".bin"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			h.Add(&events[i])
		}
		var b bytes.Buffer
		e, err := json.Marshal(h.Error)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s error=%s outputs=%s used=%d events=%d started=%d ended=+%d truncated=%v\n", h.Status, e, h.Outputs, h.Used(), h.Events, h.Started, h.Ended-h.Started, h.Truncated)
		results, order := h.Steps()
		if len(results) != len(order) {
			t.Errorf("%s: %d results under %d names", name, len(results), len(order))
		}
		for _, path := range order {
			line, err := json.Marshal(results[path])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s %s\n", path, line)
		}
		file := base + ".history.txt"
		if *rewrite {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := mustRead(t, file); !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, b.Bytes(), want)
		}
	}
}

// TestHistoryAgrees: for every scenario the history agrees with the run about the
// steps that the run still holds.
func TestHistoryAgrees(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		w := &fakeEngine{t: t, now: t0, auto: true}
		for _, b := range readScenario(t, file) {
			w.play(b.does())
		}
		h := journal.NewHistory(w.prog.plan, 0)
		if err := journal.EachEvent(w.led.frames, func(ev *journal.Event) error { h.Add(ev); return nil }); err != nil {
			t.Fatal(err)
		}
		r := w.run
		if h.Status != r.status || h.Events != r.last || h.Used() != r.Used() {
			t.Errorf("%s: %s, %d events, %d used; the run is %s, %d, %d", file, h.Status, h.Events, h.Used(), r.status, r.last, r.Used())
		}
		queued, running := 0, 0
		results, _ := h.Steps()
		r.eachScope(func(s *scope) {
			for k := range s.steps {
				st := &s.steps[k]
				res := results[journal.StepPath(r.plan, s.ref(int32(k)))]
				if res == nil || res.Status == "" {
					if st.status != journal.Pending {
						t.Errorf("%s: nothing is known of %s, which is %s", file, journal.StepPath(r.plan, s.ref(int32(k))), st.status)
					}
					continue
				}
				switch st.status {
				case journal.Pending: // it may be about an earlier generation
					continue
				case journal.Queued, journal.Blocked:
					queued++
				case journal.Running:
					if s.comps[int32(k)] == nil {
						running++
					}
				}
				if want := st.status.String(); res.Status != want {
					t.Errorf("%s: %s is %s, the run says %s", file, journal.StepPath(r.plan, s.ref(int32(k))), res.Status, want)
				}
			}
		})
		if q, u := r.Open(); q != queued || u != running {
			t.Errorf("%s: %d and %d attempts are open, there are %d and %d", file, q, u, queued, running)
		}
		n := 0
		r.EachRunning(func(ref journal.Ref, f journal.Fence) {
			n++
			if s, i := r.at(ref); s == nil || s.steps[i].status != journal.Running || f != (journal.Fence{Gen: r.gen, Attempt: s.steps[i].attempt}) {
				t.Errorf("%s: %s does not run as %v", file, journal.StepPath(r.plan, ref), f)
			}
		})
		if n != running {
			t.Errorf("%s: %d attempts run, there are %d", file, n, running)
		}
	}
}

// TestHistoryIsBounded: step instances and attempts beyond a bound are left out;
// Truncated reports the former.
func TestHistoryIsBounded(t *testing.T) {
	p := compilePlan(t, "name: r\norder: none\nsteps:\n  - {id: a, action: {name: work}}\n  - {id: b, action: {name: work}}\n  - {id: c, action: {name: work}}\n")
	for bound, want := range map[int]string{0: "a b c", 1: "a", 2: "a b", 3: "a b c", 4: "a b c"} {
		h := journal.NewHistory(p, bound)
		for n, step := range []int32{0, 1, 0, 2} {
			h.Add(&journal.Event{Seq: uint64(n + 1), Kind: journal.EvNodeQueued, Step: step})
		}
		if _, order := h.Steps(); strings.Join(order, " ") != want || h.Truncated != (bound == 1 || bound == 2) {
			t.Errorf("of three steps with a bound of %d: %v, truncated %v", bound, order, h.Truncated)
		}
	}
	h := journal.NewHistory(p, 0)
	add := func(n int, kind journal.EventKind, flag uint8) {
		h.Add(&journal.Event{Seq: uint64(n), Kind: kind, Flag: flag, Attempt: uint32(n)})
	}
	add(1, journal.EvNodeLost, 0)
	add(2, journal.EvNodeLost, 1)
	for n := 3; n <= 25; n++ {
		h.Add(&journal.Event{Seq: uint64(n), Kind: journal.EvNodeRetried, Attempt: uint32(n), Code: "SERVICE_UNAVAILABLE", Text: "down"})
	}
	h.Add(&journal.Event{Seq: 26, Step: 1, Kind: journal.EvNodeSkipped, Attempt: 1})
	h.Add(&journal.Event{Seq: 27, Step: 1, Kind: journal.EvNodeFailed, Code: "SERVICE_UNAVAILABLE"})
	results, _ := h.Steps()
	a := results["a"].FailedAttempts
	if len(a) != 20 || a[0] != (journal.FailedAttempt{Attempt: 1, Code: "INTERRUPTED", Message: "it was lost"}) || a[1] != (journal.FailedAttempt{Attempt: 2, Code: "INTERRUPTED", Message: "an orderly stop handed it back"}) ||
		a[2] != (journal.FailedAttempt{Attempt: 3, Code: "SERVICE_UNAVAILABLE", Message: "down"}) || a[19].Attempt != 20 {
		t.Errorf("%d failed attempts: %v", len(a), a)
	}
	if b := results["b"].FailedAttempts; len(b) > 0 {
		t.Errorf("attempts that did not fail, or were none: %v", b)
	}
}
