// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
)

// F23, I15: an account sends ten times the requests that it may, whether or not they are
// answered. What is above its rate is refused before anything is done, and says when to come
// again; what was accepted is carried out; another account is refused nothing and waits for
// nothing. ROUX_LONG=1 floods for 60 s.
func TestF23_Flood(t *testing.T) {
	const rate, times = 20, 10
	lasts := 2 * time.Second
	if os.Getenv("ROUX_LONG") != "" {
		lasts = time.Minute
	}
	s := startWith(t, t.TempDir(), rate, rate)
	acme, rival := s.key("acme", access.Developer), s.key("rival", access.Developer)
	for _, key := range []string{acme, rival} {
		s.register(key, greet)
	}
	started := func(token, key string) (answer, time.Duration, error) {
		asked := time.Now()
		a, err := s.send(token, "POST", "/v1/recipes/greet/execute", `{"parameters":{"name":"a"}}`, "Idempotency-Key", key)
		return a, time.Since(asked), err
	}
	before := runtime.NumGoroutine()
	var mu sync.Mutex
	var runs []string // of acme, accepted
	var refused []answer
	var flood sync.WaitGroup
	send := func(i int) {
		a, _, err := started(acme, fmt.Sprint("flood-", i))
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if a.status == http.StatusAccepted {
			runs = append(runs, a.text("executionId"))
			return
		}
		refused = append(refused, a)
	}
	var others []time.Duration
	var otherRuns []string
	began := time.Now()
	end := began.Add(lasts)
	flood.Go(func() {
		tick := time.NewTicker(2 * time.Second / rate) // half of what the other account may
		defer tick.Stop()
		for i := 0; time.Now().Before(end); i++ {
			<-tick.C
			a, took, err := started(rival, fmt.Sprint("other-", i))
			if err != nil || a.status != http.StatusAccepted {
				t.Errorf("the other account: %d %s %v", a.status, a.body, err)
				return
			}
			others, otherRuns = append(others, took), append(otherRuns, a.text("executionId"))
		}
	})
	tick := time.NewTicker(time.Second / (rate * times))
	defer tick.Stop()
	sent := 0
	for ; time.Now().Before(end); <-tick.C {
		for due := int(time.Since(began).Seconds() * rate * times); sent < due; sent++ {
			i := sent
			flood.Go(func() { send(i) })
		}
	}
	flood.Wait()
	took := time.Since(began) // with what was still to be answered
	for _, a := range refused {
		code := fault.RequestRateExceeded
		if a.status == http.StatusServiceUnavailable { // of what the account may send, on a machine that is busy
			code = fault.Overloaded
		}
		if a.problem(code); a.header.Get("Retry-After") == "" {
			t.Errorf("refused without Retry-After: %v", a.header)
		}
	}
	if len(runs) < rate || len(refused) < len(runs) {
		t.Errorf("%d accepted and %d refused: that is no flood", len(runs), len(refused))
	}
	if most := rate + 1 + int(took.Seconds()*rate); len(runs) > most {
		t.Errorf("%d were accepted in %s, want at most %d", len(runs), took, most)
	}
	for account, list := range map[string][]string{"acme": runs, "rival": otherRuns} {
		for _, run := range list {
			if end, err := s.svc.Node.Engine.Wait(t.Context(), account, run); err != nil || end.Status != "completed" {
				t.Errorf("run %s was accepted and is %s, %v", run, end.Status, err)
			}
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before+20; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left of the flood, there were %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
	if len(others) == 0 {
		t.Fatal("the other account had no answer")
	}
	slices.Sort(others)
	t.Logf("%s: %d accepted, %d refused; another account: %d accepted, median %s, p99 %s",
		took, len(runs), len(refused), len(others), others[len(others)/2], others[len(others)*99/100])
}
