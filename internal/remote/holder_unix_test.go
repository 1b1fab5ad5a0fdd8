// SPDX-License-Identifier: Apache-2.0

//go:build unix

package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/backup"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/local"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/remote"
	"github.com/roux-engine/roux/internal/service"
	"github.com/roux-engine/roux/internal/store"
)

// shortDir is a directory whose path leaves room for the names of sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// hosted returns a service that holds a new data directory and listens at its socket.
func hosted(t *testing.T) (dir string, svc *service.Service) {
	t.Helper()
	dir = shortDir(t)
	actions := node.NewActions(nil)
	t.Cleanup(actions.Close)
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	svc, err = service.Open(t.Context(), st, service.Config{Node: node.Config{Dir: dir, Actions: actions}, Account: "local", MaxSource: 1 << 20, Release: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	ln, _, err := local.Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	svc.ServeLocal(ln)
	t.Cleanup(func() {
		if err := svc.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, datadir.Socket)); err == nil {
			t.Error("the socket is still there")
		}
	})
	return dir, svc
}

// dial connects to the holder of a directory.
func dial(t *testing.T, dir, account string) *remote.Holder {
	t.Helper()
	h := remote.Dial(t.Context(), dir, account, "test")
	if h == nil {
		t.Fatal("nobody listens")
	}
	return h
}

// Credits are read and moved through the socket as without it, for the account on whose behalf
// the client was made.
func TestCreditsThroughTheSocket(t *testing.T) {
	dir, svc := hosted(t)
	ctx, st := t.Context(), svc.Node.Store
	acme, other := dial(t, dir, "acme"), dial(t, dir, "other")
	terms := ledger.Terms{Source: ledger.Promotional, Priority: 3}
	lot, err := acme.Grant(ctx, "first", 100, terms)
	if err != nil || lot.ID != "first" || lot.Granted != 100 || lot.Free != 100 || lot.Terms.Priority != 3 {
		t.Fatalf("Grant = %+v, %v", lot, err)
	}
	if _, err := acme.Grant(ctx, "first", 99, terms); fault.CodeOf(err) != fault.IdempotencyMismatch {
		t.Errorf("another grant with that key: %v", err)
	}
	if _, err := other.VoidLot(ctx, "first", ""); err == nil {
		t.Error("a lot of another account was voided")
	}
	if lot, err := acme.VoidLot(ctx, "first", "a mistake"); err != nil || lot.Voided != 100 {
		t.Errorf("VoidLot = %+v, %v", lot, err)
	}
	for _, at := range []int64{0, math.MaxInt64} {
		got, err := other.Account(ctx, "acme", at) // whoever reaches the socket reads all accounts
		want, err2 := st.Account(ctx, "acme", at)
		if err != nil || err2 != nil || !bytes.Equal(got.AppendState(nil), want.AppendState(nil)) {
			t.Errorf("as of %d the account is %v, %v; want %v, %v", at, got, err, want, err2)
		}
	}
	got, err := acme.Entries(ctx, "acme", 0, 10)
	want, err2 := st.Entries(ctx, "acme", 0, 10)
	if err != nil || err2 != nil || len(got) != 2 || !reflect.DeepEqual(got, want) || got[1].Note != "a mistake" {
		t.Errorf("Entries = %+v, %v; want %+v, %v", got[0], err, want[0], err2)
	}
	if last, err := acme.Entries(ctx, "acme", 1, math.MaxInt); err != nil || len(last) != 1 {
		t.Errorf("Entries after 1 = %v, %v", last, err)
	}
	if names, err := acme.MeteredAccounts(ctx); err != nil || !slices.Contains(names, "acme") || slices.Contains(names, "other") {
		t.Errorf("MeteredAccounts = %q, %v", names, err)
	}
	changes, err := acme.Changes(ctx, "acme", 0, 10)
	stored, err2 := st.Changes(ctx, "acme", 0, 10)
	if err != nil || err2 != nil || len(changes) != 2 || !reflect.DeepEqual(changes, stored) {
		t.Errorf("Changes = %+v, %v; want %+v, %v", changes, err, stored, err2)
	}
	if last, expired, err := other.Newest(ctx, "acme"); last != 2 || expired != 0 || err != nil {
		t.Errorf("Newest = %d, %d, %v", last, expired, err)
	}
	if _, err := acme.Adjust(ctx, "run_00000000000000000000000000", "k", 1, ""); fault.CodeOf(err) != fault.InputInvalid {
		t.Errorf("Adjust of no run: %v", err)
	}
}

// What is asked for may be more than one answer has: the holder of the directory decides how
// much that is, and every list can be read to its end.
func TestAskedForTooMuch(t *testing.T) {
	dir, _ := hosted(t)
	h := dial(t, dir, "acme")
	key := store.Key{Account: "somebody", Run: "run_1"}
	for _, n := range []int{-1 << 40, -1, 0, 1, 1 << 40} {
		for what, ask := range map[string]func() error{
			"List": func() error { _, err := h.List(t.Context(), store.Query{Account: "somebody", Limit: n}); return err },
			"prefix": func() error {
				_, err := h.List(t.Context(), store.Query{Prefix: strings.Repeat("x", 1<<16)})
				return err
			},
			"Events":    func() error { _, err := h.Events(t.Context(), key, 0, n); return err },
			"Changes":   func() error { _, err := h.Changes(t.Context(), "somebody", 0, n); return err },
			"Entries":   func() error { _, err := h.Entries(t.Context(), "somebody", 0, n); return err },
			"ListFiles": func() error { _, err := h.ListFiles(t.Context(), blob.Query{Limit: n}); return err },
		} {
			if err := ask(); err != nil && fault.CodeOf(err) != fault.RunNotFound {
				t.Errorf("%s with %d: %v", what, n, err)
			}
		}
	}
}

// A backup through the socket is one that the process itself would make, it can be restored, and
// a path that is none is refused.
func TestBackupThroughTheSocket(t *testing.T) {
	dir, _ := hosted(t)
	h := dial(t, dir, "local")
	if _, err := h.PutFile(t.Context(), strings.NewReader("content"), "a.txt"); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	m, err := h.Backup(t.Context(), to, func(backup.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	found, problems, err := backup.Verify(t.Context(), to, func(backup.Progress) {})
	if err != nil || len(problems) != 0 || !reflect.DeepEqual(found, m) || m.Files != 1 || m.Source != dir || m.Roux != "1.2.3" {
		t.Errorf("the backup is %+v, %q, %v; the manifest was %+v", found, problems, err, m)
	}
	if _, err := backup.Restore(t.Context(), to, filepath.Join(t.TempDir(), "restored"), func(backup.Progress) {}); err != nil {
		t.Error(err)
	}
	if _, err := h.Backup(t.Context(), "relative", func(backup.Progress) {}); fault.CodeOf(err) != fault.RequestInvalid {
		t.Errorf("a relative path: %v", err)
	}
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Backup(t.Context(), inTheWay, func(backup.Progress) {}); err == nil || errors.Is(err, fault.ServerUnreachable) || strings.Contains(err.Error(), "inside the server") {
		t.Errorf("a file in the way: %v", err)
	}
}

// A client distinguishes a file that was cut off from one that is complete, and one that is
// damaged.
func TestFilesThatBreakOff(t *testing.T) {
	dir := shortDir(t)
	ln, err := net.Listen("unix", filepath.Join(dir, datadir.Socket))
	if err != nil {
		t.Fatal(err)
	}
	answer := ""
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(map[string]string{"code": answer, "detail": "why"})
			return
		}
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half of it")
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	for _, tt := range []struct{ answer, want fault.Code }{{fault.FileInvalid, fault.FileInvalid}, {fault.FileNotFound, fault.ServerUnreachable}} {
		answer = string(tt.answer)
		f, err := dial(t, dir, "local").ReadFile(t.Context(), "sha256_"+strings.Repeat("0", 64), 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		_ = f.Close()
		if string(data) != "half of it" || fault.CodeOf(err) != tt.want {
			t.Errorf("%q, %v, want %s", data, err, tt.want)
		}
	}
}

// The socket of a data directory has the interface over HTTP. Who reaches it is the operator, of
// any account; the same header says nothing over a listener that others reach, and a key counts
// as itself on both.
func TestInterfaceOverTheSocket(t *testing.T) {
	dir, svc := hosted(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.Serve(ln); err != nil {
		t.Fatal(err)
	}
	open := func(cfg client.Config, account string) *client.Client {
		cfg.Attempts = 1
		if account != "" {
			cfg.Header = http.Header{"Roux-Account": {account}}
		}
		c, err := client.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	socket := client.Config{Socket: filepath.Join(dir, datadir.Socket)}
	web := client.Config{URL: "http://" + ln.Addr().String()}
	key, err := open(socket, "").Keys.Create(t.Context(), client.KeyRequest{Account: "acme", Name: "x", Role: "viewer"})
	if err != nil {
		t.Fatal(err)
	}
	with := func(cfg client.Config, token string) client.Config {
		cfg.Key = token
		return cfg
	}
	for _, tt := range []struct {
		name    string
		c       *client.Client
		account string
		key     string
		code    fault.Code
	}{
		{"the user", open(socket, ""), "local", "", ""},
		{"of another account", open(socket, "acme"), "acme", "", ""},
		{"of none that can be", open(socket, "no/account"), "", "", fault.RequestInvalid},
		{"with a key", open(with(socket, key.Token), "local"), "acme", key.ID, ""},
		{"with a key that is none", open(with(socket, "roux_x"), ""), "", "", fault.Unauthorized},
		{"from elsewhere", open(web, "acme"), "", "", fault.Unauthorized},
		{"from elsewhere with a key", open(with(web, key.Token), "local"), "acme", key.ID, ""},
		{"from elsewhere with the first key", open(with(web, svc.FirstKey), "acme"), "local", "key", ""},
	} {
		me, err := tt.c.Me(t.Context())
		if fault.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.code)
			continue
		}
		if err == nil && (me.Account != tt.account || (me.Key == "") != (tt.key == "")) {
			t.Errorf("%s: %+v", tt.name, me)
		}
	}
	// A path of the machine is chosen by the user at the socket only.
	for name, c := range map[string]*client.Client{"a key at the socket": open(with(socket, svc.FirstKey), ""), "a key from elsewhere": open(with(web, svc.FirstKey), "")} {
		if _, err := c.Operator.Backup(t.Context(), t.TempDir(), func(client.BackupProgress) {}); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("a backup with %s: %v", name, err)
		}
	}

	// A whole run with its events, and its journal, over one socket.
	c := open(socket, "acme")
	if _, _, err := c.Recipes.Create(t.Context(), []byte(`{"name":"greet","version":"1.0.0","steps":[{"id":"a","transform":{"expression":"'hi'","outputBinding":"b"}}]}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Accounts.Grant(t.Context(), "acme", client.Grant{Amount: 10}); err != nil {
		t.Fatal(err)
	}
	started, err := c.Recipes.Execute(t.Context(), "greet", client.ExecuteRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if run, err := c.Runs.Wait(t.Context(), started.ID); err != nil || string(run.Outputs) != `{"b":"hi"}` {
		t.Errorf("the run: %+v, %v", run, err)
	}
	sameAsStored(t, dial(t, dir, "local"), svc.Node.Store, store.Key{Account: "acme", Run: started.ID})
	if _, err := open(socket, "").Runs.Get(t.Context(), started.ID, false); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("the run of another account: %v", err)
	}
	if _, err := c.Accounts.Credits(t.Context(), "other", time.Time{}); err != nil {
		t.Errorf("the operator administers accounts: %v", err)
	}
}

// sameAsStored compares what a holder says of a run, of any account, with what is stored.
func sameAsStored(t *testing.T, h *remote.Holder, st store.Reader, key store.Key) {
	t.Helper()
	ctx := t.Context()
	want, err := st.Load(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Load(ctx, key)
	if err != nil || got.Head != want.Head || got.Last != want.Last || got.StateLast != want.StateLast || !bytes.Equal(got.State, want.State) || got.Format != want.Format {
		t.Errorf("Load = %+v, %v; want %+v", got, err, want)
	}
	head, err := h.Head(ctx, key)
	if err != nil || head != want.Head {
		t.Errorf("Head = %+v, %v; want %+v", head, err, want.Head)
	}
	for _, q := range []store.Query{{Account: key.Account}, {Account: key.Account, Prefix: key.Run[:12]}, {Account: key.Account, All: true}, {Account: key.Account, After: "run_0", All: true}, {Account: key.Account, Status: "failed"}, {Account: key.Account, Root: key.Run}} {
		got, err := h.List(ctx, q)
		want, err2 := st.List(ctx, q)
		if err != nil || err2 != nil || len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("List(%+v) = %+v, %v; want %+v, %v", q, got, err, want, err2)
		}
	}
	page, err := h.Events(ctx, key, 1, 200)
	stored, err2 := st.Events(ctx, key, 1, 200)
	if err != nil || err2 != nil || !reflect.DeepEqual(page, stored) {
		t.Errorf("Events = %+v, %v; want %+v, %v", page, err, stored, err2)
	}
	text, err := h.Plan(ctx, head.PlanHash)
	asStored, err2 := st.Plan(ctx, head.PlanHash)
	if err != nil || err2 != nil || !bytes.Equal(text, asStored) {
		t.Errorf("Plan: %v, %v", err, err2)
	}
	if _, err := h.Plan(ctx, "sha256:none"); fault.CodeOf(err) != fault.RecipeNotFound {
		t.Errorf("a plan that is none: %v", err)
	}
}
