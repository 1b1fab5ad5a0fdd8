// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/store"
)

var errKilled = errors.New("the process is killed here")

// F42, A19: the server is killed at random moments, also between the start of a delivery
// and the cursor, and before the receiver's answer is recorded. Every change that matches is
// told at least once, under one id, by one run; no change that does not match is.
func TestKilledAtRandom(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) { killAtRandom(t, rand.New(rand.NewPCG(seed, 17)), seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func killAtRandom(t *testing.T, dice *rand.Rand, seed uint64) {
	w := newWorld(t)
	w.logs = io.Discard
	hooks := []*Created{w.hook("run.completed"), w.hook("run.*"), w.hook("run.failed", "run.cancelled")}
	var mu sync.Mutex
	theirs := rand.New(rand.NewPCG(seed, 18))
	w.receiver.answers(func(_ *message1, rw http.ResponseWriter) {
		mu.Lock()
		n := theirs.IntN(6)
		mu.Unlock()
		switch n {
		case 0:
			rw.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			panic(http.ErrAbortHandler) // it has the message, and we never hear of it
		}
	})
	for range 4 + dice.IntN(5) {
		for range dice.IntN(4) {
			started, err := w.e.Start(t.Context(), engine.StartRequest{Account: acme, Plan: w.work, Recipe: "work"})
			if err == nil && dice.IntN(4) == 0 {
				_ = w.e.Cancel(t.Context(), acme, started.Run, "") // it may have ended
			}
		}
		// The next life of the process ends at its n-th change of a cursor, before or after
		// it, or at some other moment.
		lives, before := dice.IntN(3), dice.IntN(2) == 0
		stop := func(changes []store.RecordChange) error {
			if changes[0].Kind != kindAccount {
				return nil
			}
			if lives--; lives < 0 && before || lives < -1 {
				return errKilled
			}
			return nil
		}
		w.records.stop.Store(&stop)
		time.Sleep(time.Duration(dice.Int64N(int64(3 * time.Second))))
		w.restart()
	}
	w.receiver.answers(nil) // nothing fails any more
	w.settle()
	for _, hook := range hooks {
		for _, d := range w.deliveries(hook.ID) {
			if d.State == Quarantined { // the engine suspects a run of all those deaths
				if err := w.e.Release(t.Context(), Account(acme, hook.ID), d.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	time.Sleep(7 * 24 * time.Hour)
	w.settle()
	changes, err := w.st.Changes(t.Context(), acme, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range hooks {
		want := map[string]uint64{} // number of the first change, by message
		for i := range changes {
			e := EventOf(&changes[i])
			if ok, err := hook.matches(&e, nil); err != nil {
				t.Fatal(err)
			} else if id := message(hook.ID, &e); ok && want[id] == 0 {
				want[id] = e.Change.N
			}
		}
		runs := map[string]int{}
		for _, d := range w.deliveries(hook.ID) {
			runs[d.Message]++
			if d.State != Delivered {
				t.Errorf("seed %d: %s is %s", seed, d.Message, text(d))
			}
		}
		told := map[string][]uint64{}
		for _, m := range w.receiver.messages() {
			if m.data.Data.WebhookID == hook.ID {
				id := m.headers.Get(HeaderID)
				if told[id] = append(told[id], m.data.Data.Number); want[id] == 0 {
					t.Errorf("seed %d: a message of change %d, which does not match", seed, m.data.Data.Number)
				}
			}
		}
		for id, n := range want {
			if runs[id] != 1 || len(told[id]) == 0 || slices.Max(told[id]) != n {
				t.Errorf("seed %d: %v: change %d has %d runs and is told %v", seed, hook.Events, n, runs[id], told[id])
			}
		}
		if len(runs) != len(want) {
			t.Errorf("seed %d: %d deliveries of %d changes", seed, len(runs), len(want))
		}
	}
}

// A cursor is stored when the deliveries of the changes before it are durable, and not
// earlier: a crash right after it would lose them.
func TestCursorFollowsDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hook := w.hook("run.completed")
		stored := 0
		check := func(changes []store.RecordChange) error {
			if changes[0].Kind != kindAccount {
				return nil
			}
			stored++
			c, err := store.DecodeRecord[cursor](&changes[0].Record)
			if err != nil {
				return err
			}
			feed, err := w.st.Changes(t.Context(), acme, 0, 1000)
			if err != nil {
				return err
			}
			want := map[string]bool{}
			for i := range feed {
				e := EventOf(&feed[i])
				if ok, err := hook.matches(&e, nil); err == nil && ok && e.Change.N <= c.After {
					want[message(hook.ID, &e)] = true
				}
			}
			heads, err := w.st.List(t.Context(), store.Query{Account: Account(acme, hook.ID), Limit: 500})
			if err == nil && len(heads) < len(want) {
				t.Errorf("the cursor is stored at %d with %d deliveries, want %d", c.After, len(heads), len(want))
			}
			return err
		}
		w.records.stop.Store(&check)
		for range 5 {
			w.run(acme)
			w.settle()
		}
		if stored < 5 {
			t.Errorf("the cursor was stored %d times", stored)
		}
	})
}
