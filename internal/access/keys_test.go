// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A world is a store with a clock, and the keys in it.
type world struct {
	*Keys
	t     *testing.T
	st    store.Store
	epoch uint64
	clock atomic.Int64 // UTC µs
	ids   atomic.Int64
	reads atomic.Int64
	puts  atomic.Int64 // records written
	log   bytes.Buffer
	// failed, when set, is the error of a write that succeeds all the same.
	failed error
	// onRead, when set, is called before a read of a record returns.
	onRead func()
}

const start = int64(1_800_000_000_000_000)

func newWorld(t *testing.T, st store.Store) *world {
	t.Helper()
	w := &world{t: t, st: st}
	w.clock.Store(start)
	var err error
	if w.epoch, err = st.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.open(Config{})
	return w
}

func inMemory(t *testing.T) *world { return newWorld(t, memory.New(memory.Options{})) }

// open opens the keys as a process does that starts.
func (w *world) open(cfg Config) {
	w.t.Helper()
	cfg.Store, cfg.Now, cfg.Logger = w, func() time.Time { return time.UnixMicro(w.clock.Load()) }, slog.New(slog.NewTextHandler(&w.log, nil))
	cfg.NewID = func() (string, error) { return fmt.Sprintf("key_%026d", w.ids.Add(1)), nil }
	var err error
	if w.Keys, err = OpenKeys(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	w.reads.Add(1)
	r, err := w.st.Record(ctx, key)
	if f := w.onRead; f != nil {
		w.onRead = nil
		f()
	}
	return r, err
}

func (w *world) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	return w.st.Records(ctx, q)
}

func (w *world) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	w.puts.Add(int64(len(changes)))
	stored, err := w.st.PutRecords(ctx, w.epoch, w.clock.Load(), changes)
	if err == nil && w.failed != nil {
		return nil, w.failed
	}
	return stored, err
}

// make makes a key of an account as its operator does.
func (w *world) make(spec Spec) (*Key, string) {
	w.t.Helper()
	if spec.Name == "" {
		spec.Name = "test"
	}
	if spec.Role == "" {
		spec.Role = Owner
	}
	key, token, err := w.Create(w.t.Context(), Anyone(spec.Account), spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return key, token
}

func (w *world) want(token string, code fault.Code) *Principal {
	w.t.Helper()
	p, err := w.Authenticate(w.t.Context(), token)
	if fault.CodeOf(err) != code && (err != nil || code != "") {
		w.t.Fatalf("authenticate: %v, want %s", err, code)
	}
	return p
}

func (w *world) revoke(key *Key) {
	w.t.Helper()
	if got, err := w.Revoke(w.t.Context(), key.Account, key.ID); err != nil || got.Revoked == 0 {
		w.t.Fatal(got, err)
	}
}

// forget empties the memory of keys, as many other keys do that are used.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cached)
}

// damage makes the record of a key unreadable.
func (w *world) damage(key *Key) {
	w.t.Helper()
	r := store.Record{RecordKey: store.RecordKey{Kind: Kind, ID: key.ID}, Revision: store.AnyRevision, Name: nameOf(key.Account, key.ID), Data: []byte(`{"id":`)}
	if _, err := w.PutRecords(w.t.Context(), store.RecordChange{Record: r}); err != nil {
		w.t.Fatal(err)
	}
	w.forget()
}

// A21: the store has the hash of a token and its first characters, and nothing more of it.
func TestA21_TheStoreHasNoToken(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme", Name: "ci", Role: Operator})
	secret := token[len(tokenPrefix)+idLength+1:]
	list, _, err := w.st.Records(t.Context(), store.RecordQuery{Kind: Kind})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	stored := fmt.Sprintf("%s %+v", list[0].Data, list[0].RecordKey)
	for i := range len(secret) - 8 {
		if strings.Contains(stored, secret[i:i+8]) {
			t.Fatalf("the record has a part of the secret: %s", stored)
		}
	}
	if !strings.Contains(stored, hashOf(token)) || strings.Contains(fmt.Sprintf("%+v", *key), secret) {
		t.Errorf("stored is %s, returned %+v", stored, key)
	}
	p := w.want(token, "")
	if p.Account != "acme" || p.Key != key.ID || p.Name != "ci" || p.Budget != "" || !p.Allows(RunsExecute) || p.Allows(RecipesWrite) {
		t.Errorf("the token belongs to %+v", p)
	}
}

// A token that differs in one character, or has the secret of another key, is nobody's. An
// unknown id is answered like a wrong secret, and is not kept in memory.
func TestA21_OtherTokens(t *testing.T) {
	w := inMemory(t)
	_, a := w.make(Spec{Account: "acme"})
	_, b := w.make(Spec{Account: "acme"})
	cut := len(tokenPrefix) + idLength + 1
	_, wrong := w.Authenticate(t.Context(), a[:cut]+b[cut:])
	unknown := "roux_" + strings.Repeat("Z", idLength) + "_" + a[cut:]
	_, missing := w.Authenticate(t.Context(), unknown)
	if !errors.Is(wrong, fault.Unauthorized) || fmt.Sprint(wrong) != fmt.Sprint(missing) {
		t.Errorf("a wrong secret: %v; an unknown id: %v", wrong, missing)
	}
	for _, token := range []string{"", "x", "roux_", a[:len(a)-1], "key_environment", hashOf(a)} {
		w.want(token, fault.Unauthorized)
	}
	before := len(w.cached)
	for i := range 100 {
		w.want(fmt.Sprintf("roux_%026d_%s", 1000+i, a[cut:]), fault.Unauthorized)
	}
	if len(w.cached) != before {
		t.Errorf("memory has %d keys, before %d", len(w.cached), before)
	}
	reads := w.reads.Load()
	if w.want(a, ""); w.reads.Load() != reads {
		t.Error("a key that is in use is read from the store")
	}
}

// A key says when it expires; from then on it admits nothing. One that expires in the
// far future works.
func TestKeysExpire(t *testing.T) {
	w := inMemory(t)
	_, token := w.make(Spec{Account: "acme", Expires: start + 1000})
	w.want(token, "")
	w.clock.Store(start + 999)
	w.want(token, "")
	w.clock.Store(start + 1000)
	_, err := w.Authenticate(t.Context(), token)
	if !errors.Is(err, fault.Unauthorized) || !strings.Contains(err.Error(), "expired at 2027-01-15T08:00:00Z") {
		t.Errorf("an expired key: %v", err)
	}
	if _, _, err := w.Create(t.Context(), Anyone("acme"), Spec{Account: "acme", Name: "x", Role: Viewer, Expires: start}); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("a key that has expired already: %v", err)
	}
	far, token := w.make(Spec{Account: "acme", Expires: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()})
	ctx, end := w.Bind(t.Context(), w.want(token, ""))
	defer end()
	if ctx.Err() != nil {
		t.Errorf("a request with a key that expires in the year 9999: %v", context.Cause(ctx))
	}
	if key, err := w.Get(t.Context(), "acme", far.ID); err != nil || !key.Live(w.clock.Load()) {
		t.Error(key, err)
	}
}

// A request ends when its key expires.
func TestBoundUntilExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		_, token := w.make(Spec{Account: "acme", Expires: start + time.Minute.Microseconds()})
		ctx, end := w.Bind(t.Context(), w.want(token, ""))
		defer end()
		time.Sleep(time.Minute - time.Nanosecond)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), fault.Unauthorized) {
			t.Errorf("after the expiry: %v", context.Cause(ctx))
		}
	})
}

// A21: a revoked key admits nothing from the moment on that Revoke returns, and ends what
// it began, also where memory has lost it, and where the request is bound later.
func TestA21_Revocation(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme"})
	other, otherToken := w.make(Spec{Account: "acme"})
	p := w.want(token, "")
	early, end := w.Bind(t.Context(), p)
	defer end()
	done, endDone := w.Bind(t.Context(), p)
	endDone()
	if !errors.Is(context.Cause(done), context.Canceled) {
		t.Error("a request that is over is not ended")
	}
	beside, endBeside := w.Bind(t.Context(), w.want(otherToken, ""))
	defer endBeside()
	w.forget()
	w.revoke(key)
	if !errors.Is(context.Cause(early), fault.Unauthorized) {
		t.Errorf("a request in progress: %v", context.Cause(early))
	}
	w.want(token, fault.Unauthorized)
	for _, forget := range []func(){func() {}, w.forget} {
		forget()
		late, end := w.Bind(t.Context(), p)
		if !errors.Is(context.Cause(late), fault.Unauthorized) {
			t.Errorf("a request that is bound after the revocation: %v", context.Cause(late))
		}
		end()
	}
	w.forget()
	w.want(token, fault.Unauthorized)
	w.open(Config{})
	w.want(token, fault.Unauthorized)
	if beside.Err() != nil {
		t.Error("a request of another key ended")
	}
	w.want(otherToken, "")
	// The record may go 30 days later, not before.
	r, err := w.Record(t.Context(), store.RecordKey{Kind: Kind, ID: key.ID})
	if err != nil || r.Until != start+keptRevoked {
		t.Errorf("the record of a revoked key: %+v, %v", r, err)
	}
	first := r.Revision
	w.clock.Add(1000)
	w.revoke(key)
	if r, err = w.Record(t.Context(), r.RecordKey); err != nil || r.Revision != first {
		t.Error("to revoke a key again changes it")
	}
	if list, err := w.List(t.Context(), "acme"); err != nil || len(list) != 2 || list[0].Revoked != start || list[1].ID != other.ID {
		t.Errorf("the keys are %+v, %v", list, err)
	}
	if len(w.Keys.open) != 0 {
		t.Errorf("uses are left: %v", w.Keys.open)
	}
}

// A read of a key that a revocation overtakes does not bring the key back to memory.
func TestA21_AnOldReadIsNotKept(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme"})
	w.forget()
	w.onRead = func() { w.revoke(key); w.forget() }
	w.want(token, fault.Unauthorized)
	w.want(token, fault.Unauthorized)
}

// A revocation that is stored although the store reports an error takes effect, and the
// next try ends the requests.
func TestA21_RevocationWithAnError(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme", Limit: &Limit{Credits: 5}})
	ctx, end := w.Bind(t.Context(), w.want(token, ""))
	defer end()
	w.failed = errors.New("the connection is lost")
	if _, err := w.Revoke(t.Context(), "acme", key.ID); !errors.Is(err, w.failed) {
		t.Fatal(err)
	}
	w.failed = nil
	w.want(token, fault.Unauthorized)
	w.revoke(key)
	if !errors.Is(context.Cause(ctx), fault.Unauthorized) || len(w.Budgets("acme", ledger.Budgets{}).Keys) != 0 {
		t.Error("the key is revoked, and its request goes on")
	}
}

// A01, I17: keys of another account do not exist, in the words of one that does not.
func TestI17_KeysOfOthers(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme"})
	w.make(Spec{Account: "acme.corp"})
	_, missing := w.Get(t.Context(), "other", "key_none")
	for what, call := range map[string]func() error{
		"get":            func() error { _, err := w.Get(t.Context(), "other", key.ID); return err },
		"revoke":         func() error { _, err := w.Revoke(t.Context(), "other", key.ID); return err },
		"of no account":  func() error { _, err := w.Get(t.Context(), "", key.ID); return err },
		"of a beginning": func() error { _, err := w.Revoke(t.Context(), "acm", key.ID); return err },
	} {
		if err := call(); !errors.Is(err, fault.KeyNotFound) || strings.ReplaceAll(err.Error(), `"other"`, "") == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.Get(t.Context(), "other", key.ID); fmt.Sprint(err) != fmt.Sprint(missing) {
		t.Errorf("a key of another account: %v; one that does not exist: %v", err, missing)
	}
	w.want(token, "")
	for account, n := range map[string]int{"acme": 1, "acme.corp": 1, "acm": 0, "other": 0} {
		if list, err := w.List(t.Context(), account); err != nil || len(list) != n {
			t.Errorf("the keys of %s: %d, %v", account, len(list), err)
		}
	}
}

// A05: a key makes none that allow more, for longer, for others, or to spend more.
func TestA05_KeysPassOnWhatTheyHave(t *testing.T) {
	w := inMemory(t)
	owner := &Principal{Account: "acme", Key: "key_maker", Scopes: Owner.Scopes()}
	until := &Principal{Account: "acme", Scopes: Owner.Scopes(), Expires: start + 10}
	limited := &Principal{Account: "acme", Scopes: Owner.Scopes(), Budget: "key_limited"}
	for _, tt := range []struct {
		by   *Principal
		spec Spec
		code fault.Code
	}{
		{owner, Spec{Account: "acme", Role: Owner}, ""},
		{owner, Spec{Account: "acme", Role: Admin}, fault.Forbidden},
		{owner, Spec{Account: "acme", Role: Viewer, Scopes: []Scope{ServerAdmin}}, fault.Forbidden},
		{owner, Spec{Account: "other", Role: Viewer}, fault.Forbidden},
		{Anyone("ops"), Spec{Account: "other", Role: Viewer}, ""},
		{Anyone("ops"), Spec{Role: Viewer}, fault.InputInvalid},
		{Anyone("ops"), Spec{Account: "a/b", Role: Viewer}, fault.InputInvalid},
		{until, Spec{Account: "acme", Role: Viewer}, fault.Forbidden},
		{until, Spec{Account: "acme", Role: Viewer, Expires: start + 11}, fault.Forbidden},
		{until, Spec{Account: "acme", Role: Viewer, Expires: start + 10}, ""},
		{limited, Spec{Account: "acme", Role: Viewer}, fault.Forbidden},
		{limited, Spec{Account: "acme", Role: Viewer, Limit: &Limit{Credits: 1}}, fault.Forbidden},
		{owner, Spec{Account: "acme", Role: Viewer, Limit: &Limit{Credits: 0}}, fault.InputInvalid},
		{owner, Spec{Account: "acme", Role: Viewer, Limit: &Limit{Credits: 1, Reset: "hourly"}}, fault.InputInvalid},
		{owner, Spec{Account: "acme", Role: Viewer, Name: strings.Repeat("x", maxName)}, ""},
		{owner, Spec{Account: "acme", Role: Viewer, Name: strings.Repeat("x", maxName+1)}, fault.InputInvalid},
	} {
		if tt.spec.Name == "" {
			tt.spec.Name = "new"
		}
		key, token, err := w.Create(t.Context(), tt.by, tt.spec)
		if fault.CodeOf(err) != tt.code && (err != nil || tt.code != "") {
			t.Errorf("%+v by %+v: %v", tt.spec, tt.by, err)
		}
		if err != nil && (key != nil || token != "") {
			t.Errorf("%+v: a key comes with the error %v", tt.spec, err)
		}
		if err == nil && key.By != tt.by.Key {
			t.Errorf("%s was made by %q", key.ID, key.By)
		}
	}
	if _, _, err := w.Create(t.Context(), owner, Spec{Account: "acme", Role: Viewer}); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("a key without a name: %v", err)
	}
}

// An account has at most MaxKeys keys, on however many pages of records they are; those of
// another one do not count.
func TestMaxKeys(t *testing.T) {
	w := inMemory(t)
	var changes []store.RecordChange
	for i := range MaxKeys - 1 {
		id := fmt.Sprintf("key_%026d", 1000+i)
		data := fmt.Sprintf(`{"id":%q,"account":"acme"}`, id)
		changes = append(changes, store.RecordChange{Record: store.Record{RecordKey: store.RecordKey{Kind: Kind, ID: id}, Name: nameOf("acme", id), Data: []byte(data)}})
	}
	if _, err := w.PutRecords(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	w.make(Spec{Account: "acme"})
	if _, _, err := w.Create(t.Context(), Anyone("acme"), Spec{Account: "acme", Name: "x", Role: Viewer}); !errors.Is(err, fault.QuotaExceeded) {
		t.Errorf("key %d: %v", MaxKeys+1, err)
	}
	w.make(Spec{Account: "acm"})
	w.make(Spec{Account: "zeta"})
	if list, err := w.List(t.Context(), "acme"); err != nil || len(list) != MaxKeys || list[0].ID >= list[MaxKeys-1].ID {
		t.Errorf("%d keys, %v", len(list), err)
	}
}

// The spending limit of a key is a budget of its account, beside those of the
// configuration, until the key is revoked or expires; also after a restart.
func TestSpendingLimits(t *testing.T) {
	st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	w := newWorld(t, st)
	configured := ledger.Budgets{Day: ledger.Budget{Limit: 7}, Keys: map[string]ledger.Budget{"ci": {Limit: 1}}}
	key, token := w.make(Spec{Account: "acme", Limit: &Limit{Credits: 100, Reset: ledger.Monthly, Audit: true}})
	brief, _ := w.make(Spec{Account: "acme", Limit: &Limit{Credits: 5}, Expires: start + 1000})
	w.make(Spec{Account: "acme"})
	if p := w.want(token, ""); p.Budget != key.ID {
		t.Errorf("the budget of the key is called %q", p.Budget)
	}
	check := func(when string, want map[string]ledger.Budget) {
		t.Helper()
		got := w.Budgets("acme", configured)
		if fmt.Sprint(got.Keys) != fmt.Sprint(want) || got.Day != configured.Day {
			t.Errorf("%s: budgets %+v, want keys %+v", when, got, want)
		}
		if len(configured.Keys) != 1 || len(w.Budgets("other", ledger.Budgets{}).Keys) != 0 {
			t.Errorf("%s: the limits of a key are those of others", when)
		}
	}
	ci, large, small := ledger.Budget{Limit: 1}, ledger.Budget{Limit: 100, Reset: ledger.Monthly, Audit: true}, ledger.Budget{Limit: 5, Reset: ledger.Never}
	for _, when := range []string{"made", "after a restart"} {
		check(when, map[string]ledger.Budget{"ci": ci, key.ID: large, brief.ID: small})
		w.open(Config{})
	}
	w.clock.Store(start + 1000)
	check("expired", map[string]ledger.Budget{"ci": ci, key.ID: large})
	w.open(Config{})
	check("expired, after a restart", map[string]ledger.Budget{"ci": ci, key.ID: large})
	w.revoke(key)
	check("revoked", map[string]ledger.Budget{"ci": ci})
	w.open(Config{})
	check("revoked, after a restart", map[string]ledger.Budget{"ci": ci})
}

// The environment may give a token with the role admin. It is never stored and cannot be
// revoked; a short one is refused.
func TestAdminToken(t *testing.T) {
	w := inMemory(t)
	w.open(Config{})
	if any, err := w.Any(t.Context()); any || err != nil {
		t.Errorf("a store without keys: %t, %v", any, err)
	}
	token := strings.Repeat("s3", 16)
	if err := CheckAdmin(token[1:]); !errors.Is(err, fault.ConfigInvalid) || strings.Contains(err.Error(), token[1:]) {
		t.Errorf("a token of 31 characters: %v", err)
	}
	if err := errors.Join(CheckAdmin(token), CheckAdmin("")); err != nil {
		t.Errorf("a token of 32 characters, and none: %v", err)
	}
	_, shaped := w.make(Spec{Account: "acme", Role: Viewer})
	_, ordinary := w.make(Spec{Account: "acme"})
	for _, token := range []string{token, shaped} {
		w.open(Config{})
		w.SetAdmin(token, "ops")
		if any, err := w.Any(t.Context()); !any || err != nil {
			t.Errorf("with an admin token: %t, %v", any, err)
		}
		p := w.want(token, "")
		if p.Account != "ops" || !p.Allows(ServerAdmin) {
			t.Errorf("the token belongs to %+v", p)
		}
		w.want(token+"x", fault.Unauthorized)
		for i := range 20 * maxCached { // so many keys are used that memory forgets some
			id := fmt.Sprint("key_", i)
			w.cached[id] = &Key{ID: id}
		}
		if p := w.want(ordinary, ""); p.Account != "acme" || len(w.cached) > maxCached {
			t.Errorf("beside it, a key belongs to %+v; memory has %d keys", p, len(w.cached))
		}
		w.want(token, "")
		ctx, end := w.Bind(t.Context(), p)
		if _, err := w.Revoke(t.Context(), "ops", p.Key); !errors.Is(err, fault.Conflict) || ctx.Err() != nil {
			t.Errorf("to revoke it: %v, %v", err, ctx.Err())
		}
		end()
		if _, err := w.Revoke(t.Context(), "acme", p.Key); !errors.Is(err, fault.KeyNotFound) {
			t.Errorf("to revoke it from another account: %v", err)
		}
	}
	if list, err := w.List(t.Context(), "ops"); err != nil || len(list) != 0 {
		t.Errorf("stored: %v, %v", list, err)
	}
	w.open(Config{})
	w.want(token, fault.Unauthorized)
}

// Any: a server has a key only while one of them admits somebody.
func TestAny(t *testing.T) {
	w := inMemory(t)
	want := func(want bool) {
		t.Helper()
		if any, err := w.Any(t.Context()); any != want || err != nil {
			t.Errorf("a key admits somebody: %t, %v", any, err)
		}
	}
	key, _ := w.make(Spec{Account: "acme", Expires: start + 1000})
	want(true)
	w.clock.Store(start + 1000)
	want(false)
	w.clock.Store(start)
	w.revoke(key)
	want(false)
	w.make(Spec{Account: "other"})
	want(true)
}

// A key whose record is damaged does not work, and the log says so. All other keys do.
func TestDamagedKey(t *testing.T) {
	w := inMemory(t)
	bad, badToken := w.make(Spec{Account: "acme", Limit: &Limit{Credits: 5}})
	w.damage(bad)
	w.open(Config{})
	if any, err := w.Any(t.Context()); any || err != nil {
		t.Errorf("only a damaged key: %t, %v", any, err)
	}
	_, token := w.make(Spec{Account: "acme"})
	w.want(token, "")
	w.want(badToken, fault.StoreCorrupt)
	if any, err := w.Any(t.Context()); !any || err != nil {
		t.Errorf("a damaged key and another: %t, %v", any, err)
	}
	if list, err := w.List(t.Context(), "acme"); err != nil || len(list) != 1 {
		t.Errorf("the keys are %v, %v", list, err)
	}
	if !strings.Contains(w.log.String(), bad.ID) {
		t.Errorf("the log does not name the key: %s", w.log.String())
	}
	if _, err := decodeKey(&store.Record{RecordKey: store.RecordKey{ID: "key_x"}, Damage: "checksum"}); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("a damaged row: %v", err)
	}
}
