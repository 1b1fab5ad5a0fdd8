// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/secrets"
	"github.com/roux-engine/roux/internal/store"
)

// DefaultKeep is how long the keys before a rotation sign beside the new ones.
const DefaultKeep = 24 * time.Hour

// Records are where hooks are kept; see store.Records.
type Records interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Config is what Hooks are made of. Fields without a default are required.
type Config struct {
	Records Records
	Sealer  *secrets.Sealer // seals the keys of hooks
	NewID   func() (string, error)
	// Send sends a request and follows no redirect. It guards which addresses are reached
	// (egress.Client.RoundTrip).
	Send func(*http.Request) (*http.Response, error)
	Now  func() time.Time
	// Rand is the source of keys. Default crypto/rand.
	Rand   io.Reader
	Logger *slog.Logger // default: discarded
}

// Hooks are the hooks of all accounts. They are safe for concurrent use. This process is
// the only one that changes them, so what memory has is what is stored.
type Hooks struct {
	cfg Config
	// The plans of deliveries that are tried again, and of tests. They are compiled when they
	// are first used: most processes deliver nothing.
	repeated, single func() (*plan.Plan, error)

	attached chan struct{} // closed when host is set
	host     Host
	// execution is that of Start; nil before.
	execution Execution

	writing sync.Mutex // one change at a time

	mu    sync.Mutex
	known map[string][]*Hook // by account; what is listed is never changed

	follow followers
}

// A Host is what hooks need of the engine.
type Host struct {
	Engine *engine.Engine
	Store  Store
}

// An Execution returns a run as it is shown, with its masks. fault.RunNotFound means that it
// is deleted.
type Execution func(ctx context.Context, account, run string) (json.RawMessage, error)

// Store is what hooks read of runs.
type Store interface {
	store.Reader
	store.Feed
	Unended(ctx context.Context, account string) (store.Unended, error)
}

// New returns hooks that send nothing yet: their action belongs into the engine that
// [Hooks.Attach] is called with.
func New(cfg Config) (*Hooks, error) {
	if cfg.Records == nil || cfg.Sealer == nil || cfg.NewID == nil || cfg.Send == nil || cfg.Now == nil {
		return nil, errors.New("webhook: Records, Sealer, NewID, Send and Now are required")
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Hooks{cfg: cfg, attached: make(chan struct{}), known: map[string][]*Hook{}}
	h.repeated = sync.OnceValues(func() (*plan.Plan, error) { return h.plan(source + fmt.Sprintf(tried, attempts)) })
	h.single = sync.OnceValues(func() (*plan.Plan, error) { return h.plan(source) })
	return h, nil
}

func (h *Hooks) now() int64 { return h.cfg.Now().UnixMicro() }

// A Created is a hook with its secret, which is not shown again.
type Created struct {
	*Hook
	Secret string
}

// Create makes a hook, which is told of what happens from now on. by is the id of the key
// that makes it.
func (h *Hooks) Create(ctx context.Context, account, by string, spec *Spec) (*Created, error) {
	now := h.now()
	hook := &Hook{Payload: Thin, Enabled: true, Created: now, Updated: now, By: by}
	if err := hook.apply(spec, now); err != nil {
		return nil, err
	}
	pair, err := newKeyPair(h.cfg.Rand)
	if err != nil {
		return nil, err
	}
	if hook.ID, err = h.cfg.NewID(); err != nil {
		return nil, err
	}
	all := keys{Pairs: []keyPair{pair}}
	hook.PublicKeys = all.public()
	h.writing.Lock()
	defer h.writing.Unlock()
	list, err := h.List(ctx, account)
	if err != nil {
		return nil, err
	}
	if len(list) >= MaxHooks {
		return nil, fault.OverQuota("webhooks", len(list), MaxHooks, "the account has %d webhooks, which is the most: delete one", len(list))
	}
	if hook.After, err = h.newest(ctx, account); err != nil {
		return nil, err
	}
	changes, err := h.changesOf(ctx, account, hook, 0, &all)
	if err != nil {
		return nil, err
	}
	fresh := false
	if _, err := h.cfg.Records.Record(ctx, accountKey(account)); fault.CodeOf(err) == fault.RecordNotFound {
		fresh = true
		begin, err := recordOf("", kindAccount, account, 0, cursor{hook.After})
		if err != nil {
			return nil, err
		}
		changes = append(changes, begin)
	} else if err != nil {
		return nil, err
	}
	stored, err := h.put(ctx, account, changes...)
	if err != nil {
		return nil, err
	}
	hook.Revision = stored[0].Revision
	if fresh {
		h.followAccount(account)
	}
	return &Created{hook, pair.secret()}, nil
}

// newest is the number of the last change of an account.
func (h *Hooks) newest(ctx context.Context, account string) (uint64, error) {
	select {
	case <-h.attached:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	last, _, err := h.host.Store.Newest(ctx, account)
	return last, err
}

// changesOf are the changes that store a hook, and its keys unless they are nil.
func (h *Hooks) changesOf(ctx context.Context, account string, hook *Hook, revision uint64, all *keys) ([]store.RecordChange, error) {
	c, err := recordOf(account, kindHook, hook.ID, revision, hook)
	if err != nil || all == nil {
		return []store.RecordChange{c}, err
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	sealed, err := h.cfg.Sealer.Seal(ctx, account, kindKeys, hook.ID, text)
	if err != nil {
		return nil, err
	}
	return []store.RecordChange{c, {Record: store.Record{
		RecordKey: store.RecordKey{Account: account, Kind: kindKeys, ID: hook.ID}, Revision: store.AnyRevision, Data: sealed,
	}}}, nil
}

// put writes records of an account and forgets what memory has of it.
func (h *Hooks) put(ctx context.Context, account string, changes ...store.RecordChange) ([]store.Record, error) {
	defer h.forget(account) // whatever the store has answered
	return h.cfg.Records.PutRecords(ctx, changes...)
}

func (h *Hooks) forget(account string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, account)
}

func accountKey(account string) store.RecordKey {
	return store.RecordKey{Kind: kindAccount, ID: account}
}

// List returns the hooks of an account, the oldest first.
func (h *Hooks) List(ctx context.Context, account string) ([]*Hook, error) {
	h.mu.Lock()
	defer h.mu.Unlock() // a change that is made meanwhile is forgotten after it, not before
	list, ok := h.known[account]
	if ok {
		return list, nil
	}
	page, _, err := h.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindHook, Limit: 5 * MaxHooks})
	if err != nil {
		return nil, err
	}
	for i := range page {
		hook, err := hookOf(&page[i])
		if err != nil { // one that cannot be read does not hide the others
			h.cfg.Logger.Error("a webhook cannot be read", "account", account, "hook", page[i].ID, "err", err)
			continue
		}
		list = append(list, hook)
	}
	h.known[account] = list
	return list, nil
}

// Get returns a hook, or fault.RecordNotFound, also when it belongs to another account.
func (h *Hooks) Get(ctx context.Context, account, id string) (*Hook, error) {
	list, err := h.List(ctx, account)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(hook *Hook) bool { return hook.ID == id })
	if i < 0 {
		return nil, fault.New(fault.RecordNotFound, "the account has no such webhook")
	}
	return list[i], nil
}

// Update changes a hook. revision is that of the hook that the user has read, or
// store.AnyRevision; fault.PreconditionFailed means that it has another one. A hook that is
// enabled again is told of what happens from then on.
func (h *Hooks) Update(ctx context.Context, account, id string, revision uint64, spec *Spec) (*Hook, error) {
	h.writing.Lock()
	defer h.writing.Unlock()
	return h.update(ctx, account, id, revision, func(hook *Hook) (*keys, error) {
		was := hook.Enabled
		if err := hook.apply(spec, h.now()); err != nil {
			return nil, err
		}
		if !was && hook.Enabled {
			last, err := h.newest(ctx, account)
			if err != nil {
				return nil, err
			}
			hook.After = last
			return nil, h.healthy(ctx, account, id)
		}
		return nil, nil
	})
}

// update changes a hook by fn, which may return new keys. The caller holds writing.
func (h *Hooks) update(ctx context.Context, account, id string, revision uint64, fn func(*Hook) (*keys, error)) (*Hook, error) {
	old, err := h.Get(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if revision != store.AnyRevision && revision != old.Revision {
		return nil, fault.New(fault.PreconditionFailed, "the webhook has changed since it was read")
	}
	hook := *old
	all, err := fn(&hook)
	if err != nil {
		return nil, err
	}
	hook.Updated = h.now()
	changes, err := h.changesOf(ctx, account, &hook, old.Revision, all)
	if err != nil {
		return nil, err
	}
	stored, err := h.put(ctx, account, changes...)
	if err != nil {
		return nil, err
	}
	hook.Revision = stored[0].Revision
	return &hook, nil
}

// Delete removes a hook. Deliveries that wait end at their next attempt.
func (h *Hooks) Delete(ctx context.Context, account, id string, revision uint64) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	hook, err := h.Get(ctx, account, id)
	if err != nil {
		return err
	}
	if revision != store.AnyRevision && revision != hook.Revision {
		return fault.New(fault.PreconditionFailed, "the webhook has changed since it was read")
	}
	list, err := h.List(ctx, account)
	if err != nil {
		return err
	}
	changes := make([]store.RecordChange, 0, 4)
	for _, kind := range []string{kindHook, kindKeys, kindHealth} {
		changes = append(changes, store.RecordChange{Delete: true, Record: store.Record{
			RecordKey: store.RecordKey{Account: account, Kind: kind, ID: id}, Revision: store.AnyRevision,
		}})
	}
	if len(list) == 1 {
		h.unfollowAccount(account)
		changes = append(changes, store.Deletion(accountKey(account)))
	}
	_, err = h.put(ctx, account, changes...)
	if err != nil && len(list) == 1 {
		h.followAccount(account)
	}
	return err
}

// Rotate gives a hook new keys and returns its secret. Those before sign beside them for
// the time keep.
func (h *Hooks) Rotate(ctx context.Context, account, id string, keep time.Duration) (*Created, error) {
	pair, err := newKeyPair(h.cfg.Rand)
	if err != nil {
		return nil, err
	}
	h.writing.Lock()
	defer h.writing.Unlock()
	hook, err := h.update(ctx, account, id, store.AnyRevision, func(hook *Hook) (*keys, error) {
		all, err := h.keysOf(ctx, account, id)
		if fault.CodeOf(err) == fault.SecretInvalid { // the master key is gone: only new keys help
			h.cfg.Logger.Warn("the earlier keys of a webhook cannot be opened; it signs with the new ones alone", "account", account, "hook", id)
			all, err = &keys{}, nil
		}
		if err != nil {
			return nil, err
		}
		all.rotate(pair, h.now(), keep)
		hook.PublicKeys = all.public()
		return all, nil
	})
	if err != nil {
		return nil, err
	}
	return &Created{hook, pair.secret()}, nil
}

// keysOf opens the keys of a hook.
func (h *Hooks) keysOf(ctx context.Context, account, id string) (*keys, error) {
	r, err := h.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindKeys, ID: id})
	if err != nil {
		return nil, err
	}
	text, err := h.cfg.Sealer.Open(account, kindKeys, id, r.Data)
	if err != nil {
		return nil, err
	}
	all := new(keys)
	if err := json.Unmarshal(text, all); err != nil {
		return nil, fault.New(fault.StoreCorrupt, "the keys of %s cannot be read", id) // the error may quote the text
	}
	return all, nil
}

// Disable disables a hook that is enabled, and says why.
func (h *Hooks) Disable(ctx context.Context, account, id, reason string) error {
	h.writing.Lock()
	defer h.writing.Unlock()
	hook, err := h.Get(ctx, account, id)
	if err != nil || !hook.Enabled {
		return err
	}
	h.cfg.Logger.Warn("a webhook is disabled", "account", account, "hook", id, "reason", reason)
	_, err = h.update(ctx, account, id, hook.Revision, func(hook *Hook) (*keys, error) {
		hook.Enabled, hook.Reason, hook.Disabled = false, reason, h.now()
		return nil, nil
	})
	return err
}

// healthOf returns how the deliveries of a hook go, and the revision of that record.
func (h *Hooks) healthOf(ctx context.Context, account, id string) (health, uint64, error) {
	r, err := h.cfg.Records.Record(ctx, store.RecordKey{Account: account, Kind: kindHealth, ID: id})
	if fault.CodeOf(err) == fault.RecordNotFound {
		return health{}, 0, nil
	}
	if err != nil {
		return health{}, 0, err
	}
	state, err := store.DecodeRecord[health](&r)
	if err != nil {
		return health{}, 0, err
	}
	return *state, r.Revision, nil
}

// FailingSince returns since when no delivery of a hook has succeeded, UTC µs; 0 = the last
// attempt has, or there was none.
func (h *Hooks) FailingSince(ctx context.Context, account, id string) (int64, error) {
	state, _, err := h.healthOf(ctx, account, id)
	return state.FailingSince, err
}

// healthy notes that a delivery has succeeded.
func (h *Hooks) healthy(ctx context.Context, account, id string) error {
	state, revision, err := h.healthOf(ctx, account, id)
	if err != nil || state.FailingSince == 0 {
		return err
	}
	return h.putHealth(ctx, account, id, revision, health{})
}

// failing notes that an attempt has failed, and returns since when all have.
func (h *Hooks) failing(ctx context.Context, account, id string) (int64, error) {
	state, revision, err := h.healthOf(ctx, account, id)
	if err != nil || state.FailingSince != 0 {
		return state.FailingSince, err
	}
	state.FailingSince = h.now()
	return state.FailingSince, h.putHealth(ctx, account, id, revision, state)
}

// putHealth stores how deliveries go. Of two attempts that end at once one may be noted
// alone: the next one corrects it.
func (h *Hooks) putHealth(ctx context.Context, account, id string, revision uint64, state health) error {
	c, err := recordOf(account, kindHealth, id, revision, state)
	if err != nil {
		return err
	}
	if _, err = h.cfg.Records.PutRecords(ctx, c); fault.CodeOf(err) == fault.Conflict {
		return nil
	}
	return err
}
