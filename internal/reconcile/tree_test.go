// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/reconcile"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// endedTree fails in its first generation and completes in its second. Its child runs
// need more than they begin with, have child runs of their own, and some fail.
const endedTree = `
name: ended
creditEstimation: {strategy: fixed, fixedCredits: 10, maxCredits: 300}
steps:
  - {id: own, action: {name: paid}}
  - id: each
    dependsOn: [own]
    loop:
      over: '[1, 2]'
      as: n
      steps:
        - id: one
          continue_on_error: true
          recipe:
            inline:
              name: middle
              creditEstimation: {strategy: fixed, fixedCredits: 3, maxCredits: 100}
              inputSchema: {type: object, properties: {n: {type: integer}}}
              steps:
                - {id: p, action: {name: paid}}
                - {id: q, action: {name: paid}, dependsOn: [p]}
                - {id: deep, recipe: {inline: {name: deepest, steps: [{id: x, action: {name: paid}}]}}, dependsOn: [q]}
                - {id: stop, when: input.n == 2, fail: {message: enough}, dependsOn: [deep]}
          inputBindings: {n: n}
  - {id: flaky, action: {name: flaky}, dependsOn: [each]}
  - {id: after, recipe: {inline: {name: last, steps: [{id: x, action: {name: paid}}]}}, dependsOn: [flaky]}
  - {id: none, recipe: {inline: {name: gratis, steps: [{id: x, transform: {expression: '1', outputBinding: x}}]}}, dependsOn: [after]}
`

// openTree waits in a child run, which has used more than it began with, and beside one
// that has ended.
const openTree = `
name: open
creditEstimation: {strategy: fixed, fixedCredits: 20, maxCredits: 300}
steps:
  - {id: short, recipe: {inline: {name: short, steps: [{id: x, action: {name: paid}}]}}}
  - id: long
    dependsOn: [short]
    recipe:
      inline:
        name: long
        creditEstimation: {strategy: fixed, fixedCredits: 3, maxCredits: 100}
        steps:
          - {id: p, action: {name: paid}}
          - {id: q, action: {name: paid}, dependsOn: [p]}
          - {id: w, wait: {signal: go}, dependsOn: [q]}
`

// source is a store whose books can be proved.
type source interface {
	store.Store
	reconcile.Source
}

// trees runs both trees in a store, for an account that pays and for one that does not.
func trees(t *testing.T, st store.Store) {
	t.Helper()
	nothing := func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }
	var calls atomic.Int64
	actions := catalogue.New(
		&action.Action{Name: "paid", Version: "1.0.0", Cost: 5, Run: nothing},
		&action.Action{Name: "flaky", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
			if calls.Add(1)%2 == 1 {
				return action.Result{}, fault.New(fault.InputInvalid, "not yet")
			}
			return action.Result{}, nil
		}})
	f := openEngine(t, st, actions)
	e := f.engine
	for _, account := range []string{"acme", "free"} {
		f.retry(account, endedTree)
		waits := ""
		for ev, err := range e.Watch(t.Context(), account, f.start(account, openTree), 0) {
			must(t, err)
			if ev.Kind == journal.EvChildStarted {
				if waits != "" {
					waits = strings.Clone(ev.Text)
					break
				}
				waits = "the second"
			}
		}
		for ev, err := range e.Watch(t.Context(), account, waits, 0) {
			must(t, err)
			if ev.Kind == journal.EvNodeWaiting {
				break
			}
		}
	}
	_, err := e.Stop(t.Context())
	must(t, err)
}

// A testEngine runs trees in a store. The account acme has 1000 credits, and free pays nothing.
type testEngine struct {
	t       *testing.T
	engine  *engine.Engine
	actions *catalogue.Catalogue
}

func openEngine(t *testing.T, st store.Store, actions *catalogue.Catalogue) *testEngine {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Config{Store: st, Actions: actions, Accounts: func(account string) engine.AccountRules {
		return engine.AccountRules{Unmetered: account == "free"}
	}})
	must(t, err)
	_, err = e.Grant(t.Context(), engine.GrantRequest{Account: "acme", Key: "first", Amount: 1000, Terms: ledger.Terms{Source: ledger.Paid}})
	must(t, err)
	return &testEngine{t, e, actions}
}

func (f *testEngine) start(account, text string) (run string) {
	f.t.Helper()
	p, _, _, diags := compile.Source("tree.yaml", []byte(text), compile.Options{Actions: f.actions})
	if p == nil {
		f.t.Fatal(diags)
	}
	s, err := f.engine.Start(f.t.Context(), engine.StartRequest{Account: account, Plan: p, Recipe: "tree"})
	must(f.t, err)
	return s.Run
}

// retry starts a run that fails, and completes when it is retried.
func (f *testEngine) retry(account, text string) {
	f.t.Helper()
	run := f.start(account, text)
	for _, want := range []string{"failed", "completed"} {
		head, err := f.engine.Wait(f.t.Context(), account, run)
		must(f.t, err)
		if head.Status != want {
			f.t.Fatalf("the run is %s, want %s: %s", head.Status, want, head.Message)
		}
		if want == "failed" {
			must(f.t, f.engine.Retry(f.t.Context(), account, run, engine.RetryRequest{}))
		}
	}
}

// A copied is what a store has of an account, to be changed. It serves as a store with
// these books.
type copied struct {
	store.Store
	t       *testing.T
	account string
	heads   []*store.Head // by id
	events  map[string][]journal.Event
	entries []*ledger.Entry
	reads   sync.Map // of *atomic.Int64, by run: how often its journal was read
}

func copyOf(t *testing.T, st store.Store, account string) *copied {
	t.Helper()
	c := &copied{Store: st, t: t, account: account, events: map[string][]journal.Event{}}
	heads, err := st.List(t.Context(), store.Query{Account: account, All: true})
	must(t, err)
	slices.SortFunc(heads, func(a, b store.Head) int { return cmp.Compare(a.Run, b.Run) })
	for i := range heads {
		c.heads = append(c.heads, &heads[i])
		must(t, store.EachEvent(t.Context(), st, heads[i].Key, 0, func(ev *journal.Event) error {
			own := *ev
			own.Data, own.Hash = bytes.Clone(ev.Data), bytes.Clone(ev.Hash)
			c.events[heads[i].Run] = append(c.events[heads[i].Run], own)
			return nil
		}))
	}
	entries, err := st.Entries(t.Context(), account, 0, math.MaxInt32)
	must(t, err)
	for _, e := range entries {
		own := *e
		own.Parts = slices.Clone(e.Parts)
		c.entries = append(c.entries, &own)
	}
	return c
}

func (c *copied) Events(_ context.Context, key store.Key, after uint64, _ int) (page store.Page, err error) {
	events, ok := c.events[key.Run]
	if !ok || key.Account != c.account {
		return page, fault.New(fault.RunNotFound, "run %s is not here", key.Run)
	}
	if after == 0 {
		n, _ := c.reads.LoadOrStore(key.Run, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
	page.Last, page.Next = events[len(events)-1].Seq, after
	for i := range events {
		if events[i].Seq > after {
			page.Frames, page.Next = journal.AppendFrame(page.Frames, events[i:i+1]), events[i].Seq
		}
	}
	return page, nil
}

func (c *copied) Head(_ context.Context, key store.Key) (store.Head, error) {
	if i := slices.IndexFunc(c.heads, func(h *store.Head) bool { return h.Key == key }); i >= 0 {
		return *c.heads[i], nil
	}
	return store.Head{}, fault.New(fault.RunNotFound, "run %s is not here", key.Run)
}

func (c *copied) HeadsAfter(_ context.Context, _, after string) (heads []store.Head, err error) {
	for _, h := range c.heads {
		if h.Run > after && len(heads) < 3 {
			heads = append(heads, *h)
		}
	}
	return heads, nil
}

func (c *copied) Entry(_ context.Context, _, key string) (*ledger.Entry, uint64, error) {
	i := slices.IndexFunc(c.entries, func(e *ledger.Entry) bool { return e.Key == key })
	if i < 0 {
		return nil, 0, nil
	}
	return c.entries[i], uint64(i + 1), nil
}

func (c *copied) FoldLedger(_ context.Context, _ string, fn func(a *ledger.Account, e *ledger.Entry, n uint64) error) error {
	a := ledger.NewAccount()
	for i, e := range c.entries {
		if err := fn(a, e, uint64(i+1)); err != nil {
			return err
		}
		if err := a.Apply(e); err != nil {
			return fault.Wrap(fault.StoreCorrupt, err, "entry %d does not fit those before it: %s", i+1, fault.Message(err))
		}
	}
	return nil
}

// run returns the head of a root or child run by its recipe. Of several it is the nth that
// was started.
func (c *copied) run(recipe string, n int) *store.Head {
	c.t.Helper()
	for _, h := range c.heads {
		if h.Root != "" || (h.Ended != 0) != slices.Contains([]string{"ended", "middle", "deepest", "last", "gratis"}, recipe) {
			continue
		}
		if recipe == "ended" || recipe == "open" {
			return h
		}
		if found := c.below(h.Run, recipe, &n); found != nil {
			return found
		}
	}
	c.t.Fatalf("there is no other run of recipe %s", recipe)
	return nil
}

func (c *copied) below(run, recipe string, n *int) *store.Head {
	for i := range c.events[run] {
		ev := &c.events[run][i]
		if ev.Kind != journal.EvChildStarted {
			continue
		}
		if j := slices.IndexFunc(c.heads, func(h *store.Head) bool { return h.Run == ev.Text }); j >= 0 && c.heads[j].Recipe == recipe {
			if *n--; *n < 0 {
				return c.heads[j]
			}
		}
		if found := c.below(ev.Text, recipe, n); found != nil {
			return found
		}
	}
	return nil
}

// event returns the nth event of a kind of a run.
func (c *copied) event(run string, kind journal.EventKind, n int) *journal.Event {
	c.t.Helper()
	for i := range c.events[run] {
		if ev := &c.events[run][i]; ev.Kind == kind {
			if n--; n < 0 {
				return ev
			}
		}
	}
	c.t.Fatalf("run %s has no other event %s", run, kind.Name())
	return nil
}

// restart changes what a run was started with.
func (c *copied) restart(run string, change func(st *journal.Start)) {
	c.t.Helper()
	ev := &c.events[run][0]
	st, err := journal.DecodeStart(ev.Data)
	must(c.t, err)
	change(st)
	ev.Data, err = journal.EncodeStart(st)
	must(c.t, err)
}

// lose drops the last n events of a run, and what its head says of an end.
func (c *copied) lose(h *store.Head, n int) {
	c.events[h.Run] = c.events[h.Run][:len(c.events[h.Run])-n]
	h.Status, h.Ended, h.Used = "running", 0, 0
}

// remove takes a run away.
func (c *copied) remove(run string) {
	delete(c.events, run)
	c.heads = slices.DeleteFunc(c.heads, func(h *store.Head) bool { return h.Run == run })
}

// entry returns the nth entry of a kind of a run, and its number.
func (c *copied) entry(run string, kind ledger.Kind, n int) (*ledger.Entry, uint64) {
	c.t.Helper()
	for i, e := range c.entries {
		if e.Run == run && e.Kind == kind {
			if n--; n < 0 {
				return e, uint64(i + 1)
			}
		}
	}
	c.t.Fatalf("run %s has no other entry %s", run, kind)
	return nil, 0
}

func (c *copied) prove() *reconcile.Report {
	c.t.Helper()
	r, err := reconcile.Account(c.t.Context(), c, c.account, nil)
	must(c.t, err)
	return r
}

// eachStore runs a test with the trees in the store in memory and in SQLite.
func eachStore(t *testing.T, test func(t *testing.T, st store.Store)) {
	t.Run("memory", func(t *testing.T) {
		st := memory.New(memory.Options{})
		trees(t, st)
		test(t, st)
	})
	t.Run("sqlite", func(t *testing.T) {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
		must(t, err)
		defer func() { must(t, st.Close()) }()
		trees(t, st)
		test(t, st)
	})
}

// What a tree of runs has moved agrees with its journals: one root whose two generations
// have ended, and one that goes on.
func TestI11_ReconcileOfTrees(t *testing.T) {
	eachStore(t, func(t *testing.T, st store.Store) {
		for account, want := range map[string]struct{ runs, children, spent int64 }{"acme": {3, 8, 40}, "free": {0, 8, 0}} {
			c := copyOf(t, st, account)
			sources := []reconcile.Source{c}
			if s, ok := st.(source); ok {
				sources = append(sources, s)
			}
			for _, src := range sources {
				r, err := reconcile.Account(t.Context(), src, account, nil)
				must(t, err)
				if len(r.Findings) > 0 || r.Runs != want.runs || r.Children != want.children || r.Spent != want.spent || r.Elsewhere != 0 || r.Deleted != 0 {
					t.Errorf("account %s: %+v", account, r)
				}
			}
		}
	})
}
