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
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/format"
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
	account *ledger.Account
	stored  uint64 // number of the entry after which the state was last stored
}

// due reports whether the state is to be stored again.
func (b *cachedAccount) due() bool {
	return b.account.Seq()-b.stored >= uint64(max(minEntries, (b.account.Size()+b.account.Days())/2))
}

// writeEntries checks the entries of a transition and writes them. A refused transition
// has written nothing.
func (s *Store) writeEntries(t *store.Transition) (store.Verdict, error) {
	b, err := s.cachedAccount(t.Account)
	if errors.Is(err, fault.StoreCorrupt) {
		return store.Verdict{Err: err}, nil
	}
	if err != nil {
		return store.Verdict{}, err
	}
	n := b.account.Seq()
	at := b.account.At()
	v, err := store.AdmitEntries(t, b.account, func(key string) (bool, error) {
		var seq [1]driver.Value
		return s.st.findEntry.row(seq[:], t.Account, key)
	})
	if err != nil || v.Err != nil {
		return v, err
	}
	for _, e := range t.Entries {
		n++
		at = max(at, e.At)
		s.entry = e.Append(s.entry[:0])
		if err := s.write(s.st.putEntry, t.Account, int64(n), e.Key, at, s.entry,
			format.Sum(t.Account, int64(n), e.Key, at, s.entry)); err != nil {
			return store.Verdict{}, err
		}
		s.c.bytes += int64(len(s.entry) + 2*len(e.Key))
	}
	if !b.due() {
		return store.Verdict{}, nil
	}
	state := b.account.AppendState(nil)
	b.stored = n
	s.c.bytes += int64(len(state))
	return store.Verdict{}, s.write(s.st.putAccount, t.Account, at, int64(n), state, format.Sum(t.Account, at, int64(n), state))
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
	b := &cachedAccount{a, stored}
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
	err = s.eachEntry(ctx, account, a.Seq(), -1, func(r *entryRow) error {
		if r.at > at {
			return errEnough
		}
		return r.apply(a, account)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return a, uint64(r.seq), err
}

// Entries implements store.Store.
func (s *Store) Entries(ctx context.Context, account string, after uint64, limit int) (entries []*ledger.Entry, err error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, err
	}
	err = s.eachEntry(ctx, account, after, max(limit, 0), func(r *entryRow) error {
		after++
		if r.seq != int64(after) {
			return missingEntry(account, after)
		}
		e, err := r.entry(account)
		entries = append(entries, e)
		return err
	})
	_, err = s.explain(err)
	return entries, err
}

// MeteredAccounts returns the accounts that have entries, sorted.
func (s *Store) MeteredAccounts(ctx context.Context) ([]string, error) {
	return s.texts(ctx, s.t.meteredAccounts)
}

// Entry implements store.Store.
func (s *Store) Entry(ctx context.Context, account, key string) (*ledger.Entry, uint64, error) {
	if err := s.isOpen(ctx); err != nil {
		return nil, 0, err
	}
	var r entryRow
	err := r.read(s.read.QueryRowContext(ctx, s.t.entryOf, account, key), account)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, nil
	}
	if err == nil {
		var e *ledger.Entry
		if e, err = r.entry(account); err == nil {
			return e, uint64(r.seq), nil
		}
	}
	_, err = s.explain(err)
	return nil, 0, err
}

// eachEntry calls fn for the rows of an account's entries after a number, in order, at
// most limit; -1 = all.
func (s *Store) eachEntry(ctx context.Context, account string, after uint64, limit int, fn func(*entryRow) error) error {
	rows, err := s.read.QueryContext(ctx, s.t.entriesAfter, account, int64(after), limit)
	if err != nil {
		return err
	}
	var r entryRow
	return eachRow(rows, func() error {
		if err := r.read(rows, account); err != nil {
			return err
		}
		return fn(&r)
	})
}

// A scanner is a row of a query.
type scanner interface{ Scan(dst ...any) error }

// An entryRow is a row of the table ledger.
type entryRow struct {
	seq  int64
	key  string
	at   int64 // when it was recorded
	data []byte
	sum  int64
}

// read reads the next row of a query and checks it.
func (r *entryRow) read(row scanner, account string) error {
	if err := row.Scan(&r.seq, &r.key, &r.at, &r.data, &r.sum); err != nil {
		return err
	}
	if r.sum != format.Sum(account, r.seq, r.key, r.at, r.data) {
		return damagedRow(fmt.Sprintf("entry %d of account %q", r.seq, account), "entry")
	}
	return nil
}

func (r *entryRow) entry(account string) (*ledger.Entry, error) {
	e, err := ledger.DecodeEntry(r.key, r.data)
	if err != nil {
		return nil, fault.Wrap(fault.StoreCorrupt, err, "entry %d of account %q cannot be read: %v", r.seq, account, err)
	}
	return e, nil
}

// apply applies the entry to the account that those before it have led to.
func (r *entryRow) apply(a *ledger.Account, account string) error {
	if r.seq != int64(a.Seq()+1) {
		return missingEntry(account, a.Seq()+1)
	}
	e, err := r.entry(account)
	if err != nil {
		return err
	}
	if err := a.Apply(e); err != nil {
		return fault.Wrap(fault.StoreCorrupt, err, "entry %d of account %q does not fit those before it: %s", r.seq, account, fault.Message(err))
	}
	if a.At() != r.at {
		return fault.New(fault.StoreCorrupt, "entry %d of account %q was recorded at %d, those before it say %d", r.seq, account, r.at, a.At())
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
