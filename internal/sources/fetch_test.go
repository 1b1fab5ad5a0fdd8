// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Only what is pinned is kept, and what was not read for the longest time goes when there is too much.
func TestCache(t *testing.T) {
	base, f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("name: x # " + r.URL.Path)) }))
	list := func() (names []string) {
		entries, err := os.ReadDir(f.cfg.Cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	s := parse(t, base+"/a.yaml")
	got, err := f.Latest(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pinned(t.Context(), s, strings.Repeat("0", 64)); fault.CodeOf(err) != fault.Conflict {
		t.Fatal(err)
	}
	if names := list(); len(names) != 0 {
		t.Errorf("what nobody has pinned is kept: %q", names)
	}
	if _, err := f.Pinned(t.Context(), s, got.Hash); err != nil || len(list()) != 1 {
		t.Fatalf("what is pinned is not kept: %q, %v", list(), err)
	}
	// Files with holes, which take no room here.
	old, older, own := strings.Repeat("1", 64), strings.Repeat("2", 64), "notes.txt"
	for i, name := range []string{older, old, own} {
		at := filepath.Join(f.cfg.Cache, name)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(at, maxCache-1000); err != nil {
			t.Skip("the file system has no such files: " + err.Error())
		}
		if err := os.Chtimes(at, time.Time{}, time.Unix(int64(1000+i), 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(f.cfg.Cache, got.Hash), time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Pinned(t.Context(), s, got.Hash); err != nil { // it is read
		t.Fatal(err)
	}
	next, err := f.Latest(t.Context(), parse(t, base+"/b.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f.Keep(next)
	want := []string{old, own, got.Hash, next.Hash}
	slices.Sort(want)
	if names := list(); !slices.Equal(names, want) {
		t.Errorf("it has\n%q, want\n%q", names, want)
	}
}

// Every hop of a redirect has TLS.
func TestRedirects(t *testing.T) {
	var base string
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Error("it was asked without TLS")
		http.Redirect(w, r, base+"/a.yaml", http.StatusFound)
	}))
	t.Cleanup(plain.Close)
	base, f := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down.yaml":
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case "/moved.yaml":
			http.Redirect(w, r, "/a.yaml", http.StatusFound)
		default:
			_, _ = w.Write([]byte("name: a\n" + body))
		}
	}))
	if _, err := f.Latest(t.Context(), parse(t, base+"/down.yaml?token=hidden")); fault.CodeOf(err) != fault.EgressRefused || strings.Contains(fault.Message(err), "hidden") {
		t.Errorf("through http: %v", err)
	}
	if _, err := f.Latest(t.Context(), parse(t, base+"/moved.yaml")); err != nil {
		t.Errorf("over https: %v", err)
	}
}
