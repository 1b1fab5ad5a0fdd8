// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/scheduler"
	"github.com/roux-engine/roux/internal/signature"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
)

// Config is what Triggers are made of. Fields without a default are required.
type Config struct {
	Records scheduler.Records
	Starter interface {
		Find(ctx context.Context, account, recipe string) error
		Check(ctx context.Context, account string, r *starts.Request) error
		Start(ctx context.Context, account string, r *starts.Request, key string, labels map[string]string) (starts.Run, error)
	}
	// Keyed starts runs of which one with a key is active at most.
	Keyed interface {
		Execute(ctx context.Context, account string, r *scheduler.KeyedRequest) (*scheduler.Keyed, error)
	}
	Runs interface {
		List(ctx context.Context, q store.Query) ([]store.Head, error)
	}
	// Secrets has the secrets of accounts; see worker.SecretSource.
	Secrets interface {
		Secret(ctx context.Context, account, name string) (string, error)
	}
	NewID  func() (string, error) // with IDPrefix
	Now    func() time.Time
	Logger *slog.Logger // default: discarded
}

// Triggers are those of all accounts. They are safe for concurrent use. This process is the
// only one that changes them.
type Triggers struct {
	cfg      Config
	changing sync.Mutex // of triggers, not of their histories

	mu     sync.Mutex
	states map[string]*state // by id

	refused atomic.Int64 // messages that nobody has signed who may
}

// New returns the triggers that are in the records.
func New(cfg Config) (*Triggers, error) {
	if cfg.Records == nil || cfg.Starter == nil || cfg.Keyed == nil || cfg.Runs == nil || cfg.Secrets == nil || cfg.NewID == nil || cfg.Now == nil {
		return nil, errors.New("inbound: Records, Starter, Keyed, Runs, Secrets, NewID and Now are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Triggers{cfg: cfg, states: map[string]*state{}}, nil
}

// Create makes a trigger, which is durable when it returns.
func (t *Triggers) Create(ctx context.Context, account string, spec *Spec) (*Trigger, error) {
	made := &Trigger{Spec: *spec, Created: t.cfg.Now().UnixMicro(), account: account}
	if err := complete(&made.Spec); err != nil {
		return nil, err
	}
	if err := t.cfg.Starter.Find(ctx, account, spec.Recipe); err != nil {
		return nil, err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	list, _, err := t.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindTrigger, KeysOnly: true, Limit: MaxTriggers})
	if err != nil {
		return nil, err
	}
	if n := len(list); n >= MaxTriggers {
		return nil, fault.OverQuota("triggers", n, MaxTriggers, "the account has %d triggers, which is the most: delete one", n)
	}
	if made.ID, err = t.cfg.NewID(); err != nil {
		return nil, err
	}
	if spec.Paused {
		made.PausedAt = made.Created
	}
	whose, err := store.ChangeOf(ownerKey(made.ID), "", 0, owner{account})
	if err != nil {
		return nil, err
	}
	if err := t.put(ctx, made, whose); fault.CodeOf(err) == fault.Conflict {
		return nil, fault.New(fault.Conflict, "the account has a trigger %q already: choose another name", spec.Name)
	} else if err != nil {
		return nil, err
	}
	return made, nil
}

// errSecretName does not repeat what was given: it may be the value.
var errSecretName = fault.New(fault.RequestInvalid, "secret: want the name of a secret of the account, which has up to 64 letters, digits, underscores and dashes")

// complete fills in what a spec leaves out, and refuses what is wrong with it.
func complete(s *Spec) error {
	if err := scheduler.CheckName(s.Name, IDPrefix); err != nil {
		return err
	}
	if s.Signature.Name == signature.HMAC && s.Signature.Header == "" && s.Signature.Prefix == "" {
		s.Signature.Header, s.Signature.Prefix = github.Header, github.Prefix
	}
	if err := s.Signature.Check(); err != nil {
		return fault.New(fault.RequestInvalid, "signature: %v", err)
	}
	if s.Key != "" {
		s.IfActive = cmp.Or(s.IfActive, scheduler.IfActive[0])
	}
	switch {
	case !jsonx.SecretName(s.Secret):
		return errSecretName
	case len(s.Description) > maxDescription:
		return fault.New(fault.RequestInvalid, "description: want at most %d bytes", maxDescription)
	case len(s.Labels) > starts.MaxLabels-ownLabels:
		return fault.New(fault.RequestInvalid, "labels: want at most %d, because a trigger adds %d", starts.MaxLabels-ownLabels, ownLabels)
	case s.Key == "" && (s.IfActive != "" || s.Debounce != 0):
		return fault.New(fault.RequestInvalid, "ifActive and debounce say what becomes of deliveries with one key: set key")
	case s.Key != "" && !slices.Contains(scheduler.IfActive, s.IfActive):
		return fault.New(fault.RequestInvalid, "ifActive: want %s, %s or %s", schedule.OverlapSkip, schedule.OverlapQueue, schedule.OverlapCancel)
	case s.Debounce < 0 || s.Debounce > scheduler.MaxDebounce:
		return fault.New(fault.RequestInvalid, "debounce: want up to %s", scheduler.MaxDebounce)
	}
	_, err := compileMapping(s)
	return err
}

// put stores a trigger with other changes. The guard is the revision that it was read with.
func (t *Triggers) put(ctx context.Context, tr *Trigger, more ...store.RecordChange) error {
	c, err := store.ChangeOf(triggerKey(tr.account, tr.ID), tr.Name, tr.revision, tr)
	if err != nil {
		return err
	}
	stored, err := t.cfg.Records.PutRecords(ctx, append(more, c)...)
	if err == nil {
		tr.revision = stored[len(stored)-1].Revision
	}
	return err
}

func decode(rec *store.Record) (*Trigger, error) {
	tr, err := store.DecodeRecord[Trigger](rec)
	if err != nil {
		return nil, err
	}
	tr.account, tr.revision = rec.Account, rec.Revision
	return tr, nil
}

// Get returns a trigger by its id or name, or fault.RecordNotFound.
func (t *Triggers) Get(ctx context.Context, account, ref string) (*Trigger, error) {
	var rec store.Record
	var err error
	if strings.HasPrefix(ref, IDPrefix) {
		rec, err = t.cfg.Records.Record(ctx, triggerKey(account, ref))
	} else {
		rec, err = t.cfg.Records.RecordNamed(ctx, account, kindTrigger, ref)
	}
	if err != nil {
		return nil, scheduler.NotFound(ctx, t.cfg.Records, account, kindTrigger, ref, err)
	}
	return decode(&rec)
}

// List returns the triggers of an account by name. place is where the page begins, and next
// where the following one does; "" = it was the last.
func (t *Triggers) List(ctx context.Context, account, place string, limit int) (list []*Trigger, next string, err error) {
	page, more, err := t.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindTrigger, Named: true, After: place, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	for i := range page {
		tr, err := decode(&page[i])
		if err != nil {
			return nil, "", err
		}
		list = append(list, tr)
	}
	if more {
		next = page[len(page)-1].Name
	}
	return list, next, nil
}

// Pause lets a trigger ignore what it gets. A paused trigger stays as it is.
func (t *Triggers) Pause(ctx context.Context, account, ref string) (*Trigger, error) {
	return t.setPaused(ctx, account, ref, t.cfg.Now().UnixMicro())
}

// Resume lets a paused trigger start runs again.
func (t *Triggers) Resume(ctx context.Context, account, ref string) (*Trigger, error) {
	return t.setPaused(ctx, account, ref, 0)
}

// setPaused pauses a trigger at a time; 0 = it is resumed.
func (t *Triggers) setPaused(ctx context.Context, account, ref string, at int64) (*Trigger, error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	tr, err := t.Get(ctx, account, ref)
	if err != nil || (tr.PausedAt == 0) == (at == 0) {
		return tr, err
	}
	tr.PausedAt = at
	return tr, t.put(ctx, tr)
}

// Rotate gives a trigger another secret of its account. What is signed with the one before is taken for
// the time keep as well; one that was still taken beside that is so no longer.
func (t *Triggers) Rotate(ctx context.Context, account, ref, secret string, keep time.Duration) (*Trigger, error) {
	if keep < 0 || keep > MaxKeep {
		return nil, fault.New(fault.RequestInvalid, "keepHours: want 0 to %d", int(MaxKeep.Hours()))
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	tr, err := t.Get(ctx, account, ref)
	switch {
	case err != nil:
		return nil, err
	case !jsonx.SecretName(secret):
		return nil, errSecretName
	case secret == tr.Secret:
		err := fault.New(fault.RequestInvalid, "secret: the trigger has the secret %q already", secret)
		err.Remedy = "Keep the new value under another name, with `roux secrets set` or `PUT /v1/secrets/NAME`, and name that: both values hold for a while then."
		return nil, err
	}
	if _, err := t.usable(ctx, tr, secret); err != nil {
		return nil, err
	}
	tr.Previous = nil
	if keep > 0 {
		tr.Previous = &Previous{tr.Secret, t.cfg.Now().Add(keep).UnixMicro()}
	}
	tr.Secret = secret
	return tr, t.put(ctx, tr)
}

// usable returns the value of a secret of the account of a trigger. The error says why no message can be
// verified with it.
func (t *Triggers) usable(ctx context.Context, tr *Trigger, name string) (value string, err error) {
	value, err = t.cfg.Secrets.Secret(ctx, tr.account, name)
	if err == nil && !tr.Signature.ValidSecret(value) {
		err = fault.New(fault.SecretInvalid, "the value of the secret %q is none of the scheme %s", name, tr.Signature.Name)
	}
	return value, err
}

// Delete deletes a trigger with its history. The runs that it has started go on.
func (t *Triggers) Delete(ctx context.Context, account, ref string) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	tr, err := t.Get(ctx, account, ref)
	if err != nil {
		return err
	}
	st := t.state(tr.ID)
	st.history.Lock() // a delivery that is being decided about adds no entry after this
	defer st.history.Unlock()
	page, _, err := t.cfg.Records.Records(ctx, store.RecordQuery{Account: account, Kind: kindEntry, Prefix: tr.ID + ".", KeysOnly: true, Limit: 5 * KeptDeliveries})
	if err != nil {
		return err
	}
	changes := []store.RecordChange{store.Deletion(triggerKey(account, tr.ID)), store.Deletion(ownerKey(tr.ID))}
	for i := range page {
		changes = append(changes, store.Deletion(page[i].RecordKey))
	}
	if _, err := t.cfg.Records.PutRecords(ctx, changes...); err != nil {
		return err
	}
	st.deleted = true
	t.mu.Lock()
	delete(t.states, tr.ID)
	t.mu.Unlock()
	return nil
}

// History returns what became of the last deliveries of a trigger, the newest first. before is
// where a page begins: behind that entry, 0 = with the newest; next is where the following one
// does, 0 = it was the last.
func (t *Triggers) History(ctx context.Context, account, ref string, before, limit int) (list []*Entry, next int, err error) {
	tr, err := t.Get(ctx, account, ref)
	if err != nil {
		return nil, 0, err
	}
	list, more, err := t.entries(ctx, tr, before, limit)
	if more {
		next = list[len(list)-1].Number
	}
	return list, next, err
}

func (t *Triggers) entries(ctx context.Context, tr *Trigger, before, limit int) (list []*Entry, more bool, err error) {
	q := store.RecordQuery{Account: tr.account, Kind: kindEntry, Prefix: tr.ID + ".", Newest: true, Limit: limit}
	if before != 0 {
		q.After = entryKey(tr.account, tr.ID, before).ID
	}
	page, more, err := t.cfg.Records.Records(ctx, q)
	if err != nil {
		return nil, false, err
	}
	for i := range page {
		e, err := store.DecodeRecord[Entry](&page[i])
		if err != nil {
			return nil, false, err
		}
		list = append(list, e)
	}
	return list, more, nil
}
