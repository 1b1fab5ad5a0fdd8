// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/watchdog"
)

// A single run is committed by the loop, not by the committer.
func TestSingleRunIsCommittedInline(t *testing.T) {
	a := noop()
	e := openEngine(t, memory.New(memory.Options{}), Config{}, a)
	if head := waitForEnd(t, e, start(t, e, planOf(t, chain(5), a), nil)); head.Status != "completed" {
		t.Errorf("run is %s (%s)", head.Status, head.Message)
	}
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.watchdog.Sent != 0 {
		t.Errorf("%d batches of a single run went to the committer", e.watchdog.Sent)
	}
}

// A large batch that was built during a commit is committed before what waited for that
// commit is released: nothing that follows from it is in the batch.
func TestLargeBatchIsCommittedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &countedDisk{slowDisk: slowDisk{Store: memory.New(memory.Options{}), takes: 2 * time.Second}}
		a := noop()
		e := openEngine(t, disk, Config{LargeBatch: 2, SuspendAfter: time.Hour}, a)
		work, wait := planOf(t, chain(1), a), planOf(t, "name: n\nsteps:\n  - {id: n, wait: {duration: 1h}}\n")
		var wg sync.WaitGroup
		some := func(n int, p *plan.Plan, then time.Duration) {
			for range n {
				wg.Go(func() { start(t, e, p, nil) })
			}
			time.Sleep(then)
		}
		some(1, wait, time.Second)   // committed inline, for two seconds
		some(2, work, 2*time.Second) // wait for it, then are committed
		some(3, work, 0)             // arrive during that
		wg.Wait()
		synctest.Wait()
		disk.mu.Lock()
		defer disk.mu.Unlock()
		if len(disk.starts) < 3 || disk.starts[2] != 3 || disk.sizes[2] != 3 {
			t.Errorf("the commits had %d transitions, of them %d starts: the third is to have three starts alone", disk.sizes, disk.starts)
		}
	})
}

// A countedDisk counts the transitions of each commit.
type countedDisk struct {
	slowDisk
	mu            sync.Mutex
	sizes, starts []int
}

func (s *countedDisk) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	starts := 0
	for i := range batch {
		if batch[i].First == 1 {
			starts++
		}
	}
	s.mu.Lock()
	s.sizes, s.starts = append(s.sizes, len(batch)), append(s.starts, starts)
	s.mu.Unlock()
	return s.slowDisk.Commit(ctx, batch)
}

// A groupDisk takes a second to commit one run, and never returns from a commit of
// several runs.
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

// F32: a commit of several runs is made by the committer: the loop itself sees that it
// does not return.
func TestF32_DiskHangsInASharedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &groupDisk{Store: memory.New(memory.Options{}), gone: make(chan struct{})}
		defer close(disk.gone)
		a := noop()
		e, err := Open(t.Context(), Config{Store: disk, Actions: catalogue.New(a), Logger: testLog(t)})
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
		if took := time.Since(began); hung == 0 || took < watchdog.HangsAfter || took > watchdog.HangsAfter+5*time.Second {
			t.Errorf("%d starts failed after %s, want some after 10 s", hung, took)
		}
		<-e.Done()
		if err := e.Err(); !errors.Is(err, ErrHangs) {
			t.Errorf("the engine ended with %v", err)
		}
		if e.watchdog.Sent == 0 {
			t.Error("no commit had several runs: the test is useless")
		}
	})
}
