// SPDX-License-Identifier: Apache-2.0

package records

import (
	"database/sql/driver"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/catalog"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

const (
	// Skipped is how many revisions are left out when the last ones may be lost: more than
	// any log can hold, so none of them is used twice.
	Skipped = 100_000_000

	// reserved is how many revisions are recorded as used at once, so that most writes of
	// records do not write their number, too.
	reserved = 1_000
)

// writer is the state of the store's writer.
type writer struct {
	st struct {
		find, findName, insert, update, remove, forget *conn.Stmt
		last, largest, putLast                         *conn.Stmt
	}
	numbers
	before numbers // as they were when Begin was called
}

// numbers are which revisions were used.
type numbers struct {
	known    bool  // the others are
	last     int64 // the last that was given
	recorded int64 // the last that the table says may have been
}

func (w *writer) prepare(texts *catalog.Texts, c *conn.Writer) error {
	for _, q := range []struct {
		dst  **conn.Stmt
		name string
	}{
		{&w.st.find, "findRecord"}, {&w.st.findName, "findRecordName"}, {&w.st.insert, "insertRecord"}, {&w.st.update, "updateRecord"},
		{&w.st.remove, "deleteRecord"}, {&w.st.forget, "forgetRecords"},
		{&w.st.last, "lastRevision"}, {&w.st.largest, "largestRevision"}, {&w.st.putLast, "putLastRevision"},
	} {
		st, err := c.Prepare(texts.Text(q.name))
		if err != nil {
			return err
		}
		*q.dst = st
	}
	return nil
}

// Encode returns the data of changes as they are stored. It is called before the store is
// locked.
func Encode(changes []store.RecordChange) [][]byte {
	data := make([][]byte, len(changes))
	for i := range changes {
		if !changes[i].Delete {
			data[i] = format.EncodeBlob(changes[i].Data, true)
		}
	}
	return data
}

// Begin is called before the first Put of a transaction.
func (t *Table) Begin() { t.before = t.numbers }

// Put carries out changes in the transaction that is open, and returns the records as they
// are then; see [store.Records]. After an error the transaction must be rolled back, and
// Discard be called.
func (t *Table) Put(at int64, changes []store.RecordChange, data [][]byte) ([]store.Record, error) {
	stored := make([]store.Record, len(changes))
	for i := range changes {
		c, r := &changes[i], &stored[i]
		r.RecordKey = c.RecordKey
		if c.Delete {
			if err := t.remove(c); err != nil {
				return nil, err
			}
			continue
		}
		revision, err := t.next()
		if err != nil {
			return nil, err
		}
		*r = c.Record
		r.Revision, r.Created, r.Updated, r.Damage = uint64(revision), at, at, ""
		if err := t.put(c, r, data[i]); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// remove deletes the record of a change, if there is one.
func (t *Table) remove(c *store.RecordChange) error {
	if c.Revision != store.AnyRevision {
		if _, err := t.admit(c); err != nil {
			return err
		}
	}
	_, err := t.st.remove.Exec(c.Account, c.Kind, c.ID)
	return err
}

// put writes a record. Most are new, so it is only asked what is stored if the row cannot be
// inserted.
func (t *Table) put(c *store.RecordChange, r *store.Record, data []byte) error {
	if c.Revision == store.AnyRevision || c.Revision == 0 {
		n, err := t.write(t.st.insert, r, data)
		if err != nil || n == 1 {
			return err
		}
	}
	created, err := t.admit(c)
	if err != nil {
		return err
	}
	if created != 0 {
		r.Created = created
	}
	if n, err := t.write(t.st.update, r, data); err != nil || n == 1 {
		return err
	}
	return fault.New(fault.StoreCorrupt, "%s %q: an index has an entry that the table does not have: `roux doctor` checks the rest, and a backup has the whole", c.Kind, c.ID)
}

// write inserts or updates the row of a record, and returns how many rows that were.
func (t *Table) write(st *conn.Stmt, r *store.Record, data []byte) (int64, error) {
	return st.Exec(r.Account, r.Kind, r.ID, int64(r.Revision), r.Name, r.Until, r.Created, r.Updated, sumOf(r, int64(r.Revision)), data)
}

// admit checks the guards of a change. It returns when the record was created; 0 if there is none,
// or it is not known.
func (t *Table) admit(c *store.RecordChange) (created int64, err error) {
	var v [7]driver.Value // the columns of findRecord
	is, err := t.st.find.Row(v[:], c.Account, c.Kind, c.ID)
	if err != nil {
		return 0, err
	}
	old := row{Record: store.Record{RecordKey: c.RecordKey}}
	if is {
		old.ID, _ = v[0].(string)
		old.revision, _ = v[1].(int64)
		old.Name, _ = v[2].(string)
		old.Until, _ = v[3].(int64)
		old.Created, _ = v[4].(int64)
		old.Updated, _ = v[5].(int64)
		old.sum, _ = v[6].(int64)
		if old.decode(true) != nil {
			if c.Revision != store.AnyRevision {
				return 0, damaged(&c.RecordKey)
			}
			old.Record = store.Record{RecordKey: c.RecordKey}
		}
	}
	holder := ""
	if c.Name != "" && c.Name != old.Name && !c.Delete {
		var v [1]driver.Value
		if _, err := t.st.findName.Row(v[:], c.Account, c.Kind, c.Name); err != nil {
			return 0, err
		}
		if holder, _ = v[0].(string); holder == c.ID {
			holder = ""
		}
	}
	return old.Created, store.AdmitRecord(c, old.Revision, holder)
}

// next returns the revision of the next record.
func (t *Table) next() (int64, error) {
	if !t.known {
		if err := t.readLast(); err != nil {
			return 0, err
		}
	}
	if t.last == t.recorded {
		if _, err := t.st.putLast.Exec(t.last + reserved); err != nil {
			return 0, err
		}
		t.recorded = t.last + reserved
	}
	t.last++
	return t.last, nil
}

// readLast finds out from which revision on none was given.
func (t *Table) readLast() error {
	var v [1]driver.Value
	_, err := t.st.last.Row(v[:])
	if err != nil {
		return err
	}
	last, ok := v[0].(int64)
	if !ok || last < 0 { // the number is damaged
		if _, err = t.st.largest.Row(v[:]); err != nil {
			return err
		}
		if last, ok = v[0].(int64); !ok || last > 1<<62 {
			return fault.New(fault.StoreCorrupt, "the revisions of records are damaged: `roux doctor` checks the rest, and a backup has the whole")
		}
		last += Skipped
	}
	t.numbers = numbers{known: true, last: last, recorded: last}
	return nil
}

// Discard takes back what Put has done since Begin: its transaction has failed.
func (t *Table) Discard() { t.numbers = t.before }

// Reread is called after the table was written by others.
func (t *Table) Reread() { t.known = false }

// Forget deletes records in the order of their Until; see [store.Records].
func (t *Table) Forget(before int64, limit int) (int64, error) {
	return t.st.forget.Exec(before, int64(max(limit, 0)))
}
