// SPDX-License-Identifier: Apache-2.0

//go:build unix

package control

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/roux-engine/roux/client"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
	"github.com/roux-engine/roux/internal/service"
)

// The socket of a data directory has the interface over HTTP, too. Who reaches it is the
// operator, of any account; the same header says nothing over a listener that others reach, and
// a key counts as itself on both.
func TestInterfaceOverTheSocket(t *testing.T) {
	dir := secondDir(t)
	actions := node.NewActions(nil)
	defer actions.Close()
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := service.Open(t.Context(), st, service.Config{Node: node.Config{Dir: dir, Actions: actions.Catalogue}, Actions: actions, Account: "local", MaxSource: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	on := &Local{Reader: svc.Node.Store, Node: svc.Node, AccountName: "local"}
	unhook, err := Serve(dir, on.Reader, on.For, svc.Local())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.Serve(ln); err != nil {
		t.Fatal(err)
	}
	defer func() {
		svc.API.Stop()
		unhook()
		if err := svc.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
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

	// The commands of today, and a whole run with its events, over one socket.
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
	remote := Dial(t.Context(), dir, "acme")
	if remote == nil {
		t.Fatal("nobody answers the private protocol")
	}
	if head, err := remote.Head(t.Context(), remote.key(started.ID)); err != nil || head.Status != "completed" {
		t.Errorf("the same run: %+v, %v", head, err)
	}
	if _, err := open(socket, "").Runs.Get(t.Context(), started.ID, false); fault.CodeOf(err) != fault.RunNotFound {
		t.Errorf("the run of another account: %v", err)
	}
	if _, err := c.Accounts.Credits(t.Context(), "other", time.Time{}); err != nil {
		t.Errorf("the operator administers accounts: %v", err)
	}
}
