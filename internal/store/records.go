// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/fault"
)

// Records keeps the small documents of the service: registered recipes, keys of the API,
// settings of accounts, webhooks, kept answers, sealed secrets. It never interprets the
// data of one. They have nothing to do with runs: a read of a record never waits for a
// commit, and a commit never looks at records.
type Records interface {
	// Record returns a record, or fault.RecordNotFound. If it is damaged the error is
	// fault.StoreCorrupt; other records stay readable. A record whose Until has passed is
	// returned until ForgetRecords removes it.
	Record(ctx context.Context, key RecordKey) (Record, error)

	// RecordNamed returns the record of the account and the kind that has the name, or
	// fault.RecordNotFound.
	RecordNamed(ctx context.Context, account, kind, name string) (Record, error)

	// Records returns the records that a query selects, in its order. more reports that
	// there are others behind them. A page ends early when its data reach MaxRecordsData,
	// so only more says whether it is the last one. A damaged record has Record.Damage set
	// and does not hide the others.
	Records(ctx context.Context, q RecordQuery) (page []Record, more bool, err error)

	// PutRecords makes changes of records durable in one transaction, all of them or none,
	// in their order, at time `at` (UTC µs). It returns each record as it is stored, with
	// the data of the change; of a deleted one only the key.
	//
	// fault.StaleEpoch: another engine owns the store. fault.Conflict: a guard failed or a
	// name is taken; a *RecordConflict in its chain has the details. fault.StoreCorrupt:
	// the record under a guard is damaged; a change with AnyRevision replaces or deletes
	// it. fault.ValueTooLarge and fault.InputInvalid: see [CheckRecords].
	PutRecords(ctx context.Context, epoch uint64, at int64, changes []RecordChange) ([]Record, error)

	// ForgetRecords deletes records whose Until is set and before `before`, the earliest
	// first, at most limit, and returns how many.
	ForgetRecords(ctx context.Context, epoch uint64, before int64, limit int) (int, error)
}

// The bounds of records.
const (
	MaxRecord        = 17 << 20 // bytes of the data of one: a recipe of 16 MiB fits
	MaxRecordText    = 1 << 10  // bytes of the account, the kind, the id and the name each
	MaxRecordChanges = 1_000    // in one call of PutRecords
	MaxRecordsData   = 64 << 20 // bytes of data in one call of PutRecords, and about those of a page
)

// AnyRevision is the guard of a change that does not depend on what is stored.
const AnyRevision = math.MaxUint64

// A RecordKey names a record. Account is "" for records of the operator, such as keys of
// the API, which are looked up before their account is known.
type RecordKey struct{ Account, Kind, ID string }

// A Record is a document as it is stored.
type Record struct {
	RecordKey
	// Revision identifies this content of the record. Every write gives the record a
	// larger one, which it never has again, also if it is deleted and created anew.
	Revision uint64
	Name     string // unique within account and kind; "" = it has none
	Until    int64  // UTC µs; afterwards ForgetRecords may delete it; 0 = kept
	Created  int64  // UTC µs; set by PutRecords, as is Updated
	Updated  int64
	Data     []byte // nil if it is empty
	// Damage is set by Records only. It says why only the key can be trusted; all other
	// fields are then empty.
	Damage string
}

// A RecordChange writes or deletes a record.
type RecordChange struct {
	// Record is what is to be stored. Its Revision is the guard: the revision that is
	// stored, 0 if there must be no such record, or AnyRevision.
	Record
	Delete bool
}

// A RecordQuery selects records of an account and a kind, in the order of their ids. A
// zero field does not restrict the selection further.
type RecordQuery struct {
	Account, Kind string
	Prefix        string // of the id
	// NamePrefix selects records that have a name by its beginning. If Named or NamesOnly is
	// set, or NamePrefix is, the order is that of the names.
	NamePrefix string
	Named      bool
	After      string // the id, or in the order of names the name, behind which the page begins
	Newest     bool   // in descending order: the newest first, where ids ascend with time
	Limit      int    // default 50, at most 500
	KeysOnly   bool   // without the data, which are then not read
	// NamesOnly selects by names, and returns nothing else of a record. They are those of the
	// index, so that of a damaged row the name may be wrong. The pages of EachRecord are larger.
	NamesOnly bool
}

// ByName reports whether the order is that of the names.
func (q *RecordQuery) ByName() bool { return q.Named || q.NamesOnly || q.NamePrefix != "" }

// maxNames is how many names a page has at most.
const maxNames = 1_000

// Cap returns how many records the query asks for.
func (q *RecordQuery) Cap() int {
	if q.NamesOnly && q.Limit > 0 {
		return min(q.Limit, maxNames)
	}
	return (&Query{Limit: q.Limit}).Cap()
}

// Range returns the ids, or in the order of names the names, that the query selects: those
// from low on and before high. An empty high is no limit.
func (q *RecordQuery) Range() (low, high string) {
	low, high = q.Prefix, PrefixEnd(q.Prefix)
	if q.ByName() {
		low, high = q.NamePrefix, PrefixEnd(q.NamePrefix)
	}
	switch {
	case q.After == "":
	case !q.Newest:
		low = max(low, q.After+"\x00")
	case high == "" || q.After < high:
		high = q.After
	}
	return low, high
}

// PrefixEnd returns the first string after all that begin with p, or "" when there is
// none. Strings compare by bytes.
func PrefixEnd(p string) string {
	b := []byte(p)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// A RecordConflict says which change was refused, and why.
type RecordConflict struct {
	Key    RecordKey
	Stored uint64 // the revision that is stored; 0 = there is no such record
	Holder string // the id of the record that has the name; "" = the revision is the reason
}

func (c *RecordConflict) Error() string {
	switch {
	case c.Holder != "":
		return fmt.Sprintf("the name of %s %q is that of %q", c.Key.Kind, c.Key.ID, c.Holder)
	case c.Stored == 0:
		return fmt.Sprintf("there is no %s %q", c.Key.Kind, c.Key.ID)
	}
	return fmt.Sprintf("%s %q has revision %d", c.Key.Kind, c.Key.ID, c.Stored)
}

// CheckRecords returns the error of changes that exceed a bound (fault.ValueTooLarge) or
// are no changes of records at all (fault.InputInvalid).
func CheckRecords(changes []RecordChange) error {
	if n := len(changes); n > MaxRecordChanges {
		return fault.New(fault.ValueTooLarge, "%d changes of records at once are too many: want at most %d", n, MaxRecordChanges)
	}
	total := 0
	for i := range changes {
		c := &changes[i]
		if c.Kind == "" || c.ID == "" {
			return fault.New(fault.InputInvalid, "change %d of a record: want a kind and an id", i)
		}
		for _, at := range []struct{ what, text string }{{"account", c.Account}, {"kind", c.Kind}, {"id", c.ID}, {"name", c.Name}} {
			switch {
			case len(at.text) > MaxRecordText:
				return fault.New(fault.ValueTooLarge, "%s of a record: %d bytes are too many: want at most %d", at.what, len(at.text), MaxRecordText)
			case !utf8.ValidString(at.text) || strings.Contains(at.text, "\x00"):
				return fault.New(fault.InputInvalid, "%s of a record: %q is no text in UTF-8", at.what, at.text)
			}
		}
		if n := len(c.Data); n > MaxRecord {
			return fault.New(fault.ValueTooLarge, "%s %q: %d bytes are too many: want at most %d", c.Kind, c.ID, n, MaxRecord)
		}
		total += len(c.Data)
	}
	if total > MaxRecordsData {
		return fault.New(fault.ValueTooLarge, "%d bytes of records at once are too many: want at most %d", total, MaxRecordsData)
	}
	return nil
}

// AdmitRecord returns why a change may not be made, or nil. stored is the revision that
// is stored, 0 if there is none, and holder the id of another record that has the name.
func AdmitRecord(c *RecordChange, stored uint64, holder string) error {
	conflict := &RecordConflict{Key: c.RecordKey, Stored: stored}
	switch {
	case c.Revision == AnyRevision || c.Revision == stored:
		if holder == "" {
			return nil
		}
		conflict.Holder = holder
		return fault.Wrap(fault.Conflict, conflict, "the name %q is that of %s %q: choose another one", c.Name, c.Kind, holder)
	case c.Revision == 0:
		return fault.Wrap(fault.Conflict, conflict, "there is a %s %q already", c.Kind, c.ID)
	case stored == 0:
		return fault.Wrap(fault.Conflict, conflict, "there is no %s %q any more", c.Kind, c.ID)
	}
	return fault.Wrap(fault.Conflict, conflict, "%s %q has changed: its revision is %d, not %d; read it again", c.Kind, c.ID, stored, c.Revision)
}

// NoRecord returns the error of a record that is not stored.
func NoRecord(kind, id string) error { return fault.New(fault.RecordNotFound, "no %s %q", kind, id) }

// A RecordLister lists records as Records does.
type RecordLister interface {
	Records(ctx context.Context, q RecordQuery) (page []Record, more bool, err error)
}

// EachRecord calls fn for the records that a query selects, page by page. It ignores the
// query's Limit.
func EachRecord(ctx context.Context, r RecordLister, q RecordQuery, fn func(*Record) error) error {
	q.Limit = 500
	if q.NamesOnly {
		q.Limit = maxNames
	}
	for {
		page, more, err := r.Records(ctx, q)
		if err != nil {
			return err
		}
		for i := range page {
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
		last := &page[len(page)-1]
		if q.After = last.ID; q.ByName() {
			if last.Damage != "" { // its name is lost, so the next page cannot be asked for
				return fault.New(fault.StoreCorrupt, "%s %q: %s", last.Kind, last.ID, last.Damage)
			}
			q.After = last.Name
		}
	}
}

// Damaged returns the error of a record of which only the key can be read, or nil.
func (r *Record) Damaged() error {
	if r.Damage == "" {
		return nil
	}
	return fault.New(fault.StoreCorrupt, "the record %s cannot be read: %s", r.ID, r.Damage)
}

// ChangeOf returns the change that makes a record have a value, as JSON.
func ChangeOf(key RecordKey, name string, revision uint64, v any) (RecordChange, error) {
	data, err := json.Marshal(v)
	return RecordChange{Record: Record{RecordKey: key, Name: name, Revision: revision, Data: data}}, err
}

// Deletion returns the change that deletes a record, whatever its revision is.
func Deletion(key RecordKey) RecordChange {
	return RecordChange{Record: Record{RecordKey: key, Revision: AnyRevision}, Delete: true}
}

// DecodeRecord returns the data of a record, which is JSON. The error is fault.StoreCorrupt.
func DecodeRecord[T any](r *Record) (*T, error) {
	if err := r.Damaged(); err != nil {
		return nil, err
	}
	out := new(T)
	if err := json.Unmarshal(r.Data, out); err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "the record %s cannot be read: %v", r.ID, err)
	}
	return out, nil
}
