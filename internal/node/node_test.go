// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/command"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/node"
)

// Only one process holds a data directory at a time. If a node cannot be opened, the
// directory is released and its content is unchanged.
func TestOpenOrLeave(t *testing.T) {
	dir := t.TempDir()
	actions := node.NewActions(nil)
	defer actions.Close()
	st, err := node.OpenStore(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := node.OpenStore(t.Context(), dir); !errors.Is(err, fault.StoreLocked) || other != nil {
		t.Fatalf("a second store of the directory: %v, %v", other, err)
	}
	files := filepath.Join(dir, datadir.Files)
	if err := os.WriteFile(files, []byte("no directory"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := node.Config{Dir: dir, Actions: actions}
	if n, err := node.Open(t.Context(), st, cfg); err == nil || n != nil {
		t.Fatalf("a node over files that are no directory: %v, %v", n, err)
	}
	if text, err := os.ReadFile(files); err != nil || string(text) != "no directory" {
		t.Errorf("what was there instead of files is %q, %v", text, err)
	}
	if err := os.Remove(files); err != nil {
		t.Fatal(err)
	}
	if st, err = node.OpenStore(t.Context(), dir); err != nil {
		t.Fatalf("the directory was not left to the next one: %v", err)
	}
	n, err := node.Open(t.Context(), st, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Errorf("stopped twice: %v", err)
	}
}

// A price of the configuration replaces the price or cost that an action declares.
func TestSetPrices(t *testing.T) {
	own := func(version string) action.Action {
		return action.Action{Name: "own", Version: version, Aliases: []string{"mine"}, Cost: 3}
	}
	for _, tt := range []struct {
		prices  map[string]string
		v1, v2  string
		refused string
	}{
		{nil, "", "", ""},
		{map[string]string{"own": "0.25"}, "0.25", "0.25", ""},
		{map[string]string{"mine@2.0.0": "1"}, "", "1", ""},
		{map[string]string{"own": "0.25", "own@2.0.0": "1"}, "0.25", "1", ""},
		{map[string]string{"owns": "1"}, "", "", `there is no action "owns"`},
		{map[string]string{"own@3.0.0": "1"}, "", "", `there is no action "own@3.0.0"`},
		{map[string]string{"own": "much"}, "", "", "much"},
	} {
		a := node.NewActions(nil, own("1.0.0"), own("2.0.0"))
		defer a.Close()
		err := a.SetPrices(tt.prices)
		if tt.refused != "" {
			if !errors.Is(err, fault.ConfigInvalid) || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%v: %v", tt.prices, err)
			}
			continue
		}
		for version, want := range map[string]string{"1.0.0": tt.v1, "2.0.0": tt.v2} {
			d := a.Catalogue.Find("own", version)
			if err != nil || d.Price != want || (d.Cost == 0) != (want != "") {
				t.Errorf("%v: own@%s has price %q and cost %d, %v", tt.prices, version, d.Price, d.Cost, err)
			}
		}
	}
}

// X205: a command of the operator is there for the accounts that it names, and a node does not
// open with one that could not run.
func TestX205_Commands(t *testing.T) {
	open := func(text string) (*node.Node, error) {
		specs, err := command.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		set, err := command.New(specs)
		if err != nil {
			t.Fatal(err)
		}
		actions := node.NewActions(nil)
		actions.AddCommands(set)
		dir := t.TempDir()
		st, err := node.OpenStore(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		return node.Open(t.Context(), st, node.Config{Dir: dir, Actions: actions})
	}
	if _, err := open(`{"it": {"run": ["/no/such/program"], "confine": "none"}}`); !errors.Is(err, fault.ConfigInvalid) {
		t.Errorf("a node with a program that does not exist: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	self = filepath.ToSlash(self)
	// This test does not start itself as a child, so nothing can be confined.
	if _, err := open(`{"it": {"run": ["` + self + `"]}}`); !errors.Is(err, fault.ConfineUnavailable) {
		t.Errorf("a node that cannot confine: %v", err)
	}
	n, err := open(`{"it": {"run": ["` + self + `"], "confine": "none", "accounts": ["acme"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Stop(t.Context()) }()
	for account, want := range map[string]bool{"acme": true, "local": false, "other": false} {
		for where, actions := range map[string]catalogue.Actions{"the service": n.Accounts.Actions(account), "a command": n.Config.Actions.Of(account)} {
			if got := actions.Find("exec-it", "") != nil; got != want || slices.Contains(actions.Names(), "exec-it") != want || (len(actions.Versions("exec-it")) > 0) != want {
				t.Errorf("%s, account %s: found %v, want %v", where, account, got, want)
			}
		}
	}
}
