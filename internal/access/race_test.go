// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
)

// A21: while keys are made, used, forgotten and revoked at once, no request of a revoked
// key goes on.
func TestA21_RevokedWhileInUse(t *testing.T) {
	w := inMemory(t)
	var all sync.WaitGroup
	for i := range 20 {
		key, token := w.make(Spec{Account: fmt.Sprint("acme", i%3), Limit: &Limit{Credits: 5}})
		revoked := make(chan struct{})
		for range 4 {
			all.Go(func() {
				for {
					var over bool
					select {
					case <-revoked:
						over = true
					default:
					}
					p, err := w.Authenticate(t.Context(), token)
					if err != nil {
						if !errors.Is(err, fault.Unauthorized) {
							t.Error(err)
						}
						return
					}
					if over {
						t.Error("a revoked key admits a request")
						return
					}
					ctx, end := w.Bind(t.Context(), p)
					w.Budgets(key.Account, ledger.Budgets{})
					if errors.Is(context.Cause(ctx), fault.Unauthorized) {
						end()
						return
					}
					end()
				}
			})
		}
		all.Go(func() {
			p, err := w.Authenticate(t.Context(), token)
			if err != nil {
				return
			}
			ctx, end := w.Bind(t.Context(), p)
			defer end()
			<-ctx.Done() // the test would hang here
		})
		all.Go(func() { w.forget() })
		all.Go(func() {
			if _, err := w.Revoke(t.Context(), key.Account, key.ID); err != nil {
				t.Error(err)
			}
			close(revoked)
		})
	}
	all.Wait()
	if len(w.Keys.open) != 0 {
		t.Errorf("uses are left: %v", w.Keys.open)
	}
}
