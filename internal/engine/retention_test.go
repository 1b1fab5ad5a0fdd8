// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// blobsOf returns a file store in a new directory, with the clock of the synctest
// bubble.
func blobsOf(t testing.TB) *blob.Store {
	t.Helper()
	b, err := blob.Open(blob.Config{Dir: filepath.Join(t.TempDir(), "files"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func upload(t testing.TB, b *blob.Store, content string) journal.File {
	t.Helper()
	info, err := b.Put(context.Background(), acc, strings.NewReader(content), content+".txt", "")
	if err != nil {
		t.Fatal(err)
	}
	return journal.File{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}
}

func hasFile(t testing.TB, b *blob.Store, f journal.File) bool {
	t.Helper()
	_, err := b.Info(context.Background(), acc, f.Hash)
	if err != nil && !errors.Is(err, fault.FileNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// putAction returns an action that puts a file and returns its hash.
func putAction() *action.Action {
	return newAction("make", func(ctx context.Context, task *action.Task) (action.Result, error) {
		info, err := task.Files.Put(ctx, strings.NewReader("made by a step"), "made.txt", "")
		return action.Result{Output: map[string]any{"file": info.Hash}}, err
	})
}

const signalRecipe = "name: waits\nsteps:\n  - {id: w, wait: {signal: go}}\n  - {id: a, action: {name: noop}}\n"

// startWithFiles starts a run with input files.
func startWithFiles(t testing.TB, e *Engine, p *plan.Plan, params map[string]any, files ...journal.File) string {
	t.Helper()
	s, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "test", Parameters: params, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return s.Run
}

// X158, X102, design section 7: unnamed uploads are kept for 24 h, runs for 7 days after they
// settled, files for 7 days after the last run that names them, as an input, in a
// value, or as the output of a step. What a live run names stays. The engine removes
// the rest on its own.
func TestX158_Retention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs}, noop(), putAction())
		input, value, other := upload(t, blobs, "input"), upload(t, blobs, "value"), upload(t, blobs, "unnamed")
		held, sent := upload(t, blobs, "held"), upload(t, blobs, "sent")
		written := upload(t, blobs, "written") // in the recipe itself
		done := startWithFiles(t, e, planOf(t, "name: m\nsteps:\n  - {id: m, action: {name: make, parameters: {of: "+written.Hash+"}}}\n", putAction()),
			map[string]any{"deep": []any{map[string]any{"see " + value.Hash: "x"}}}, input)
		waitForEnd(t, e, done)
		if named, err := e.Files().NamedBy(t.Context(), acc, input.Hash, 9); err != nil || !slices.Equal(named, []string{done}) {
			t.Fatalf("the input is named by %v, %v", named, err)
		}
		found, err := blobs.List(t.Context(), acc, blob.Query{Name: "made"})
		if err != nil || len(found) != 1 {
			t.Fatalf("%d files made, %v", len(found), err)
		}
		made := journal.File{Hash: found[0].Info.Hash, Name: "made"}
		live := startWithFiles(t, e, planOf(t, signalRecipe, noop()), nil, held)
		if err := e.Signal(t.Context(), acc, live, "other", map[string]any{"file": sent.Hash}); err != nil {
			t.Fatal(err)
		}
		check := func(when string, want ...journal.File) {
			t.Helper()
			synctest.Wait()
			for _, f := range []journal.File{input, value, other, made, held, sent, written} {
				if have := hasFile(t, blobs, f); have != slices.ContainsFunc(want, func(w journal.File) bool { return w.Hash == f.Hash }) {
					t.Errorf("%s: file %s is there: %v", when, f.Name, have)
				}
			}
		}
		time.Sleep(23 * time.Hour)
		check("after 23 h", input, value, other, made, held, sent, written)
		time.Sleep(3 * time.Hour)
		check("after 26 h", input, value, made, held, sent, written)
		time.Sleep(7*24*time.Hour - 28*time.Hour)
		check("short of 7 days", input, value, made, held, sent, written)
		if _, err := e.Head(t.Context(), acc, done); err != nil {
			t.Errorf("short of 7 days: %v", err)
		}
		time.Sleep(5 * time.Hour)
		check("after 7 days", held, sent)
		_, err = e.Head(t.Context(), acc, done)
		wantCode(t, err, fault.RunNotFound)
		time.Sleep(20 * time.Hour) // the run's time to live is 48 h; it has settled long ago
		if _, err := e.Head(t.Context(), acc, live); err != nil {
			t.Errorf("a run that expired 6 days ago: %v", err)
		}
	})
}

// A run that has not ended keeps its file, however long that takes.
func TestLiveRunsKeepTheirFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs}, noop())
		f := upload(t, blobs, "held")
		run := startWithFiles(t, e, planOf(t, "name: waits\nttl: P30D\nsteps:\n  - {id: w, wait: {signal: go}}\n  - {id: a, action: {name: noop}}\n", noop()), nil, f)
		time.Sleep(29 * 24 * time.Hour)
		synctest.Wait()
		if head, err := e.Head(t.Context(), acc, run); err != nil || head.Ended != 0 || !hasFile(t, blobs, f) {
			t.Errorf("after 29 days: %+v, %v, its file is there: %v", head, err, hasFile(t, blobs, f))
		}
	})
}

// Every time can be configured, and a negative one means for ever.
func TestRetentionIsConfigured(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name                string
		keep                retention.Policy
		run, named, unnamed time.Duration // gone after; 0 = still there after 40 days
	}{
		{"runs before files", retention.Policy{Runs: 2 * day, Files: 5 * day, Uploads: 3 * day}, 2 * day, 5 * day, 3 * day},
		{"files with their runs", retention.Policy{Runs: 5 * day, Files: day, Uploads: time.Hour}, 5 * day, 5 * day, 2 * time.Hour},
		{"uploads no shorter than an hour", retention.Policy{Uploads: time.Millisecond}, 7 * day, 7 * day, 2 * time.Hour},
		{"runs for ever", retention.Policy{Runs: -1}, 0, 0, day},
		{"files for ever", retention.Policy{Files: -1}, 7 * day, 0, day},
		{"uploads for ever", retention.Policy{Uploads: -1}, 7 * day, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st, blobs := memory.New(memory.Options{}), blobsOf(t)
				e := openEngine(t, st, Config{Blobs: blobs, Retention: tt.keep}, noop())
				named, unnamed := upload(t, blobs, "named"), upload(t, blobs, "unnamed")
				run := startWithFiles(t, e, planOf(t, chain(1), noop()), nil, named)
				waitForEnd(t, e, run)
				began := time.Now()
				var gone [3]time.Duration
				for time.Since(began) < 40*day {
					time.Sleep(time.Hour)
					synctest.Wait()
					_, err := e.Head(t.Context(), acc, run)
					for i, left := range []bool{err == nil, hasFile(t, blobs, named), hasFile(t, blobs, unnamed)} {
						if !left && gone[i] == 0 {
							gone[i] = time.Since(began)
						}
					}
				}
				for i, want := range []time.Duration{tt.run, tt.named, tt.unnamed} {
					what := []string{"the run", "its file", "the upload"}[i]
					if late := gone[i] - want; want == 0 && gone[i] != 0 || want != 0 && (late < 0 || late > 2*time.Hour+time.Minute) {
						t.Errorf("%s was removed after %s, want %s", what, gone[i], want)
					}
				}
			})
		})
	}
}

// Clean removes the same at once, and a dry run before it returns what would be
// removed.
func TestClean(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs}, noop())
		p := planOf(t, chain(1), noop())
		var hashes []string
		for i := range 5 {
			f := upload(t, blobs, fmt.Sprint("file ", i))
			hashes = append(hashes, f.Hash)
			if i < 3 {
				req := StartRequest{Account: acc, Plan: p, Recipe: "test", Files: []journal.File{f}, IdempotencyKey: fmt.Sprint("key ", i)}
				started, err := e.Start(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				waitForEnd(t, e, started.Run)
			}
		}
		slices.Sort(hashes)
		e.crash() // no retention runs meanwhile
		time.Sleep(8 * 24 * time.Hour)
		again := upload(t, blobs, "file 4")
		e = openEngine(t, postponeCycle(t, st.Reopen()), Config{Blobs: blobs}, noop())
		var got [3]retention.Removed
		for i := range got {
			var err error
			if got[i], err = e.Clean(t.Context(), i == 0); err != nil {
				t.Fatal(err)
			}
			slices.Sort(got[i].Hashes)
		}
		gone := slices.DeleteFunc(slices.Clone(hashes), func(h string) bool { return h == again.Hash })
		for i, s := range got[:2] {
			if s.Runs != 3 || len(s.RunIDs) != 3 || s.Files != 4 || s.Bytes != 4*6 || !slices.Equal(s.Hashes, gone) {
				t.Errorf("call %d returns %+v, want 3 runs and the files %v", i, s, gone)
			}
		}
		if got[0].Keys != 0 || got[1].Keys != 3 {
			t.Errorf("the dry run forgot %d idempotency keys, the next %d, want 0 and 3", got[0].Keys, got[1].Keys)
		}
		if s := got[2]; s.Runs != 0 || s.Files != 0 || s.Keys != 0 {
			t.Errorf("a second Clean removed %+v", s)
		}
		if !hasFile(t, blobs, again) {
			t.Error("what was uploaded again just now was removed")
		}
	})
}

// postponeCycle records that a cycle has just begun, so that the engine starts none
// before the test does.
func postponeCycle(t testing.TB, st *memory.Store) *memory.Store {
	t.Helper()
	note := fmt.Sprintf(`{"began":%d}`, time.Now().UnixMicro())
	epoch, err := st.Own(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.SetNote(context.Background(), epoch, retention.Note, []byte(note)); err != nil {
		t.Fatal(err)
	}
	return st
}

// A request that starts a run with a file, or sends a value that names a file, renews
// the file first: it is not removed before the commit.
func TestF43_StartRacesRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs, Retention: retention.Policy{Uploads: 48 * time.Hour}}, noop())
		f, v, s := upload(t, blobs, "input"), upload(t, blobs, "value"), upload(t, blobs, "signal")
		time.Sleep(47 * time.Hour)
		// A request that renews its files and is lost before it is committed.
		if err := e.cleaner.Touch(t.Context(), acc, []journal.File{f}, map[string]any{"x": []any{v.Hash}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Hour)
		synctest.Wait()
		if !hasFile(t, blobs, f) || !hasFile(t, blobs, v) {
			t.Error("a file that was renewed was removed")
		}
		if hasFile(t, blobs, s) {
			t.Error("a file that no run names is kept")
		}
		_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t, chain(1), noop()), Files: []journal.File{s}})
		wantCode(t, err, fault.FileNotFound)
	})
}

// Each request that can name a file renews it first.
func TestRequestsTouchTheirFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs}, noop())
		p := planOf(t, signalRecipe, noop())
		run := startWithFiles(t, e, p, nil)
		ended := startWithFiles(t, e, planOf(t, chain(1), noop()), map[string]any{"n": "x"})
		waitForEnd(t, e, ended)
		for i, request := range []func(f journal.File) error{
			func(f journal.File) error {
				_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Files: []journal.File{f}})
				return err
			},
			func(f journal.File) error {
				_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Parameters: map[string]any{"x": f.Hash}})
				return err
			},
			func(f journal.File) error { // in the recipe itself
				_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: planOf(t,
					"name: p\nsteps:\n  - {id: a, action: {name: noop, parameters: {of: "+f.Hash+"}}}\n", noop())})
				return err
			},
			func(f journal.File) error { return e.Signal(t.Context(), acc, run, "other", []any{f.Hash}) },
			func(f journal.File) error {
				return e.Retry(t.Context(), acc, ended, RetryRequest{Edits: map[string]any{"n": f.Hash}})
			},
		} {
			f := upload(t, blobs, fmt.Sprint("file ", i))
			time.Sleep(2 * time.Hour)
			if err := request(f); err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			if got, err := blobs.Find(t.Context(), acc, f.Hash); err != nil || !got.Stored.Equal(time.Now()) {
				t.Errorf("request %d: the file was last used at %s, %v, want now", i, got.Stored, err)
			}
		}
	})
}

// RemoveFile removes a file only if no stored run names it.
func TestRemoveFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{Blobs: blobs}, noop())
		p := planOf(t, chain(1), noop())
		f, free := upload(t, blobs, "named"), upload(t, blobs, "free")
		for _, want := range []string{"run run_", "runs run_", " and others"} {
			waitForEnd(t, e, startWithFiles(t, e, p, nil, f))
			err := e.Files().RemoveFile(t.Context(), acc, f.Hash)
			wantCode(t, err, fault.Conflict)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q in it", err, want)
			}
		}
		if err := e.Files().RemoveFile(t.Context(), acc, free.Hash); err != nil || hasFile(t, blobs, free) || !hasFile(t, blobs, f) {
			t.Errorf("remove a file that no run names: %v", err)
		}
		wantCode(t, e.Files().RemoveFile(t.Context(), acc, free.Hash), fault.FileNotFound)
		wantCode(t, e.Files().RemoveFile(t.Context(), "rival", f.Hash), fault.FileNotFound)
	})
}

// A crashingStore fails at one of the operations of retention, as if the process had
// crashed there.
type crashingStore struct {
	*memory.Store
	ops, failAt int
}

var errDied = errors.New("the process crashes here")

func (s *crashingStore) countOp() error {
	if s.ops++; s.ops == s.failAt {
		return errDied
	}
	return nil
}

func (s *crashingStore) Delete(ctx context.Context, epoch uint64, at int64, keys []store.Key) ([]store.Verdict, error) {
	if err := s.countOp(); err != nil {
		return nil, err
	}
	v, err := s.Store.Delete(ctx, epoch, at, keys)
	return v, errors.Join(err, s.countOp())
}

func (s *crashingStore) ForgetFile(ctx context.Context, account, hash string) error {
	if err := s.countOp(); err != nil {
		return err
	}
	return errors.Join(s.Store.ForgetFile(ctx, account, hash), s.countOp())
}

// A crash at any point of a cycle leaves no run that names a missing file, and the next
// cycle removes what is left.
func TestRetentionCrashesAnywhere(t *testing.T) {
	for at := 1; ; at++ {
		finished := false
		synctest.Test(t, func(t *testing.T) {
			st, blobs := memory.New(memory.Options{}), blobsOf(t)
			e := openEngine(t, st, Config{Blobs: blobs}, noop())
			p := planOf(t, chain(1), noop())
			shared, kept := upload(t, blobs, "shared"), upload(t, blobs, "kept")
			for i := range 3 {
				waitForEnd(t, e, startWithFiles(t, e, p, nil, upload(t, blobs, fmt.Sprint("file ", i)), shared))
			}
			e.crash()
			time.Sleep(6 * 24 * time.Hour)
			st = st.Reopen()
			e = openEngine(t, st, Config{Blobs: blobs}, noop())
			upload(t, blobs, "kept")
			young := startWithFiles(t, e, p, nil, kept, shared)
			waitForEnd(t, e, young)
			e.crash()
			time.Sleep(25 * time.Hour)
			crashing := &crashingStore{Store: postponeCycle(t, st.Reopen()), failAt: at}
			e = openEngine(t, crashing, Config{Blobs: blobs, Retention: retention.Policy{Uploads: 24 * time.Hour}}, noop())
			_, err := e.Clean(t.Context(), false)
			finished = err == nil && crashing.ops < at
			if err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			e.crash()
			st = crashing.Store.Reopen()
			heads, err := st.List(t.Context(), store.Query{Account: acc})
			if err != nil {
				t.Fatal(err)
			}
			found, err := blobs.List(t.Context(), acc, blob.Query{})
			if err != nil {
				t.Fatal(err)
			}
			there := map[string]bool{}
			for _, f := range found {
				there[f.Info.Hash] = true
			}
			for _, h := range heads {
				saved, err := st.Load(t.Context(), h.Key)
				if err != nil {
					t.Fatal(err)
				}
				for _, hash := range retention.FilesNamed(&store.Transition{Frames: saved.Tail}) {
					if !there[hash] {
						t.Errorf("crashed at operation %d: run %s names %s, which is missing", at, h.Run, hash)
					}
				}
			}
			e = openEngine(t, st, Config{Blobs: blobs, Retention: retention.Policy{Uploads: 24 * time.Hour}}, noop())
			if _, err := e.Clean(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Head(t.Context(), acc, young); err != nil || !hasFile(t, blobs, kept) || !hasFile(t, blobs, shared) {
				t.Errorf("crashed at operation %d: a file that is still named was removed (%v)", at, err)
			}
			found, err = blobs.List(t.Context(), acc, blob.Query{})
			if err != nil || len(found) != 2 {
				t.Errorf("crashed at operation %d: %d files are left after the next cycle, want 2 (%v)", at, len(found), err)
			}
		})
		if finished || t.Failed() {
			if at < 5 {
				t.Errorf("a cycle has %d operations: the test is useless", at)
			}
			return
		}
	}
}

// A step of retention is bounded, and the next one continues where it stopped, also in
// the next process.
func TestRetentionGoesInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, blobs := memory.New(memory.Options{}), blobsOf(t)
		e := openEngine(t, st, Config{}, noop()) // without a file store it removes nothing
		p := planOf(t, chain(1), noop())
		const step, runs = retention.RunsStep, 2*retention.RunsStep + 50
		for range runs {
			start(t, e, p, nil)
		}
		if err := e.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * 24 * time.Hour)
		count := func() int {
			heads, err := st.Ended(t.Context(), time.Now().UnixMicro(), store.Wake{}, 10_000)
			if err != nil {
				t.Fatal(err)
			}
			return len(heads)
		}
		if n := count(); n != runs {
			t.Fatalf("%d runs have ended, want %d", n, runs)
		}
		e.crash()
		st = st.Reopen()
		e = openEngine(t, st, Config{Blobs: blobs}, noop())
		synctest.Wait()
		if n := count(); n != runs-step {
			t.Errorf("%d runs after the first step, want %d", n, runs-step)
		}
		time.Sleep(retention.Pause)
		synctest.Wait()
		e.crash()
		st = st.Reopen()
		if n := count(); n != runs-2*step {
			t.Errorf("%d runs after the second step, want %d", n, runs-2*step)
		}
		openEngine(t, st, Config{Blobs: blobs}, noop())
		time.Sleep(retention.Pause)
		synctest.Wait()
		if n := count(); n != 0 {
			t.Errorf("%d runs after the third step, in the next process", n)
		}
	})
}

// The same on a disk: what is no longer kept is removed for good, the rest stays, and a
// restart finds neither damage nor leftovers.
func TestRetentionOnDisk(t *testing.T) {
	dir := t.TempDir()
	var ahead atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	blobs, err := blob.Open(blob.Config{Dir: filepath.Join(dir, "files"), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	onDisk := func() (*sqlite.Store, *Engine) {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return st, openEngine(t, st, Config{Blobs: blobs, Now: now}, noop())
	}
	st, e := onDisk()
	p := planOf(t, chain(3), noop())
	var old []string
	for i := range 5 {
		run := startWithFiles(t, e, p, nil, upload(t, blobs, fmt.Sprint("old ", i)), upload(t, blobs, "shared"))
		waitForEnd(t, e, run)
		old = append(old, run)
	}
	ahead.Add(int64(6 * 24 * time.Hour))
	young := startWithFiles(t, e, p, nil, upload(t, blobs, "shared"))
	waitForEnd(t, e, young)
	live := startWithFiles(t, e, planOf(t, signalRecipe, noop()), nil, upload(t, blobs, "held"))
	ahead.Add(int64(30 * time.Hour))
	got, err := e.Clean(t.Context(), false)
	if err != nil || got.Runs != 5 || got.Files != 5 {
		t.Fatalf("Clean removed %+v, %v, want 5 runs and their 5 files", got, err)
	}
	for range 2 {
		if heads, err := st.List(t.Context(), store.Query{Account: acc}); err != nil || len(heads) != 2 {
			t.Fatalf("%d runs are left, %v, want 2", len(heads), err)
		}
		for _, run := range old {
			_, err := e.Head(t.Context(), acc, run)
			wantCode(t, err, fault.RunNotFound)
			wantCode(t, e.Retry(t.Context(), acc, run, RetryRequest{}), fault.RunNotFound)
		}
		if lines := trace(t, st, p, acc, young); countPrefix(lines, "run.completed") != 1 {
			t.Errorf("the young run's journal: %v", lines)
		}
		found, err := blobs.List(t.Context(), acc, blob.Query{})
		if err != nil || len(found) != 2 {
			t.Fatalf("%d files are left, %v, want 2", len(found), err)
		}
		e.crash()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		st, e = onDisk()
	}
	if err := e.Signal(t.Context(), acc, live, "go", nil); err != nil {
		t.Fatal(err)
	}
	if head := waitForEnd(t, e, live); head.Status != "completed" {
		t.Errorf("the live run is %s", head.Status)
	}
	e.crash()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
