// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"
)

// An entry is one of the ledger, as the server and as the command line have it.
type entry struct {
	Number        uint64
	Key, Kind     string
	At            time.Time
	Amount        int64
	RunID, Run    string
	ReservationID string
	Source, Note  string
	Lots          []struct {
		Lot    string
		Amount int64
	}
}

// texts yields what each entry says, whoever says it.
func texts(list []entry) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range list {
			e := &list[i]
			text := fmt.Sprintf("%d at %s %s %s %d run=%s hold=%s source=%s lots=%v note=%s", e.Number, e.At.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
				e.Key, e.Kind, e.Amount, cmp.Or(e.RunID, e.Run), e.ReservationID, e.Source, e.Lots, e.Note)
			if !yield(text) {
				return
			}
		}
	}
}

// pagePauses is how many pauses there are between two pages, because most pages are empty.
const pagePauses = 5

// followLedger reads the ledger page by page, over connections that are cut, until ended is
// closed.
func (w *watch) followLedger(ctx context.Context, ended <-chan struct{}) error {
	var p patience
	for {
		select {
		case <-ended:
			return nil
		default:
		}
		n, err := w.readPage(ctx, &p)
		p.brought(n > 0)
		for i := 0; i < pagePauses && err == nil; i++ {
			err = pause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// readPage reads the entries after those that the client has, and returns how many came.
func (w *watch) readPage(ctx context.Context, p *patience) (n int, err error) {
	var page struct{ Data []entry }
	after := uint64(len(w.ledger))
	ok, err := w.s.get(ctx, w.client(p), fmt.Sprintf("/v1/credits/entries?after=%d&limit=%d", after, 1+w.draw(20)), &page)
	if err != nil || !ok {
		return 0, err
	}
	w.accepted(p, byPages, after)
	for i := range page.Data {
		e := &page.Data[i]
		if want := uint64(len(w.ledger)) + 1; e.Number != want {
			w.s.problem("the ledger has entry %d after entry %d (I11)", e.Number, want-1)
			return 0, fmt.Errorf("%s: the ledger cannot be followed", w.s.name)
		}
		w.ledger = append(w.ledger, *e)
	}
	w.s.frames[byPages].Add(int64(len(page.Data)))
	return len(page.Data), nil
}

// storedEntries returns the ledger in the store, which no server holds.
func (r *round) storedEntries() (list []entry, err error) {
	return list, r.ask(&list, "credits", "ledger", "--limit", "10000")
}
