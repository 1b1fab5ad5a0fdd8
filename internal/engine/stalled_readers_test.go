// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// F48: readers of every kind stop in the middle of reading, for ten minutes in which
// the engine writes many times the size of the write-ahead log. They hold no
// transaction, the log stays short, what waits for them in memory is bounded, and when
// they continue they miss nothing (I14).
func TestF48_StalledReadersHoldNoTransaction(t *testing.T) {
	dir := t.TempDir()
	st := openSQLite(t, dir)
	defer st.Close()
	text := newAction("text", func(_ context.Context, task *action.Task) (action.Result, error) {
		var b strings.Builder // text that does not compress
		for i := 0; b.Len() < 60_000; i++ {
			fmt.Fprintf(&b, "%x", sha256.Sum256(fmt.Append(nil, task.EffectKey, i)))
		}
		return action.Result{Output: b.String()}, nil
	})
	var src strings.Builder
	src.WriteString("name: long\nsteps:\n  - {id: go, wait: {signal: go}}\n")
	const steps = 40
	for i := range steps {
		fmt.Fprintf(&src, "  - {id: s%d, action: {name: text}}\n", i)
	}
	p := planOf(t, src.String(), text)
	var ahead atomic.Int64
	began := time.Now()
	e := openEngine(t, st, Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}, text)
	finish := func(run string) {
		if err := e.Signal(t.Context(), acc, run, "go", nil); err != nil {
			t.Error(err)
		}
		if head := waitForEnd(t, e, run); head.Status != "completed" {
			t.Errorf("run %s is %s: %s", run, head.Status, head.Message)
		}
	}

	ended, live := start(t, e, p, nil), start(t, e, p, nil)
	finish(ended)
	resume := make(chan struct{})
	var stalled, done sync.WaitGroup
	read := func(name string, events iter.Seq2[feed.Event, error]) {
		stalled.Add(1)
		done.Go(func() {
			next, last := uint64(1), ""
			for ev, err := range events {
				if err != nil {
					t.Errorf("%s: %v", name, err)
					break
				}
				if ev.Seq != next {
					t.Errorf("%s: event %d where %d was expected", name, ev.Seq, next)
				}
				if next == 1 {
					stalled.Done()
					<-resume
				}
				next, last = next+1, ev.Name()
			}
			if last != "run.completed" {
				t.Errorf("%s ends with %s", name, last)
			}
		})
	}
	read("an export of a run that has ended", e.Feed().Events(t.Context(), store.Key{Account: acc, Run: ended}, 0))
	read("a subscriber behind a run that has ended", e.Watch(t.Context(), acc, ended, 0))
	read("a subscriber of a run that goes on", e.Watch(t.Context(), acc, live, 0))
	var pages iter.Seq2[feed.Event, error] = func(yield func(feed.Event, error) bool) {
		err := store.EachEvent(t.Context(), st, store.Key{Account: acc, Run: ended}, 0, func(ev *journal.Event) error {
			if !yield(feed.Event{Event: ev, Plan: p}, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil {
			yield(feed.Event{}, err)
		}
	}
	read("a reader of pages", pages)
	stalled.Wait()

	finish(live)
	most, written := int64(0), int64(0)
	const rounds = 16
	for range rounds {
		ahead.Add(int64(10 * time.Minute / rounds))
		var wg sync.WaitGroup
		for range 2 {
			run := start(t, e, p, nil)
			wg.Go(func() { finish(run) })
		}
		wg.Wait()
		written += 2 * steps * 60_000
		if info, err := os.Stat(filepath.Join(dir, "roux.db-wal")); err != nil {
			t.Fatal(err)
		} else {
			most = max(most, info.Size())
		}
	}
	if most > 48<<20 || most >= written {
		t.Errorf("the log grew to %d MiB while %d MiB were written", most>>20, written>>20)
	}
	if _, held := e.feed.Usage(); held > 3*feed.MaxBehind {
		t.Errorf("%d KiB are kept in memory for three subscribers", held>>10)
	}
	if err := e.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoTransaction(t, dir)
	t.Logf("%s of virtual time: %d MiB written, at most %d MiB of log", time.Since(began).Truncate(time.Minute)+10*time.Minute, written>>20, most>>20)
	close(resume)
	done.Wait()
}

// wantNoTransaction asks SQLite: a log can be truncated only if no transaction reads
// it.
func wantNoTransaction(t *testing.T, dir string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "roux.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	// Upkeep may hold the log for a moment, and is not a reader.
	for try := 0; ; try++ {
		var busy, log, copied int
		if err := db.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, &log, &copied); err != nil {
			t.Fatal(err)
		}
		if busy == 0 {
			return
		}
		if try == 100_000 {
			t.Fatalf("a transaction is open: %d pages in the log, %d copied", log, copied)
		}
	}
}
