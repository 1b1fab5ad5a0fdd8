// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/store/memory"
)

// A result is handled when it arrives, also of attempts that the loop does not carry
// out itself, and although nothing else wakes the loop.
func TestResultsWakeTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := blockedAction(release)
		e := openEngine(t, memory.New(memory.Options{}), Config{}, slow)
		run := start(t, e, planOf(t, "name: s\nsteps:\n  - {id: a, action: {name: slow}}\n  - {id: b, dependsOn: [], action: {name: slow}}\n", slow), nil)
		synctest.Wait()
		began := time.Now()
		if head := releaseAndWait(t, e, run, release); head.Status != "completed" || time.Since(began) != 0 {
			t.Errorf("the run is %s after %s (%s)", head.Status, time.Since(began), head.Message)
		}
	})
}

// What one input causes takes several commits if it is long, and waits for nothing
// between them.
func TestLongTurnsDoNotWait(t *testing.T) {
	var src strings.Builder
	src.WriteString("name: t\nsteps:\n  - {id: s0, transform: {expression: \"1\"}}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&src, "  - {id: s%d, transform: {expression: steps.s%d.output + 1}}\n", i, i-1)
	}
	p := planOf(t, src.String())
	for room := 20; room <= 60; room += 10 { // so that the last commit is full in some and not in others
		synctest.Test(t, func(t *testing.T) {
			st := memory.New(memory.Options{})
			e := openEngine(t, st, Config{MaxTurn: 1, MaxBatchBytes: room})
			began := time.Now()
			if head := waitForEnd(t, e, start(t, e, p, nil)); head.Status != "completed" || time.Since(began) != 0 {
				t.Errorf("in commits of %d bytes the run is %s after %s (%s)", room, head.Status, time.Since(began), head.Message)
			}
			if stats, err := st.Stats(t.Context()); err != nil || stats.Commits < 5 {
				t.Errorf("%+v, %v: want several commits", stats, err)
			}
		})
	}
}
