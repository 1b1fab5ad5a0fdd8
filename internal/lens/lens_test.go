// SPDX-License-Identifier: Apache-2.0

package lens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/store/sqlite"
)

// A fixture is a store with lenses.
type fixture struct {
	*Lenses
	t       *testing.T
	st      store.Store
	epoch   uint64
	clock   atomic.Int64
	changed atomic.Int64
	// failed, when set, is the error of a write that succeeds all the same, or with refuse of one
	// that does not.
	failed error
	refuse bool
}

func newFixture(t *testing.T, st store.Store) *fixture {
	t.Helper()
	s := &fixture{t: t, st: st}
	var err error
	if s.epoch, err = st.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Lenses = New(Config{Records: s, Now: func() time.Time { return time.UnixMicro(s.clock.Add(1)) }, Changed: func(string) { s.changed.Add(1) }})
	return s
}

// each runs a test with every store.
func each(t *testing.T, test func(t *testing.T, s *fixture)) {
	t.Run("memory", func(t *testing.T) { test(t, newFixture(t, memory.New(memory.Options{}))) })
	t.Run("sqlite", func(t *testing.T) {
		st, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		test(t, newFixture(t, st))
	})
}

func (s *fixture) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	return s.st.Record(ctx, key)
}

func (s *fixture) Records(ctx context.Context, q store.RecordQuery) ([]store.Record, bool, error) {
	return s.st.Records(ctx, q)
}

func (s *fixture) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if s.failed != nil && s.refuse {
		return nil, s.failed
	}
	stored, err := s.st.PutRecords(ctx, s.epoch, s.clock.Load(), changes)
	if err == nil && s.failed != nil {
		return nil, s.failed
	}
	return stored, err
}

func (s *fixture) put(account, id, version, template string) (*Version, bool, error) {
	return s.Put(s.t.Context(), account, &Document{Lens: id, Version: version, Template: template}, store.AnyRevision, "ann")
}

// must fails the test unless a new version was put.
func (s *fixture) must(account, id, version, template string) *Version {
	s.t.Helper()
	v, created, err := s.put(account, id, version, template)
	if err != nil || !created || !v.Current {
		s.t.Fatalf("put %s@%s: %+v, created %t, %v", id, version, v, created, err)
	}
	return v
}

// current fails the test unless a lens has a current version with a template.
func (s *fixture) current(account, id, version, template string) {
	s.t.Helper()
	v, d, err := s.Get(s.t.Context(), account, id, "")
	if err != nil || v.Version != version || d.Template != template || d.Lens != id || d.Version != version || !v.Current {
		s.t.Errorf("the current version of %s is %+v %+v, %v; want %s %q", id, v, d, err, version, template)
	}
}

func wantCode(t *testing.T, what string, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// X25: versions are numbered unless they are named; one never changes, the last one put is the
// current one, and an earlier one can be made current again.
func TestX25_Versions(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		first := s.must("acme", "summarize", "", "one")
		if first.Version != "1" || first.By != "ann" || first.Size != 3 || first.Revision == 0 || first.Created == 0 {
			t.Errorf("the first is %+v", first)
		}
		for _, version := range []string{"", "1"} {
			if again, created, err := s.put("acme", "summarize", version, "one"); err != nil || created || again.Version != "1" || again.Revision != first.Revision {
				t.Errorf("the same content again: %+v, created %t, %v", again, created, err)
			}
		}
		_, _, err := s.put("acme", "summarize", "1", "two")
		wantCode(t, "another content under a version that exists", err, fault.Conflict)
		s.current("acme", "summarize", "1", "one")
		if v := s.must("acme", "summarize", "", "two"); v.Version != "2" {
			t.Errorf("the second is %s", v.Version)
		}
		s.must("acme", "summarize", "v9-beta", "three")
		if v := s.must("acme", "summarize", "10", "four"); v.Version != "10" {
			t.Errorf("the fourth is %s", v.Version)
		}
		if v := s.must("acme", "summarize", "", "one"); v.Version != "11" {
			t.Errorf("the content of an earlier version is %s", v.Version)
		}
		s.current("acme", "summarize", "11", "one")
		// A version that exists is put again from its file: nothing changes.
		if v, created, err := s.put("acme", "summarize", "2", "two"); err != nil || created || v.Current {
			t.Errorf("an earlier version again: %+v, created %t, %v", v, created, err)
		}
		s.current("acme", "summarize", "11", "one")
		before := s.changed.Load()
		v, err := s.SetCurrent(t.Context(), "acme", "summarize", "2", store.AnyRevision)
		if err != nil || !v.Current || s.changed.Load() != before+1 {
			t.Errorf("set back: %+v, %v, %d changes", v, err, s.changed.Load()-before)
		}
		s.current("acme", "summarize", "2", "two")
		if same, err := s.SetCurrent(t.Context(), "acme", "summarize", "2", v.Revision); err != nil || same.Revision != v.Revision || s.changed.Load() != before+1 {
			t.Errorf("set to what it is: %+v, %v", same, err)
		}
		_, err = s.SetCurrent(t.Context(), "acme", "summarize", "3", store.AnyRevision)
		wantCode(t, "a version that is not there", err, fault.LensNotFound)
		if !strings.Contains(err.Error(), "it has v9-beta, 11, 10, 2, 1") {
			t.Errorf("the versions are not named in order: %v", err)
		}
		list, err := s.Versions(t.Context(), "acme", "summarize")
		var names []string
		for _, v := range list {
			names = append(names, fmt.Sprint(v.Version, v.Current))
		}
		if want := []string{"11false", "10false", "v9-betafalse", "2true", "1false"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("versions %q, %v; want %q", names, err, want)
		}
		if _, d, err := s.Get(t.Context(), "acme", "summarize", "1"); err != nil || d.Template != "one" {
			t.Errorf("the first is %+v, %v", d, err)
		}
	})
}

// Model and contracts are part of the content; how a contract is written is not.
func TestX25_Contracts(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		d := Document{Lens: "ask", Template: "x", Contracts: Contracts{Input: json.RawMessage(`{"type": "object", "required": ["a"]}`), Output: json.RawMessage(`{}`)}}
		put := func(change func(*Document)) (string, bool) {
			t.Helper()
			c := d
			change(&c)
			v, created, err := s.Put(t.Context(), "acme", &c, store.AnyRevision, "")
			if err != nil {
				t.Fatal(err)
			}
			return v.Version, created
		}
		put(func(*Document) {})
		if v, created := put(func(c *Document) { c.Contracts.Input = json.RawMessage(`{"required":["a"],"type":"object"}`) }); created || v != "1" {
			t.Errorf("the same contract in other words is version %s", v)
		}
		if v, _ := put(func(c *Document) { c.Model = "small" }); v != "2" {
			t.Errorf("another model is version %s", v)
		}
		if v, _ := put(func(c *Document) { c.Contracts.Output = nil }); v != "3" {
			t.Errorf("no contract is version %s", v)
		}
		l, err := s.Of(t.Context(), "acme").Lens("ask", "1")
		if err != nil || l.ID != "ask" || l.Version != "1" || l.Template != "x" || string(l.Input) != `{"required":["a"],"type":"object"}` || string(l.Output) != `{}` {
			t.Errorf("a compilation finds %+v, %v", l, err)
		}
		l, err = s.Of(t.Context(), "acme").Lens("ask", "")
		if err != nil || l.Version != "3" || l.Output != nil {
			t.Errorf("a compilation finds %+v, %v", l, err)
		}
	})
}

// What is wrong with a lens is refused before anything is stored, with its place.
func TestBadDocuments(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, tt := range []struct {
			pointer string
			doc     Document
		}{
			{"/lens", Document{Template: "x"}},
			{"/lens", Document{Lens: "a@1", Template: "x"}},
			{"/lens", Document{Lens: "-a", Template: "x"}},
			{"/lens", Document{Lens: strings.Repeat("a", 65), Template: "x"}},
			{"/version", Document{Lens: "a", Version: "1/2", Template: "x"}},
			{"/version", Document{Lens: "a", Version: strings.Repeat("1", 65), Template: "x"}},
			{"/version", Document{Lens: "a", Version: strings.Repeat("9", MaxDigits+1), Template: "x"}},
			{"/template", Document{Lens: "a"}},
			{"/template", Document{Lens: "a", Template: " \n"}},
			{"/template", Document{Lens: "a", Template: strings.Repeat("x", MaxTemplate+1)}},
			{"/template", Document{Lens: "a", Template: "{{ text"}},
			{"/template", Document{Lens: "a", Template: "{% for a in %}"}},
			{"/template", Document{Lens: "a", Template: "at {{ a }} {{ now() }}"}},
			{"/template", Document{Lens: "a", Template: "{% if a %}{{ uuid() }}{% endif %}"}},
			{"/template", Document{Lens: "a", Template: "{{ secret('key') }}"}},
			{"/model", Document{Lens: "a", Template: "x", Model: strings.Repeat("x", MaxModel+1)}},
			{"/model", Document{Lens: "a", Template: "x", Model: "{{ secret('key') }}"}},
			{"/model", Document{Lens: "a", Template: "x", Model: "{% if a %}"}},
			{"/model", Document{Lens: "a", Template: "x", Model: "small\n"}},
			{"/contracts/input", Document{Lens: "a", Template: "x", Contracts: Contracts{Input: json.RawMessage(`{"type": "objekt"}`)}}},
			{"/contracts/output", Document{Lens: "a", Template: "x", Contracts: Contracts{Output: json.RawMessage(`{"$ref": "https://example.com/x"}`)}}},
			{"/contracts/output", Document{Lens: "a", Template: "x", Contracts: Contracts{Output: json.RawMessage(`{"title": "` + strings.Repeat("x", MaxContract) + `"}`)}}},
		} {
			_, _, err := s.Put(t.Context(), "acme", &tt.doc, store.AnyRevision, "")
			var e *fault.Error
			if !errors.As(err, &e) || e.Code != fault.RecipeInvalid || len(e.Diags) != 1 || e.Diags[0].Pointer != tt.pointer {
				t.Errorf("%+.80v: %v, want a problem at %s", tt.doc, err, tt.pointer)
			}
		}
		if ids, err := s.IDs(t.Context(), "acme"); err != nil || len(ids) != 0 {
			t.Errorf("stored: %v, %v", ids, err)
		}
		s.must("acme", strings.Repeat("a", 64), "", strings.Repeat("x", MaxTemplate))
		s.must("acme", "names", "", "{{ steps }} {{ secrets }} {{ now }} {{ uuid }}")
		s.must("acme", "high", strings.Repeat("9", MaxDigits), "one")
		s.must("acme", "high", "", "two")
		s.must("acme", "high", "", "three")
	})
}

// I17, A01: accounts share no lenses, and the id of a foreign one is answered like one that nobody has.
func TestI17_AccountsShareNoLenses(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.must("acme", "secret", "", "of acme")
		calls := func(id string) map[string]error {
			_, e1 := s.Lens(t.Context(), "rival", id)
			_, _, e2 := s.Get(t.Context(), "rival", id, "1")
			_, e3 := s.Versions(t.Context(), "rival", id)
			_, e4 := s.SetCurrent(t.Context(), "rival", id, "1", store.AnyRevision)
			_, e5 := s.Of(t.Context(), "rival").Lens(id, "")
			return map[string]error{"lens": e1, "get": e2, "versions": e3, "current": e4, "compile": e5, "delete": s.Delete(t.Context(), "rival", id)}
		}
		none := calls("nothing")
		none["compile"] = fault.New(fault.LensNotFound, "there is no lens %q", "secret")
		for what, err := range calls("secret") {
			if wantCode(t, what, err, fault.LensNotFound); fmt.Sprint(err) != fmt.Sprint(none[what]) {
				t.Errorf("%s: %v of a foreign one, %v of none", what, err, none[what])
			}
		}
		s.must("rival", "secret", "", "of rival")
		s.current("acme", "secret", "1", "of acme")
		s.current("rival", "secret", "1", "of rival")
		if err := s.Delete(t.Context(), "rival", "secret"); err != nil {
			t.Error(err)
		}
		s.current("acme", "secret", "1", "of acme")
		if ids := s.Of(t.Context(), "rival").LensIDs(); len(ids) != 0 {
			t.Errorf("the rival has %v", ids)
		}
		_, err := s.Lens(t.Context(), "acme", "secre")
		if wantCode(t, "a near one", err, fault.LensNotFound); !strings.Contains(err.Error(), `did you mean "secret"?`) {
			t.Error(err)
		}
	})
}

// Puts at once: each content becomes one version, and one of them is the current one.
func TestConcurrentPuts(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if _, _, err := s.put("acme", "busy", fmt.Sprint(i%10+1), fmt.Sprint("text ", i%10+1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		list, err := s.Versions(t.Context(), "acme", "busy")
		current := 0
		for _, v := range list {
			if v.Current {
				current++
			}
			if _, d, err := s.Get(t.Context(), "acme", "busy", v.Version); err != nil || d.Template != "text "+v.Version {
				t.Errorf("version %s is %+v, %v", v.Version, d, err)
			}
		}
		if err != nil || len(list) != 10 || current != 1 {
			t.Errorf("%d versions, %d current, %v", len(list), current, err)
		}
	})
}

// A change of another revision than the one that was read is refused.
func TestLensRevision(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		first := s.must("acme", "a", "", "one")
		s.must("acme", "a", "", "two")
		put := func(id string, revision uint64) error {
			_, _, err := s.Put(t.Context(), "acme", &Document{Lens: id, Template: "three"}, revision, "")
			return err
		}
		wantCode(t, "put", put("a", first.Revision), fault.PreconditionFailed)
		wantCode(t, "a lens that is not there", put("b", first.Revision), fault.PreconditionFailed)
		_, err := s.SetCurrent(t.Context(), "acme", "a", "1", first.Revision)
		wantCode(t, "current", err, fault.PreconditionFailed)
		s.current("acme", "a", "2", "two")
		v, err := s.Version(t.Context(), "acme", "a", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := put("a", v.Revision); err != nil {
			t.Error(err)
		}
	})
}

// A deleted lens is gone with its versions, also when the deletion was interrupted, and its id is free.
func TestDeleteLens(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.must("acme", "a", "", "one")
		s.must("acme", "a", "", "two")
		s.must("acme", "a-b", "", "other")
		s.failed = errors.New("the connection is lost")
		if err := s.Delete(t.Context(), "acme", "a"); !errors.Is(err, s.failed) {
			t.Fatal(err)
		}
		s.failed = nil
		_, err := s.Version(t.Context(), "acme", "a", "1")
		wantCode(t, "after it was deleted", err, fault.LensNotFound)
		wantCode(t, "deleted again", s.Delete(t.Context(), "acme", "a"), fault.LensNotFound)
		if page, _, err := s.Records(t.Context(), store.RecordQuery{Account: "acme", Kind: kindContent, Prefix: "a@"}); err != nil || len(page) != 0 {
			t.Errorf("%d templates are left after the second deletion, %v", len(page), err)
		}
		if v := s.must("acme", "a", "", "new"); v.Version != "1" {
			t.Errorf("a new one begins with version %s", v.Version)
		}
		if list, err := s.Versions(t.Context(), "acme", "a"); err != nil || len(list) != 1 {
			t.Errorf("it has %d versions, %v", len(list), err)
		}
		if err := s.Delete(t.Context(), "acme", "a"); err != nil {
			t.Error(err)
		}
		for _, kind := range []string{kindVersion, kindContent} {
			if page, _, err := s.Records(t.Context(), store.RecordQuery{Account: "acme", Kind: kind, Prefix: "a@"}); err != nil || len(page) != 0 {
				t.Errorf("%d records of the kind %s are left, %v", len(page), kind, err)
			}
		}
		s.current("acme", "a-b", "1", "other")
	})
}

// A write that fails leaves nothing behind, and one whose outcome is not known counts as a change.
func TestFailedPut(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.must("acme", "a", "", "one")
		before := s.changed.Load()
		s.failed, s.refuse = errors.New("the disk is full"), true
		if v, created, err := s.put("acme", "a", "", "two"); !errors.Is(err, s.failed) || v != nil || created {
			t.Fatalf("%+v, created %t, %v", v, created, err)
		}
		s.failed = nil
		if s.current("acme", "a", "1", "one"); s.changed.Load() != before+1 {
			t.Errorf("%d changes", s.changed.Load()-before)
		}
		if v := s.must("acme", "a", "", "two"); v.Version != "2" {
			t.Errorf("the next version is %s", v.Version)
		}
	})
}

// Lists have pages in the order of ids; a damaged lens does not hide the others, and can be deleted.
func TestListLenses(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, id := range []string{"c", "a", "d", "b"} {
			s.must("acme", id, "", "one")
		}
		s.must("acme", "a", "", "two")
		key := store.RecordKey{Account: "acme", Kind: kindLens, ID: "c"}
		if _, err := s.PutRecords(t.Context(), store.RecordChange{Record: store.Record{RecordKey: key, Revision: store.AnyRevision, Data: []byte("no lens")}}); err != nil {
			t.Fatal(err)
		}
		var got []string
		for place, first := "", true; first || place != ""; first = false {
			list, next, err := s.List(t.Context(), "acme", place, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range list {
				got = append(got, v.Lens+v.Version)
			}
			place = next
		}
		if !slices.Equal(got, []string{"a2", "b1", "d1"}) {
			t.Errorf("the list is %q", got)
		}
		_, err := s.Lens(t.Context(), "acme", "c")
		wantCode(t, "a damaged lens", err, fault.StoreCorrupt)
		if err := s.Delete(t.Context(), "acme", "c"); err != nil {
			t.Errorf("a damaged lens is not deleted: %v", err)
		}
		if ids, err := s.IDs(t.Context(), "acme"); err != nil || !slices.Equal(ids, []string{"a", "b", "d"}) {
			t.Errorf("ids %q, %v", ids, err)
		}
	})
}

// A25: the versions of a lens are bounded.
func TestA25_MaxVersions(t *testing.T) {
	s := newFixture(t, memory.New(memory.Options{}))
	s.must("acme", "a", "", "one")
	var changes []store.RecordChange
	for i := range MaxVersions - 1 {
		v := Version{Lens: "a", Version: fmt.Sprint(i + 2)}
		c, err := store.ChangeOf(store.RecordKey{Account: "acme", Kind: kindVersion, ID: v.key()}, "", 0, v)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
	}
	if _, err := s.PutRecords(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.put("acme", "a", "", "one more")
	wantCode(t, "one more", err, fault.QuotaExceeded)
	if err := s.Delete(t.Context(), "acme", "a"); err != nil {
		t.Error(err)
	}
	s.must("acme", "a", "", "one")
}
