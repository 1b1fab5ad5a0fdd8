// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A source is a feed over a store in memory, and the transitions that a test commits to it.
type source struct {
	*Feed
	t     *testing.T
	st    *memory.Store
	epoch uint64
	runs  int
}

func newSource(t *testing.T) *source {
	t.Helper()
	st := memory.New(memory.Options{})
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &source{Feed: New(st, nil), t: t, st: st, epoch: epoch}
}

// commit starts n runs of an account, each in a commit of its own.
func (s *source) commit(account string, n int) {
	s.t.Helper()
	for range n {
		s.runs++
		key := store.Key{Account: account, Run: fmt.Sprint("run", s.runs)}
		head := store.Head{Key: key, Status: "running"}
		verdicts, err := s.st.Commit(s.t.Context(), []store.Transition{{Key: key, Epoch: s.epoch, First: 1, Last: 1, Frames: []byte("1"), Head: &head}})
		if err != nil || verdicts[0].Err != nil {
			s.t.Fatal(err, verdicts)
		}
		s.Publish([]Published{{Key: key, Head: &head}})
	}
}

// follow reads the changes of an account into a channel, which it closes at the end, with
// the reason in err.
func follow(ctx context.Context, s *source, account string, after uint64) (changes chan uint64, err *error) {
	changes, err = make(chan uint64, 10_000), new(error)
	go func() {
		for c, why := range s.Changes(ctx, account, after) {
			if why != nil {
				*err = why
				break
			}
			changes <- c.N
		}
		close(changes)
	}()
	return changes, err
}

// wantNumbers fails the test unless the channel has the numbers from first to last.
func wantNumbers(t *testing.T, changes chan uint64, first, last uint64) {
	t.Helper()
	synctest.Wait()
	for n := first; n <= last; n++ {
		select {
		case got := <-changes:
			if got != n {
				t.Fatalf("change %d comes where change %d is expected", got, n)
			}
		default:
			t.Fatalf("change %d does not come", n)
		}
	}
	if len(changes) > 0 {
		t.Fatalf("%d more changes come after change %d", len(changes), last)
	}
}

// I14: a follower receives what is stored, then what becomes durable, once and in order. A
// reader that does not read misses nothing; another account wakes nobody.
func TestI14_FollowersMissNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		go s.Run()
		s.commit("acme", 3)
		ctx, stop := context.WithCancel(t.Context())
		all, _ := follow(ctx, s, "acme", 0)
		late, lateErr := follow(ctx, s, "acme", 2)
		other, _ := follow(ctx, s, "other", 0)
		wantNumbers(t, all, 1, 3)
		wantNumbers(t, late, 3, 3)
		for i := range uint64(5) {
			s.commit("acme", 1)
			wantNumbers(t, all, 4+i, 4+i)
			wantNumbers(t, late, 4+i, 4+i)
		}
		wantNumbers(t, other, 1, 0)
		s.commit("other", 1)
		wantNumbers(t, other, 1, 1)
		// A slow reader: it has taken one change when thousands come.
		var slow []uint64
		for c, err := range s.Changes(ctx, "acme", 7) {
			if err != nil {
				t.Fatal(err)
			}
			if len(slow) == 0 {
				s.commit("acme", 3*changesPage)
				synctest.Wait()
			}
			if slow = append(slow, c.N); len(slow) == 1+3*changesPage {
				break
			}
		}
		if slow[0] != 8 || slow[len(slow)-1] != 8+3*changesPage {
			t.Errorf("a slow reader has %d changes, from %d to %d", len(slow), slow[0], slow[len(slow)-1])
		}
		wantNumbers(t, all, 9, 8+3*changesPage)
		stop()
		synctest.Wait()
		if !errors.Is(*lateErr, context.Canceled) || s.headSubs.Load() != 0 || len(s.followers) != 0 {
			t.Errorf("a follower ended with %v; %d are left", *lateErr, s.headSubs.Load())
		}
		s.Close(errEnded)
	})
}

// racing commits a change right after each read of its store.
type racing struct {
	*memory.Store
	then func()
}

func (r *racing) Changes(ctx context.Context, account string, after uint64, limit int) ([]store.Change, error) {
	changes, err := r.Store.Changes(ctx, account, after, limit)
	if then := r.then; then != nil {
		r.then = nil
		then()
	}
	return changes, err
}

// I14: a change that is committed while a follower reads is not missed.
func TestI14_ChangeDuringARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		r := &racing{Store: s.st}
		s.Feed = New(r, nil)
		go s.Run()
		r.then = func() { s.commit("acme", 1) }
		changes, _ := follow(t.Context(), s, "acme", 0)
		wantNumbers(t, changes, 1, 1)
		s.Close(errEnded)
	})
}

// A follower wakes for changes without a head, for those that no commit of the engine has
// made, and after a commit whose outcome was not known. It does not wake for others.
func TestFollowersWake(t *testing.T) {
	f := New(nil, nil)
	w := f.follow("acme")
	defer f.unfollow("acme", w)
	key := store.Key{Account: "acme", Run: "a"}
	for _, c := range []struct {
		what  string
		p     Published
		wakes bool
	}{
		{"frames", Published{Key: key, Frames: []byte("1")}, false},
		{"a head", Published{Key: key, Head: &store.Head{}}, true},
		{"entries of a run", Published{Key: key, Frames: []byte("1"), Changed: true}, true},
		{"entries alone", Published{Key: store.Key{Account: "acme"}, Changed: true}, true},
		{"a head of another account", Published{Key: store.Key{Account: "other", Run: "a"}, Head: &store.Head{}}, false},
		{"entries of another account", Published{Key: store.Key{Account: "other"}, Changed: true}, false},
		{"a gap", Published{}, true},
	} {
		f.Publish([]Published{c.p})
		f.mu.Lock()
		f.drain()
		f.mu.Unlock()
		if woken := len(w.signal) == 1; woken != c.wakes {
			t.Errorf("%s wakes a follower: %v", c.what, woken)
		}
		if len(w.signal) > 0 {
			<-w.signal
		}
	}
	if f.Changed("acme"); len(f.queue) != 1 {
		t.Error("a deletion is not published")
	}
}

// The end of the feed comes after all changes before it, and takes precedence over an error
// of the store, which is closed then. A cursor that is refused ends the feed at once.
func TestFollowersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		s.commit("acme", 2)
		changes, err := follow(t.Context(), s, "acme", 0)
		wantNumbers(t, changes, 1, 2)
		s.commit("acme", 1) // nobody delivers it before the end
		s.Close(errEnded)
		s.Run()
		wantNumbers(t, changes, 3, 3)
		if !errors.Is(*err, errEnded) {
			t.Errorf("it ends with %v", *err)
		}
		if cerr := s.st.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		_, err = follow(t.Context(), s, "acme", 0)
		synctest.Wait()
		if !errors.Is(*err, errEnded) {
			t.Errorf("after the store was closed it ends with %v", *err)
		}

		s = newSource(t)
		_, err = follow(t.Context(), s, "acme", 1)
		synctest.Wait()
		if !errors.Is(*err, fault.InputInvalid) {
			t.Errorf("a cursor in the future ends with %v", *err)
		}
	})
}

// Next waits no longer than it may, and goes on where it was: a change that comes between
// two calls is not missed. At the end of the feed it returns what is left, and then why.
func TestFollowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		go s.Run()
		w := s.FollowChanges("acme", 0)
		next := func(wait time.Duration, last uint64, want error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			begin := time.Now()
			changes, err := w.Next(t.Context(), ctx)
			switch {
			case !errors.Is(err, want) || (err == nil) != (want == nil):
				t.Fatalf("after %d changes: %v, want %v", len(changes), err, want)
			case errors.Is(want, context.DeadlineExceeded) && time.Since(begin) != wait:
				t.Fatalf("it waits %v, want %v", time.Since(begin), wait)
			case last != 0 && (len(changes) == 0 || changes[len(changes)-1].N != last):
				t.Fatalf("%d changes, want the last to be %d", len(changes), last)
			case last == 0 && len(changes) != 0:
				t.Fatalf("%d changes", len(changes))
			}
		}
		next(time.Minute, 0, context.DeadlineExceeded)
		next(0, 0, context.DeadlineExceeded)
		s.commit("acme", 2)
		synctest.Wait()
		next(0, 2, nil) // what is there comes also without time to wait
		next(time.Minute, 0, context.DeadlineExceeded)
		s.commit("other", 1)
		next(time.Minute, 0, context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { s.commit("acme", 1) })
		next(time.Minute, 3, nil)
		s.commit("acme", changesPage+1)
		synctest.Wait()
		next(0, 3+changesPage, nil)
		next(0, 4+changesPage, nil)
		s.commit("acme", 1)
		s.Close(errEnded)
		synctest.Wait()
		next(time.Minute, 5+changesPage, nil)
		next(time.Minute, 0, errEnded)
		w.Close()
		w.Close()
		if n := s.headSubs.Load(); n != 0 || len(s.followers) != 0 {
			t.Errorf("%d followers are left", n)
		}
	})
}

// The end of the feed wakes who waits for a change.
func TestFollowChangesUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t)
		go s.Run()
		w := s.FollowChanges("acme", 0)
		defer w.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(t.Context(), t.Context())
			ended <- err
		}()
		synctest.Wait()
		s.Close(errEnded)
		if err := <-ended; !errors.Is(err, errEnded) {
			t.Errorf("it ends with %v", err)
		}
	})
}
