// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/store"
)

// F49: many runs that cannot go on, some marked and some that turn out to be unreadable, stand
// in front of a few that can. An engine starts, the few go on to their end, and lists pass over
// the others page by page; the second start finds all of them marked. With ROUX_LONG=1 there
// are 20,000.
func TestF49_ManyRunsThatCannotGoOn(t *testing.T) {
	n := 2000
	if os.Getenv("ROUX_LONG") != "" {
		n = 20_000
	}
	dir := t.TempDir()
	p := planOf(t, "name: asks\nsteps:\n  - {id: ask, wait: {signal: go, timeout: 2h}}\n", noop())
	st := openSQLite(t, dir)
	e := openEngine(t, st, Config{}, noop())
	var good []string
	for range 5 {
		good = append(good, start(t, e, p, nil))
	}
	e.crash()
	epoch, err := st.Own(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var batch []store.Transition
	for i := range n {
		key := store.Key{Account: acc, Run: fmt.Sprintf("run_%026d", i)} // before those that are good
		head := &store.Head{Key: key, Recipe: "r", Status: "running", Created: 1, Updated: 1}
		if i%2 == 0 {
			head.Quarantine = "it cannot go on"
		}
		batch = append(batch, store.Transition{Key: key, Epoch: epoch, First: 1, Last: 1, Frames: []byte("no event"), Head: head})
		if len(batch) == 500 || i == n-1 {
			verdicts, err := st.Commit(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range verdicts {
				if v.Err != nil {
					t.Fatal(v.Err)
				}
			}
			batch = batch[:0]
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for round := range 2 {
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		before, began := heap(), time.Now()
		st = openSQLite(t, dir)
		e = openEngine(t, st, Config{}, noop())
		if round == 0 {
			for _, run := range good {
				if err := e.Signal(t.Context(), acc, run, "go", nil); err != nil {
					t.Fatalf("a run behind those that cannot go on: %v", err)
				}
				if head := waitForEnd(t, e, run); head.Status != "completed" {
					t.Errorf("run %s is %s: %s", run, head.Status, head.Message)
				}
			}
		} else if _, err := e.Head(t.Context(), acc, good[0]); err != nil {
			t.Error(err)
		}
		took := time.Since(began)
		marked := func() (marked, pages int) {
			for q := (store.Query{Account: acc, Statuses: []string{"running"}, Limit: 500}); ; pages++ {
				heads, next, err := st.Search(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for i := range heads {
					if heads[i].Quarantine != "" {
						marked++
					}
				}
				if q.After = next; next == "" {
					return marked, pages + 1
				}
			}
		}
		listed, pages := 0, 0
		for end := time.Now().Add(time.Minute); listed != n && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			listed, pages = marked()
		}
		used := heap() - before
		t.Logf("start %d: %d runs that cannot go on, %d marked in %d pages; the others ended after %v; %d KiB of memory", round+1, n, listed, pages, took, used>>10)
		if listed != n {
			t.Errorf("%d of %d runs are marked", listed, n)
		}
		if took > time.Minute || used > int64(n)*2048+16<<20 {
			t.Errorf("start %d took %v and %d bytes of memory", round+1, took, used)
		}
		e.crash()
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
