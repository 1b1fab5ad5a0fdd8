// SPDX-License-Identifier: Apache-2.0

package access

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// Kind is the kind of the records of keys. They belong to the operator's namespace,
	// because a token is looked up before its account is known.
	Kind = "key"
	// MaxKeys is how many keys an account may have, revoked ones included until they are
	// removed.
	MaxKeys = 1000
	// maxName bounds the name of a key.
	maxName = 100
	// maxCached bounds the keys in memory.
	maxCached = 10_000
	// keptRevoked is how long a revoked or expired key is listed, in µs.
	keptRevoked = int64(30 * 24 * time.Hour / time.Microsecond)
)

// A Key is an API key as it is stored and shown. The token is in neither.
type Key struct {
	ID      string  `json:"id"`
	Account string  `json:"account"`
	Name    string  `json:"name"`
	Role    Role    `json:"role,omitempty"`
	Scopes  []Scope `json:"scopes"`
	Limit   *Limit  `json:"limit,omitempty"`
	Created int64   `json:"created"`      // UTC µs
	By      string  `json:"by,omitempty"` // id of the key that made it
	Expires int64   `json:"expires,omitempty"`
	Revoked int64   `json:"revoked,omitempty"`
	// Used is when the key last admitted a request, or 0. After a crash the last uses may be
	// missing: it is stored once in a while.
	Used int64 `json:"used,omitempty"`
	// Budget is the id of the first key of a row of rotations: what is spent with any of them
	// counts against one limit. "" = the key is the first.
	Budget   string `json:"budget,omitempty"`
	Hash     string `json:"hash"`
	Start    string `json:"start"` // first characters of the token, for people
	Revision uint64 `json:"-"`
}

// A Limit is what may be spent with a key.
type Limit struct {
	Credits int64        `json:"credits"`
	Reset   ledger.Reset `json:"reset"` // none, daily, weekly or monthly, in the account's time zone
	Audit   bool         `json:"audit,omitempty"`
}

// Budget is the limit as the ledger knows it.
func (l *Limit) Budget() ledger.Budget {
	return ledger.Budget{Limit: l.Credits, Reset: cmp.Or(l.Reset, ledger.Never), Audit: l.Audit}
}

// BudgetName is the name under which the account's budgets have the spending limit.
func (k *Key) BudgetName() string { return cmp.Or(k.Budget, k.ID) }

// Live reports whether the key admits requests at a time in UTC µs.
func (k *Key) Live(at int64) bool {
	return k.Revoked == 0 && (k.Expires == 0 || at < k.Expires)
}

// A Store keeps records; see store.Records.
type Store interface {
	Record(ctx context.Context, key store.RecordKey) (store.Record, error)
	Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error)
	PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error)
}

// Keys are the keys of all accounts. They are safe for concurrent use. This process is the
// only one that changes them, so what is in memory is what is stored.
type Keys struct {
	store Store
	now   func() time.Time
	newID func() (string, error)
	log   *slog.Logger
	// admin is the hash of a token that the environment gave; "" = none.
	admin string

	mu      sync.Mutex
	cached  map[string]*Key            // by id
	writes  uint64                     // how often a key was written, or may have been
	limited map[string]map[string]*Key // keys with a spending limit, by account and id
	open    map[string]map[*use]bool   // requests and streams in progress, by key
	used    map[string]int64           // when keys were last used, as far as it is not stored, by id
	writing sync.Mutex                 // one change at a time

	usesSaved int64 // when uses were last stored, in UTC µs
}

// A use is a request or a stream in progress.
type use struct {
	end     context.CancelCauseFunc
	account string
	admin   bool        // its key administers accounts
	timer   *time.Timer // ends it when the key does, after a rotation; nil = none
}

// Config is what Keys are made of.
type Config struct {
	Store Store
	Now   func() time.Time
	// NewID returns a new id of a key, with the prefix "key_".
	NewID func() (string, error)
	// Logger gets a line for each key that cannot be read. Default: discarded.
	Logger *slog.Logger
}

// minAdminToken is the length of the shortest token that the environment may give.
const minAdminToken = 32

// OpenKeys reads the keys that have spending limits. Others are read when they are used. A
// key whose record is damaged does not work, and does not keep the others from working.
func OpenKeys(ctx context.Context, cfg Config) (*Keys, error) {
	k := &Keys{
		store: cfg.Store, now: cfg.Now, newID: cfg.NewID, log: cfg.Logger,
		cached: map[string]*Key{}, limited: map[string]map[string]*Key{}, open: map[string]map[*use]bool{}, used: map[string]int64{},
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	err := k.each(ctx, "", func(key *Key) error {
		if key.Limit != nil && key.Live(k.micros()) {
			k.limit(key)
		}
		return nil
	})
	return k, err
}

// adminKey is the id of the key that the environment gives.
const adminKey = "key_environment"

// CheckAdmin refuses a token of the environment that is too short; "" is none.
func CheckAdmin(token string) error {
	if token != "" && len(token) < minAdminToken {
		return fault.New(fault.ConfigInvalid, "the admin key of the environment has %d characters: want at least %d random ones", len(token), minAdminToken)
	}
	return nil
}

// SetAdmin makes a token, which [CheckAdmin] has checked and which is never stored, a key
// with the role admin in an account. Call it before there are requests.
func (k *Keys) SetAdmin(token, account string) {
	k.admin = hashOf(token)
	k.cached[adminKey] = &Key{ID: adminKey, Account: account, Name: "ROUX_ADMIN_KEY", Role: Admin, Scopes: admin, Hash: k.admin}
}

func (k *Keys) micros() int64 { return k.now().UnixMicro() }

// Any reports whether there is a key that admits requests.
func (k *Keys) Any(ctx context.Context) (bool, error) {
	if k.admin != "" {
		return true, nil
	}
	found := errors.New("found")
	err := k.each(ctx, "", func(key *Key) error {
		if key.Live(k.micros()) {
			return found
		}
		return nil
	})
	if errors.Is(err, found) {
		return true, nil
	}
	return false, err
}

// each calls fn with all keys of an account; "" = of all accounts. It passes over those that
// cannot be read: whose they are, and what they allowed, is then unknown.
func (k *Keys) each(ctx context.Context, account string, fn func(*Key) error) error {
	q := store.RecordQuery{Kind: Kind, Limit: 500}
	if account != "" {
		q.NamePrefix = nameOf(account, "")
	}
	for {
		list, more, err := k.store.Records(ctx, q)
		if err != nil {
			return err
		}
		for i := range list {
			key, err := decodeKey(&list[i])
			if err != nil {
				k.log.WarnContext(ctx, "a key cannot be read and does not work", "key", list[i].ID, "error", err)
				continue
			}
			if err := fn(key); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		q.After = list[len(list)-1].ID
		if account != "" { // in the order of names, which a damaged record does not have
			q.After = nameOf(account, q.After)
		}
	}
}

// nameOf is the name of the record of a key. No name of an account has a slash.
func nameOf(account, id string) string { return account + "/" + id }

func decodeKey(r *store.Record) (*Key, error) {
	key, err := store.DecodeRecord[Key](r)
	if err == nil {
		key.Revision = r.Revision
	}
	return key, err
}

// Spec says what a new key allows.
type Spec struct {
	Account string
	Name    string
	Role    Role
	Scopes  []Scope
	Expires int64 // UTC µs; 0 = never
	Limit   *Limit
}

// Create makes a key and returns its token, which is not stored. It allows no more than the
// key of by does, and no longer. A key with a spending limit makes none, because what is
// spent with the new one would not count.
func (k *Keys) Create(ctx context.Context, by *Principal, spec Spec) (*Key, string, error) {
	scopes, err := resolve(by, spec.Role, spec.Scopes)
	if err != nil {
		return nil, "", err
	}
	now := k.micros()
	if err := spec.check(now); err != nil {
		return nil, "", err
	}
	if err := spec.within(by); err != nil {
		return nil, "", err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.create(ctx, &Key{Account: spec.Account, Name: spec.Name, Role: spec.Role, Scopes: scopes, Limit: spec.Limit, Created: now, By: by.Key, Expires: spec.Expires})
}

// create stores a new key, of which the caller has checked everything but the number. The
// caller holds k.writing.
func (k *Keys) create(ctx context.Context, key *Key) (*Key, string, error) {
	n := 0
	if err := k.each(ctx, key.Account, func(*Key) error { n++; return nil }); err != nil {
		return nil, "", err
	}
	if n >= MaxKeys {
		return nil, "", fault.OverQuota("keys", n, MaxKeys, "account %s has %d keys, the most it may have: revoke some", key.Account, n)
	}
	id, err := k.newID()
	if err != nil {
		return nil, "", err
	}
	token, hash := newToken(id)
	key.ID, key.Hash, key.Start = id, hash, token[:len(tokenPrefix)+8]
	if err := k.put(ctx, key); err != nil {
		return nil, "", err
	}
	return key, token, nil
}

// within refuses what the key of by does not allow.
func (s *Spec) within(by *Principal) error {
	switch {
	case s.Account != by.Account && !by.Allows(AccountsAdmin):
		return by.Check(AccountsAdmin)
	case by.Budget != "":
		return fault.New(fault.Forbidden, "the key that makes this one has a spending limit, so it makes no others")
	case by.Expires != 0 && (s.Expires == 0 || s.Expires > by.Expires):
		return fault.New(fault.Forbidden, "the key that makes this one expires at %s, so this one may not be valid for longer", timeText(by.Expires))
	}
	return nil
}

func timeText(at int64) string { return time.UnixMicro(at).UTC().Format(time.RFC3339) }

func (s *Spec) check(now int64) error {
	switch {
	case s.Account == "" || strings.Contains(s.Account, "/"):
		return fault.New(fault.InputInvalid, "a key needs an account, whose name has no slash")
	case s.Name == "" || len(s.Name) > maxName:
		return fault.New(fault.InputInvalid, "a key needs a name of at most %d bytes, by which people know what it is for", maxName)
	case s.Expires != 0 && s.Expires <= now:
		return fault.New(fault.InputInvalid, "the key would have expired already: expiresAt is in the past")
	case s.Limit == nil:
		return nil
	case s.Limit.Credits < 1:
		return fault.New(fault.InputInvalid, "limit.credits is %d: want at least 1", s.Limit.Credits)
	}
	b := s.Limit.Budget()
	if err := b.Check(); err != nil {
		return fault.Wrap(fault.InputInvalid, err, "limit.%v", err)
	}
	return nil
}

// put stores a key and what memory has of it.
func (k *Keys) put(ctx context.Context, key *Key) error {
	r, err := key.record()
	if err != nil {
		return err
	}
	stored, err := k.store.PutRecords(ctx, store.RecordChange{Record: r})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
	if err != nil {
		delete(k.cached, key.ID) // it may be written all the same: the next use reads it
		return err
	}
	key.Revision = stored[0].Revision
	k.remember(key)
	return nil
}

// remember makes memory what was stored of a key. The caller holds k.mu.
func (k *Keys) remember(key *Key) {
	k.cached[key.ID] = key
	if key.Limit != nil && key.Revoked == 0 {
		k.limit(key)
	} else {
		delete(k.limited[key.Account], key.ID)
	}
}

// limit remembers a key with a spending limit.
func (k *Keys) limit(key *Key) {
	if k.limited[key.Account] == nil {
		k.limited[key.Account] = map[string]*Key{}
	}
	k.limited[key.Account][key.ID] = key
}

// Budgets adds the spending limits of the keys of an account to its budgets. The engine
// asks at every start, so nothing is read.
func (k *Keys) Budgets(account string, b ledger.Budgets) ledger.Budgets {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.limited[account]) == 0 {
		return b
	}
	keys := make(map[string]ledger.Budget, len(b.Keys)+len(k.limited[account]))
	for name, budget := range b.Keys {
		keys[name] = budget
	}
	now := k.micros()
	for _, key := range k.limited[account] {
		if key.Live(now) {
			keys[key.BudgetName()] = key.Limit.Budget()
		}
	}
	b.Keys = keys
	return b
}

// Get returns a key of an account.
func (k *Keys) Get(ctx context.Context, account, id string) (*Key, error) {
	key, err := k.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if key == nil || key.Account != account {
		return nil, fault.New(fault.KeyNotFound, "account %s has no such key", account)
	}
	return k.withUse(key), nil
}

// List returns the keys of an account, the oldest first.
func (k *Keys) List(ctx context.Context, account string) ([]*Key, error) {
	var list []*Key
	err := k.each(ctx, account, func(key *Key) error {
		list = append(list, k.withUse(key))
		return nil
	})
	slices.SortFunc(list, func(a, b *Key) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}

// Revoke ends a key: it admits no further request, and requests and streams that it began
// are cancelled before Revoke returns. To revoke a key again changes nothing.
func (k *Keys) Revoke(ctx context.Context, account, id string) (*Key, error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.revoke(ctx, account, id)
}

// revoke is Revoke; the caller holds k.writing.
func (k *Keys) revoke(ctx context.Context, account, id string) (*Key, error) {
	key, err := k.Get(ctx, account, id)
	if err != nil {
		return nil, err
	}
	if id == adminKey {
		return nil, fault.New(fault.Conflict, "that key is in the environment of the server: remove ROUX_ADMIN_KEY and start it again")
	}
	if key.Revoked == 0 {
		revoked := *key
		revoked.Revoked = k.micros()
		if err := k.put(ctx, &revoked); err != nil {
			return nil, err
		}
		key = &revoked
	}
	// Also for one that is revoked already: an earlier write may have succeeded and still
	// have returned an error.
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.limited[account], id)
	for u := range k.open[id] {
		u.end(errRevoked)
	}
	return key, nil
}

// End cancels the requests and streams in progress of an account, except for those of keys
// that administer accounts.
func (k *Keys) End(account string, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, uses := range k.open {
		for u := range uses {
			if u.account == account && !u.admin {
				u.end(why)
			}
		}
	}
}

var errRevoked = fault.New(fault.Unauthorized, "the key was revoked")

// load returns a key by its id, or nil when there is none.
func (k *Keys) load(ctx context.Context, id string) (*Key, error) {
	for {
		k.mu.Lock()
		key, ok := k.cached[id]
		writes := k.writes
		k.mu.Unlock()
		if ok {
			return key, nil
		}
		r, err := k.store.Record(ctx, store.RecordKey{Kind: Kind, ID: id})
		switch {
		case fault.CodeOf(err) == fault.RecordNotFound: // not kept: whoever asks chooses the id
			return nil, nil
		case err != nil:
			return nil, err
		}
		if key, err = decodeKey(&r); err != nil {
			return nil, err
		}
		if k.keep(key, writes) {
			return key, nil
		}
	}
}

// keep caches a key that was read after a number of writes. It reports false if there was
// another since then: what was read may be older than that.
func (k *Keys) keep(key *Key, writes uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writes != writes {
		return false
	}
	for other := range k.cached {
		if len(k.cached) < maxCached {
			break
		}
		if other != adminKey {
			delete(k.cached, other)
		}
	}
	k.cached[key.ID] = key
	return true
}

// Authenticate returns who a token belongs to. The error tells an expired and a revoked key
// from an unknown one only to who has the token.
func (k *Keys) Authenticate(ctx context.Context, token string) (*Principal, error) {
	id, ok := keyOf(token)
	switch {
	case k.admin != "" && matches(token, k.admin):
		id = adminKey
	case !ok:
		return nil, fault.New(fault.Unauthorized, "the bearer token is not a key of Roux: a key begins with %q", tokenPrefix)
	}
	key, err := k.load(ctx, id)
	if err != nil {
		return nil, err
	}
	hash := hashOf("")
	if key != nil {
		hash = key.Hash
	}
	switch ok := matches(token, hash); {
	case !ok || key == nil:
		return nil, fault.New(fault.Unauthorized, "there is no such key")
	case key.Revoked != 0:
		return nil, errRevoked
	case !key.Live(k.micros()):
		err := fault.New(fault.Unauthorized, "the key expired at %s", timeText(key.Expires))
		err.Remedy = "Make another one, with `roux keys create` or `POST /v1/keys` and a key that may."
		return nil, err
	}
	k.use(id, k.micros())
	p := &Principal{Account: key.Account, Key: key.ID, Name: key.Name, Role: key.Role, Scopes: key.Scopes, Expires: key.Expires}
	if key.Limit != nil {
		p.Budget = key.BudgetName()
	}
	return p, nil
}

// Bind returns a context that ends when the key of the principal is revoked or expires, for
// a request or a stream in progress. Call the returned function at its end.
func (k *Keys) Bind(ctx context.Context, p *Principal) (context.Context, func()) {
	if p.Key == "" || p.Key == adminKey {
		return ctx, func() {}
	}
	stop := func() {}
	if p.Expires != 0 {
		left := time.Duration(min(p.Expires-k.micros(), maxLeft)) * time.Microsecond
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, left, errExpired)
		stop = cancel
	}
	ctx, end := context.WithCancelCause(ctx)
	u := &use{end: end, account: p.Account, admin: p.Allows(AccountsAdmin)}
	k.mu.Lock()
	if k.open[p.Key] == nil {
		k.open[p.Key] = map[*use]bool{}
	}
	k.open[p.Key][u] = true
	k.mu.Unlock()
	// From here on Revoke ends it. The key may have been revoked since it was checked.
	switch key, err := k.load(ctx, p.Key); {
	case err != nil:
		end(err)
	case key == nil || key.Revoked != 0:
		end(errRevoked)
	case key.Expires != p.Expires: // it was rotated since it was checked
		k.mu.Lock()
		u.timer = time.AfterFunc(time.Duration(key.Expires-k.micros())*time.Microsecond, func() { end(errExpired) })
		k.mu.Unlock()
	}
	return ctx, func() {
		k.mu.Lock()
		delete(k.open[p.Key], u)
		if u.timer != nil {
			u.timer.Stop()
		}
		if len(k.open[p.Key]) == 0 {
			delete(k.open, p.Key)
		}
		k.mu.Unlock()
		end(nil)
		stop()
	}
}

// maxLeft is the longest time, in µs, that a timer of a key is set to: a Duration ends after
// 292 years.
const maxLeft = int64(365 * 24 * time.Hour / time.Microsecond)
