// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// The engine changes records as the owner of the store, and its retention deletes those
// whose time has passed. An engine that has been replaced changes none.
func TestRecords(t *testing.T) {
	st := memory.New(memory.Options{})
	now := time.UnixMicro(1_000_000)
	e := openEngine(t, st, Config{Now: func() time.Time { return now }})
	key := func(id string) store.RecordKey { return store.RecordKey{Account: acc, Kind: "answer", ID: id} }
	stored, err := e.PutRecords(t.Context(), store.RecordChange{Record: store.Record{RecordKey: key("old"), Until: 500_000}},
		store.RecordChange{Record: store.Record{RecordKey: key("kept"), Until: 2_000_000}})
	if err != nil || len(stored) != 2 || stored[0].Created != 1_000_000 {
		t.Fatalf("PutRecords = %+v, %v", stored, err)
	}
	if removed, err := e.Clean(t.Context(), true); err != nil || removed.Records != 0 {
		t.Errorf("a dry run = %+v, %v", removed, err)
	}
	if removed, err := e.Clean(t.Context(), false); err != nil || removed.Records != 1 {
		t.Errorf("Clean = %+v, %v", removed, err)
	}
	if _, err := st.Record(t.Context(), key("old")); !errors.Is(err, fault.RecordNotFound) {
		t.Errorf("the old one: %v", err)
	}
	if _, err := st.Record(t.Context(), key("kept")); err != nil {
		t.Errorf("the other one: %v", err)
	}
	if _, err := st.Own(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.PutRecords(t.Context(), store.RecordChange{Record: store.Record{RecordKey: key("late")}}); !errors.Is(err, fault.StaleEpoch) {
		t.Errorf("PutRecords of an engine that was replaced = %v", err)
	}
}
