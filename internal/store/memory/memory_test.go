// SPDX-License-Identifier: Apache-2.0

package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memory.New(memory.Options{}) })
}

func TestCrashes(t *testing.T) {
	storetest.RunCrash(t, func(*testing.T) storetest.Disk {
		again := func(_ *testing.T, s store.Store) store.Store { return s.(*memory.Store).Crash(0) }
		return storetest.Disk{
			Open:   func(*testing.T) store.Store { return memory.New(memory.Options{}) },
			Reopen: again,
			Crash:  again,
			Damage: func(_ *testing.T, s store.Store, key store.Key) store.Store {
				s.(*memory.Store).Damage(key)
				return s
			},
		}
	})
}

var (
	ctx = context.Background()
	key = store.Key{Account: "acme", Run: "a"}
)

func start(epoch uint64) store.Transition {
	return store.Transition{
		Key: key, Epoch: epoch, First: 1, Last: 2, Frames: []byte("1 2"),
		Head:        &store.Head{Key: key, Status: "running"},
		Plans:       []store.EncodedPlan{{Key: "p", Data: []byte("plan")}},
		Idempotency: &store.Idempotency{Key: "k", BodyHash: "b"},
	}
}

func opened(t *testing.T, outcomes ...memory.Outcome) (*memory.Store, uint64) {
	t.Helper()
	s := memory.New(memory.Options{OnCommit: func(n int, _ []store.Transition) memory.Outcome {
		if n <= len(outcomes) {
			return outcomes[n-1]
		}
		return memory.OK
	}})
	epoch, err := s.Own(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s, epoch
}

// commit wants an error of that code, or none for "".
func commit(t *testing.T, s *memory.Store, tr store.Transition, want fault.Code) {
	t.Helper()
	verdicts, err := s.Commit(ctx, []store.Transition{tr})
	if got := fault.CodeOf(err); got != want {
		t.Fatalf("Commit = %v, want %q", err, want)
	}
	if err == nil && verdicts[0].Err != nil {
		t.Fatal(verdicts[0].Err)
	}
}

func exists(t *testing.T, s *memory.Store) bool {
	t.Helper()
	_, err := s.Load(ctx, key)
	_, perr := s.Plan(ctx, "p")
	if (err == nil) != (perr == nil) {
		t.Fatalf("half of the transition is there: run %v, plan %v", err, perr)
	}
	return err == nil
}

func TestRefusedCommitIsAbsentAndMayBeTriedAgain(t *testing.T) {
	s, epoch := opened(t, memory.Refused)
	commit(t, s, start(epoch), fault.StoreFull)
	if exists(t, s) {
		t.Fatal("a refused commit left something")
	}
	commit(t, s, start(epoch), "")
}

func TestF16_LostReplyIsDurable(t *testing.T) {
	s, epoch := opened(t, memory.ReplyLost)
	commit(t, s, start(epoch), fault.ServiceUnavailable)
	if !exists(t, s) {
		t.Fatal("reading back does not show what was committed")
	}
	if s = s.Crash(0); !exists(t, s) {
		t.Fatal("a synced commit did not survive a crash")
	}
}

// I21: after a failed sync nothing is acknowledged, and only a crash says
// whether the unsynced batch is there.
func TestI21_FailedSync(t *testing.T) {
	for choice, survives := range []bool{false, true} {
		s, epoch := opened(t, memory.SyncFailed)
		commit(t, s, start(epoch), fault.StoreFailed)
		commit(t, s, start(epoch), fault.StoreFailed)
		if _, err := s.Own(ctx); !errors.Is(err, fault.StoreFailed) {
			t.Fatalf("Own = %v after a failed sync", err)
		}
		if exists(t, s) {
			t.Fatal("an unsynced commit is visible")
		}
		if size, events, oldest := s.Uncompacted(); size != 0 || events != 0 || len(oldest) != 0 {
			t.Fatalf("an unsynced commit is counted: %d bytes, %d events, %v", size, events, oldest)
		}
		if n := s.Unsynced(); n != 1 {
			t.Fatalf("%d unsynced batches, want 1", n)
		}
		old := s
		s = s.Crash(uint64(choice))
		if exists(t, s) != survives {
			t.Fatalf("choice %d: survived = %v", choice, !survives)
		}
		if _, err := old.Load(ctx, key); err == nil {
			t.Fatal("the store of the dead process answers")
		}
		again := start(epoch)
		if survives {
			verdicts, err := s.Commit(ctx, []store.Transition{again})
			if err != nil || !errors.Is(verdicts[0].Err, fault.Conflict) {
				t.Fatalf("a second start = %v, %v", verdicts, err)
			}
		} else {
			commit(t, s, again, "")
		}
	}
}

// A torn batch stays invisible, and after a crash each of its groups is there or none of it
// is.
func TestF16_TornGroups(t *testing.T) {
	for choice, survives := range []bool{false, true} {
		s, epoch := opened(t)
		commit(t, s, start(epoch), "")
		member := func(group, run string, first uint64) store.Transition {
			k := store.Key{Account: key.Account, Run: run}
			return store.Transition{Key: k, Epoch: epoch, Group: group, First: first, Last: first, Frames: []byte("3"), Head: &store.Head{Key: k, Status: "later"}}
		}
		batch := []store.Transition{
			member("lost", "b", 1), member("kept", "c", 1), member("lost", "a", 7), member("kept", "a", 3),
		}
		s.Tear(batch)
		has := func(run string) bool {
			h, err := s.Head(ctx, store.Key{Account: key.Account, Run: run})
			return err == nil && h.Status == "later"
		}
		if has("a") || has("b") || has("c") {
			t.Fatal("a torn batch is visible")
		}
		s = s.Crash(uint64(choice))
		if has("b") || has("a") != survives || has("c") != survives {
			t.Fatalf("choice %d: a %v, b %v, c %v", choice, has("a"), has("b"), has("c"))
		}
	}
}
