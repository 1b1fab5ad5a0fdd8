// SPDX-License-Identifier: Apache-2.0

package resultcache_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/resultcache"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/worker"
)

const hour = int64(time.Hour / time.Microsecond)

// A place is a cache over a store, with a clock and files that a test changes.
type place struct {
	*resultcache.Cache
	store *memory.Store
	now   int64
	files map[string]bool // "account hash"
	puts  atomic.Int64
	fails bool // nothing can be read or written
	log   bytes.Buffer
	epoch uint64
	slow  chan struct{} // lists of records of acme wait until it is closed; nil = they do not
}

func open(t *testing.T, cfg resultcache.Config) *place {
	t.Helper()
	p := &place{store: memory.New(memory.Options{}), now: 1_000_000_000, files: map[string]bool{}}
	var err error
	if p.epoch, err = p.store.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.Records, cfg.Now, cfg.Logger = p, func() int64 { return p.now }, slog.New(slog.NewTextHandler(&p.log, nil))
	cfg.Put = func(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
		p.puts.Add(1)
		if p.fails {
			return nil, errors.New("the disk is gone")
		}
		return p.store.PutRecords(ctx, p.epoch, p.now, changes)
	}
	cfg.Touch = func(_ context.Context, account, hash string) error {
		if !p.files[account+" "+hash] {
			return fault.New(fault.FileNotFound, "no file %s", hash)
		}
		return nil
	}
	p.Cache = resultcache.New(cfg)
	return p
}

func (p *place) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	if p.fails {
		return store.Record{}, errors.New("the disk is gone")
	}
	return p.store.Record(ctx, key)
}

func (p *place) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	if p.slow != nil && q.Account == "acme" {
		<-p.slow
	}
	return p.store.Records(ctx, q)
}

// A call is an attempt; change changes it.
func call(change func(*worker.Task, *resultcache.Step)) (*worker.Task, resultcache.Step) {
	t := &worker.Task{Action: &action.Action{Name: "work", Version: "1.0.0", Output: json.RawMessage(`{"type":"object"}`)},
		Task: action.Task{Account: "acme", Run: "run_1", Step: "pages[3].a", Input: json.RawMessage(`{"file":"` + hashA + `","n":1}`)}}
	s := resultcache.Step{Cache: &plan.Cache{TTLMS: 3_600_000}, Files: []journal.File{{Hash: hashA, Name: "a.pdf"}, {Hash: hashB, Name: "b.pdf"}}}
	if change != nil {
		change(t, &s)
	}
	return t, s
}

var hashA, hashB = "sha256_" + strings.Repeat("a", 64), "sha256_" + strings.Repeat("b", 64)

func (p *place) of(change func(*worker.Task, *resultcache.Step)) worker.Cache {
	return p.Of(call(change))
}

// TestI17_WhatMustBeTheSame: an attempt has the result of an earlier one with the same account,
// action, version, configuration, input, contracts, key and names of files, and of no other. A
// mutant that leaves one of them out is caught here.
func TestI17_WhatMustBeTheSame(t *testing.T) {
	p := open(t, resultcache.Config{})
	p.of(nil).Put(t.Context(), []byte(`{"a":"<b> & \u2028"}`))
	same := func(name string, change func(*worker.Task, *resultcache.Step)) {
		hit := p.of(change).Get(t.Context())
		if hit == nil {
			t.Errorf("%s: no result", name)
			return
		}
		if string(hit.Output) != `{"a":"<b> & \u2028"}` || hit.From.Run != "run_1" || hit.From.Step != "pages[3].a" || hit.From.At != p.now || len(hit.From.Key) != 64 {
			t.Errorf("%s: got %s of %+v", name, hit.Output, hit.From)
		}
	}
	same("the same", nil)
	same("another run", func(t *worker.Task, _ *resultcache.Step) { t.Task.Run, t.Task.Step, t.Task.Attempt = "run_2", "b", 7 })
	same("another effect key", func(t *worker.Task, _ *resultcache.Step) { t.Task.EffectKey = "k" })
	same("another price", func(t *worker.Task, s *resultcache.Step) {
		act := *t.Action
		act.Price, act.Description, t.Action = "0.7", "now dearer", &act
		s.Cache = &plan.Cache{TTLMS: 7_200_000, Price: 5}
	})
	same("another name of a file that is no input", func(_ *worker.Task, s *resultcache.Step) {
		s.Files = []journal.File{s.Files[0], {Hash: hashB, Name: "c.pdf"}}
	})
	other := func(change func(a *action.Action)) func(*worker.Task, *resultcache.Step) {
		return func(t *worker.Task, _ *resultcache.Step) { act := *t.Action; change(&act); t.Action = &act }
	}
	for name, change := range map[string]func(*worker.Task, *resultcache.Step){
		"account":           func(t *worker.Task, _ *resultcache.Step) { t.Task.Account = "other" },
		"action":            other(func(a *action.Action) { a.Name = "work2" }),
		"version":           other(func(a *action.Action) { a.Version = "1.0.1" }),
		"configuration":     other(func(a *action.Action) { a.Revision = "2" }),
		"schema of inputs":  other(func(a *action.Action) { a.Input = json.RawMessage(`{}`) }),
		"schema of outputs": other(func(a *action.Action) { a.Output = json.RawMessage(`{}`) }),
		"input": func(t *worker.Task, _ *resultcache.Step) {
			t.Task.Input = json.RawMessage(`{"file":"` + hashA + `","n":2}`)
		},
		"file": func(t *worker.Task, _ *resultcache.Step) {
			t.Task.Input = json.RawMessage(`{"file":"` + hashB + `","n":1}`)
		},
		"name of a file": func(_ *worker.Task, s *resultcache.Step) { s.Files = []journal.File{{Hash: hashA, Name: "c.pdf"}} },
		"type of a file": func(_ *worker.Task, s *resultcache.Step) {
			s.Files = []journal.File{{Hash: hashA, Name: "a.pdf", MimeType: "text/plain"}}
		},
		"contract of inputs":  func(_ *worker.Task, s *resultcache.Step) { s.InputC = []byte(`{}`) },
		"contract of outputs": func(_ *worker.Task, s *resultcache.Step) { s.OutputC = []byte(`{}`) },
		"key":                 func(_ *worker.Task, s *resultcache.Step) { s.Key = []byte(`1`) },
		"no cache":            func(_ *worker.Task, s *resultcache.Step) { s.Fresh = true },
	} {
		if hit := p.of(change).Get(t.Context()); hit != nil {
			t.Errorf("with another %s: got the result %s", name, hit.Output)
		}
	}
}

// TestAge: a result is used until it is as old as the step that asks says, not the one that made it.
func TestAge(t *testing.T) {
	p := open(t, resultcache.Config{})
	p.of(nil).Put(t.Context(), []byte(`1`))
	ask := func(ttlMS int64) bool {
		return p.of(func(_ *worker.Task, s *resultcache.Step) { s.Cache = &plan.Cache{TTLMS: ttlMS} }).Get(t.Context()) != nil
	}
	p.now += hour - 1
	if !ask(3_600_000) || ask(3_599_999) {
		t.Error("a result is used when it is too old, or not used when it is not")
	}
	p.now++
	if ask(3_600_000) || !ask(3_600_001) {
		t.Error("a result is used when it is an hour old, or by nobody")
	}
	if n, err := p.store.ForgetRecords(t.Context(), p.epoch, p.now+1, 10); n != 1 || err != nil {
		t.Errorf("retention removes %d results, %v: want the one that is too old for its step", n, err)
	}
	p.of(func(_ *worker.Task, s *resultcache.Step) { s.Fresh = true }).Put(t.Context(), []byte(`2`))
	if hit := p.of(nil).Get(t.Context()); hit == nil || string(hit.Output) != `2` {
		t.Error("the result of an attempt that uses none is not kept")
	}
}

// TestFilesOfResults: a result whose files are gone is not used. A text that only looks like the
// hash of a file needs no file.
func TestFilesOfResults(t *testing.T) {
	p := open(t, resultcache.Config{})
	p.files["acme "+hashA] = true
	p.of(nil).Put(t.Context(), []byte(`{"file":"`+hashA+`","text":"`+hashB+`"}`))
	if p.of(nil).Get(t.Context()) == nil {
		t.Fatal("a result whose file is there is not used")
	}
	delete(p.files, "acme "+hashA)
	p.files["other "+hashA] = true
	if p.of(nil).Get(t.Context()) != nil {
		t.Error("a result is used whose file is gone")
	}
}

// TestBounds: an account keeps so many results and bytes, the newest ones, and other accounts
// keep theirs.
func TestBounds(t *testing.T) {
	for name, cfg := range map[string]resultcache.Config{"results": {MaxResults: 20}, "bytes": {MaxBytes: 20 * 1100}} {
		t.Run(name, func(t *testing.T) {
			p := open(t, cfg)
			nth := func(account string, i int) worker.Cache {
				return p.of(func(t *worker.Task, _ *resultcache.Step) {
					t.Task.Account, t.Task.Input = account, fmt.Appendf(nil, `{"n":%d}`, i)
				})
			}
			output := []byte(`"` + strings.Repeat("x", 1000) + `"`)
			nth("other", 0).Put(t.Context(), output)
			for i := range 100 {
				p.now++
				nth("acme", i).Put(t.Context(), output)
				nth("acme", i).Put(t.Context(), output) // again: it is replaced
				use, err := p.Usage(t.Context(), "acme")
				if err != nil || len(use) != 1 || use[0].Results > 20 || use[0].Bytes > 20*1100 || i > 20 && use[0].Results < 15 {
					t.Fatalf("after %d results: %+v, %v", i+1, use, err)
				}
			}
			if nth("acme", 99).Get(t.Context()) == nil || nth("acme", 50).Get(t.Context()) != nil || nth("other", 0).Get(t.Context()) == nil {
				t.Error("the newest results are not those that are kept")
			}
		})
	}
}

// TestBoundsKeepNobodyWaiting: while the results of an account are counted on a slow disk, its other
// attempts and those of other accounts keep theirs.
func TestBoundsKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, resultcache.Config{MaxResults: 20})
		p.slow = make(chan struct{})
		put := func(account string, n int) {
			p.of(func(t *worker.Task, _ *resultcache.Step) {
				t.Task.Account, t.Task.Input = account, fmt.Appendf(nil, `{"n":%d}`, n)
			}).Put(t.Context(), []byte("1"))
		}
		counted := false
		go func() { put("acme", 1); counted = true }()
		synctest.Wait()
		put("other", 1)
		put("acme", 2) // it would wait for ever
		if counted {
			t.Error("nothing was counted: this proves nothing")
		}
		close(p.slow)
		synctest.Wait()
		for n := range 50 {
			put("acme", 3+n)
		}
		if use, err := p.Usage(t.Context(), "acme"); err != nil || len(use) != 1 || use[0].Results > 20 {
			t.Errorf("%+v, %v", use, err)
		}
	})
}

// TestClear: results are removed by account, action and version.
func TestClear(t *testing.T) {
	p := open(t, resultcache.Config{})
	put := func(account, name, version string) worker.Cache {
		c := p.of(func(t *worker.Task, _ *resultcache.Step) {
			act := *t.Action
			act.Name, act.Version, t.Action, t.Task.Account = name, version, &act, account
		})
		c.Put(t.Context(), []byte(`1`))
		return c
	}
	a1, a2, ab, b, other := put("acme", "a", "1.0.0"), put("acme", "a", "2.0.0"), put("acme", "a-b", "1.0.0"), put("acme", "b", "1.0.0"), put("other", "a", "1.0.0")
	left := func() (n int) {
		for _, c := range []worker.Cache{a1, a2, ab, b, other} {
			if c.Get(t.Context()) != nil {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		action     string
		gone, left int
	}{{"c", 0, 5}, {"a@2.0.0", 1, 4}, {"a", 1, 3}, {"", 2, 1}, {"", 0, 1}} {
		n, err := p.Clear(t.Context(), "acme", tt.action)
		if n != tt.gone || err != nil || left() != tt.left {
			t.Errorf("Clear(%q) = %d, %v, and %d are left: want %d and %d", tt.action, n, err, left(), tt.gone, tt.left)
		}
	}
	use, err := p.Usage(t.Context(), "other")
	if err != nil || len(use) != 1 || use[0].Action != "a" || use[0].Version != "1.0.0" || use[0].Results != 1 || use[0].Bytes == 0 {
		t.Errorf("Usage = %+v, %v", use, err)
	}
}

// TestDiskIsGone: a cache that cannot read or write, or that has a
// damaged record, is one without results.
func TestDiskIsGone(t *testing.T) {
	p := open(t, resultcache.Config{})
	p.of(nil).Put(t.Context(), []byte(`1`))
	p.fails = true
	p.of(nil).Put(t.Context(), []byte(`2`))
	if p.of(nil).Get(t.Context()) != nil || strings.Count(p.log.String(), "disk is gone") != 2 {
		t.Errorf("without a disk: %s", p.log.String())
	}
	p.fails = false
	if hit := p.of(nil).Get(t.Context()); hit == nil || string(hit.Output) != "1" {
		t.Error("the result is not there any more")
	}
	page, _, err := p.store.Records(t.Context(), store.RecordQuery{Account: "acme", Kind: resultcache.Kind})
	if err != nil || len(page) != 1 {
		t.Fatal(page, err)
	}
	bad := page[0]
	bad.Data = []byte(`{"output":`)
	if _, err := p.store.PutRecords(t.Context(), p.epoch, p.now, []store.RecordChange{{Record: bad}}); err != nil {
		t.Fatal(err)
	}
	if p.of(nil).Get(t.Context()) != nil {
		t.Error("a damaged record is a result")
	}
	p.of(nil).Put(t.Context(), []byte(`"`+strings.Repeat("x", worker.MaxOutput)+`"`))
	if p.of(nil).Get(t.Context()) != nil {
		t.Error("a result is kept that no attempt can have")
	}
}

// TestWritesAreShared: results that arrive together are written together, and each is there when
// its Put has returned.
func TestWritesAreShared(t *testing.T) {
	p := open(t, resultcache.Config{})
	var wg sync.WaitGroup
	const n = 200
	for i := range n {
		wg.Go(func() {
			c := p.of(func(t *worker.Task, _ *resultcache.Step) { t.Task.Input = fmt.Appendf(nil, `{"n":%d}`, i) })
			c.Put(t.Context(), []byte(`1`))
			if c.Get(t.Context()) == nil {
				t.Errorf("result %d is not there", i)
			}
		})
	}
	wg.Wait()
	if got := p.puts.Load(); got > n {
		t.Errorf("%d writes of %d results", got, n)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	p.of(nil).Put(ended, []byte(`1`)) // returns, whatever becomes of it
}
