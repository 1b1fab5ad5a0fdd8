// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
)

func recordKey(id string) store.RecordKey {
	return store.RecordKey{Account: "acme", Kind: "recipe", ID: id}
}

// put fails the test unless a record is written at time `at`.
func (h *harness) put(at int64, r store.Record) store.Record {
	h.Helper()
	stored, err := h.s.PutRecords(ctx, h.epoch, at, []store.RecordChange{{Record: r}})
	h.must(err)
	h.equal("written", len(stored), 1)
	return stored[0]
}

func (h *harness) drop(key store.RecordKey) {
	h.Helper()
	stored, err := h.s.PutRecords(ctx, h.epoch, 1, []store.RecordChange{{Record: store.Record{RecordKey: key, Revision: store.AnyRevision}, Delete: true}})
	h.must(err)
	h.equal("deleted", stored, []store.Record{{RecordKey: key}})
}

func (h *harness) record(key store.RecordKey) store.Record {
	h.Helper()
	r, err := h.s.Record(ctx, key)
	h.must(err)
	return r
}

func (h *harness) noRecord(key store.RecordKey) {
	h.Helper()
	_, err := h.s.Record(ctx, key)
	h.wantCode(err, fault.RecordNotFound)
}

// conflict fails the test unless changes are refused because of the last one.
func (h *harness) conflict(want store.RecordConflict, changes ...store.RecordChange) {
	h.Helper()
	_, err := h.s.PutRecords(ctx, h.epoch, 9, changes)
	h.wantCode(err, fault.Conflict)
	var got *store.RecordConflict
	if !errors.As(err, &got) || *got != want {
		h.Fatalf("conflict = %+v (%v), want %+v", got, err, want)
	}
}

// A record is read as it was written, under its own key only.
func recordsAreKept(h *harness) {
	at := recordKey("r1")
	h.noRecord(at)
	first := h.put(5, store.Record{RecordKey: at, Name: "digest", Until: 77, Data: []byte("a")})
	want := store.Record{RecordKey: at, Revision: first.Revision, Name: "digest", Until: 77, Created: 5, Updated: 5, Data: []byte("a")}
	h.equal("stored", first, want)
	h.equal("read", h.record(at), want)
	named, err := h.s.RecordNamed(ctx, "acme", "recipe", "digest")
	h.must(err)
	h.equal("read by name", named, want)
	second := h.put(8, store.Record{RecordKey: at, Revision: first.Revision})
	if second.Revision <= first.Revision {
		h.Fatalf("revision %d follows revision %d", second.Revision, first.Revision)
	}
	h.equal("rewritten", h.record(at), store.Record{RecordKey: at, Revision: second.Revision, Created: 5, Updated: 8})
	for _, name := range []string{"digest", ""} { // it has none any more
		_, err = h.s.RecordNamed(ctx, "acme", "recipe", name)
		h.wantCode(err, fault.RecordNotFound)
	}
	for _, other := range []store.RecordKey{{Account: "acme", Kind: "recipe", ID: "r"}, {Account: "acme", Kind: "key", ID: "r1"}, {Account: "other", Kind: "recipe", ID: "r1"}, {Kind: "recipe", ID: "r1"}} {
		h.noRecord(other) // I17
		h.put(1, store.Record{RecordKey: other, Name: "digest"})
	}
	h.equal("beside others", h.record(at).Revision, second.Revision)
	stats, err := h.s.Stats(ctx)
	h.must(err)
	h.equal("counted", stats.Records, int64(5))
	h.drop(at)
	h.noRecord(at)
	h.drop(at)
}

// The data belong to the caller, before and after.
func recordsAreCopied(h *harness) {
	data := []byte("mine")
	h.put(1, store.Record{RecordKey: recordKey("r"), Data: data})
	copy(data, "XXXX")
	got := h.record(recordKey("r"))
	h.equal("data", string(got.Data), "mine")
	copy(got.Data, "YYYY")
	h.equal("data", string(h.record(recordKey("r")).Data), "mine")
}

// A revision is never used twice for a record, also if it is deleted in between.
func revisions(h *harness) {
	last := uint64(0)
	for n := range 1_100 {
		r := h.put(1, store.Record{RecordKey: recordKey("r"), Revision: store.AnyRevision})
		if r.Revision <= last {
			h.Fatalf("write %d: revision %d after %d", n, r.Revision, last)
		}
		if last = r.Revision; n%3 == 0 {
			h.drop(recordKey("r"))
		}
		if n == 500 {
			h.conflict(store.RecordConflict{Key: recordKey("r"), Stored: last}, store.RecordChange{Record: store.Record{RecordKey: recordKey("r")}})
		}
	}
}

// A change is made if what is stored is what its guard says.
func recordGuards(h *harness) {
	key := recordKey("r")
	guard := func(key store.RecordKey, revision uint64, name string) store.RecordChange {
		return store.RecordChange{Record: store.Record{RecordKey: key, Revision: revision, Name: name}}
	}
	deleted := func(c store.RecordChange) store.RecordChange {
		c.Delete = true
		return c
	}
	h.conflict(store.RecordConflict{Key: key}, guard(key, 7, ""))
	h.conflict(store.RecordConflict{Key: key}, deleted(guard(key, 7, "")))
	first := h.put(1, store.Record{RecordKey: key, Name: "one"})
	rev := first.Revision
	for _, c := range []store.RecordChange{guard(key, 0, ""), guard(key, rev+1, ""), deleted(guard(key, rev+1, "")), deleted(guard(key, 0, ""))} {
		h.conflict(store.RecordConflict{Key: key, Stored: rev}, c)
	}
	// A name is that of one record of the account and the kind.
	other := recordKey("other")
	for _, c := range []store.RecordChange{guard(other, 0, "one"), guard(other, store.AnyRevision, "one")} {
		h.conflict(store.RecordConflict{Key: other, Holder: "r"}, c)
	}
	h.noRecord(other)
	h.equal("unchanged", h.record(key), first)
	// All or nothing, in order: a name is free once it was given up.
	h.conflict(store.RecordConflict{Key: other, Stored: 0}, guard(key, rev, "two"), guard(recordKey("third"), 0, "third"), guard(other, 9, "one"))
	h.equal("unchanged", h.record(key), first)
	h.noRecord(recordKey("third"))
	stored, err := h.s.PutRecords(ctx, h.epoch, 3, []store.RecordChange{guard(key, rev, "two"), guard(other, 0, "one"), deleted(guard(key, store.AnyRevision, "")), guard(recordKey("third"), 0, "two")})
	h.must(err)
	h.equal("written", []string{stored[0].Name, stored[1].Name, stored[2].Name, stored[3].Name}, []string{"two", "one", "", "two"})
	h.noRecord(key)
	h.equal("keeps its name", h.put(4, store.Record{RecordKey: other, Revision: stored[1].Revision, Name: "one"}).Created, int64(3))
	again := h.put(5, store.Record{RecordKey: key, Revision: store.AnyRevision})
	if again.Revision <= rev || again.Created != 5 {
		h.Fatalf("created anew: %+v, it had revision %d", again, rev)
	}
	// F35: one owner.
	h.own()
	_, err = h.s.PutRecords(ctx, h.epoch-1, 9, []store.RecordChange{guard(key, store.AnyRevision, "late")})
	h.wantCode(err, fault.StaleEpoch)
	_, err = h.s.ForgetRecords(ctx, h.epoch-1, 9, 9)
	h.wantCode(err, fault.StaleEpoch)
	h.equal("unchanged", h.record(key), again)
}

// Every input is bounded.
func recordBounds(h *harness) {
	long := strings.Repeat("x", store.MaxRecordText)
	of := func(key store.RecordKey, name string, n int) store.RecordChange {
		return store.RecordChange{Record: store.Record{RecordKey: key, Name: name, Data: make([]byte, n)}}
	}
	large := of(recordKey("r"), "", store.MaxRecord)
	copy(large.Data, "begins and ends")
	large.Data[store.MaxRecord-1] = 'x'
	fits := []store.RecordChange{of(store.RecordKey{Account: long, Kind: long, ID: long}, long, 3), large}
	_, err := h.s.PutRecords(ctx, h.epoch, 1, fits)
	h.must(err)
	if got := h.record(recordKey("r")); !bytes.Equal(got.Data, large.Data) {
		h.Fatalf("a record of %d bytes is read as %d", store.MaxRecord, len(got.Data))
	}
	for code, bad := range map[fault.Code][][]store.RecordChange{
		fault.ValueTooLarge: {
			{of(recordKey("r"), "", store.MaxRecord+1)}, {of(recordKey(long+"x"), "", 0)}, {of(recordKey("r"), long+"x", 0)},
			make([]store.RecordChange, store.MaxRecordChanges+1), slices.Repeat([]store.RecordChange{large}, 4),
		},
		fault.InputInvalid: {
			{of(recordKey(""), "", 0)}, {of(store.RecordKey{ID: "r"}, "", 0)}, {of(recordKey("a\xff"), "", 0)}, {of(recordKey("r"), "a\x00", 0)},
		},
	} {
		for _, changes := range bad {
			_, err := h.s.PutRecords(ctx, h.epoch, 1, changes)
			h.wantCode(err, code)
		}
	}
}

// Lists have an order, a place to go on from, and an end.
func recordLists(h *harness) {
	h.put(1, store.Record{RecordKey: store.RecordKey{Account: "acme", Kind: "key", ID: "a1"}})
	h.put(1, store.Record{RecordKey: store.RecordKey{Account: "other", Kind: "recipe", ID: "a1"}})
	var changes []store.RecordChange
	want := map[string]string{}
	for n := range 120 {
		id, name := fmt.Sprintf("%c%03d", "ab"[n%2], n), ""
		if n%3 == 0 {
			name = fmt.Sprintf("%c-%03d", "xyz"[n%9/3], 200-n)
		}
		want[id] = name
		changes = append(changes, store.RecordChange{Record: store.Record{RecordKey: recordKey(id), Name: name, Data: []byte(id)}})
	}
	_, err := h.s.PutRecords(ctx, h.epoch, 1, changes)
	h.must(err)
	for _, q := range []store.RecordQuery{
		{}, {Limit: 7}, {Limit: 1_000}, {Prefix: "a"}, {Prefix: "a", Newest: true, Limit: 3}, {Newest: true}, {Prefix: "c"},
		{After: "b"}, {After: "b", Newest: true}, {After: "a050", Prefix: "a", Limit: 9}, {After: "a050", Prefix: "b"}, {After: "b050", Prefix: "a", Newest: true},
		{NamePrefix: "x"}, {NamePrefix: "x-1", Newest: true, Limit: 2}, {Named: true, Limit: 11}, {Named: true, Prefix: "b"}, {NamePrefix: "y", After: "y-150"}, {KeysOnly: true, Limit: 10},
		{NamesOnly: true}, {NamesOnly: true, NamePrefix: "x-1", Newest: true, Limit: 2}, {NamesOnly: true, NamePrefix: "y", After: "y-150", Limit: 1_000},
	} {
		q.Account, q.Kind = "acme", "recipe"
		var ids []string
		for _, id := range slices.Sorted(maps.Keys(want)) {
			place := id
			if q.ByName() {
				place = want[id]
			}
			if place != "" && strings.HasPrefix(id, q.Prefix) && strings.HasPrefix(want[id], q.NamePrefix) && (q.After == "" || !q.Newest && place > q.After || q.Newest && place < q.After) {
				ids = append(ids, id)
			}
		}
		slices.SortFunc(ids, func(a, b string) int {
			if q.ByName() {
				a, b = want[a], want[b]
			}
			if q.Newest {
				a, b = b, a
			}
			return strings.Compare(a, b)
		})
		page, more, err := h.s.Records(ctx, q)
		h.must(err)
		h.equal(fmt.Sprintf("length of a page of %+v", q), len(page), min(len(ids), q.Cap()))
		h.equal(fmt.Sprintf("more of %+v", q), more, len(ids) > q.Cap())
		for limit := range 2 { // by the pages of the query, and by those of EachRecord
			var got []string
			visit := func(r *store.Record) {
				if q.NamesOnly {
					for id, name := range want {
						if name == r.Name {
							got = append(got, id)
						}
					}
					h.equal("what is known beside the name", *r, store.Record{RecordKey: store.RecordKey{Account: "acme", Kind: "recipe"}, Name: r.Name})
					return
				}
				got = append(got, r.ID)
				data := r.ID
				if q.KeysOnly {
					data = ""
				}
				if string(r.Data) != data || r.Name != want[r.ID] || r.Kind != "recipe" || r.Account != "acme" || r.Revision == 0 || r.Damage != "" {
					h.Fatalf("%+v lists %+v", q, r)
				}
			}
			if limit == 1 {
				h.must(store.EachRecord(ctx, h.s, q, func(r *store.Record) error { visit(r); return nil }))
			} else {
				q := q
				for more := true; more; {
					page, more, err = h.s.Records(ctx, q)
					h.must(err)
					for i := range page {
						visit(&page[i])
					}
					if len(page) > 0 {
						if q.After = page[len(page)-1].ID; q.ByName() {
							q.After = page[len(page)-1].Name
						}
					}
				}
			}
			h.equal(fmt.Sprintf("%+v", q), got, ids)
		}
	}
}

// A page ends before its data take too much memory.
func largeRecordLists(h *harness) {
	const n = 5
	for i := range n {
		h.put(1, store.Record{RecordKey: recordKey(fmt.Sprint(i)), Data: h.noise(store.MaxRecord)})
	}
	page, more, err := h.s.Records(ctx, store.RecordQuery{Account: "acme", Kind: "recipe"})
	h.must(err)
	if !more || len(page) != 4 {
		h.Fatalf("%d records of %d bytes are one page, more %v", len(page), store.MaxRecord, more)
	}
	page, more, err = h.s.Records(ctx, store.RecordQuery{Account: "acme", Kind: "recipe", KeysOnly: true})
	h.must(err)
	if more || len(page) != n {
		h.Fatalf("%d keys are one page, more %v", len(page), more)
	}
	seen := 0
	h.must(store.EachRecord(ctx, h.s, store.RecordQuery{Account: "acme", Kind: "recipe"}, func(*store.Record) error { seen++; return nil }))
	h.equal("all pages", seen, n)
}

// noise is data that cannot be compressed.
func (h *harness) noise(n int) []byte {
	data := make([]byte, n)
	x := uint32(n)
	for i := range data {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		data[i] = byte(x)
	}
	return data
}

// Records go when their time has come, the earliest first, and only those.
func forgottenRecords(h *harness) {
	for n, until := range []int64{0, 30, 10, 20, 40} {
		h.put(1, store.Record{RecordKey: recordKey(fmt.Sprint(n)), Until: until})
	}
	forget := func(before int64, limit, want int) {
		h.Helper()
		n, err := h.s.ForgetRecords(ctx, h.epoch, before, limit)
		h.must(err)
		h.equal("forgotten", n, want)
	}
	forget(10, 9, 0)
	forget(35, 2, 2)
	h.noRecord(recordKey("2"))
	h.noRecord(recordKey("3"))
	h.record(recordKey("1"))
	forget(35, 0, 0)
	forget(35, 2, 1)
	forget(1<<60, 9, 1)
	h.record(recordKey("0"))
}

// Of two writers that hold the same revision one wins, and none of its writes is lost.
func recordRaces(h *harness) {
	const writers, writes = 4, 50
	key, beside := recordKey("counter"), recordKey("beside")
	h.put(1, store.Record{RecordKey: key, Data: []byte{0}})
	var mu sync.Mutex
	lost := 0
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < writes; {
				r, err := h.s.Record(ctx, key)
				if err != nil {
					h.Error(err)
					return
				}
				r.Data[0]++
				_, err = h.s.PutRecords(ctx, h.epoch, 1, []store.RecordChange{{Record: r}, {Record: store.Record{RecordKey: beside, Revision: store.AnyRevision, Data: r.Data}}})
				switch {
				case err == nil:
					done++
				case errors.Is(err, fault.Conflict):
					mu.Lock()
					lost++
					mu.Unlock()
				default:
					h.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	h.equal("counted", h.record(key).Data, []byte{writers * writes})
	h.equal("written with it", h.record(beside).Data, []byte{writers * writes})
	h.Logf("%d writes were refused", lost)
}

// What was written is there after a crash, nothing else is, and no revision comes again.
func recordsSurvive(h *harness, d Disk) {
	var changes []store.RecordChange
	for n := range 20 {
		changes = append(changes, store.RecordChange{Record: store.Record{RecordKey: recordKey(fmt.Sprint(n)), Name: fmt.Sprint("name", n), Until: int64(n), Data: []byte{byte(n)}}})
	}
	_, err := h.s.PutRecords(ctx, h.epoch, 7, changes)
	h.must(err)
	begin := h.start(key("a"), 1)
	begin.Records, begin.RecordsAt = []store.RecordChange{written("of a run", "data"), erased("3")}, 8
	h.commit(begin)
	last := h.put(8, store.Record{RecordKey: recordKey("last")})
	h.drop(recordKey("last"))
	for round := range 4 {
		if round%2 == 0 {
			h.reopen(d.Crash(h.T, h.s))
		} else {
			h.must(h.s.Close())
			h.reopen(d.Reopen(h.T, h.s))
		}
		h.noRecord(recordKey("3"))
		h.noRecord(recordKey("last"))
		h.equal("of a run", h.record(recordKey("of a run")).Data, []byte("data"))
		for n := range 20 {
			if n == 3 {
				continue
			}
			r, err := h.s.RecordNamed(ctx, "acme", "recipe", fmt.Sprint("name", n))
			h.must(err)
			h.equal("record", []any{r.ID, r.Until, r.Created, r.Data}, []any{fmt.Sprint(n), int64(n), int64(7), []byte{byte(n)}})
		}
		next := h.put(9, store.Record{RecordKey: recordKey("last")})
		if next.Revision <= last.Revision {
			h.Fatalf("round %d: revision %d comes after %d", round, next.Revision, last.Revision)
		}
		last = next
		h.drop(recordKey("last"))
	}
	h.holds(key("a"), 1)
}

// written and erased are changes of a record as transitions have them.
func written(id, data string) store.RecordChange {
	return store.RecordChange{Record: store.Record{RecordKey: recordKey(id), Revision: store.AnyRevision, Data: []byte(data)}}
}

func erased(id string) store.RecordChange {
	return store.RecordChange{Delete: true, Record: store.Record{RecordKey: recordKey(id), Revision: store.AnyRevision}}
}

// The records of a transition change with its events, in their order, or not at all.
func recordsOfTransitions(h *harness) {
	first := h.put(1, store.Record{RecordKey: recordKey("a"), Data: []byte("before")})
	begin := h.start(key("run"), 2)
	begin.Records, begin.RecordsAt = []store.RecordChange{written("a", "one"), erased("none"), written("b", "two"), erased("b"), written("c", "three")}, 7
	h.commit(begin)
	a, c := h.record(recordKey("a")), h.record(recordKey("c"))
	h.equal("replaced", []any{a.Data, a.Created, a.Updated, a.Revision > first.Revision}, []any{[]byte("one"), int64(1), int64(7), true})
	h.equal("new", []any{c.Data, c.Created, c.Updated, c.Revision > a.Revision}, []any{[]byte("three"), int64(7), int64(7), true})
	h.noRecord(recordKey("b"))

	late := h.next(key("run"), 9, 9)
	late.Records = []store.RecordChange{erased("a")}
	h.refused(fault.Conflict, late)
	stale := h.next(key("run"), 3, 3)
	stale.Epoch, stale.Records = h.epoch-1, []store.RecordChange{erased("a")}
	h.refused(fault.StaleEpoch, stale)
	h.equal("kept", h.record(recordKey("a")), a)

	alone := store.Transition{Key: key("run"), Epoch: h.epoch, Records: []store.RecordChange{erased("a"), written("d", "four")}, RecordsAt: 8}
	more := h.next(key("run"), 3, 4)
	more.Records, more.RecordsAt = []store.RecordChange{written("c", "five")}, 9
	h.commit(alone, more)
	h.noRecord(recordKey("a"))
	d := h.record(recordKey("d"))
	h.equal("without events", []any{d.Data, d.Created}, []any{[]byte("four"), int64(8)})
	c = h.record(recordKey("c"))
	h.equal("again", []any{c.Data, c.Created, c.Updated, c.Revision > d.Revision}, []any{[]byte("five"), int64(7), int64(9), true})
	h.holds(key("run"), 4)
}
