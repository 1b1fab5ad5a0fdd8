// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

const minute = int64(time.Minute / time.Microsecond)

// save stores the last uses and returns how many records that wrote.
func (w *world) save(last bool) int {
	w.t.Helper()
	before := w.puts.Load()
	if err := w.SaveUses(w.t.Context(), last); err != nil {
		w.t.Fatal(err)
	}
	return int(w.puts.Load() - before)
}

func (w *world) lastUsed(key *Key) int64 {
	w.t.Helper()
	got, err := w.Get(w.t.Context(), key.Account, key.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := w.List(w.t.Context(), key.Account)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, k := range list {
		if k.ID == key.ID && k.Used != got.Used {
			w.t.Errorf("the list has %d, the key %d", k.Used, got.Used)
		}
	}
	return got.Used
}

// When a key was last used is shown at once, written at most once a minute and never by a
// request, and there after a restart.
func TestLastUsed(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme"})
	other, _ := w.make(Spec{Account: "acme"})
	if at := w.lastUsed(key); at != 0 {
		t.Errorf("a new key was used at %d", at)
	}
	puts := w.puts.Load()
	for range 1000 {
		w.want(token, "")
		w.clock.Add(1)
	}
	if n := w.puts.Load() - puts; n != 0 {
		t.Errorf("requests wrote %d records", n)
	}
	if at := w.lastUsed(key); at != start+999 {
		t.Errorf("used at %d, want %d", at, start+999)
	}
	if n := w.save(false); n != 1 {
		t.Errorf("%d records were written for one key", n)
	}
	for range 5 { // within a minute nothing more is written
		w.clock.Add(minute / 6)
		w.want(token, "")
		if n := w.save(false); n != 0 {
			t.Errorf("%d records were written within a minute", n)
		}
	}
	w.clock.Add(minute / 6)
	if n := w.save(false); n != 1 {
		t.Errorf("%d records were written a minute later", n)
	}
	w.clock.Add(2 * minute)
	if n := w.save(false); n != 0 {
		t.Errorf("%d records were written for keys that were not used", n)
	}
	w.want(token, "")
	w.save(false)
	w.clock.Add(1)
	w.want(token, "")
	if n := w.save(true); n != 1 {
		t.Errorf("%d records were written at the end", n)
	}
	want := w.clock.Load()
	w.open(Config{})
	if at := w.lastUsed(key); at != want {
		t.Errorf("after a restart: used at %d, want %d", at, want)
	}
	if at := w.lastUsed(other); at != 0 {
		t.Errorf("another key was used at %d", at)
	}
	// What changes the key keeps it, and the key works as before.
	w.want(token, "")
	if _, err := w.Revoke(t.Context(), "acme", key.ID); err != nil {
		t.Fatal(err)
	}
	if n := w.save(true); n > 1 || w.lastUsed(key) != want {
		t.Errorf("revoked: %d records, used at %d", n, w.lastUsed(key))
	}
	w.want(token, fault.Unauthorized)
}

// The memory for uses is bounded, and every key is noted some time.
func TestLastUsedIsBounded(t *testing.T) {
	w := inMemory(t)
	for i := range maxCached + 100 {
		w.use(fmt.Sprint("key_", i), 1)
	}
	if n := len(w.used); n != maxCached {
		t.Errorf("%d uses are in memory", n)
	}
	key, token := w.make(Spec{Account: "acme"})
	w.want(token, "")
	w.save(true) // those of keys that are gone are dropped
	if n := len(w.used); n != 0 {
		t.Errorf("%d uses are left", n)
	}
	w.want(token, "")
	if at := w.lastUsed(key); at != start {
		t.Errorf("used at %d", at)
	}
}

// A write that fails costs a use and nothing else.
func TestLastUsedIsNotStored(t *testing.T) {
	w := inMemory(t)
	key, token := w.make(Spec{Account: "acme", Limit: &Limit{Credits: 5}})
	w.want(token, "")
	w.failed = errors.New("full")
	if err := w.SaveUses(t.Context(), true); err == nil {
		t.Error("no error")
	}
	w.failed = nil
	w.want(token, "")
	w.clock.Add(1)
	w.want(token, "")
	if n := w.save(true); n != 1 || w.lastUsed(key) != start+1 {
		t.Errorf("%d records, used at %d", n, w.lastUsed(key))
	}
	if p := w.want(token, ""); p.Budget != key.ID {
		t.Errorf("the budget is %q", p.Budget)
	}
}

// The key of the environment is in no store.
func TestLastUsedOfTheEnvironment(t *testing.T) {
	w := inMemory(t)
	token := "0123456789012345678901234567890123456789"
	w.open(Config{})
	w.SetAdmin(token, "local")
	w.want(token, "")
	if n := w.save(true); n != 0 {
		t.Errorf("%d records were written", n)
	}
	if _, err := w.st.Record(context.Background(), store.RecordKey{Kind: Kind, ID: adminKey}); fault.CodeOf(err) != fault.RecordNotFound {
		t.Errorf("it is stored: %v", err)
	}
}
