// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/doctor"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

const (
	loadRecipe = `name: load
creditEstimation: {strategy: fixed, fixedCredits: 20, maxCredits: 300}
steps:
  - {id: a, action: {name: paid}}
  - {id: f, action: {name: make}, dependsOn: [a]}
  - {id: c, recipe: {inline: {name: below, steps: [{id: x, action: {name: paid}}]}}, dependsOn: [f]}
  - {id: w, wait: {signal: go}, dependsOn: [c]}
  - {id: z, action: {name: use, parameters: {file: "{{ steps.f.output.file }}"}}, dependsOn: [w]}
`
	makeRecipe = "name: make\nsteps:\n  - {id: f, action: {name: make}}\n"
)

// actions are paid; make, which stores a file that no other call has; and use, which reads
// one to its end, where its hash is compared.
func actions() []action.Action {
	var made atomic.Int64
	return []action.Action{
		{Name: "paid", Version: "1.0.0", Cost: 5, Run: func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }},
		{Name: "make", Version: "1.0.0", Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			info, err := task.Files.Put(ctx, strings.NewReader(fmt.Sprint(task.Run, made.Add(1), strings.Repeat("x", 20<<10))), "made.txt", "")
			return action.Result{Output: map[string]any{"file": info.Hash}}, err
		}},
		{Name: "use", Version: "1.0.0", Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct{ File string }
			if err := task.Decode(&in); err != nil {
				return action.Result{}, err
			}
			f, err := task.Files.Open(ctx, in.File)
			if err != nil {
				return action.Result{}, err
			}
			n, err := io.Copy(io.Discard, f)
			return action.Result{Output: map[string]any{"bytes": n}}, errors.Join(err, f.Close())
		}},
	}
}

// A machine is a node on a data directory.
type machine struct {
	*node.Node
	dir       string
	catalogue *catalogue.Catalogue
}

func openNode(t *testing.T, dir string) *machine {
	t.Helper()
	list := node.NewActions(nil, actions()...)
	t.Cleanup(list.Close)
	st, err := node.OpenStore(t.Context(), dir)
	must(t, err)
	n, err := node.Open(t.Context(), st, node.Config{Dir: dir, Actions: list, Retention: retention.Policy{Runs: -1, Files: -1, Uploads: -1},
		Accounts: map[string]engine.AccountRules{"free": {Unmetered: true}, "acme": {MaxLiveRuns: -1}}})
	must(t, err)
	return &machine{n, dir, list.Catalogue}
}

func (m *machine) stop(t *testing.T) {
	t.Helper()
	must(t, m.Stop(context.WithoutCancel(t.Context())))
}

func (m *machine) source() backup.Source {
	return backup.Source{Dir: m.dir, Store: m.Store, Files: m.Files, Keep: m.Engine.Files().KeepFiles, Version: "test", Now: time.Now}
}

func (m *machine) start(t *testing.T, account, text string) string {
	t.Helper()
	p, _, _, diags := compile.Source("load.yaml", []byte(text), compile.Options{Actions: m.catalogue})
	if p == nil {
		t.Fatal(diags)
	}
	s, err := m.Engine.Start(context.WithoutCancel(t.Context()), engine.StartRequest{Account: account, Plan: p, Recipe: "load"})
	must(t, err)
	return s.Run
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet(backup.Progress) {}

// seen has what was acknowledged of each run: the last event that a watcher got.
type seen struct {
	mu   sync.Mutex
	last map[store.Key]uint64
	// tokens has one for each run that may be started, so that the load and not the disk
	// bounds how much there is.
	tokens chan struct{}
}

func (s *seen) note(key store.Key, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[key] = max(s.last[key], seq)
}

func (s *seen) now() map[store.Key]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.last)
}

// load starts runs one after the other until ctx ends. Every second one is let go to its end;
// the others wait for good.
func (m *machine) load(ctx context.Context, t *testing.T, account string, acked *seen) {
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-acked.tokens:
		case <-ctx.Done():
			return
		}
		key := store.Key{Account: account, Run: m.start(t, account, loadRecipe)}
		acked.note(key, 1)
		for ev, err := range m.Engine.Watch(ctx, account, key.Run, 0) {
			if ctx.Err() != nil {
				return
			}
			must(t, err)
			acked.note(key, ev.Seq)
			if ev.Kind != journal.EvNodeWaiting || ev.Plan == nil {
				continue
			}
			if i%2 == 1 {
				break
			}
			must(t, m.Engine.Signal(context.WithoutCancel(ctx), account, key.Run, "go", nil))
		}
	}
}

// Backup every few commits under load, each one restored: the books reconcile, every run
// replays and goes on to its end, everything that was acknowledged before is there (I1), and
// nothing from after. With ROUX_LONG=1 it makes a backup every 10 s for 5 minutes.
func TestBackupUnderLoad(t *testing.T) {
	backups, every := 3, func(*machine) {}
	if os.Getenv("ROUX_LONG") != "" {
		backups, every = 30, func(*machine) { time.Sleep(10 * time.Second) }
	}
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	_, err := m.Engine.Grant(t.Context(), engine.GrantRequest{Account: "acme", Key: "first", Amount: 10_000_000, Terms: ledger.Terms{Source: ledger.Paid}})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acked := &seen{last: map[store.Key]uint64{}, tokens: make(chan struct{}, 1000)}
	var wg sync.WaitGroup
	for _, account := range []string{"acme", "free", "free"} {
		wg.Go(func() { m.load(ctx, t, account, acked) })
	}
	to := filepath.Join(t.TempDir(), "backups")
	commits := func() int64 {
		st, err := m.Store.Stats(t.Context())
		must(t, err)
		return st.Commits
	}
	for range backups {
		for range 90 {
			acked.tokens <- struct{}{}
		}
		for from := commits(); commits() < from+60; {
			_, err := m.Engine.Head(t.Context(), "acme", "none") // waits for the store
			if !errors.Is(err, fault.RunNotFound) {
				t.Fatal(err)
			}
		}
		every(m)
		before := acked.now()
		made, err := backup.Create(t.Context(), m.source(), to, quiet)
		must(t, err)
		after := m.start(t, "free", makeRecipe)
		if len(made.Damaged) > 0 {
			t.Errorf("damaged: %v", made.Damaged)
		}
		path := filepath.Join(to, made.ID)
		if _, problems, err := backup.Verify(t.Context(), path, quiet); err != nil || len(problems) > 0 {
			t.Fatalf("the backup: %v, %v", problems, err)
		}
		restored := filepath.Join(t.TempDir(), "restored")
		_, err = backup.Restore(t.Context(), path, restored, quiet)
		must(t, err)
		checkRestored(t, restored, before, store.Key{Account: "free", Run: after})
	}
	cancel()
	wg.Wait()
	m.stop(t)
	again := openNode(t, m.dir) // the original is whole
	if _, complaints, err := again.Store.Check(t.Context()); err != nil || len(complaints) > 0 {
		t.Errorf("the original: %v, %v", complaints, err)
	}
	again.stop(t)
}

// checkRestored opens a restored directory, proves what is in it and lets its runs go on.
func checkRestored(t *testing.T, dir string, before map[store.Key]uint64, after store.Key) {
	t.Helper()
	ctx := t.Context()
	st, err := node.OpenStore(ctx, dir)
	must(t, err)
	if _, complaints, err := st.Check(ctx); err != nil || len(complaints) > 0 {
		t.Errorf("the restored store: %v, %v", complaints, err)
	}
	for key, seq := range before {
		head, err := st.Head(ctx, key)
		if err != nil {
			t.Errorf("a run that was acknowledged: %v", err)
			continue
		}
		if last, err := doctor.CheckHead(ctx, st, head); err != nil || last < seq {
			t.Errorf("run %s: event %d was acknowledged, and the last is %d, %v", key.Run, seq, last, err)
		}
	}
	if _, err := st.Head(ctx, after); !errors.Is(err, fault.RunNotFound) {
		t.Errorf("a run that was started after the backup: %v", err)
	}
	books, err := reconcile.Account(ctx, st, "acme", func(uint64) {})
	must(t, err)
	if len(books.Findings) > 0 || books.Entries == 0 {
		t.Errorf("the books: %+v", books)
	}
	must(t, st.Close())

	m := openNode(t, dir)
	goOn := 0
	for _, account := range []string{"acme", "free"} {
		heads, err := m.Engine.List(ctx, store.Query{Account: account, Limit: 500})
		must(t, err)
		for _, h := range heads {
			if h.Ended != 0 {
				continue
			}
			goOn++
			for ev, err := range m.Engine.Watch(ctx, account, h.Run, 0) {
				must(t, err)
				if ev.Kind == journal.EvNodeWaiting {
					// It may have been let go before the backup was made.
					if err := m.Engine.Signal(ctx, account, h.Run, "go", nil); err != nil && !errors.Is(err, fault.Conflict) && !errors.Is(err, fault.TooLate) {
						t.Error(err)
					}
					break
				}
			}
			if end, err := m.Engine.Wait(ctx, account, h.Run); err != nil || end.Status != "completed" {
				t.Errorf("run %s goes on and is %s, %s, %v", h.Run, end.Status, end.Message, err)
			}
		}
	}
	if goOn == 0 {
		t.Error("no run was left to go on")
	}
	m.stop(t)
}

// A run in the backup has its files, although the run is begun after the first files were
// copied, and is deleted before the last are. The request to remove its file is refused until
// the backup is done.
func TestBackupHasTheFilesOfItsRuns(t *testing.T) {
	m := openNode(t, filepath.Join(t.TempDir(), "data"))
	for range 30 { // the database is copied in more than one piece
		_, err := m.Engine.Wait(t.Context(), "free", m.start(t, "free", makeRecipe))
		must(t, err)
	}
	var run, hash string
	removed := false
	hashes := func() (list []string) {
		entries, err := m.Files.List(t.Context(), "free", blob.Query{})
		must(t, err)
		for _, e := range entries {
			list = append(list, e.Info.Hash)
		}
		return list
	}
	to := filepath.Join(t.TempDir(), "backups")
	made, err := backup.Create(t.Context(), m.source(), to, func(p backup.Progress) {
		switch {
		case p.What != "database":
		case run == "":
			old := hashes()
			run = m.start(t, "free", makeRecipe)
			_, err := m.Engine.Wait(t.Context(), "free", run)
			must(t, err)
			for _, h := range hashes() {
				if !slices.Contains(old, h) {
					hash = h
				}
			}
		case 2*p.Done > p.Total && !removed: // the copy is made, and the files are not yet copied
			removed = true
			epoch := uint64(1)
			verdicts, err := m.Store.Delete(t.Context(), epoch, time.Now().UnixMicro(), []store.Key{{Account: "free", Run: run}})
			must(t, err)
			must(t, verdicts[0].Err)
			if err := m.Engine.Files().RemoveFile(t.Context(), "free", hash); !errors.Is(err, fault.Conflict) {
				t.Errorf("a file is removed while it is to be copied: %v", err)
			}
			if _, err := m.Engine.Clean(t.Context(), false); !errors.Is(err, fault.Conflict) {
				t.Errorf("files are removed while they are to be copied: %v", err)
			}
		}
	})
	must(t, err)
	must(t, m.Engine.Files().RemoveFile(t.Context(), "free", hash))
	m.stop(t)
	restored := filepath.Join(t.TempDir(), "restored")
	_, err = backup.Restore(t.Context(), filepath.Join(to, made.ID), restored, quiet)
	must(t, err)
	r := openNode(t, restored)
	if _, err := r.Engine.Head(t.Context(), "free", run); err != nil {
		t.Errorf("the run: %v", err)
	}
	if _, err := r.Files.Info(t.Context(), "free", hash); err != nil {
		t.Errorf("a run of the backup names a file that is not there: %v", err)
	}
	r.stop(t)
}
