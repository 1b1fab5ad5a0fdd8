// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

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
	cfg := node.Config{Dir: dir, Actions: actions.Catalogue}
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
