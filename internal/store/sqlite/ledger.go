// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/failpoint"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
	"github.com/roux-engine/roux/internal/store/sqlite/conn"
)

// The state of an account is stored again after so many entries, and after at least half
// as many as it has lots and holds and remembers days. Reading an account reads one state
// and fewer entries than that, and the states take less than 100 bytes an entry.
const minEntries = 256

// maxCached bounds how many accounts are kept in memory for the next commit.
const maxCached = 10_000

// A cachedAccount is an account after the commits so far and the transitions that the
// one under way has accepted. After a failed commit it must be read again.
type cachedAccount struct {
	name    string
	account *ledger.Account
	stored  uint64          // number of the entry after which the state was last stored
	row     *format.Entries // of the commit under way, or nil
}

// due reports whether the state is to be stored again.
func (b *cachedAccount) due() bool {
	return b.account.Seq()-b.stored >= uint64(max(minEntries, (b.account.Size()+b.account.Days())/2))
}

// admitEntries checks the entries of a transition, and adds them to the account's row of
// this commit. A refused transition has changed nothing.
func (s *Store) admitEntries(t *store.Transition) (store.Verdict, error) {
	b, err := s.cachedAccount(t.Account)
	if errors.Is(err, fault.StoreCorrupt) {
		return store.Verdict{Err: err}, nil
	}
	if err != nil {
		return store.Verdict{}, err
	}
	n := b.account.Seq()
	v, err := store.AdmitEntries(t, b.account, func(key string) (bool, error) {
		var seq [1]driver.Value
		return s.st.findEntry.Row(seq[:], t.Account, key)
	})
	if err != nil || v.Err != nil {
		return v, err
	}
	if b.row == nil {
		b.row = s.c.entryRows.Next()
		s.c.accounts = append(s.c.accounts, b)
	}
	for i, e := range t.Entries {
		if err := failpoint.Hit(failpoint.EntryWrite); err != nil {
			return store.Verdict{}, err
		}
		n++
		b.row.Add(e)
		if store.KeyFollows(t, i) {
			continue
		}
		if err := s.write(s.st.putKeyOfEntry, t.Account, e.Key, int64(n), format.Sum(t.Account, e.Key, int64(n))); err != nil {
			return store.Verdict{}, err
		}
		s.c.bytes += int64(len(e.Key))
	}
	return store.Verdict{}, nil
}

// writeEntries writes the rows of entries of the commit, and the states that are due.
func (s *Store) writeEntries() error {
	for _, b := range s.c.accounts {
		last, at, data := int64(b.account.Seq()), b.account.At(), b.row.Data()
		first := last - int64(b.row.Len()) + 1
		if err := s.write(s.st.putEntries, b.name, first, last, at, data, format.LedgerSum(b.name, first, last, at, data)); err != nil {
			return err
		}
		s.c.bytes += int64(len(data))
		if !b.due() {
			continue
		}
		state := b.account.AppendState(nil)
		b.stored = uint64(last)
		s.c.bytes += int64(len(state))
		if err := s.write(s.st.putAccount, b.name, at, last, state, format.Sum(b.name, at, last, state)); err != nil {
			return err
		}
	}
	return nil
}

// forgetEntries ends the rows of entries.
func (c *commit) forgetEntries() {
	for _, b := range c.accounts {
		b.row = nil
	}
	c.entryRows.Release()
	clear(c.accounts)
	c.accounts = c.accounts[:0]
}

// cachedAccount returns an account for the commit under way.
func (s *Store) cachedAccount(account string) (*cachedAccount, error) {
	if b := s.accounts[account]; b != nil {
		return b, nil
	}
	// This commit has written no entry of the account yet, so a reader sees all of them.
	a, stored, err := s.readAccount(context.Background(), account, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	b := &cachedAccount{name: account, account: a, stored: stored}
	s.accounts[account] = b
	return b, nil
}

// trimAccounts bounds the memory of accounts between commits.
func (s *Store) trimAccounts() {
	for account := range s.accounts {
		if len(s.accounts) <= maxCached {
			return
		}
		delete(s.accounts, account)
	}
}

// Account implements store.Store.
func (s *Store) Account(ctx context.Context, account string, at int64) (*ledger.Account, error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	a, _, err := s.readAccount(ctx, account, at)
	_, err = s.explain(err)
	return a, err
}

// readAccount reads the account as of a time, and after which entry its state was
// stored.
func (s *Store) readAccount(ctx context.Context, account string, at int64) (a *ledger.Account, stored uint64, err error) {
	a = ledger.NewAccount()
	var r stateRow
	switch err := r.scan(s.read.QueryRowContext(ctx, s.t.accountAt, account, at)); {
	case err == nil:
		if a, err = r.account(account); err != nil {
			return nil, 0, err
		}
	case !errors.Is(err, sql.ErrNoRows):
		return nil, 0, err
	}
	err = s.eachEntry(ctx, account, a.Seq(), func(e *ledger.Entry, _ uint64) error {
		if max(a.At(), e.At) > at {
			return conn.ErrEnough
		}
		return applyEntry(a, e, account)
	})
	if errors.Is(err, conn.ErrEnough) {
		err = nil
	}
	return a, uint64(r.seq), err
}

// Entries implements store.Store.
func (s *Store) Entries(ctx context.Context, account string, after uint64, limit int) (entries []*ledger.Entry, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	err = s.eachEntry(ctx, account, after, func(e *ledger.Entry, _ uint64) error {
		if entries = append(entries, e); len(entries) == limit {
			return conn.ErrEnough
		}
		return nil
	})
	if errors.Is(err, conn.ErrEnough) {
		err = nil
	}
	_, err = s.explain(err)
	return entries, err
}

// HeadsAfter returns the next heads of an account in the order of their ids, and none
// after the last. A damaged one has its Damage set.
func (s *Store) HeadsAfter(ctx context.Context, account, after string) (heads []store.Head, err error) {
	if err := s.flushDeferred(ctx); err != nil {
		return nil, err
	}
	heads, err = conn.List(ctx, s.read, func(rows *sql.Rows, h *store.Head) error {
		var r headRow
		err := rows.Scan(headPlaces(&r)...)
		*h = r.orDamage()
		return err
	}, s.t.headsAfter, account, after)
	_, err = s.explain(err)
	return heads, err
}

// MeteredAccounts returns the accounts that have entries, sorted.
func (s *Store) MeteredAccounts(ctx context.Context) ([]string, error) {
	return s.texts(ctx, s.t.meteredAccounts)
}

// Entry implements store.Store.
func (s *Store) Entry(ctx context.Context, account, key string) (found *ledger.Entry, seq uint64, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, 0, err
	}
	var n, sum int64
	err = s.read.QueryRowContext(ctx, s.t.entryOf, account, key).Scan(&n, &sum)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, nil
	}
	if err == nil && sum != format.Sum(account, key, n) {
		err = damagedRow(fmt.Sprintf("key %q of account %q", key, account), "number of its entry")
	}
	if err == nil {
		err = s.eachEntry(ctx, account, uint64(n)-1, func(e *ledger.Entry, n uint64) error {
			found, seq = e, n
			return conn.ErrEnough
		})
		if errors.Is(err, conn.ErrEnough) {
			err = nil
		}
	}
	if err == nil && (found == nil || found.Key != key) {
		err = missingEntry(account, uint64(n))
	}
	if _, err = s.explain(err); err != nil {
		return nil, 0, err
	}
	return found, seq, nil
}

// eachEntry calls fn for an account's entries after a number, in order, with their
// numbers, until it returns an error. A row that is missing or damaged is an error.
func (s *Store) eachEntry(ctx context.Context, account string, after uint64, fn func(e *ledger.Entry, n uint64) error) error {
	rows, err := s.read.QueryContext(ctx, s.t.entriesAfter, account, int64(min(after, math.MaxInt64)))
	if err != nil {
		return err
	}
	last, begun := int64(min(after, math.MaxInt64)), false
	var r entryRow
	return conn.EachRow(rows, func() error {
		if err := r.scan(rows); err != nil {
			return err
		}
		if err := r.check(account, last); err != nil {
			return err
		}
		if begun && r.first != last+1 {
			return fault.New(fault.StoreCorrupt, "account %q has entry %d twice", account, r.first)
		}
		begun = true
		n := r.first - 1
		at := int64(math.MinInt64)
		var stopped error
		err := format.EachEntry(r.data, r.last-n, func(e *ledger.Entry) error {
			n++
			if at = max(at, e.At); n > last {
				stopped = fn(e, uint64(n))
			}
			return stopped
		})
		switch {
		case stopped != nil:
			return stopped
		case err != nil:
			return fault.Wrap(fault.StoreCorrupt, err, "entries %d to %d of account %q cannot be read: %v", r.first, r.last, account, err)
		case at > r.at:
			return fault.New(fault.StoreCorrupt, "entries %d to %d of account %q were recorded by %d, one of them says %d", r.first, r.last, account, r.at, at)
		}
		last = r.last
		return nil
	})
}

// A scanner is a row of a query.
type scanner interface{ Scan(dst ...any) error }

// An entryRow is a row of the table ledger: the entries of one commit.
type entryRow struct {
	first, last int64
	at          int64 // when the last of them was recorded
	data        []byte
	sum         int64
}

func (r *entryRow) scan(row scanner) error {
	return row.Scan(&r.first, &r.last, &r.at, &r.data, &r.sum)
}

// check reports damage of the row, and a gap between it and the entry before it.
func (r *entryRow) check(account string, after int64) error {
	switch {
	case r.sum != format.LedgerSum(account, r.first, r.last, r.at, r.data):
		return damagedRow(fmt.Sprintf("entries of account %q up to %d", account, r.last), "row")
	case r.first > after+1:
		return missingEntry(account, uint64(after)+1)
	case r.first < 1 || r.first > r.last || r.last-r.first > int64(len(r.data)):
		return fault.New(fault.StoreCorrupt, "a row of account %q cannot have the entries %d to %d", account, r.first, r.last)
	}
	return nil
}

// applyEntry applies an entry to the account that those before it have led to.
func applyEntry(a *ledger.Account, e *ledger.Entry, account string) error {
	n := a.Seq() + 1
	if err := a.Apply(e); err != nil {
		return fault.Wrap(fault.StoreCorrupt, err, "entry %d of account %q does not fit those before it: %s", n, account, fault.Message(err))
	}
	return nil
}

func missingEntry(account string, n uint64) error {
	return fault.New(fault.StoreCorrupt, "entry %d of account %q is missing: `roux doctor` checks the rest, and a backup has the whole", n, account)
}

// A stateRow is a row of the table ledger_states.
type stateRow struct {
	at, seq int64
	state   []byte
	sum     int64
}

func (r *stateRow) scan(row scanner) error { return row.Scan(&r.at, &r.seq, &r.state, &r.sum) }

func (r *stateRow) account(account string) (*ledger.Account, error) {
	what := fmt.Sprintf("account %q after entry %d", account, r.seq)
	if r.sum != format.Sum(account, r.at, r.seq, r.state) {
		return nil, damagedRow(what, "state")
	}
	a, err := ledger.DecodeState(r.state)
	switch {
	case err != nil:
		return nil, fault.Wrap(fault.StoreCorrupt, err, "%s cannot be read: %v", what, err)
	case a.Seq() != uint64(r.seq) || a.At() != r.at:
		return nil, fault.New(fault.StoreCorrupt, "%s: the stored state is one after entry %d", what, a.Seq())
	}
	return a, nil
}
