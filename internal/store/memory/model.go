// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"slices"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
)

// A model is the content of a disk.
type model struct {
	epoch uint64
	runs  map[store.Key]*run
	plans map[string][]byte
	keys  map[store.Key]used // by account and idempotency key
	// names are the runs that name a file, by account and hash. released is the latest
	// time at which a deleted run that named the file had ended.
	names    map[store.Key]map[string]struct{}
	released map[store.Key]int64
	notes    map[string][]byte
	accounts map[string]*accountRecord // replaced, never changed
	feeds    map[string]feedRecord
	records  map[store.RecordKey]store.Record
	revision uint64 // the last one given to a record
	// undo, when not nil, collects functions that revert what apply did.
	undo []func()

	// size and events count what no chunk covers. queue holds the runs that have such
	// events, oldest first, with stale entries between them.
	size, events int64
	seq          uint64
	queue        []queued
}

// A queued entry is stale once the oldest uncompacted record of its run is no longer seq.
type queued struct {
	key store.Key
	seq uint64
}

type used struct {
	run      string
	bodyHash string
	until    int64
}

// An accountRecord is an account with its entries. It is not changed once it is in the
// model.
type accountRecord struct {
	account *ledger.Account
	entries []*ledger.Entry
	times   []int64 // when each was recorded
}

type run struct {
	head       store.Head
	last       uint64
	chunks     []record
	tail       []record // not covered by a chunk
	format     uint32
	state      []byte
	stateAt    uint64
	suspension *store.Suspension
	damaged    bool
}

// A record is frames that hold the events first..last.
type record struct {
	first, last uint64
	frames      []byte
	seq         uint64 // when it was written, over all runs
}

func newModel() *model {
	return &model{
		runs:  map[store.Key]*run{},
		plans: map[string][]byte{},
		keys:  map[store.Key]used{},
		names: map[store.Key]map[string]struct{}{}, released: map[store.Key]int64{},
		notes: map[string][]byte{}, accounts: map[string]*accountRecord{}, feeds: map[string]feedRecord{},
		records: map[store.RecordKey]store.Record{},
	}
}

func (r *run) chunked() uint64 {
	if n := len(r.chunks); n > 0 {
		return r.chunks[n-1].last
	}
	return 0
}

// guard checks whether t may be applied to the model as it is now.
func (m *model) guard(t *store.Transition) store.Verdict {
	if err := store.Fenced(t.Epoch, m.epoch); err != nil {
		return store.Verdict{Err: err}
	}
	var standing store.Standing
	if r := m.runs[t.Key]; r != nil {
		standing = r
	}
	if v := store.Admit(t, standing); v.Err != nil {
		return v
	}
	if id := t.Idempotency; id != nil {
		if u, ok := m.keys[store.Key{Account: t.Account, Run: id.Key}]; ok {
			return id.Taken(u.run, u.bodyHash)
		}
		if id.Refusal != nil {
			return store.Verdict{Err: id.Refusal}
		}
	}
	if len(t.Entries) > 0 {
		b := m.account(t.Account)
		v, _ := store.AdmitEntries(t, b.account.Clone(), func(key string) (bool, error) { return b.has(key), nil })
		return v
	}
	return store.Verdict{}
}

func (m *model) account(account string) *accountRecord {
	if b := m.accounts[account]; b != nil {
		return b
	}
	return &accountRecord{account: ledger.NewAccount()}
}

func (b *accountRecord) has(key string) bool {
	return slices.ContainsFunc(b.entries, func(e *ledger.Entry) bool { return e.Key == key })
}

// record returns the record with more entries, which fit.
func (b *accountRecord) record(entries []*ledger.Entry) *accountRecord {
	next := &accountRecord{account: b.account.Clone(), entries: slices.Clip(b.entries), times: slices.Clip(b.times)}
	for _, e := range entries {
		if err := next.account.Apply(e); err != nil {
			panic("memory: an entry that was admitted does not fit: " + err.Error())
		}
		next.entries = append(next.entries, e)
		next.times = append(next.times, next.account.At())
	}
	return next
}

// Ends implements store.Standing.
func (r *run) Ends() (last, chunked uint64) { return r.last, r.chunked() }

// Boundary implements store.Standing.
func (r *run) Boundary(event uint64) bool {
	return slices.ContainsFunc(r.tail, func(rec record) bool { return rec.last == event })
}

// Damage implements store.Standing.
func (r *run) Damage() error {
	if !r.damaged {
		return nil
	}
	return fault.New(fault.StoreCorrupt, "run %s: its stored events fail their checksum", r.head.Run)
}

// apply carries out a transition that passed its guards, and keeps its bytes.
func (m *model) apply(t *store.Transition) {
	r := m.runs[t.Key]
	m.remember(t, r)
	if len(t.Entries) > 0 {
		m.accounts[t.Account] = m.account(t.Account).record(t.Entries)
	}
	if len(t.Records) > 0 {
		_, _ = m.putRecords(t.RecordsAt, t.Records) // they have no guards
	}
	m.record(t.Account, store.AppendChanges(nil, t, uint64(len(m.account(t.Account).entries)-len(t.Entries)+1)))
	if t.Run == "" {
		return
	}
	if r == nil {
		r = &run{}
		m.runs[t.Key] = r
	}
	if t.Head != nil {
		old := r.head
		r.head = *t.Head
		r.head.Key = t.Key
		if r.last != 0 {
			r.head.Recipe, r.head.Version, r.head.PlanHash, r.head.Created = old.Recipe, old.Version, old.PlanHash, old.Created
			r.head.Root, r.head.Parent, r.head.Labels = old.Root, old.Parent, old.Labels
			r.head.Deleted = max(r.head.Deleted, old.Deleted)
		}
	}
	for _, p := range t.Plans {
		if m.plans[p.Key] == nil {
			m.plans[p.Key] = p.Data
		}
	}
	if t.Idempotency != nil {
		m.keys[store.Key{Account: t.Account, Run: t.Idempotency.Key}] = used{
			run: t.Run, bodyHash: t.Idempotency.BodyHash, until: t.Idempotency.Until,
		}
	}
	for _, hash := range t.Files {
		m.name(store.Key{Account: t.Account, Run: hash}, t.Run)
	}
	if t.Last != 0 {
		m.seq++
		m.size += int64(len(t.Frames))
		m.events += int64(t.Last - t.First + 1)
		r.tail = append(r.tail, record{t.First, t.Last, t.Frames, m.seq})
		if len(r.tail) == 1 {
			m.queue = append(m.queue, queued{t.Key, m.seq})
		}
		r.last = t.Last
		r.suspension = nil
	}
	if f := t.Compaction; f != nil {
		r.chunks = append(r.chunks, record{f.First, f.Last, f.Chunk, 0})
		for len(r.tail) > 0 && r.tail[0].last <= f.Last {
			m.size -= int64(len(r.tail[0].frames))
			m.events -= int64(r.tail[0].last - r.tail[0].first + 1)
			r.tail = r.tail[1:]
		}
		if len(r.tail) > 0 {
			m.queue = append(m.queue, queued{t.Key, r.tail[0].seq})
		}
		if f.State != nil {
			r.format, r.state, r.stateAt = f.Format, f.State, f.Last
		}
	}
	if t.Suspension != nil {
		r.suspension = t.Suspension
	}
}

// remember records how to revert t. Slices only grow at the end or are cut at the
// front, so a copy of the struct is enough.
func (m *model) remember(t *store.Transition, r *run) {
	if m.undo == nil {
		return
	}
	key := t.Key
	size, events := m.size, m.events
	m.undo = append(m.undo, func() { m.size, m.events = size, events })
	if len(t.Entries) > 0 {
		account, old := t.Account, m.account(t.Account)
		m.undo = append(m.undo, func() { m.accounts[account] = old })
	}
	if r == nil {
		m.undo = append(m.undo, func() { delete(m.runs, key) })
	} else {
		old := *r
		m.undo = append(m.undo, func() { *r = old })
	}
	for _, p := range t.Plans {
		if _, ok := m.plans[p.Key]; ok {
			continue
		}
		m.undo = append(m.undo, func() { delete(m.plans, p.Key) })
	}
	if id := t.Idempotency; id != nil {
		k := store.Key{Account: t.Account, Run: id.Key}
		m.undo = append(m.undo, func() { delete(m.keys, k) })
	}
}

func (m *model) rollback() {
	for _, undo := range slices.Backward(m.undo) {
		undo()
	}
	m.undo = nil
}

// oldest returns the runs with uncompacted events, at most limit. It drops stale entries
// of the queue once they are most of it.
func (m *model) oldest(limit int) []store.Key {
	holds := func(q queued) bool {
		r := m.runs[q.key]
		return r != nil && len(r.tail) > 0 && r.tail[0].seq == q.seq
	}
	var keys []store.Key
	stale := 0
	for _, q := range m.queue {
		if len(keys) == limit {
			break
		}
		if holds(q) {
			keys = append(keys, q.key)
		} else {
			stale++
		}
	}
	if stale > len(keys) {
		m.queue = slices.DeleteFunc(m.queue, func(q queued) bool { return !holds(q) })
	}
	return keys
}
