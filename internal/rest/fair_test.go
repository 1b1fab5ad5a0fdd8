// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
)

// An account that asks for little comes before accounts that ask for much, and those come one
// after the other.
func TestFairLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFairLimit(2)
		var order []string
		next := make(chan bool)
		ask := func(account string) {
			go func() {
				release, err := f.Acquire(t.Context(), account)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, account) // one at a time: the test waits for each
				<-next
				release()
			}()
			synctest.Wait()
		}
		for range 4 {
			ask("much")
		}
		for range 2 {
			ask("more")
		}
		ask("little")
		for range 7 {
			next <- true
			synctest.Wait()
		}
		if want := []string{"much", "much", "more", "little", "much", "more", "much"}; !slices.Equal(order, want) {
			t.Errorf("they begin in the order %v, want %v", order, want)
		}
		if f.free != 2 || f.queued != 0 || len(f.line) != 0 {
			t.Errorf("%d are free, %d wait in %d accounts", f.free, f.queued, len(f.line))
		}
	})
}

// I15: a request that would wait in vain is refused at once, or when it has waited for long;
// one whose client has gone waits no more.
func TestI15_FairLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFairLimit(1)
		f.all, f.waiting = 5, 3
		release, err := f.Acquire(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		refused := make(chan error, 20)
		ask := func(ctx context.Context, account string) {
			go func() {
				done, err := f.Acquire(ctx, account)
				if err == nil {
					done()
				}
				refused <- err
			}()
			synctest.Wait()
		}
		expect := func(what string, n int) {
			t.Helper()
			for range n {
				var e *fault.Error
				if err := <-refused; !errors.As(err, &e) || e.Code != fault.Overloaded || e.RetryAfterMS == 0 {
					t.Errorf("%s: %v", what, err)
				}
			}
			if len(refused) != 0 {
				t.Errorf("%s: %d more are answered", what, len(refused))
			}
		}
		ctx, gone := context.WithCancel(t.Context())
		for range 4 {
			ask(t.Context(), "acme")
		}
		expect("the fourth of an account", 1)
		for i := range 3 {
			ask(ctx, "other-"+strconv.Itoa(i))
		}
		expect("the sixth of all", 1)
		gone()
		synctest.Wait()
		for range 2 {
			if err := <-refused; !errors.Is(err, context.Canceled) {
				t.Errorf("a client that has gone: %v", err)
			}
		}
		time.Sleep(longestWait)
		synctest.Wait()
		expect("after a long wait", 3)
		release()
		if f.free != 1 || f.queued != 0 || len(f.line) != 0 || f.accounts["acme"] != nil {
			t.Errorf("%d are free, %d wait, %v are kept", f.free, f.queued, f.accounts)
		}
	})
}
