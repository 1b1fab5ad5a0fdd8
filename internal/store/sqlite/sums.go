// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"modernc.org/sqlite"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
)

// registerSum makes format.Sum a function of SQL, for statements that write or compare
// checksums, format.EntryRow one for a migration, and one that reports whether a blob
// can be read.
var registerSum = sync.OnceValue(func() error {
	err := sqlite.RegisterDeterministicScalarFunction("roux_sum", -1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		return format.SumAll(args), nil
	})
	err = errors.Join(err, sqlite.RegisterDeterministicScalarFunction("roux_blob", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		blob, _ := args[0].([]byte)
		_, err := format.DecodeBlob(blob)
		return err == nil, nil
	}))
	return errors.Join(err, sqlite.RegisterDeterministicScalarFunction("roux_entry_row", 2, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		key, _ := args[0].(string)
		entry, _ := args[1].([]byte)
		return format.EntryRow(key, entry), nil
	}))
})

// writeHead updates the columns of a new head, the number of the last event and, if
// that is new, where the first events are. A damaged run gets no events, so its row
// keeps what it records of them.
func (s *Store) writeHead(e *entry, h *store.Head, last uint64, at location) error {
	k := format.NewRowSum(e.key)
	defer k.Done()
	args := append(make([]driver.Value, 0, 17),
		h.Status, h.Updated, string(h.Code), h.Message, h.Used, format.Flag(h.Failures), h.Quarantine, k.Head(h))
	q := s.st.putHead
	switch {
	case e.damage != nil:
		q = s.st.putHeadAlone
	case at.first != nil:
		q = s.st.putHeadPlace
	case e.newOpen && h.Ended == 0 && !h.Owes:
		q = s.st.putOpenHead
	}
	if q != s.st.putOpenHead {
		args = append(args, h.Ended, format.Flag(h.Owes))
	}
	if q != s.st.putHeadAlone {
		args = append(args, int64(last), k.Reach(int64(last)))
	}
	if q == s.st.putHeadPlace {
		args = append(args, at.first, at.reach, at.sum)
	}
	return s.write(q, append(args, e.key.Account, e.key.Run)...)
}

// hide writes that a user deleted the run of a transition.
func (s *Store) hide(t *store.Transition) error {
	if err := s.begin(); err != nil {
		return err
	}
	s.c.rows++
	h := *t.Head
	h.Key = t.Key
	return s.marks.Hide(&h)
}

// A headRow is a head as it is stored.
type headRow struct {
	store.Head
	failures, owes    int64 // as stored, where only 0 and 1 are right
	startSum, headSum int64
	mark              []byte
}

// check completes a head and reports damage of it.
func (r *headRow) check() error {
	r.Failures, r.Owes = r.failures != 0, r.owes != 0
	switch {
	case r.startSum != format.StartSum(r.Key, &r.Head):
		return damagedHead(r.Key, "recipe, version, plan, tree or time of creation")
	case r.headSum != format.HeadSum(r.Key, &r.Head), r.failures != format.Flag(r.Failures), r.owes != format.Flag(r.Owes):
		return damagedHead(r.Key, "status, times or outcome")
	case format.DecodeMark(r.mark, &r.Head) != nil:
		return damagedHead(r.Key, "labels or deletion")
	}
	return nil
}

// orDamage returns the head, or its key and damage.
func (r *headRow) orDamage() store.Head {
	if err := r.check(); err != nil {
		return store.Head{Key: r.Key, Damage: fault.Message(err)}
	}
	return r.Head
}

func damagedHead(key store.Key, what string) error {
	return damagedRow(fmt.Sprintf("run %q (account %q)", key.Run, key.Account), what)
}

func damagedRow(row, what string) error {
	return fault.New(fault.StoreCorrupt, "%s: the stored %s failed the checksum: `roux doctor` checks the rest, and a backup has the whole", row, what)
}
