// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// changeText describes a change, such as "1 running" or "2 grant 1".
func changeText(c store.Change) string {
	switch {
	case c.Run == "":
		return fmt.Sprint(c.N, " ", c.Kind, " ", c.Entry)
	case c.Deleted:
		return fmt.Sprint(c.N, " deleted")
	}
	return fmt.Sprint(c.N, " ", c.Status)
}

// The feed of an account follows its runs and its credits, as they become durable, up to
// the deletion of the run, and ends with the engine.
func TestFeedFollowsRunsAndCredits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		a := costing(8, nil)
		e := openEngine(t, st, Config{Accounts: paying, Retention: retention.Policy{Runs: time.Hour}}, a)
		var seen []string
		var failed error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for c, err := range e.Feed().Changes(t.Context(), acc, 0) {
				if err != nil {
					failed = err
					return
				}
				seen = append(seen, changeText(c))
			}
		}()
		want := func(text string) {
			t.Helper()
			synctest.Wait()
			if got := strings.Join(seen, ", "); got != text {
				t.Errorf("the feed has %s; want %s", got, text)
			}
			seen = nil
		}
		want("")
		grant(t, e, "first", 100, ledger.Terms{})
		want("1 grant 1")
		run := start(t, e, planOf(t, once, a), nil)
		if _, err := e.Wait(t.Context(), acc, run); err != nil {
			t.Fatal(err)
		}
		want("2 running, 3 reserve 2, 4 completed, 5 settle 3, 6 release 4")
		last, expired, err := e.cfg.Store.Newest(t.Context(), acc)
		if last != 6 || expired != 0 || err != nil {
			t.Errorf("the newest change is %d, those up to %d are gone, %v", last, expired, err)
		}
		time.Sleep(2 * time.Hour)
		if _, err := e.Clean(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		want("7 deleted")
		if _, err := st.Changes(t.Context(), acc, 5, 10); !errors.Is(err, fault.CursorExpired) {
			t.Errorf("old changes are kept: %v", err)
		}
		if _, err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		if failed == nil || fault.CodeOf(failed) == fault.InternalError {
			t.Errorf("the feed ends with %v", failed)
		}
	})
}
