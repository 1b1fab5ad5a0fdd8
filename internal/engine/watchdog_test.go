// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/watchdog"
)

// A slowDisk is slow to commit.
type slowDisk struct {
	store.Store
	takes time.Duration // for each commit; less than zero = for ever
	gone  chan struct{} // closed when the test is over
}

func (s *slowDisk) Commit(ctx context.Context, batch []store.Transition) ([]store.Verdict, error) {
	if s.takes < 0 {
		<-s.gone
		return nil, errors.New("the test is over")
	}
	time.Sleep(s.takes)
	return s.Store.Commit(ctx, batch)
}

// F32: a disk that does not return from a commit for ten seconds ends the engine.
// Waiting callers get an error, nothing is acknowledged, and nothing waits for the
// disk.
func TestF32_DiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{Store: memory.New(memory.Options{}), takes: -1, gone: make(chan struct{})}
		defer close(disk.gone)
		a := noop()
		e, err := Open(t.Context(), Config{Store: disk, Actions: catalogue.New(a), Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, chain(1), a), Recipe: "test"})
		if took := time.Since(began); !errors.Is(err, ErrHangs) || took < watchdog.HangsAfter || took > watchdog.HangsAfter+2*time.Second {
			t.Errorf("Start = %v after %s, want ErrHangs after 10 s", err, took)
		}
		<-e.Done()
		if err := e.Err(); !errors.Is(err, ErrHangs) || !errors.Is(err, fault.StoreFailed) {
			t.Errorf("the engine ended with %v, want STORE_FAILED", err)
		}
		if _, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, chain(1), a), Recipe: "test"}); !errors.Is(err, ErrHangs) {
			t.Errorf("Start afterwards = %v, want ErrHangs", err)
		}
		if _, err := e.Stop(t.Context()); !errors.Is(err, ErrHangs) {
			t.Errorf("Stop = %v, want ErrHangs", err)
		}
	})
}

// F32: a slow disk is not a hung disk: a commit of nine seconds is waited for.
func TestF32_SlowDiskIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := noop()
		e := openEngine(t, &slowDisk{Store: memory.New(memory.Options{}), takes: 9 * time.Second}, Config{}, a)
		if head := waitForEnd(t, e, start(t, e, planOf(t, chain(3), a), nil)); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
	})
}
