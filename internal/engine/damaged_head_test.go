// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/datadir"
	"github.com/roux-engine/roux/internal/store"
)

// A run whose row is damaged is quarantined in memory only: storing a mark would write
// a new checksum over the damage (F20).
func TestF20_DamagedHeadIsNotMarked(t *testing.T) {
	dir := t.TempDir()
	st := openSQLite(t, dir)
	e := openEngine(t, st, Config{}, noop())
	p := planOf(t, waitRecipe, noop())
	bad, good := start(t, e, p, nil), start(t, e, p, nil)
	e.crash()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, datadir.Database))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE runs SET status = 'sunning', parked = 0 WHERE run = ?`, bad); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	st = openSQLite(t, dir)
	defer st.Close()
	e = openEngine(t, st, Config{}, noop())
	if err := e.Cancel(t.Context(), acc, bad, ""); fault.CodeOf(err) != fault.Quarantined && fault.CodeOf(err) != fault.StoreCorrupt {
		t.Errorf("cancelling the damaged run: %v", err)
	}
	if err := e.Cancel(t.Context(), acc, good, ""); err != nil {
		t.Errorf("cancelling the other run: %v", err)
	}
	if err := e.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if head, err := st.Head(t.Context(), store.Key{Account: acc, Run: bad}); !errors.Is(err, fault.StoreCorrupt) {
		t.Errorf("the damaged head is shown as %+v, %v", head, err)
	}
}
