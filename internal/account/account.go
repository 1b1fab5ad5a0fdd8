// SPDX-License-Identifier: Apache-2.0

// Package account decides what applies to an account of a server.
//
// It keeps what the operator sets while the server runs, as a record for each account, and
// resolves it with what the configuration says: the record comes first, field by field. What
// it answers is the one source for the engine (rules), the router (rates, disabled accounts),
// the compiler (allowed actions), the files (storage) and the cleaner (retention). All records
// are in memory, so no request reads the store for them.
//
// It never decides whether a run is affordable, and knows no HTTP.
package account

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/access"
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// Kind is the kind of the records of accounts. They belong to the operator's namespace.
const Kind = "account"

// A Record is an account with its settings.
type Record struct {
	Name     string
	Settings Settings
	Revision uint64 // 0 = nothing is set
	Created  int64  // UTC µs
	Updated  int64
}

// Config is what Accounts are made of.
type Config struct {
	Store interface {
		Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
		PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
	}
	// Permits reports whether the configuration gives an action to an account. Default: each to
	// all.
	Permits func(account, action string) bool
	// Actions are all actions that recipes may call. Required.
	Actions catalogue.Actions
	// Configured returns what the configuration says of an account, and Named are the
	// accounts that it names. Required.
	Configured func(account string) engine.AccountRules
	Named      []string
	// Retention is that of accounts for which nothing is set.
	Retention retention.Policy
	// Logger gets a line for each record that cannot be read. Default: discarded.
	Logger *slog.Logger
}

// Accounts are the accounts of a server. They are safe for concurrent use. This process is
// the only one that changes them, so what is in memory is what is stored.
type Accounts struct {
	cfg     Config
	writing sync.Mutex // one change at a time

	mu      sync.RWMutex
	of      map[string]*entry
	watched []func(ctx context.Context, account string) error
}

type entry struct {
	Record
	resolved *resolved
	actions  catalogue.Actions
	damage   error // why nothing is allowed
}

// Open reads the records of all accounts. An account whose record cannot be read is disabled,
// because nobody knows what it may do.
func Open(ctx context.Context, cfg Config) (*Accounts, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Retention.SetDefaults()
	a := &Accounts{cfg: cfg, of: map[string]*entry{}}
	q := store.RecordQuery{Kind: Kind, Limit: 500}
	for {
		page, more, err := cfg.Store.Records(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page {
			r := &page[i]
			e, err := a.decode(r)
			if err != nil {
				cfg.Logger.WarnContext(ctx, "the settings of an account cannot be read, so it is disabled", "account", r.ID, "error", err)
				e = &entry{Record: Record{Name: r.ID, Revision: store.AnyRevision}, resolved: &resolved{Settings: Settings{Disabled: new(true), Actions: []string{}}}, damage: err}
				e.actions = catalogue.Only(cfg.Actions, e.resolved.allows)
			}
			a.of[r.ID] = e
		}
		if !more {
			return a, nil
		}
		q.After = page[len(page)-1].ID
	}
}

func (a *Accounts) decode(r *store.Record) (*entry, error) {
	if r.Damage != "" {
		return nil, fault.New(fault.StoreCorrupt, "%s", r.Damage)
	}
	e := &entry{Record: Record{Name: r.ID, Revision: r.Revision, Created: r.Created, Updated: r.Updated}}
	if err := json.Unmarshal(r.Data, &e.Settings); err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the settings of account %s cannot be read", r.ID)
	}
	return e, a.complete(e)
}

// complete computes what follows from the settings of an entry.
func (a *Accounts) complete(e *entry) (err error) {
	e.resolved, err = e.Settings.resolve()
	e.actions = a.cfg.Actions
	if err == nil && e.Settings.Actions != nil {
		e.actions = catalogue.Only(a.cfg.Actions, e.resolved.allows)
	}
	return err
}

func (a *Accounts) entry(account string) *entry {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.of[account]
}

// Watch makes fn be called after each change of an account, before the change is answered.
// Call it before there are changes.
func (a *Accounts) Watch(fn func(ctx context.Context, account string) error) {
	a.watched = append(a.watched, fn)
}

// Get returns an account; ok is false if nothing was set for it.
func (a *Accounts) Get(account string) (r Record, ok bool) {
	if e := a.entry(account); e != nil {
		return e.Record, true
	}
	return Record{Name: account}, false
}

// Names returns the accounts that have settings or are in the configuration, sorted.
func (a *Accounts) Names() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	names := slices.AppendSeq(slices.Clone(a.cfg.Named), maps.Keys(a.of))
	slices.Sort(names)
	return slices.Compact(names)
}

// Metered reports whether an account would pay with these settings.
func (a *Accounts) Metered(account string, s Settings) bool {
	return !(&resolved{Settings: s}).rules(a.cfg.Configured(account)).Unmetered
}

// Change sets what change makes of the settings of an account. revision is the one that it
// must have, 0 for an account without settings; store.AnyRevision is any. When Change
// returns, the settings are durable and apply.
func (a *Accounts) Change(ctx context.Context, account string, revision uint64, change func(Settings) (Settings, error)) (Record, error) {
	if err := access.CheckAccount(account); err != nil {
		return Record{}, fault.New(fault.RequestInvalid, "account: %v", err)
	}
	a.writing.Lock()
	defer a.writing.Unlock()
	had, _ := a.Get(account)
	if revision != store.AnyRevision && revision != had.Revision {
		return Record{}, fault.New(fault.PreconditionFailed, "the settings of account %s have changed since they were read: the revision is %d", account, had.Revision)
	}
	e := &entry{Record: Record{Name: account, Created: had.Created}}
	var err error
	if e.Settings, err = change(had.Settings); err != nil {
		return Record{}, err
	}
	if err := a.complete(e); err != nil {
		return Record{}, err
	}
	data, err := json.Marshal(e.Settings)
	if err != nil {
		return Record{}, err
	}
	// One that has begun is finished: memory must not differ from what is stored.
	ctx = context.WithoutCancel(ctx)
	rec, err := a.cfg.Store.PutRecords(ctx, store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Kind: Kind, ID: account}, Revision: store.AnyRevision, Data: data}})
	if err != nil {
		return Record{}, err
	}
	e.Revision, e.Created, e.Updated = rec[0].Revision, rec[0].Created, rec[0].Updated
	a.mu.Lock()
	a.of[account] = e
	a.mu.Unlock()
	var failed error
	for _, fn := range a.watched {
		failed = errors.Join(failed, fn(ctx, account))
	}
	return e.Record, failed
}

// Rules puts what is set for an account in the place of what the configuration says. An
// account without a limit of live runs gets one that none reaches, see noLimit.
func (a *Accounts) Rules(account string, rules engine.AccountRules) engine.AccountRules {
	if e := a.entry(account); e != nil {
		rules = e.resolved.rules(rules)
	}
	if rules.LiveLimit() == 0 {
		rules.MaxLiveRuns = noLimit
	}
	return rules
}

// LiveLimit is the limit of live runs of rules, for people; 0 = none.
func LiveLimit(rules engine.AccountRules) int {
	if n := rules.LiveLimit(); n < noLimit {
		return n
	}
	return 0
}

// RunLimit is how many runs may be live or queued together by rules, for people; 0 = any
// number.
func RunLimit(rules engine.AccountRules) int { return admission.Most * LiveLimit(rules) }

// Admit refuses the requests of a disabled account.
func (a *Accounts) Admit(account string) error {
	e := a.entry(account)
	switch {
	case e == nil || !e.resolved.disabled():
		return nil
	case e.damage != nil:
		return fault.Wrap(fault.AccountDisabled, e.damage, "the settings of the account cannot be read, so nothing is allowed")
	case e.Settings.Reason != nil && *e.Settings.Reason != "":
		return fault.New(fault.AccountDisabled, "the account is disabled: %s", *e.Settings.Reason)
	}
	return fault.New(fault.AccountDisabled, "the account is disabled")
}

// Rate returns how many requests an account may send in a second, on average, and how many at
// once; 0 = what the server does by default.
func (a *Accounts) Rate(account string) (perSecond float64, burst int) {
	e := a.entry(account)
	if e == nil {
		return 0, 0
	}
	if e.resolved.Rate != nil {
		perSecond = *e.resolved.Rate
	}
	if e.resolved.Burst != nil {
		burst = *e.resolved.Burst
	}
	return perSecond, burst
}

// Storage returns how many bytes the files of an account may have together; 0 = any number.
func (a *Accounts) Storage(account string) int64 {
	if e := a.entry(account); e != nil && e.resolved.Storage != nil {
		return *e.resolved.Storage
	}
	return 0
}

// Retention returns how long what belongs to an account is kept.
func (a *Accounts) Retention(account string) retention.Policy {
	if e := a.entry(account); e != nil {
		return e.resolved.retention(a.cfg.Retention)
	}
	return a.cfg.Retention
}

func (r *resolved) retention(p retention.Policy) retention.Policy {
	p.Runs, p.Files, p.Uploads = cmp.Or(r.retain.Runs, p.Runs), cmp.Or(r.retain.Files, p.Files), cmp.Or(r.retain.Uploads, p.Uploads)
	return p
}

// Shortest returns the shortest times of all accounts.
func (a *Accounts) Shortest() retention.Policy {
	a.mu.RLock()
	defer a.mu.RUnlock()
	least := a.cfg.Retention
	for _, e := range a.of {
		p := e.resolved.retention(a.cfg.Retention)
		least.Runs, least.Files, least.Uploads = shorter(least.Runs, p.Runs), shorter(least.Files, p.Files), shorter(least.Uploads, p.Uploads)
	}
	return least
}

// shorter returns the shorter of two times, of which a negative one is for ever.
func shorter(a, b time.Duration) time.Duration {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// Actions returns the actions that the recipes of an account may call (X205). Others look as
// if there were none of their name.
func (a *Accounts) Actions(account string) catalogue.Actions {
	all := a.cfg.Actions
	if e := a.entry(account); e != nil {
		all = e.actions
	}
	if a.cfg.Permits == nil {
		return all
	}
	return catalogue.Only(all, func(name string) bool { return a.cfg.Permits(account, name) })
}
