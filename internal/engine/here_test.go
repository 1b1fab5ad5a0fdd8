// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A run that is alone is committed by the loop, and the committer sleeps.
func TestALoneRunIsCommittedByTheLoop(t *testing.T) {
	a := noop()
	e := open(t, memory.New(memory.Options{}), Config{}, a)
	if head := end(t, e, start(t, e, planOf(t, chain(5), a), nil)); head.Status != "completed" {
		t.Errorf("run is %s (%s)", head.Status, head.Message)
	}
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.dog.sent != 0 {
		t.Errorf("%d batches of a lone run went to the committer", e.dog.sent)
	}
}

// groupDisk takes a second for one run's commit, and never comes back from one
// that several share.
type groupDisk struct {
	store.Store
	gone chan struct{}
}

func (s *groupDisk) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if len(batch) > 1 {
		<-s.gone
		return nil, errors.New("the test is over")
	}
	time.Sleep(time.Second)
	return s.Store.Commit(ctx, batch)
}

// F32: the same holds for a commit that several runs share, which the committer
// makes: the loop itself sees that it does not come back.
func TestF32_DiskHangsInASharedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &groupDisk{Store: memory.New(memory.Options{}), gone: make(chan struct{})}
		defer close(disk.gone)
		a := noop()
		e, err := Open(t.Context(), Config{Store: disk, Actions: compile.NewCatalogue(a), Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		p := planOf(t, chain(1), a)
		began := time.Now()
		var mu sync.Mutex
		hung := 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test"})
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, ErrHangs) {
					hung++
				} else if err != nil {
					t.Errorf("Start = %v, want ErrHangs or nothing", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); hung == 0 || took < hangsAfter || took > hangsAfter+5*time.Second {
			t.Errorf("%d starts were told after %s, want some after 10 s", hung, took)
		}
		<-e.Done()
		if err := e.Err(); !errors.Is(err, ErrHangs) {
			t.Errorf("the engine ended with %v", err)
		}
		if e.dog.sent == 0 {
			t.Error("no commit was shared: the test shows nothing")
		}
	})
}
