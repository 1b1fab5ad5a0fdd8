// SPDX-License-Identifier: Apache-2.0

// Package reconcile proves the credits of accounts from the journals of their runs.
//
// The ledger of an account is folded from its first entry on. Each entry of a run must be
// what an event of the run says, and each event of a run that moves credits must have its
// entry; what a run has paid must follow from what its steps cost. What a child run costs,
// and has of its root's credits, must be the same in its own journal and in its parent's,
// up to the root, which pays. Runs that retention has deleted are known by their entries
// alone, which must leave nothing held.
//
// The package reads and compares. It decides nothing about credits (package ledger and
// package journal have the arithmetic) and changes nothing.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/heap"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
)

// A Source is a store whose books are proved. Nobody else writes to it meanwhile.
type Source interface {
	store.Reader
	store.Ledger
	// FoldLedger calls fn for all entries of an account, with the account before each and
	// the entry's number. It checks what the store itself knows of them; the error is
	// fault.StoreCorrupt.
	FoldLedger(ctx context.Context, account string, fn func(a *ledger.Account, e *ledger.Entry, n uint64) error) error
	// HeadsAfter returns the next heads of an account in the order of their ids, and none
	// after the last. A damaged one has its Damage set.
	HeadsAfter(ctx context.Context, account, after string) ([]store.Head, error)
}

// MaxFindings bounds how many disagreements of an account are listed.
const MaxFindings = 20

// readers is how many runs are read at once, and ahead how many wait for that.
const (
	readers = 4
	ahead   = 1024
)

// maxSeen bounds how many runs are remembered at once. unknown stands for what a run has
// used whose journal was not read, and goesOn for that of one that has not ended.
const (
	maxSeen = 2_000_000
	unknown = -1
	goesOn  = -2
)

// A Finding is one place where journal and ledger disagree.
type Finding struct {
	Account string `json:"account"`
	Entry   uint64 `json:"entry,omitempty"` // its number; 0 = there is none
	Key     string `json:"key,omitempty"`
	Run     string `json:"run,omitempty"`
	Found   string `json:"found"`
	Want    string `json:"want,omitempty"`
}

// A Report is the result for one account.
type Report struct {
	Account string `json:"account"`
	Entries uint64 `json:"entries"`
	Runs    int64  `json:"runs"`    // those with entries, once for each generation that pays
	Deleted int64  `json:"deleted"` // of these, those whose journal retention has deleted
	// Elsewhere are runs whose journal moves credits and that have no entry here, as one
	// that was adopted from another data directory.
	Elsewhere int64 `json:"elsewhere"`
	Children  int64 `json:"children"` // the child runs, whose roots pay for them
	ledger.Balance
	// Findings are the first disagreements, by the number of their entry. Those without an
	// entry are last.
	Findings []Finding `json:"findings"`
	More     bool      `json:"more,omitempty"` // there are others
}

// A proof is one pass over an account.
type proof struct {
	ctx      context.Context
	src      Source
	account  string
	progress func(entries uint64)
	report   *Report
	open     map[string]*hold
	order    *Finding // the first entry that takes other lots than the account would
	seed     maphash.Seed
	seen     map[uint64]int64 // what the runs with entries have used, by their hashes; maxSeen at most
	inside   map[uint64]int64 // the same of child runs
	strays   []store.Head     // child runs that were not read with their roots

	mu       sync.Mutex // guards report.Findings, seen and inside
	plans    sync.Map   // of *plan.Plan by hash
	deleted  atomic.Int64
	children atomic.Int64
	cut      atomic.Bool // the ledger could not be read to its end
	failed   atomic.Pointer[error]
	jobs     chan *hold
}

// A hold is a reservation with its entries.
type hold struct {
	id, run string
	gen     uint32
	held    int64
	entries []entry
	closed  bool
}

// paid is the entry by which the reservation pays, or its first.
func (h *hold) paid() entry {
	if i := slices.IndexFunc(h.entries, func(e entry) bool { return e.Kind == ledger.Settle }); i >= 0 {
		return h.entries[i]
	}
	return h.entries[0]
}

type entry struct {
	*ledger.Entry
	n uint64
}

// Account proves the books of one account. progress is called now and then with the
// number of the entries so far; it may be nil. An error means that the proof could not be
// carried out; that the books are wrong is in the report.
func Account(ctx context.Context, src Source, account string, progress func(entries uint64)) (*Report, error) {
	p := &proof{ctx: ctx, src: src, account: account, progress: progress, open: map[string]*hold{}, seed: maphash.MakeSeed(), seen: map[uint64]int64{}, inside: map[uint64]int64{},
		report: &Report{Account: account, Findings: []Finding{}}, jobs: make(chan *hold, ahead)}
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			for h := range p.jobs {
				p.prove(h)
			}
		})
	}
	err := p.fold()
	close(p.jobs)
	group.Wait()
	if failed := p.failed.Load(); failed != nil && err == nil {
		err = *failed
	}
	if err == nil {
		err = p.others()
	}
	if err != nil {
		return nil, err
	}
	p.report.Deleted, p.report.Children = p.deleted.Load(), p.children.Load()
	p.finish()
	return p.report, nil
}

// finish sorts the disagreements and keeps the first.
func (p *proof) finish() {
	r := p.report
	heap.Sort(r.Findings, func(f, g Finding) int {
		return cmp.Or(cmp.Compare(f.Entry-1, g.Entry-1), cmp.Compare(f.Run, g.Run)) // 0 becomes the largest
	})
	if len(r.Findings) > MaxFindings {
		r.Findings, r.More = r.Findings[:MaxFindings], true
	}
}

// find records a disagreement, and drops later ones when they are many.
func (p *proof) find(f Finding) {
	f.Account = p.account
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Findings = append(p.report.Findings, f)
	if len(p.report.Findings) >= 8*MaxFindings {
		p.finish()
	}
}

// fail ends the proof.
func (p *proof) fail(err error) { p.failed.CompareAndSwap(nil, &err) }

// fold reads the ledger and hands each reservation to the readers when it has ended.
func (p *proof) fold() error {
	var account *ledger.Account
	n := uint64(0)
	var last *ledger.Entry
	err := p.src.FoldLedger(p.ctx, p.account, func(a *ledger.Account, e *ledger.Entry, seq uint64) error {
		account = a
		if last != nil {
			p.balance(a, last, n)
		}
		n, last = seq, e
		if n%4096 == 0 {
			if err := p.pause(n); err != nil {
				return err
			}
		}
		return p.entry(a, e, n)
	})
	p.report.Entries = n
	switch {
	case errors.Is(err, fault.StoreCorrupt):
		p.cut.Store(true)
		f := Finding{Entry: n, Found: fault.Message(err)}
		if last != nil {
			f.Key, f.Run = last.Key, last.Run
		}
		if account == nil || account.Seq() >= n {
			f.Entry, f.Key, f.Run = n+1, "", "" // the next one could not be read
		}
		p.find(f)
		if p.order != nil {
			p.find(*p.order)
		}
	case err != nil:
		return err
	case account != nil:
		p.balance(account, last, n)
		p.report.Balance = account.Balance(account.At())
		if b := p.report.Balance; b.Granted != b.Pending+b.Available+b.Held+b.Spent+b.Expired+b.Voided {
			p.find(Finding{Entry: n, Found: fmt.Sprintf("%d credits were granted in all", b.Granted), Want: fmt.Sprintf("the sum of %+v", b)})
		}
	}
	for _, h := range p.open {
		p.hand(h)
	}
	return nil
}

// pause reports the progress and whether to go on.
func (p *proof) pause(n uint64) error {
	if p.progress != nil {
		p.progress(n)
	}
	if failed := p.failed.Load(); failed != nil {
		return *failed
	}
	return p.ctx.Err()
}

// balance checks that the lots of an entry have what was granted (design 12).
func (p *proof) balance(a *ledger.Account, e *ledger.Entry, n uint64) {
	for _, part := range e.Parts {
		l, ok := a.Lot(part.Lot)
		if sum := l.Free + l.Held + l.Spent + l.Expired + l.Voided; !ok || sum != l.Granted {
			p.find(Finding{Entry: n, Key: e.Key, Run: e.Run, Found: fmt.Sprintf("lot %s has %d credits", part.Lot, sum), Want: fmt.Sprintf("the %d that were granted", l.Granted)})
		}
	}
}

// entry adds an entry to its reservation. a is the account before it.
func (p *proof) entry(a *ledger.Account, e *ledger.Entry, n uint64) error {
	h := p.open[e.Hold]
	switch e.Kind {
	case ledger.Reserve, ledger.Extend:
		if takes := a.Takes(e.At, e.Amount()); p.order == nil && !slices.Equal(takes, e.Parts) {
			p.order = &Finding{Entry: n, Key: e.Key, Run: e.Run, Found: "it takes " + parts(e.Parts), Want: parts(takes) + ", which are used first"}
		}
	case ledger.Settle, ledger.Release:
	default:
		return nil
	}
	if h == nil {
		h = &hold{id: e.Hold}
		run, gen, ok := cutLast(e.Hold)
		if !ok {
			p.find(Finding{Entry: n, Key: e.Key, Run: e.Run, Found: "reservation " + e.Hold, Want: "one that is named after a run and its generation"})
			return nil
		}
		h.run, h.gen = run, uint32(gen)
		p.open[e.Hold] = h
		p.report.Runs++
		p.mu.Lock()
		if len(p.seen) < maxSeen {
			p.seen[maphash.String(p.seed, run)] = unknown
		}
		p.mu.Unlock()
	}
	h.entries = append(h.entries, entry{e, n})
	if e.Kind == ledger.Reserve || e.Kind == ledger.Extend {
		h.held += e.Amount()
	} else if h.held -= e.Amount(); h.held <= 0 {
		h.closed = true
		delete(p.open, e.Hold)
		p.hand(h)
	}
	return nil
}

// hand gives a reservation to the readers.
func (p *proof) hand(h *hold) {
	select {
	case p.jobs <- h:
	case <-p.ctx.Done():
	}
}

// cutLast splits the name of a reservation into its run and generation.
func cutLast(id string) (run string, gen uint64, ok bool) {
	i := strings.LastIndexByte(id, '.')
	if i <= 0 {
		return "", 0, false
	}
	gen, err := strconv.ParseUint(id[i+1:], 10, 32)
	return id[:i], gen, err == nil
}

// planOf reads the plan that a run says it was started with, once for all runs: plans with
// one hash differ in names only. Those that have names are stored under a longer key, which
// is in the row of the run.
func (p *proof) planOf(run, hash string) (*plan.Plan, error) {
	if known, ok := p.plans.Load(hash); ok {
		return known.(*plan.Plan), nil
	}
	read, err := store.LoadPlan(p.ctx, p.src, store.Head{PlanHash: hash})
	if errors.Is(err, fault.RecipeNotFound) {
		var head store.Head
		if head, err = p.src.Head(p.ctx, store.Key{Account: p.account, Run: run}); err != nil {
			return nil, err
		}
		read, err = store.LoadPlan(p.ctx, p.src, head)
	}
	switch {
	case err != nil:
		return nil, err
	case read.Hash().String() != hash:
		return nil, fmt.Errorf("its row names plan %s, and its first event plan %s", read.Hash(), hash)
	}
	p.plans.Store(hash, read)
	return read, nil
}

func parts(list []ledger.Part) string {
	if len(list) == 0 {
		return "nothing"
	}
	var all []string
	for _, p := range list {
		all = append(all, fmt.Sprintf("%d of lot %s", p.Amount, p.Lot))
	}
	return strings.Join(all, ", ")
}
