// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// X98: a run that has ended can be deleted by its user. It is then as one that does not
// exist, for every request, also after a restart; its record stays, and the feed tells.
func TestX98_SoftDelete(t *testing.T) {
	st := memory.New(memory.Options{})
	release := make(chan struct{})
	e := openEngine(t, st, Config{}, noop(), blockedAction(release))
	p := planOf(t, chain(2), noop())
	slow := planOf(t, "name: slow\nsteps:\n  - {id: a, action: {name: slow}}\n", blockedAction(release))
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test", Labels: map[string]string{"env": "prod"}})
	if err != nil {
		t.Fatal(err)
	}
	run := s.Run
	if _, err := e.Wait(t.Context(), acc, run); err != nil {
		t.Fatal(err)
	}
	live := start(t, e, slow, nil)
	for _, wrong := range []struct {
		account, run string
		code         fault.Code
	}{{acc, live, fault.Conflict}, {acc, "none", fault.RunNotFound}, {"other", run, fault.RunNotFound}} {
		if err := e.SoftDelete(t.Context(), wrong.account, wrong.run); !errors.Is(err, wrong.code) {
			t.Errorf("SoftDelete(%s, %s) = %v, want %s", wrong.account, wrong.run, err, wrong.code)
		}
	}
	if heads, err := e.List(t.Context(), store.Query{Account: acc, Labels: map[string]string{"env": "prod"}}); err != nil || len(heads) != 1 || heads[0].Run != run {
		t.Errorf("by label: %+v, %v", heads, err)
	}
	if err := e.SoftDelete(t.Context(), acc, run); err != nil {
		t.Fatal(err)
	}
	gone := func(e *Engine) {
		t.Helper()
		_, head := e.Head(t.Context(), acc, run)
		for what, err := range map[string]error{
			"Head": head, "Retry": e.Retry(t.Context(), acc, run, RetryRequest{}), "SoftDelete": e.SoftDelete(t.Context(), acc, run),
			"Release": e.Release(t.Context(), acc, run),
		} {
			if !errors.Is(err, fault.RunNotFound) && (what != "Release" || !errors.Is(err, fault.Conflict)) {
				t.Errorf("%s of a deleted run = %v", what, err)
			}
		}
		for _, q := range []struct {
			store.Query
			want int
		}{{store.Query{}, 1}, {store.Query{Labels: map[string]string{"env": "prod"}}, 0}, {store.Query{Deleted: true}, 1}} {
			q.Account = acc
			if heads, err := e.List(t.Context(), q.Query); err != nil || len(heads) != q.want {
				t.Errorf("%+v lists %+v, %v", q, heads, err)
			}
		}
	}
	gone(e)
	head, err := st.Head(t.Context(), store.Key{Account: acc, Run: run})
	if err != nil || head.Deleted == 0 || head.Status != "completed" || head.Labels != `{"env":"prod"}` {
		t.Errorf("the record is %+v, %v", head, err)
	}
	last, _, err := st.Newest(t.Context(), acc)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := st.Changes(t.Context(), acc, last-1, 1)
	if err != nil || !changes[0].Hidden || changes[0].Run != run || changes[0].Deleted {
		t.Errorf("the last change is %+v, %v", changes, err)
	}
	close(release)
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(openEngine(t, st.Reopen(), Config{}, noop(), blockedAction(release)))
}

// Of a retry and a deletion at once one is done, and the other finds that out.
func TestX98_SoftDeleteAndRetryAtOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	release := make(chan struct{})
	e := openEngine(t, st, Config{}, blockedAction(release))
	p := planOf(t, "name: bad\nsteps:\n  - {id: a, fail: {message: by design}}\n")
	for range 50 {
		run := start(t, e, p, nil)
		if _, err := e.Wait(t.Context(), acc, run); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var deleted, retried error
		wg.Go(func() { deleted = e.SoftDelete(t.Context(), acc, run) })
		wg.Go(func() { retried = e.Retry(t.Context(), acc, run, RetryRequest{}) })
		wg.Wait()
		head, err := st.Head(t.Context(), store.Key{Account: acc, Run: run})
		if err != nil {
			t.Fatal(err)
		}
		if deleted != nil || head.Deleted == 0 { // the retry has ended by now, so it can be deleted
			t.Fatalf("SoftDelete = %v, Retry = %v, deleted at %d", deleted, retried, head.Deleted)
		}
		if retried != nil && !errors.Is(retried, fault.RunNotFound) {
			t.Fatalf("Retry = %v", retried)
		}
	}
}

// A quarantined run that has ended can be deleted, too. A child run cannot, and is not found
// once its root is deleted.
func TestX98_SoftDeleteOfWhatIsNotLoaded(t *testing.T) {
	st := memory.New(memory.Options{})
	e := openEngine(t, st, Config{}, noop())
	run := start(t, e, planOf(t, chain(1), noop()), nil)
	if _, err := e.Wait(t.Context(), acc, run); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	st = st.Reopen()
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := st.Head(t.Context(), store.Key{Account: acc, Run: run})
	if err != nil {
		t.Fatal(err)
	}
	root.Quarantine = "a reason"
	child := root
	child.Run, child.Root, child.Parent = "child", run, run
	verdicts, err := st.Commit(t.Context(), []store.Transition{
		{Key: root.Key, Epoch: epoch, Head: &root}, {Key: child.Key, Epoch: epoch, First: 1, Last: 1, Frames: []byte("unread"), Head: &child},
	})
	if err != nil || verdicts[0].Err != nil || verdicts[1].Err != nil {
		t.Fatal(verdicts, err)
	}
	e = openEngine(t, st, Config{}, noop())
	if err := e.SoftDelete(t.Context(), acc, "child"); !errors.Is(err, fault.Conflict) {
		t.Errorf("a child run: %v", err)
	}
	if _, err := e.Head(t.Context(), acc, "child"); err != nil {
		t.Error(err)
	}
	if err := e.SoftDelete(t.Context(), acc, run); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{run, "child"} {
		if _, err := e.Head(t.Context(), acc, gone); !errors.Is(err, fault.RunNotFound) {
			t.Errorf("the head of %s: %v", gone, err)
		}
	}
	if err := e.Release(t.Context(), acc, run); !errors.Is(err, fault.RunNotFound) {
		t.Errorf("Release = %v", err)
	}
}
