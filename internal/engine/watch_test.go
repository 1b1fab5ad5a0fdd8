// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// latePages returns the first page of a journal only after the run has ended.
type latePages struct {
	store.Store
	once  sync.Once
	ended func()
}

func (s *latePages) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	page, err := s.Store.Events(ctx, key, after, maxBytes)
	s.once.Do(s.ended)
	return page, err
}

// TestI14_EndBetweenPageAndHead: a run that ends while a reader holds an older
// page of its journal is still read to its end.
func TestI14_EndBetweenPageAndHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := blockedAction(release)
		st := &latePages{Store: memory.New(memory.Options{})}
		e := openEngine(t, st, Config{}, slow)
		run := start(t, e, planOf(t, "name: one\nsteps: [{id: a, action: {name: slow}}]\n", slow), nil)
		synctest.Wait()
		st.ended = func() {
			close(release)
			synctest.Wait()
		}
		var last uint64
		var name string
		for ev, err := range e.Watch(t.Context(), acc, run, 0) {
			if err != nil {
				t.Fatal(err)
			}
			last, name = ev.Seq, ev.Name()
		}
		if name != "run.completed" {
			t.Errorf("the reader ended at event %d, %s", last, name)
		}
	})
}

// retryDuringRead retries a run between the read of its head and that of its journal.
type retryDuringRead struct {
	store.Store
	once  sync.Once
	retry func()
}

func (s *retryDuringRead) Events(ctx context.Context, key store.Key, after uint64, maxBytes int) (store.Page, error) {
	if s.retry != nil {
		s.once.Do(s.retry)
	}
	return s.Store.Events(ctx, key, after, maxBytes)
}

// I14: a reader that starts while a run is retried is not told that the run has ended.
func TestI14_RetryBetweenHeadAndPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		held := newAction("held", func(_ context.Context, task *action.Task) (action.Result, error) {
			if task.Attempt == 1 {
				return action.Result{}, errors.New("not yet")
			}
			<-release
			return action.Result{}, nil
		})
		st := &retryDuringRead{Store: memory.New(memory.Options{})}
		e := openEngine(t, st, Config{}, held)
		run := start(t, e, planOf(t, "name: one\nsteps: [{id: a, action: {name: held}}]\n", held), nil)
		if head := waitForEnd(t, e, run); head.Status != "failed" {
			t.Fatalf("the run is %s", head.Status)
		}
		st.retry = func() {
			if err := e.Retry(t.Context(), acc, run, RetryRequest{}); err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Second, func() { close(release) })
		}
		name := ""
		for ev, err := range e.Watch(t.Context(), acc, run, 0) {
			if err != nil {
				t.Fatal(err)
			}
			name = ev.Name()
		}
		if name != "run.completed" {
			t.Errorf("the reader ended with %s", name)
		}
	})
}
