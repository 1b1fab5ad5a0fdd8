// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
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
