// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/store/memory"
)

// In an idle engine a run is changed and nothing of it begins: one whose attempt a crash
// interrupted is paused before the attempt is tried again.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		release := make(chan struct{})
		a := costing(0, func(context.Context, *action.Task) (action.Result, error) { <-release; return action.Result{}, nil })
		e := openEngine(t, st, Config{}, a)
		p := planOf(t, once, a)
		run := start(t, e, p, nil)
		synctest.Wait()
		e.crash()
		close(release)
		st = st.Crash(0)
		e = openEngine(t, st, Config{Idle: true}, a)
		synctest.Wait()
		if err := e.Pause(t.Context(), acc, run, ""); err != nil {
			t.Fatal(err)
		}
		e.crash()
		lines := trace(t, st, p, acc, run)
		if n := countPrefix(lines, "node.started"); n != 1 || countPrefix(lines, "run.paused") != 1 || countPrefix(lines, "run.recovered") != 1 {
			t.Errorf("an attempt began: %q", lines)
		}
		e = openEngine(t, st.Crash(0), Config{}, a)
		if err := e.Unpause(t.Context(), acc, run); err != nil {
			t.Fatal(err)
		}
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("the run is %s", head.Status)
		}
	})
}
